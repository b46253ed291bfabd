// Arithmetic of 64-bit integers as two words, the low one first; they wrap around.

fn add(a: number, b: number) -> number {
    let low = a.x + b.x;
    return number(low, a.y + b.y + u32(low < a.x));
}

fn sub(a: number, b: number) -> number {
    return number(a.x - b.x, a.y - b.y - u32(a.x < b.x));
}

fn mul(a: number, b: number) -> number {
    let low = full_product(a.x, b.x);
    return number(low.x, low.y + a.x * b.y + a.y * b.x);
}

/// The 64 bits of a product, from products of 16 bits each.
fn full_product(a: u32, b: u32) -> number {
    let a_low = a & 0xffffu;
    let a_high = a >> 16u;
    let b_low = b & 0xffffu;
    let b_high = b >> 16u;
    let low = a_low * b_low;
    let cross = a_low * b_high;
    let other = a_high * b_low;
    let middle = (low >> 16u) + (cross & 0xffffu) + (other & 0xffffu);
    let high = a_high * b_high + (cross >> 16u) + (other >> 16u) + (middle >> 16u);
    return number((low & 0xffffu) | (middle << 16u), high);
}

fn larger(a: number, b: number) -> number {
    // With the sign bit flipped, signed numbers are in the order of unsigned ones.
    let a_high = a.y ^ SIGN_BIT;
    let b_high = b.y ^ SIGN_BIT;
    return select(a, b, b_high > a_high || (b_high == a_high && b.x > a.x));
}

fn zero() -> number {
    return number(0u, 0u);
}
