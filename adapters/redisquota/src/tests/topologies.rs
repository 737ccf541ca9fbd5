//! Clusters and Sentinels.

use super::{leases::granted, *};

#[tokio::test]
async fn counters_are_spread_over_the_nodes_of_a_cluster() {
    let Some(nodes) = Redis::start_cluster() else { return };
    let url = format!("redis://127.0.0.1:{},127.0.0.1:{}", nodes[0].port(), nodes[1].port());
    let rolling = params::QuotaAlgorithm::RollingWindow.into();
    let quotas = vec![params::Quota { rate_limit_algorithm: rolling, ..limit("q", 3) }];
    let params = Params { url, cluster: true, ..patient(quotas, params::OnError::Deny) };
    let context = Context::detached(());
    let handler: RedisQuota = context.clone().open_handler(params).await.unwrap();
    eventually(&handler, true).await;
    for user in 0..30 {
        let dimensions = [("user".to_owned(), user.into())].into();
        let instance = quota::InstanceMsg { name: "q".to_owned(), dimensions };
        for (amount, granted) in [(2, 2), (2, 0), (1, 1), (-3, 3), (3, 3)] {
            let request = QuotaRequest::new(amount).with_dedup_id(format!("{user} {amount}"));
            let request = if amount == 2 && granted == 0 { request.with_dedup_id("other") } else { request };
            let grant = handler.handle(Call::for_quota(instance.clone(), request)).await.unwrap();
            assert_eq!(grant.granted(), granted, "{user}: {amount}");
        }
    }
    let keys = |node: &Redis| {
        node.command(&["KEYS", "redisquota:{*"]).lines().filter(|line| line.contains('{')).count()
    };
    assert!(nodes.iter().all(|node| keys(node) > 0), "{:?}", nodes.iter().map(keys).collect::<Vec<_>>());
}

#[tokio::test]
async fn servers_with_leases_share_a_limit_in_a_cluster() {
    let Some(nodes) = Redis::start_cluster() else { return };
    let url = format!("redis://127.0.0.1:{}", nodes[2].port());
    let params = || {
        let params = patient(vec![limit("q", 1000)], params::OnError::Deny);
        Params { url: url.clone(), cluster: true, ..params }
    };
    let one: RedisQuota = Context::detached(()).open_handler(params()).await.unwrap();
    let two: RedisQuota = Context::detached(()).open_handler(params()).await.unwrap();
    eventually(&one, true).await;
    eventually(&two, true).await;
    let (of_one, of_two) = tokio::join!(granted(&one, 1000), granted(&two, 1000));
    assert_eq!(of_one + of_two, 1000, "{of_one} {of_two}");
}

#[tokio::test]
async fn after_a_failover_the_new_master_counts_what_was_granted() {
    let Some(mut master) = Redis::start() else { return };
    let port = master.port().to_string();
    let Some(replica) = Redis::start_with(&["--replicaof", "127.0.0.1", &port]) else { return };
    let Some(sentinel) = Redis::start_sentinel("quotas", master.port()) else { return };
    let url = format!("redis://127.0.0.1:{}", sentinel.port());
    let params = patient(vec![limit("q", 1000)], params::OnError::Deny);
    let params = Params { url, sentinel_master: "quotas".to_owned(), ..params };
    let handler: RedisQuota = Context::detached(()).open_handler(params).await.unwrap();
    recovers(&handler).await;
    let before = 1 + granted(&handler, 500).await;
    assert_eq!(before, 501);
    let written = |node: &Redis| {
        let info = node.command(&["INFO", "replication"]);
        info.lines().find_map(|line| line.strip_prefix("master_repl_offset:").map(str::to_owned))
    };
    // The replica has what was counted, and the Sentinel knows it.
    let replicated = async {
        while written(&replica) != written(&master)
            || !sentinel.command(&["SENTINEL", "REPLICAS", "quotas"]).contains(&replica.port().to_string())
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), replicated).await.unwrap();
    master.kill();
    eventually(&handler, false).await;
    eventually(&handler, true).await;
    let sum = before + granted(&handler, 600).await;
    // A lease whose return was lost counts as used.
    assert!((980..=1000).contains(&sum), "{sum}");
}

