use tokio::{sync::mpsc, task::spawn_blocking};

use super::{convert, source};
use crate::{
    Types,
    source::{Source, Update},
};

/// Serves what a source of configuration has, files for example, to sinks, as messages of these types. What is broken, or cannot be
/// sent, is left out and reported; its neighbours go out. Goes on for as long as the source does.
pub async fn feed(server: source::ConfigServer, configuration: Box<dyn Source>, types: Types) {
    let (updates, mut arriving) = mpsc::channel(1);
    let serve = async {
        while let Some(update) = arriving.recv().await {
            let (server, types) = (server.clone(), types.clone());
            // A directory may be large.
            if let Err(error) = spawn_blocking(move || take(&server, update, &types)).await {
                tracing::error!(%error, "the configuration could not be taken in; please report this as a bug");
            }
        }
    };
    tokio::join!(configuration.run(updates), serve);
}

fn take(server: &source::ConfigServer, update: Update, types: &Types) {
    let mut faults = update.faults;
    let served = update.changes.iter().map(|change| {
        let (change, unfit) = convert::of_update(types, change);
        faults.extend(unfit);
        change
    });
    let served: Vec<_> = served.collect();
    let known = server.faults();
    for fault in faults.iter().filter(|fault| !known.contains(fault)) {
        tracing::warn!(source = %update.source, "{fault}");
    }
    server.set_faults(faults);
    server.apply_all(&served);
    update.responder.ack();
}
