use tokio::sync::mpsc;

use super::{convert, source};
use crate::config::{
    Types,
    source::{Source, Update},
};

/// Serves what a source of configuration has, files for example, to sinks, as messages of these types. What is broken, or cannot be
/// sent, is left out and reported; its neighbours go out. Goes on for as long as the source does.
pub async fn feed(server: source::Source, configuration: Box<dyn Source>, types: Types) {
    let (updates, mut arriving) = mpsc::channel(1);
    let serve = async {
        while let Some(update) = arriving.recv().await {
            take(&server, update, &types);
        }
    };
    tokio::join!(configuration.run(updates), serve);
}

fn take(server: &source::Source, update: Update, types: &Types) {
    let mut faults = update.faults;
    let served = update.changes.iter().map(|change| {
        let (change, unfit) = convert::of_update(types, change);
        faults.extend(unfit);
        change
    });
    let served: Vec<_> = served.collect();
    for fault in &faults {
        tracing::warn!(source = %update.source, "{fault}");
    }
    server.set_faults(faults);
    server.apply_all(&served);
    update.responder.ack();
}