#[tokio::test]
async fn sentinels_and_their_master_have_passwords_of_their_own() {
    let Some(master) = Redis::start_with(&["--requirepass", "of-redis"]) else { return };
    let lines = "sentinel auth-pass quotas of-redis\nrequirepass of-sentinels\n";
    let Some(sentinel) = Redis::start_sentinel_with("quotas", master.port(), lines) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, name).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let open = async |sentinel_password_file: String| {
        let params = Params {
            url: format!("redis://127.0.0.1:{}", sentinel.port()),
            sentinel_master: "quotas".to_owned(),
            ..patient(vec![limit("q", 9)], params::OnError::Deny)
        };
        let mut settings: RedisQuotaSettings = Faults::parse(params).unwrap();
        // A configuration needs TLS for them.
        settings.servers.password_file = file("of-redis");
        settings.servers.sentinel_password_file = sentinel_password_file;
        RedisQuota::new(settings, &Context::detached(()), CLOCK).await.unwrap()
    };
    let handler = open(file("of-redis")).await;
    assert_eq!((ask(&handler, "q", 1).await, handler.shared.store.client.is_connected()), (0, false));
    let handler = open(file("of-sentinels")).await;
    recovers(&handler).await;
}

#[tokio::test]
async fn a_redis_that_loads_its_data_is_away_until_it_has_them() {
    let Some(redis) = Redis::start_with(&["--enable-debug-command", "local"]) else { return };
    let redis = Arc::new(redis);
    let (handler, _context) = open(redis.port(), patient(vec![limit("q", 9)], params::OnError::Deny)).await;
    assert_eq!(ask(&handler, "q", 1).await, 1);
    // Loading takes five seconds, and requests are answered between keys.
    redis.command(&["DEBUG", "POPULATE", "5000"]);
    redis.command(&["CONFIG", "SET", "key-load-delay", "1000"]);
    redis.command(&["CONFIG", "SET", "loading-process-events-interval-bytes", "1024"]);
    let loading = redis.clone();
    let loading = tokio::task::spawn_blocking(move || loading.command(&["DEBUG", "RELOAD"]));
    let noticed = async {
        while handler.shared.store.client.is_connected() {
            ask(&handler, "q", 10).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), noticed).await.unwrap();
    assert_eq!(loading.await.unwrap(), "+OK\r\n");
    recovers(&handler).await;
    assert_eq!((ask(&handler, "q", 8).await, ask(&handler, "q", 7).await), (0, 7));
}

#[tokio::test]
async fn a_counter_that_moves_to_another_node_is_found_there() {
    let Some(nodes) = Redis::start_cluster() else { return };
    let url = format!("redis://127.0.0.1:{}", nodes[0].port());
    let params = Params { url, cluster: true, ..patient(vec![limit("q", 9)], params::OnError::Deny) };
    let handler: RedisQuota = Context::detached(()).open_handler(params).await.unwrap();
    recovers(&handler).await;
    let keys = |node: &Redis| -> Vec<String> {
        let keys = node.command(&["KEYS", "redisquota:{*"]);
        keys.lines().filter(|line| line.contains('{')).map(str::to_owned).collect()
    };
    let from = nodes.iter().find(|node| !keys(node).is_empty()).unwrap();
    let to = nodes.iter().find(|node| node.port() != from.port()).unwrap();
    let id = |node: &Redis| node.command(&["CLUSTER", "MYID"]).lines().nth(1).unwrap().to_owned();
    let moved = keys(from);
    let slot = from.command(&["CLUSTER", "KEYSLOT", &moved[0]]).trim_start_matches(':').trim().to_owned();
    to.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)]);
    from.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(to)]);
    let port = to.port().to_string();
    let migrate = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
    from.command(&[&migrate[..], &moved.iter().map(String::as_str).collect::<Vec<_>>()].concat());
    for node in [to, from] {
        node.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &id(to)]);
    }
    recovers(&handler).await;
    assert!(keys(from).is_empty() && !keys(to).is_empty());
    assert_eq!((ask(&handler, "q", 8).await, ask(&handler, "q", 7).await), (0, 7));
}
