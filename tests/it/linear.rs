//! Work that is linear in the size of a request: twice as many elements of a repeated field allocate about twice as much.

/// Asserts that the work for `n` and `2n` elements is linear, in the number and the bytes of allocations. The work for one is
/// subtracted: it is what every request costs.
pub(crate) fn assert_linear(name: &str, mut work: impl FnMut(usize)) {
    const N: usize = 2_000;
    work(1);
    let mut measure = |elements| {
        let measured = allocation_counter::measure(|| work(elements));
        (measured.count_total, measured.bytes_total)
    };
    let [least, once, twice] = [1, N, 2 * N].map(&mut measure);
    // Buffers that double in size are up to twice as large as their content.
    let is_linear = |least: u64, once: u64, twice: u64| twice - least <= (once - least) * 22 / 10 + 4_096;
    assert!(
        is_linear(least.0, once.0, twice.0) && is_linear(least.1, once.1, twice.1),
        "{name}: (number, bytes) of allocations are {least:?} for 1, {once:?} for {N}, {twice:?} for twice as many"
    );
}
