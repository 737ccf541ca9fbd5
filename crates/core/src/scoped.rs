//! Values of a thread that belong to the future it polls.

use std::{cell::RefCell, future::poll_fn, mem, pin::pin, thread::LocalKey};

/// A variable of each thread.
pub(crate) type Local<T> = LocalKey<RefCell<Option<T>>>;

/// Runs a future with a variable set to a value.
pub(crate) async fn scoped<T: 'static, F: Future>(
    local: &'static Local<T>,
    mut value: Option<T>,
    future: F,
) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        let _swapped = Swapped::new(local, &mut value);
        future.as_mut().poll(context)
    })
    .await
}

/// The value is in the variable, and the variable's outer value in its place, until this is dropped: also if a poll panics.
struct Swapped<'a, T: 'static> {
    local: &'static Local<T>,
    value: &'a mut Option<T>,
}

impl<'a, T> Swapped<'a, T> {
    fn new(local: &'static Local<T>, value: &'a mut Option<T>) -> Self {
        local.with_borrow_mut(|current| mem::swap(current, value));
        Self { local, value }
    }
}

impl<T> Drop for Swapped<'_, T> {
    fn drop(&mut self) {
        self.local.with_borrow_mut(|current| mem::swap(current, self.value));
    }
}
