use mixer_adapter::adapter::{Faults, Settings};
use mixer_adapter::http::Uri;
use std::time::Duration;

use super::Params;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

struct Polling {
    url: Uri,
    interval: Duration,
    names: Vec<String>,
}

impl Settings for Polling {
    type Params = Params;

    fn parse(params: Params, faults: &mut Faults<'_>) -> Option<Self> {
        let interval = faults.duration("interval", params.interval).range(SECOND..=HOUR).or(30 * SECOND);
        faults.unique("tenants", "name", params.tenants.iter().map(|tenant| &tenant.name));
        let url = faults.url("url", &params.url).required()?;
        Some(Self { url, interval, names: params.tenants.into_iter().map(|tenant| tenant.name).collect() })
    }
}
