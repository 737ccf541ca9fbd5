use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::time::Instant;

use super::signature::names_size;
use crate::{References, answer::CheckAnswer, resource_counts::AnswerOrigin};

/// The validity of an expired answer that is used because a backend is down. Afterwards it is evaluated again.
const STALE_VALIDITY: Duration = Duration::from_secs(1);

/// The maximum size of both encoded responses to a denial in units of its size: each has the text twice, and the response to clients of gRPC has
/// it once more, percent-encoded.
const DENIAL_FORMS: usize = 7;

/// An answer and its life.
#[derive(Clone, Debug)]
pub(super) struct CachedAnswer {
    answer: CheckAnswer,
    references: Arc<References>,
    origin: Arc<AnswerOrigin>,
    names: Arc<[Box<str>]>,
    encoded: Arc<EncodedParts>,
    /// When it was evaluated.
    pub(super) created: Instant,
    expires: Instant,
    /// The end of the time in which it may be used if a backend is down; `None` if it may not.
    stale_until: Option<Instant>,
    /// Whether it is used after its expiry because a backend was down.
    pub(super) is_stale: bool,
    /// Remaining uses; `None` for an unlimited number.
    uses: Option<Arc<AtomicI64>>,
    pub(super) cost: Cost,
}

/// An answer that was evaluated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evaluated<'a> {
    pub(crate) answer: &'a CheckAnswer,
    pub(crate) references: &'a References,
    pub(crate) origin: &'a AnswerOrigin,
    /// The time after its expiry during which it may be used if a backend is down.
    pub(crate) stale_if_error: Duration,
    pub(crate) cost: Cost,
}

/// The cost of the evaluation of an answer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// Number of calls of adapters.
    pub(crate) calls: u32,
    pub(crate) took: Duration,
}

/// An answer that holds for a request.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) answer: CheckAnswer,
    pub(crate) references: Arc<References>,
    pub(crate) origin: Arc<AnswerOrigin>,
    pub(crate) key: AnswerKey,
    pub(crate) is_stale: bool,
}

/// The life of an answer, and the names of the parts of its key in the cache.
#[derive(Clone, Debug)]
pub struct AnswerKey {
    /// Remaining time of validity.
    pub valid_for: Duration,
    /// Attributes, such as `request.path`, and keys of maps, such as `request.headers[x-user]`.
    pub names: Arc<[Box<str>]>,
    /// The parts of a response that a service encodes once for all uses of the answer.
    pub encoded: Arc<EncodedParts>,
}

/// Parts of an answer as a service encodes them, each when it is first needed.
#[derive(Debug, Default)]
pub struct EncodedParts {
    /// Its [details](crate::dispatch::AnswerDetails), and the names of the parts of its key.
    pub metadata: OnceLock<[Box<[u8]>; 2]>,
    /// Its status and its response, for clients of HTTP and for clients of gRPC.
    pub responses: [OnceLock<[Bytes; 2]>; 2],
}

impl CachedAnswer {
    /// Creates an answer, which is valid from the start of its evaluation; `None` if it is valid only for the current request.
    pub(super) fn new(evaluated: Evaluated<'_>, names: Arc<[Box<str>]>, now: Instant) -> Option<Self> {
        let Evaluated { answer, references, origin, stale_if_error, cost } = evaluated;
        let valid_for = Duration::try_from(answer.valid_duration).unwrap_or_default();
        // The request that is being answered is the first use.
        let uses = answer.max_uses.map(|uses| i64::from(uses) - 1);
        if uses.is_some_and(|uses| uses <= 0) {
            return None;
        }
        let expires = now.checked_add(valid_for.checked_sub(cost.took).filter(|left| !left.is_zero())?)?;
        let stale_until = match stale_if_error {
            Duration::ZERO => None,
            time => expires.checked_add(time),
        };
        Some(Self {
            answer: answer.clone(),
            references: Arc::new(references.clone()),
            origin: Arc::new(origin.clone()),
            names,
            encoded: Arc::default(),
            created: now,
            expires,
            stale_until,
            is_stale: false,
            uses: uses.map(|uses| Arc::new(AtomicI64::new(uses))),
            cost,
        })
    }

    /// Returns the answer with [`STALE_VALIDITY`] more, if it may be used while a backend is down.
    pub(super) fn renewed(&self, now: Instant) -> Option<Self> {
        let expires = self.stale_until?.min(now.checked_add(STALE_VALIDITY)?);
        Some(Self { expires, is_stale: true, uses: None, ..self.clone() })
    }

    /// Consumes one use; `None` if the answer has expired or has no uses left.
    pub(super) fn take(&self, now: Instant) -> Option<Found> {
        let key = self.key(now);
        if key.valid_for.is_zero() {
            return None;
        }
        let mut answer = self.answer.clone();
        if let Some(uses) = &self.uses {
            let before = uses.fetch_sub(1, Relaxed);
            if before <= 0 {
                return None;
            }
            if answer.valid_use_count >= 0 {
                answer.valid_use_count = i32::try_from(before).unwrap_or(i32::MAX);
            }
        }
        answer.valid_duration = prost_types::Duration::try_from(key.valid_for).unwrap_or_default();
        let (references, origin) = (self.references.clone(), self.origin.clone());
        Some(Found { answer, references, origin, key, is_stale: self.is_stale })
    }

    pub(super) fn key(&self, now: Instant) -> AnswerKey {
        let valid_for = self.expires.saturating_duration_since(now);
        AnswerKey { valid_for, names: self.names.clone(), encoded: self.encoded.clone() }
    }

    /// The approximate size in bytes, including the names of the key, which answers may share, and the encoded parts.
    pub(super) fn size(&self) -> usize {
        let details = &self.answer.details;
        let rules: usize = details.rules.iter().map(|rule| rule.len()).sum();
        let forms = if self.answer.status.code == 0 { 1 } else { DENIAL_FORMS };
        let responses = forms * self.answer.encoded_len();
        let encoded =
            size_of::<EncodedParts>() + details.size() + rules + names_size(&self.names) + responses;
        let contents = self.answer.size()
            + self.references.size()
            + self.origin.size()
            + names_size(&self.names)
            + encoded;
        size_of::<Self>() + size_of::<References>() + size_of::<AnswerOrigin>() + contents
    }
}
