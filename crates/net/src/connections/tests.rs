use super::*;
use crate::Workers;

/// A call that gives way with the bytes that it holds.
#[derive(Debug)]
struct Holder(Arc<ConnectionState>, usize);

impl Evictable for Holder {
    fn on_evicted(&self) {
        self.0.remove_bytes(self.1);
        self.0.add_evicted_bytes(self.1);
    }
}

fn holding(connection: &Arc<ConnectionState>, bytes: usize) -> (Registered, oneshot::Receiver<Limit>) {
    connection.add_bytes(bytes);
    connection.register(Stage::Waiting, Arc::new(Holder(connection.clone(), bytes)))
}

#[tokio::test(start_paused = true)]
async fn no_call_is_ended_while_those_that_were_are_about_to_release_enough() {
    let port = Connections::new(Arc::default());
    let (busy, honest) = (unread(&port, 1, 0), unread(&port, 2, 0));
    let mut calls = [10, 10, 10].map(|bytes| holding(&busy, bytes));
    let gets_in = |excess| honest.make_room(Resource::Bytes, 5, excess, Limit::Memory);
    let mut ended = || calls.iter_mut().map(|(_, call)| usize::from(call.try_recv().is_ok())).sum::<usize>();
    assert!(gets_in(5) && ended() == 1);
    assert!(gets_in(10) && ended() == 0);
    assert!(gets_in(11) && ended() == 1);
    honest.remove_evicted_bytes(20);
    assert!(gets_in(1) && ended() == 1);
    assert_eq!(port.hits.get(Limit::Memory), 3);
}

/// A connection with this number of unread answers.
fn unread(port: &Arc<Connections>, id: u64, answers: usize) -> Arc<ConnectionState> {
    let connection = port.add(id);
    for _ in 0..answers {
        connection.add_unwritten();
    }
    connection
}

/// A connection that is silent since it was opened, greeted or not, or since its call.
fn silent(port: &Arc<Connections>, id: u64, silence: Silence) -> Arc<ConnectionState> {
    let connection = unread(port, id, 0);
    connection.set_had_turn();
    if silence > Silence::NoPreface {
        connection.set_greeted();
    }
    if silence == Silence::Idle {
        connection.set_called();
    }
    connection
}

