// One group for each tile of 16 x 16, through the memory of the group: rows are read and rows are written.

// One more than 16, so that a column does not lie in one bank.
const PITCH = 17u;
var<workgroup> tile: array<number, 272>;

@compute @workgroup_size(16, 8)
fn ENTRY(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    for (var part = 0u; part < 16u; part += 8u) {
        let row = group.x * 16u + local.y + part;
        let column = group.y * 16u + local.x;
        if row < params[WORDS_0 + 2u] && column < params[WORDS_0 + 3u] {
            tile[(local.y + part) * PITCH + local.x] =
                load_0(params[WORDS_0] + row * params[WORDS_0 + 10u] + column * params[WORDS_0 + 11u]);
        }
    }
    workgroupBarrier();
    for (var part = 0u; part < 16u; part += 8u) {
        let row = group.y * 16u + local.y + part;
        let column = group.x * 16u + local.x;
        if row < params[WORDS_1 + 2u] && column < params[WORDS_1 + 3u] {
            store_1(
                params[WORDS_1] + row * params[WORDS_1 + 10u] + column * params[WORDS_1 + 11u],
                tile[local.x * PITCH + local.y + part]);
        }
    }
}
