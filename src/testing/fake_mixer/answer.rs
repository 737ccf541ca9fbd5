use std::{
    fmt::{self, Debug, Display},
    time::Duration,
};

use tonic::Status;

use super::RecordedCall;
use crate::answer::Verdict;
use mixer_adapter_core::{
    adapter::{Code, Grant},
    framework::status::status_name,
    template::Template,
};
use mixer_adapter_engine::trace::Trace;

/// The outcome of a request with its explanation. A failed expectation panics with all of it.
#[derive(Clone)]
#[must_use = "an unused answer tests nothing; add an expectation"]
#[non_exhaustive]
pub struct Answer<R> {
    /// The answer, or the gRPC error.
    pub result: Result<R, Status>,
    /// The calls of adapters, in the order in which they ended.
    pub calls: Vec<RecordedCall>,
    /// The explanation of the engine; empty for calls without the engine.
    pub trace: Trace,
}

impl<R> Answer<R> {
    pub(super) fn map<S>(self, map: impl FnOnce(R) -> S) -> Answer<S> {
        let Self { result, calls, trace } = self;
        Answer { result: result.map(map), calls, trace }
    }
}

impl<R: Debug> Answer<R> {
    /// Expects an answer and returns it.
    #[track_caller]
    pub fn expect_ok(&self) -> &R {
        match &self.result {
            Ok(answer) => answer,
            Err(_) => self.fail("an answer"),
        }
    }

    /// Expects an error with this code, and with this text in its message.
    #[track_caller]
    pub fn expect_error(&self, code: Code, message: &str) -> &Self {
        let is_met = self
            .result
            .as_ref()
            .is_err_and(|status| status.code() as i32 == code as i32 && status.message().contains(message));
        self.expect(is_met, format_args!("the error {}: {message}", status_name(code as i32)))
    }

    /// Expects this text in the trace.
    #[track_caller]
    pub fn expect_trace(&self, text: &str) -> &Self {
        self.expect(self.trace.to_string().contains(text), format_args!("{text:?} in the trace"))
    }

    /// Expects this number of calls of adapters.
    #[track_caller]
    pub fn expect_calls(&self, count: usize) -> &Self {
        self.expect(self.calls.len() == count, format_args!("{count} calls of adapters"))
    }

    /// Returns the input of the only call of a template: see [`RecordedCall::input`].
    #[track_caller]
    pub fn input<T: Template>(&self) -> T::Input {
        let mut calls = self.calls.iter().filter(|call| call.template == T::NAME);
        match (calls.next(), calls.next()) {
            (Some(call), None) => call.input::<T>(),
            _ => self.fail(format_args!("one call of {}", T::NAME)),
        }
    }

    #[track_caller]
    fn expect(&self, is_met: bool, expected: impl Display) -> &Self {
        if is_met { self } else { self.fail(expected) }
    }

    #[track_caller]
    fn fail(&self, expected: impl Display) -> ! {
        panic!("expected {expected}\n{self}")
    }
}

impl Answer<Verdict> {
    /// Expects that the request is allowed.
    #[track_caller]
    pub fn expect_allowed(&self) -> &Self {
        self.expect(self.result.as_ref().is_ok_and(Verdict::is_allowed), "the request to be allowed")
    }

    /// Expects a denial with this code, and with this text in the message.
    #[track_caller]
    pub fn expect_denied(&self, code: Code, message: &str) -> &Self {
        let status = self.result.as_ref().map(Verdict::status);
        let is_met =
            status.is_ok_and(|status| status.code == code as i32 && status.message.contains(message));
        self.expect(is_met, format_args!("a denial with {}: {message}", status_name(code as i32)))
    }

    /// Expects this validity of the answer.
    #[track_caller]
    pub fn expect_valid(&self, duration: Duration, uses: i32) -> &Self {
        let validity =
            self.result.as_ref().map(|verdict| (verdict.valid_duration(), verdict.valid_use_count()));
        let is_met = validity.is_ok_and(|validity| validity == (duration, uses));
        self.expect(is_met, format_args!("an answer that is valid for {duration:?} and {uses} uses"))
    }
}

impl Answer<Grant> {
    /// Expects this grant.
    #[track_caller]
    pub fn expect_granted(&self, amount: i64) -> &Self {
        let is_met = self.result.as_ref().is_ok_and(|grant| grant.granted() == amount);
        self.expect(is_met, format_args!("{amount} to be granted"))
    }
}

impl<R: Debug> Display for Answer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.result {
            Ok(answer) => writeln!(f, "answer: {answer:?}")?,
            Err(status) => writeln!(f, "error: {}: {}", status_name(status.code() as i32), status.message())?,
        }
        write!(f, "{}", self.trace)?;
        match (&self.trace.steps[..], &self.calls[..]) {
            ([], []) => {
                writeln!(f, "no rule of this namespace or the default one has an instance for this request")
            }
            (_, []) => writeln!(f, "no adapter was called"),
            (_, calls) => calls.iter().try_for_each(|call| writeln!(f, "called: {call}")),
        }
    }
}

impl<R: Debug> Debug for Answer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

/// The grant of an answer; a negative duration is zero.
pub(super) fn grant(amount: i64, valid_duration: Option<prost_types::Duration>) -> Grant {
    let duration = valid_duration.and_then(|duration| duration.try_into().ok());
    Grant::amount(amount).valid_for(duration.unwrap_or_default())
}
