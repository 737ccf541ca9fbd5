//! The attacks.

mod bursts;
mod configurations;
mod connections;
mod envoy;
pub(crate) mod pushes;
mod requests;
mod state;

use std::pin::Pin;

use self::bursts::Burst;
use crate::{server::Addresses, source::Protocol};

/// Something a client can send.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    /// How the server connects to the source of configuration from which it is attacked, if it is.
    pub(crate) source: Option<Protocol>,
    /// Whether clients need a token, which the attack does not have.
    pub(crate) needs_token: bool,
    /// Runs it, adds up the bytes of what it sends, and returns once everything is sent. What is to be held is held by tasks.
    pub(crate) run: for<'s> fn(Addresses, &'s mut u64) -> Running<'s>,
}

type Running<'s> = Pin<Box<dyn Future<Output = anyhow::Result<Expectation>> + 's>>;

/// Whether the server did what the attack expects of it, apart from serving honest clients.
pub(crate) enum Expectation {
    Met,
    /// It did not, for this reason.
    Missed(String),
}

/// Returns all attacks.
pub(crate) fn all() -> Vec<Attack> {
    macro_rules! attacks {
        ($($name:literal $(by $source:expr)? => $run:path,)*) => {
            vec![$(Attack {
                name: $name,
                source: None$(.or(Some($source)))?,
                needs_token: $name.ends_with("-without-token"),
                run: |addresses, sent| Box::pin($run(addresses, sent)),
            }),*]
        };
    }
    macro_rules! bursts {
        ($($name:literal => $burst:expr,)*) => {
            [$(Attack {
                name: $name,
                source: None,
                needs_token: $name.ends_with("-without-token"),
                run: |addresses, sent| Box::pin($burst.run(addresses, sent)),
            }),*]
        };
    }
    let mut all = attacks![
        "report-messages" => requests::report_of_empty_messages,
        "report-delta" => requests::report_with_a_wide_delta,
        "check-undeclared" => requests::check_of_undeclared_attributes,
        "header-only-calls" => connections::header_only_calls,
        "announced-bytes" => connections::announced_bytes,
        "silent-connections" => connections::silent_connections,
        "half-sent-admin-request" => connections::half_sent_admin_request,
        "unread-answers" => connections::unread_answers,
        "many-patterns" => configurations::many_patterns,
        "costly-openings" => configurations::costly_openings,
        "costly-openings-50" => configurations::openings_of_50,
        "costly-openings-200" => configurations::openings_of_200,
        "large-expressions" => configurations::large_expressions,
        "large-configurations" => configurations::large_configurations,
        "foreign-configurations" => configurations::foreign_configurations,
        "foreign-metrics" => configurations::foreign_metrics,
        "files-and-addresses" => configurations::files_and_addresses,
        "foreign-sessions" => state::foreign_sessions,
        "many-sessions" => state::many_sessions,
        "log-streams" => envoy::log_streams,
        "half-sent-logs" => envoy::half_sent_logs,
        "half-sent-streams" => envoy::half_sent_streams,
        "large-headers" => envoy::large_headers,
        "huge-descriptors" => envoy::huge_descriptors,
        "changing-rules" by Protocol::Mcp => pushes::changing_rules,
        "empty-resources" by Protocol::Mcp => pushes::empty_resources,
        "large-instances" by Protocol::Xds => pushes::large_instances,
    ];
    all.extend(bursts![
        "burst-20x1000-thrice" => Burst::of(20).times(3),
        "burst-100x1000" => Burst::of(100),
        "burst-1000x100" => Burst::of(1_000).calls(100),
        "burst-300x1000" => Burst::of(300),
        "burst-1000x1000" => Burst::of(1_000),
        "burst-2040x1000" => Burst::of(2_040),
        "burst-300-fields" => Burst::of(200).fields(300),
        "burst-without-token" => Burst::of(1_000),
    ]);
    all
}
