/// `x` times its share in the normal distribution.
float gelu(float x, bool approximate) {
    if (approximate) {
        float inner = 0.7978845608f * (x + 0.044715f * x * x * x);
        return 0.5f * x * (1.0f + tanh(inner));
    }
    // The complement, where `1 + erf` would cancel for negative numbers.
    return 0.5f * x * erfc(-x * M_SQRT1_2_F);
}

float silu(float x) {
    return x / (1.0f + exp(-x));
}
