#![allow(clippy::unwrap_used)]

use clap::{Command, FromArgMatches as _};

use super::*;
use mixer_adapter_engine::RequestLimits;
use mixer_adapter_host::session::SessionLimits;

/// The flags of limits and times, and for each a value that no other one has and that is not its default.
const FLAGS: [(&str, &str); 9] = [
    ("--max-calls", "101"),
    ("--max-connections", "104"),
    ("--max-connections-per-peer", "105"),
    ("--session-idle", "201s"),
    ("--session-lookup", "any"),
    ("--call-timeout", "205s"),
    ("--keepalive", "206s"),
    ("--max-redial-wait", "207s"),
    ("--max-connection-age", "208s"),
];

/// The same for the limits of `--limit`.
const LIMITS: [(&str, &str); 15] = [
    ("max-calls-per-connection", "102"),
    ("max-waiting-calls", "103"),
    ("max-sessions", "106"),
    ("max-config-size", "107"),
    ("max-message-size", "108"),
    ("max-words", "109"),
    ("max-attributes-per-request", "110"),
    ("max-requests-per-report", "111"),
    ("handler-cache", "112"),
    ("max-quotas-per-check", "113"),
    ("max-instances", "114"),
    ("max-expanded-size", "8Ki"),
    ("body-timeout", "202s"),
    ("write-timeout", "203s"),
    ("handshake-timeout", "204s"),
];

fn command() -> Command {
    Serve::augment_args(Command::new("serve"))
}

fn parse<'a>(flags: impl IntoIterator<Item = (&'a str, &'a str)>) -> Serve {
    let flags = flags.into_iter().flat_map(|(flag, value)| [flag, value]);
    let matches = command().try_get_matches_from(["serve"].into_iter().chain(flags)).unwrap();
    Serve::from_arg_matches(&matches).unwrap()
}

#[test]
fn each_limit_is_the_option_of_its_flag() {
    let further = [("--memory-limit", "1Gi"), ("--grace", "209s"), ("--state-retention", "210s")];
    let limits = LIMITS.map(|(name, value)| format!("{name}={value}"));
    let (first, others) = (&*limits[0], limits[1..].join(","));
    let limits = [("--limit", first), ("--limit", &others)];
    let serve = parse(FLAGS.into_iter().chain(further).chain(limits));
    let seconds = Duration::from_secs;
    let server = ServerOptions {
        max_message_size: 108,
        max_concurrent_calls: 101,
        max_waiting_calls: 103,
        // A half of the memory, of which the first 4 KiB of each call are reserved.
        max_call_bytes: (512 << 20) - 101 * 4096,
        max_calls_per_connection: 102,
        max_connections: 104,
        max_connections_per_peer: Some(105),
        handshake_timeout: seconds(204),
        body_timeout: seconds(202),
        write_timeout: seconds(203),
        max_connection_age: Some(seconds(208)),
        grace: seconds(209),
        keepalive: Some(seconds(206)),
        keepalive_timeout: seconds(20),
        call_timeout: Some(seconds(205)),
        session_idle: Some(seconds(201)),
        explain: false,
    };
    assert_eq!(format!("{:#?}", serve.options()), format!("{server:#?}"));
    let handlers = TableLimits::default()
        .cached_handlers(112)
        .cached_bytes((1 << 30) / 8)
        .state_bytes((1 << 30) / 24)
        .state_retention(seconds(210))
        .idle(Some(seconds(201)))
        .max_config_size(107);
    assert_eq!(serve.table_limits(), handlers);
    let sessions = serve.session_options().unwrap();
    assert_eq!(sessions.limits, SessionLimits::default().sessions(106).bytes((1 << 30) / 6));
    assert_eq!(sessions.lookup, SessionLookup::Any);
    let requests = RequestLimits::default()
        .requests_per_report(111)
        .attributes_per_request(110)
        .words(109)
        .quotas_per_check(113)
        .instances(114)
        .expanded_size(8 << 10);
    assert_eq!(serve.limits.limits().requests, requests);
    let sources = serve.sources.settings(&serve.configuration, Vec::new()).unwrap();
    assert_eq!(sources.longest_wait, seconds(207));
}

#[test]
fn defaults_are_those_of_the_documentation() {
    let page = ["handlers-and-sessions", "limits"].map(|page| {
        let path = format!("{}/docs/operating/{page}.md", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).unwrap()
    });
    let page = page.concat();
    let documented = |name: &str| {
        let row = page.lines().find_map(|line| line.strip_prefix(&format!("| `{name}` | ")));
        let row = row.unwrap_or_else(|| panic!("{name} is not in the table"));
        row.split([',', '|']).next().unwrap().trim().trim_matches('`')
    };
    let command = command();
    for (flag, _) in FLAGS {
        let argument =
            command.get_arguments().find(|argument| argument.get_long() == flag.strip_prefix("--"));
        let default = match (flag, argument.unwrap().get_default_values().first()) {
            ("--max-connections", None) => parse(DEFAULT_MEMORY_LIMIT).options().max_connections.to_string(),
            (_, default) => default.map_or("no limit", |value| value.to_str().unwrap()).to_owned(),
        };
        assert_eq!(default, documented(flag), "{flag}");
    }
    let limit = command.get_arguments().find(|argument| argument.get_long() == Some("limit")).unwrap();
    let help = limit.get_long_help().unwrap().to_string();
    for (name, _) in LIMITS {
        let line = help.lines().find(|line| line.starts_with(&format!("{name}: "))).unwrap();
        assert!(line.ends_with(&format!(" [default: {}]", documented(name))), "{line}");
    }
}

const DEFAULT_MEMORY_LIMIT: [(&str, &str); 1] = [("--memory-limit", "384Mi")];

#[test]
fn connections_take_at_most_a_quarter_of_the_memory_limit_by_default() {
    let connections = |limit| parse([("--memory-limit", limit)]).options().max_connections;
    for (limit, expected) in [("1Gi", 5461), ("192Mi", 1024), ("1Mi", 256)] {
        assert_eq!(connections(limit), expected, "{limit}");
    }
    let by_default = parse(DEFAULT_MEMORY_LIMIT).options().max_connections;
    assert_eq!(by_default, ServerOptions::default().max_connections);
}