#[tokio::test(start_paused = true)]
async fn new_connections_give_way_after_all_others() {
    let port = Connections::new(Arc::default());
    let idle = silent(&port, 1, Silence::Idle);
    let never_called = silent(&port, 2, Silence::NeverCalled);
    tokio::time::advance(YOUTH).await;
    let new = silent(&port, 3, Silence::NoPreface);
    let newer = silent(&port, 4, Silence::NoPreface);
    for gives_way in [&never_called.drain, &idle.drain, &new.cut, &newer.cut] {
        assert!(!gives_way.is_cancelled());
        assert!(port.end_silent());
        assert!(gives_way.is_cancelled());
    }
    unread(&port, 5, 0);
    assert!(!port.end_silent(), "one that waits for its first turn gives way");
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_new_connections_displaces_itself() {
    let port = Connections::new(Arc::default());
    let idle = silent(&port, 1, Silence::Idle);
    tokio::time::advance(YOUTH).await;
    let new = [2, 3].map(|id| silent(&port, id, Silence::NoPreface));
    assert!(port.end_silent());
    assert!(new[0].cut.is_cancelled() && !idle.drain.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn of_those_that_called_lately_the_one_with_the_largest_backlog_gives_way() {
    let (port, workers) = (Connections::new(Arc::default()), Workers::here());
    let mut open = Vec::new();
    for (id, backlog) in [(1, 10), (2, 300), (3, 0)] {
        let worker = workers.choose();
        worker.set_backlog(backlog);
        let connection = port.open(id, None, worker);
        connection.0.set_had_turn();
        connection.0.set_greeted();
        connection.0.set_called();
        open.push(connection);
        tokio::time::advance(Duration::from_millis(LATELY / 4)).await;
    }
    for gives_way in [1, 0, 2] {
        assert!(!open[gives_way].0.drain.is_cancelled());
        assert!(port.end_silent());
        assert!(open[gives_way].0.drain.is_cancelled());
    }
}

#[test]
fn a_connection_that_sent_something_stays_while_others_end_or_wait_for_their_first_turn() {
    stays_while_others_are_unsettled(Silence::NeverCalled);
    stays_while_others_are_unsettled(Silence::Idle);
}

fn stays_while_others_are_unsettled(silence: Silence) {
    let port = Connections::new(Arc::default());
    let busy = silent(&port, 1, silence);
    let waits = unread(&port, 2, 0);
    assert!(!port.end_silent());
    waits.set_had_turn();
    assert!(port.end_silent() && waits.cut.is_cancelled());
    assert!(!port.end_silent());
    port.open.lock().remove(&2);
    assert!(!busy.drain.is_cancelled());
    assert!(port.end_silent() && busy.drain.is_cancelled());
}

/// Like [`silent`], for a client that may be silent.
fn kept(port: &Arc<Connections>, id: u64, silence: Silence) -> Arc<ConnectionState> {
    let connection = silent(port, id, silence);
    connection.keep();
    connection
}

#[test]
fn a_connection_that_is_kept_is_not_silent_even_without_a_call() {
    let port = Connections::new(Arc::default());
    silent(&port, 1, Silence::Idle).add_unwritten();
    kept(&port, 2, Silence::NeverCalled);
    unread(&port, 5, 0);
    assert!(!port.end_silent(), "one that waits for its first turn gives way");
}

#[tokio::test(start_paused = true)]
async fn at_most_half_of_the_connections_are_kept_those_that_called_last() {
    let port = Connections::new(Arc::default());
    let mut connections = Vec::new();
    for id in 0..6 {
        let open = if id == 3 { silent } else { kept };
        connections.push(open(&port, id, Silence::Idle));
        tokio::time::advance(YOUTH).await;
    }
    connections[0].set_called();
    for gives_way in [1, 2, 3] {
        assert!(!connections[gives_way].drain.is_cancelled());
        assert!(port.end_silent());
        assert!(connections[gives_way].drain.is_cancelled(), "{gives_way}");
    }
    unread(&port, 5, 0);
    assert!(!port.end_silent(), "one that waits for its first turn gives way");
}

#[tokio::test(start_paused = true)]
async fn calls_get_in_while_connections_that_were_cut_off_release_theirs() {
    let port = Connections::new(Arc::default());
    let busy = unread(&port, 1, 3);
    let honest = unread(&port, 2, 0);
    let gets_in = |excess| honest.make_room(Resource::Working, 1, excess, Limit::Calls);
    assert!(gets_in(1), "the busiest one is cut off");
    assert!(busy.cut.is_cancelled());
    // Both within the interval of searches and after it.
    for _ in 0..2 {
        assert!(gets_in(3));
        assert!(!gets_in(4), "more than is about to be released");
        tokio::time::advance(SEARCH_INTERVAL * 2).await;
    }
    port.open.lock().remove(&1);
    assert!(gets_in(3), "calls may end after their connection");
    drop(busy);
    tokio::time::advance(SEARCH_INTERVAL * 2).await;
    assert!(!gets_in(1));
}

#[test]
fn the_calls_that_a_connection_may_begin_fall_with_the_number_of_connections() {
    let port = Connections::new(Arc::default());
    let open: Vec<_> = (1..=2_048).map(|id| port.add(id)).collect();
    for (number, calls) in [(1, 65_536), (64, 1_024), (65, 1_008), (512, 128), (1_024, 64), (2_048, 64)] {
        assert_eq!(open[number - 1].max_begun, calls, "{number}");
    }
}

#[test]
fn a_connection_begins_as_many_calls_as_were_announced_to_it_and_more_when_those_are_worked_on() {
    let port = Connections::new(Arc::default());
    let others: Vec<_> = (1..=1_023).map(|id| port.add(id)).collect();
    let (early, late) = (&others[511], port.add(1_024));
    for (connection, announced) in [(early, 128), (&late, 64)] {
        let mut begun: Vec<_> = (0..announced).map_while(|_| connection.begin()).collect();
        assert_eq!(begun.len(), announced, "however many have come since");
        assert!(connection.begin().is_none());
        drop(begun.pop());
        assert!(connection.begin().is_some());
    }
    assert_eq!(port.hits.get(Limit::Calls), 2);
}
