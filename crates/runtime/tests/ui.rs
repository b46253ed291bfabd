//! Programs that must not compile, each with what the compiler says: guards, maps, arguments and
//! bindings that would outlive what they borrow.
//!
//! `TRYBUILD=overwrite cargo nextest run -p syncline-runtime --test ui` writes the messages anew.
//! What else may cross threads is a table in `syncline/tests/it/threads.rs`.

#[test]
fn what_borrows_cannot_be_outlived() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
