//! Rivals in turn, and medians.

/// Runs each of the rivals once a round, in order, and gives the median of each.
pub(crate) fn medians<const N: usize>(
    rounds: usize,
    mut rival: impl FnMut(usize) -> anyhow::Result<f64>,
) -> anyhow::Result<[f64; N]> {
    let mut seen: [Vec<f64>; N] = std::array::from_fn(|_| Vec::new());
    for _ in 0..rounds {
        for (index, seen) in seen.iter_mut().enumerate() {
            seen.push(rival(index)?);
        }
    }
    Ok(seen.map(median))
}

/// The middle one; of an even number the mean of the two in the middle.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) {
        f64::midpoint(values[middle - 1], values[middle])
    } else {
        values[middle]
    }
}
