// Products of matrices: one group of 8 x 8 items for each tile of 32 x 32 sums, four by four an item. Tiles of the
// factors, 16 deep, come through the memory of the group: each element is loaded once a tile, not once a sum.

const DEPTH = 16u;
// By depth, then by row (left) or column (right), in fours.
var<workgroup> left_tile: array<vec4<f32>, 128>;
var<workgroup> right_tile: array<vec4<f32>, 128>;

@compute @workgroup_size(8, 8)
fn ENTRY(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
    @builtin(local_invocation_index) item: u32,
) {
    let first_row = group.y * 32u;
    let first_column = group.x * 32u;
    if tile_is_wanted(first_row, first_column) {
        tile(first_row, first_column, local, item);
    }
}

fn tile(first_row: u32, first_column: u32, local: vec3<u32>, item: u32) {
    var sums: array<vec4<f32>, 4>;
    let depth = shared_depth();
    for (var start = 0u; start < depth; start += DEPTH) {
        for (var part = item; part < 128u; part += 64u) {
            let k = start + part / 8u;
            let four = 4u * (part % 8u);
            let row = first_row + four;
            left_tile[part] = vec4(left(row, k), left(row + 1u, k), left(row + 2u, k), left(row + 3u, k));
            let column = first_column + four;
            right_tile[part] = vec4(
                right(k, column), right(k, column + 1u), right(k, column + 2u), right(k, column + 3u));
        }
        workgroupBarrier();
        for (var k = 0u; k < DEPTH; k++) {
            let rows = left_tile[k * 8u + local.y];
            let columns = right_tile[k * 8u + local.x];
            sums[0] = fma(vec4(rows.x), columns, sums[0]);
            sums[1] = fma(vec4(rows.y), columns, sums[1]);
            sums[2] = fma(vec4(rows.z), columns, sums[2]);
            sums[3] = fma(vec4(rows.w), columns, sums[3]);
        }
        workgroupBarrier();
    }
    for (var row = 0u; row < 4u; row++) {
        for (var column = 0u; column < 4u; column++) {
            finish(first_row + 4u * local.y + row, first_column + 4u * local.x + column, sums[row][column]);
        }
    }
}
