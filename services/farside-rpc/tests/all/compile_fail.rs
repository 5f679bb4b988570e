//! Services that must not compile, and the errors of the compiler.
//!
//! `TRYBUILD=overwrite` writes the expected messages anew.

mod deep {
    #[test]
    fn mistakes_are_reported_where_they_are() {
        trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
    }
}
