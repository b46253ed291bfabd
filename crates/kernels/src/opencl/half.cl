// The upper half of a float, rounded to the nearest, ties to even.

float from_bf16(ushort bits) {
    return as_float((uint)bits << 16);
}

ushort to_bf16(float value) {
    uint bits = as_uint(value);
    if (isnan(value))
        return (bits >> 16) | 0x40;
    return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}
