// Arithmetic of `number`. Signed integers are added as unsigned ones, whose overflow is defined.

number add(number a, number b) {
    return (number)((arithmetic)a + (arithmetic)b);
}

number sub(number a, number b) {
    return (number)((arithmetic)a - (arithmetic)b);
}

number mul(number a, number b) {
    return (number)((arithmetic)a * (arithmetic)b);
}

number larger(number a, number b) {
    return b > a ? b : a;
}
