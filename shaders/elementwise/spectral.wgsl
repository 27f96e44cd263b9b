// The steps of a power iteration for the largest singular value (Miyato et al. 2018, arXiv:1802.05957).

// An element of a vector divided by the vector's norm, of which this is the square.
fn over_norm(x: f32, squared: f32) -> f32 {
    return x / max(sqrt(squared), 1e-12);
}

// An element of a matrix of which `squared` is the square of the largest singular value.
fn limit_spectral_norm(x: f32, squared: f32, limit: f32) -> f32 {
    let norm = sqrt(squared);
    return select(x, x * (limit / norm), norm > limit);
}
