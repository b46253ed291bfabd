/// `x` times its share in the normal distribution.
fn gelu(x: f32, approximate: bool) -> f32 {
    if approximate {
        let inner = 0.7978845608 * (x + 0.044715 * x * x * x);
        // Beyond this the hyperbolic tangent is 1 in single precision, and its exponentials could overflow.
        return 0.5 * x * (1.0 + tanh(clamp(inner, -15.0, 15.0)));
    }
    let rest = erfc_of_magnitude(abs(x) * 0.70710678);
    // For negative numbers the complement itself, where `1 + erf` would cancel.
    return 0.5 * x * select(2.0 - rest, rest, x < 0.0);
}

/// The complement of the error function for `z >= 0`, to about 1.2e-7: a rational approximation.
fn erfc_of_magnitude(z: f32) -> f32 {
    let t = 1.0 / (1.0 + 0.5 * z);
    var sum = 0.17087277;
    sum = sum * t - 0.82215223;
    sum = sum * t + 1.48851587;
    sum = sum * t - 1.13520398;
    sum = sum * t + 0.27886807;
    sum = sum * t - 0.18628806;
    sum = sum * t + 0.09678418;
    sum = sum * t + 0.37409196;
    sum = sum * t + 1.00002368;
    sum = sum * t - 1.26551223;
    return t * exp(sum - z * z);
}

fn silu(x: f32) -> f32 {
    // Below -80 the result is next to nothing, and the exponential could overflow.
    return x / (1.0 + exp(min(-x, 80.0)));
}
