// Arithmetic of numbers that the language has; integers wrap around.

fn add(a: number, b: number) -> number {
    return a + b;
}

fn sub(a: number, b: number) -> number {
    return a - b;
}

fn mul(a: number, b: number) -> number {
    return a * b;
}

fn larger(a: number, b: number) -> number {
    return select(a, b, b > a);
}

fn zero() -> number {
    return number();
}
