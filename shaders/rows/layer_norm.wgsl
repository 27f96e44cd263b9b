// Layer normalization (Ba et al. 2016, arXiv:1607.06450) of a row, (x - mean) / sqrt(variance + eps) weight + bias, and its
// gradients. The mean is corrected by what rounding left of it (Chan, Golub and LeVeque 1983,
// doi:10.1080/00031305.1983.10483115), and then rounded itself: results are off by up to half a unit of its last place.

fn total(x: f32) -> f32 {
    return x;
}

fn rounded_mean(total: f32, size: f32) -> f32 {
    return total / size;
}

fn deviation(x: f32, rounded_mean: f32) -> f32 {
    return x - rounded_mean;
}

fn deviations(deviation: f32) -> f32 {
    return deviation;
}

// What rounding left of the mean.
fn mean_correction(deviations: f32, size: f32) -> f32 {
    return deviations / size;
}

fn mean(rounded_mean: f32, mean_correction: f32) -> f32 {
    return rounded_mean + mean_correction;
}

fn centred(x: f32, mean: f32) -> f32 {
    return x - mean;
}

fn squares(centred: f32) -> f32 {
    return centred * centred;
}

// All three sums in one pass: the mean of some elements and the squares of their distances from it (Welford 1962,
// doi:10.1080/00401706.1962.10490022). Shaders take that mean as exact: `mean_correction` is 0.
struct Moments { number: f32, mean: f32, squares: f32 }

fn no_moments() -> Moments {
    return Moments(0.0, 0.0, 0.0);
}

fn with_element(own: Moments, x: f32) -> Moments {
    let number = own.number + 1.0;
    let mean = own.mean + (x - own.mean) / number;
    return Moments(number, mean, own.squares + (x - own.mean) * (x - mean));
}

fn share_of_total(own: Moments) -> f32 {
    return own.number * own.mean;
}

fn share_of_squares(own: Moments, mean: f32) -> f32 {
    return own.squares + own.number * (own.mean - mean) * (own.mean - mean);
}

fn scale(squares: f32, size: f32, eps: f32) -> f32 {
    return 1.0 / sqrt(squares / size + eps);
}

// What an element is multiplied by, without a weight and with one.
fn unweighted(scale: f32) -> f32 {
    return scale;
}

fn weighted(scale: f32, weight: f32) -> f32 {
    return scale * weight;
}

fn normalized(centred: f32, factor: f32) -> f32 {
    return centred * factor;
}

fn with_bias(normalized: f32, bias: f32) -> f32 {
    return normalized + bias;
}

// The gradient by what is normalized. With n = (x - mean) scale and h = g weight it is scale (h - mean(h) - n mean(h n)).

fn scaled(grad: f32, factor: f32) -> f32 {
    return grad * factor;
}

fn sum(scaled: f32) -> f32 {
    return scaled;
}

fn standardized(centred: f32, scale: f32) -> f32 {
    return centred * scale;
}

fn products(scaled: f32, standardized: f32) -> f32 {
    return scaled * standardized;
}

fn slope(products: f32, size: f32) -> f32 {
    return products / size;
}

fn offset(sum: f32, size: f32) -> f32 {
    return sum / size;
}

fn input_grad(scaled: f32, standardized: f32, slope: f32, offset: f32) -> f32 {
    return scaled - (standardized * slope + offset);
}

// The gradients by weight and bias are sums over the rows: here an element is of a column, and has the row's mean and scale.

fn weight_grad(grad: f32, standardized: f32) -> f32 {
    return grad * standardized;
}

fn bias_grad(grad: f32) -> f32 {
    return grad;
}
