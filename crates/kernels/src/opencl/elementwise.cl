// One work item for each element of the last argument.
__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void ENTRY(ARGUMENTS) {
    uint i = group_number() * 64 + get_local_id(0);
    if (i < elements(LAST)) {
        STATEMENT
    }
}
