// One work item for each row of b (or column, with `left`): they are independent of each other, and each is solved in
// the order of the triangle. The grid covers b in tiles of 64 x 64; one row or column of tiles has all the work.

@compute @workgroup_size(64)
fn ENTRY(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) item: u32) {
    let on_left = scalar_1();
    let transposed = scalar_2();
    let across = select(group.x, group.y, on_left);
    let vector = select(group.y, group.x, on_left) * 64u + item;
    let vectors = params[WORDS_1 + select(2u, 3u, on_left)];
    if across > 0u || vector >= vectors {
        return;
    }
    let order = min(params[WORDS_0 + 2u], params[WORDS_1 + select(3u, 2u, on_left)]);
    // Solving with the triangle itself goes from the first unknown to the last, with its transpose backwards.
    let forwards = on_left != transposed;
    let unknown_stride = params[WORDS_1 + select(11u, 10u, on_left)];
    let first = params[WORDS_1] + vector * params[WORDS_1 + select(10u, 11u, on_left)];
    let row_stride = params[WORDS_0 + select(11u, 10u, forwards)];
    let column_stride = params[WORDS_0 + select(10u, 11u, forwards)];
    for (var count = 0u; count < order; count++) {
        let at = select(order - 1u - count, count, forwards);
        var rest = scalar_0() * load_1(first + at * unknown_stride);
        for (var before = 0u; before < count; before++) {
            let other = select(order - 1u - before, before, forwards);
            let factor = load_0(params[WORDS_0] + at * row_stride + other * column_stride);
            rest -= factor * load_1(first + other * unknown_stride);
        }
        store_1(first + at * unknown_stride, rest / load_0(params[WORDS_0] + at * (row_stride + column_stride)));
    }
}
