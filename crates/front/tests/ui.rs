//! What must not compile: bodies that do not fit their accesses, and borrows that end too early.

#[test]
fn what_does_not_fit_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
