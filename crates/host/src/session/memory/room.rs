//! Making room for a session or a claim.

use std::{collections::BinaryHeap, sync::Arc};

use super::{
    super::{Session, SessionId, SessionLimitError, SessionLimits},
    Sessions, claim_bytes,
    claims::StoredSession,
    holdings::Owner,
};

/// The maximum number of owners that lose something for one addition, of sessions that then count for another owner and claims
/// that end, and of claims on a session that are searched for that owner. Whatever ends was added before, so the work of an addition is constant on average.
const MAX_OWNERS: usize = 64;
const MAX_MOVES: usize = 64;
const MAX_CLAIMS: usize = 16;

/// The maximum number of sessions that end in favour of one addition.
const MAX_ENDINGS: usize = 4_096;

/// The addition to the sessions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Added {
    /// The session that is added, or that a claim is added to: it does not end.
    pub(super) to: SessionId,
    pub(super) sessions: usize,
    pub(super) bytes: usize,
}

impl Added {
    fn amount(self, limit: SessionLimitError) -> usize {
        match limit {
            SessionLimitError::Sessions => self.sessions,
            SessionLimitError::Bytes => self.bytes,
        }
    }
}

/// The sessions and claims that end in favour of an addition.
#[derive(Clone, Copy, Debug)]
enum Ending {
    Session(SessionId),
    /// The claims of a connection on a session that counts for another owner.
    Claims {
        connection: u64,
        id: SessionId,
    },
}

/// An owner that may lose something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    held: usize,
    owner: Owner,
    /// The order of the oldest session that was searched.
    sessions: u64,
    /// The order of the oldest claim that was searched.
    claims: u64,
}

impl Candidate {
    fn new((held, owner): (usize, Owner)) -> Self {
        Self { held, owner, sessions: u64::MAX, claims: u64::MAX }
    }
}

/// Returns the share of a session in a limit.
fn amount(session: &Session, limit: SessionLimitError) -> usize {
    match limit {
        SessionLimitError::Sessions => 1,
        SessionLimitError::Bytes => session.bytes(),
    }
}

impl Sessions {
    /// Makes room for an addition of a connection, and returns the sessions that ended for it.
    ///
    /// # Errors
    /// The limit that it exceeds, if too little can end. Then nothing ends.
    pub(super) fn make_room(
        &mut self,
        added: Added,
        connection: u64,
        limits: SessionLimits,
    ) -> Result<Vec<Arc<Session>>, SessionLimitError> {
        let ending = self.endings(added, connection, limits)?;
        let end = |ending| match ending {
            Ending::Session(id) => self.remove(&id),
            Ending::Claims { connection, id } => self.withdraw(connection, &id),
        };
        Ok(ending.into_iter().filter_map(end).collect())
    }

    /// Returns what ends in favour of an addition of a connection: the newest sessions, and then claims, of the owners that hold the
    /// largest share in a limit, as long as it exceeds that of this connection.
    fn endings(
        &mut self,
        added: Added,
        connection: u64,
        limits: SessionLimits,
    ) -> Result<Vec<Ending>, SessionLimitError> {
        let bytes = self.bytes.saturating_add(added.bytes);
        let excess_sessions = (self.by_id.len() + added.sessions).saturating_sub(limits.sessions);
        let (limit, excess) = if bytes > limits.bytes {
            (SessionLimitError::Bytes, bytes - limits.bytes)
        } else if excess_sessions > 0 {
            (SessionLimitError::Sessions, excess_sessions)
        } else {
            return Ok(Vec::new());
        };
        let held = self.holdings.amount(Owner::Connection(connection), limit);
        let fair = held.saturating_add(added.amount(limit));
        let owners = self.holdings.owners(limit).take_while(|(held, _)| *held > fair).take(MAX_OWNERS);
        let mut owners: BinaryHeap<Candidate> = owners.map(Candidate::new).collect();
        let (mut ending, mut freed, mut ended, mut moves) = (Vec::new(), 0_usize, 0, 0);
        while (freed < excess || ended < excess_sessions) && moves < MAX_MOVES && ending.len() < MAX_ENDINGS {
            let Some(mut candidate) = owners.pop() else { break };
            let taken = match self.holdings.newest(candidate.owner, candidate.sessions) {
                Some((order, id)) => {
                    candidate.sessions = order;
                    let Some(stored) = self.by_id.get(&id) else { continue };
                    let amount = amount(&stored.session, limit);
                    match self.modest_owner(stored, fair, limit) {
                        _ if id == added.to => moves += 1,
                        // It is not theirs to lose.
                        Some((modest, order)) => {
                            moves += 1;
                            self.count_for(&id, modest, order);
                            let held = self.holdings.amount(modest, limit);
                            if held > fair {
                                owners.push(Candidate::new((held, modest)));
                            }
                        }
                        None => {
                            ending.push(Ending::Session(id));
                            ended += 1;
                            freed = freed.saturating_add(amount);
                        }
                    }
                    amount
                }
                None if limit == SessionLimitError::Bytes => {
                    let Some((order, claims, amount)) = self.newest_claims(candidate.owner, candidate.claims)
                    else {
                        continue;
                    };
                    candidate.claims = order;
                    moves += 1;
                    let is_added =
                        |claims: &Ending| matches!(claims, Ending::Claims { id, .. } if *id == added.to);
                    if let Some(claims) = claims.filter(|claims| !is_added(claims)) {
                        ending.push(claims);
                        freed = freed.saturating_add(amount);
                    }
                    amount
                }
                None => continue,
            };
            candidate.held = candidate.held.saturating_sub(taken);
            if candidate.held > fair {
                owners.push(candidate);
            }
        }
        if freed >= excess && ended >= excess_sessions { Ok(ending) } else { Err(limit) }
    }

    /// Returns the newest claims of a connection before those of an order, with their order and memory; no claims if they are on a
    /// session that counts for the connection.
    fn newest_claims(&self, owner: Owner, before: u64) -> Option<(u64, Option<Ending>, usize)> {
        let Owner::Connection(connection) = owner else { return None };
        let own = self.connections.get(&connection)?;
        let (order, id) = own.claimed.range(..before).next_back()?;
        let stored = self.by_id.get(id)?;
        let is_counted = stored.counted.is_some_and(|(counted, _)| counted == owner);
        let claims = (!is_counted).then_some(Ending::Claims { connection, id: *id });
        Some((*order, claims, claim_bytes(&stored.session)))
    }

    /// Returns a connection that claims a session and has a share of at most `fair` in a limit.
    fn modest_owner(
        &self,
        stored: &StoredSession,
        fair: usize,
        limit: SessionLimitError,
    ) -> Option<(Owner, u64)> {
        let claims = stored.claims.iter().take(MAX_CLAIMS);
        let mut open =
            claims.filter_map(|claims| Some((Owner::Connection(claims.connection?), claims.order)));
        open.find(|(owner, _)| self.holdings.amount(*owner, limit) <= fair)
    }
}
