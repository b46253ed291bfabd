// One group works through the columns; its items share the rows of each. A pivot that is not positive becomes a number
// that is none, and so does everything after it.

const ITEMS = 128u;
var<workgroup> pivot: f32;

fn place(row: u32, column: u32) -> u32 {
    return params[WORDS_0] + row * params[WORDS_0 + 10u] + column * params[WORDS_0 + 11u];
}

@compute @workgroup_size(128)
fn ENTRY(@builtin(local_invocation_index) item: u32) {
    let order = params[WORDS_0 + 2u];
    for (var column = 0u; column < order; column++) {
        for (var row = column + item; row < order; row += ITEMS) {
            var rest = load_0(place(row, column));
            for (var k = 0u; k < column; k++) {
                rest -= load_0(place(row, k)) * load_0(place(column, k));
            }
            if row == column {
                if !(rest > 0.0) {
                    rest = not_a_number();
                }
                rest = sqrt(rest);
                pivot = rest;
            }
            store_0(place(row, column), rest);
        }
        workgroupBarrier();
        // Every item divides what it has stored itself.
        for (var row = column + item; row < order; row += ITEMS) {
            if row > column {
                store_0(place(row, column), load_0(place(row, column)) / pivot);
            }
        }
        storageBarrier();
        workgroupBarrier();
    }
}
