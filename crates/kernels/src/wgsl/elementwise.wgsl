// One work item for each element of the last argument.

@compute @workgroup_size(64)
fn ENTRY(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) item: u32,
) {
    let i = (group.x + group.y * groups.x) * 64u + item;
    if i < elements(LAST) {
        STATEMENT
    }
}
