//! Programs that must not compile, and the errors of the compiler.
//!
//! `TRYBUILD=overwrite` writes the expected messages anew.

use farside::prelude::*;

mod deep {
    #[test]
    fn mistakes_are_reported_where_they_are() {
        trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
    }
}

/// A worker and the values that it makes stay on one thread. If one of these types were `Send` or
/// `Sync`, two implementations of the trait would apply to it, and this would not compile. (The
/// error for a program that tries lists all fields, so a test cannot compare it.)
mod stays_on_its_thread {
    use super::*;

    trait IfNeither<A> {
        fn holds() {}
    }

    struct IfSend;
    struct IfSync;

    impl<T: ?Sized> IfNeither<()> for T {}
    impl<T: ?Sized + Send> IfNeither<IfSend> for T {}
    impl<T: ?Sized + Sync> IfNeither<IfSync> for T {}

    #[test]
    fn all_that_waits_or_calls() {
        <Worker as IfNeither<_>>::holds();
        <Pending<'_, u64> as IfNeither<_>>::holds();
        <Synchronizer<'_> as IfNeither<_>>::holds();
        <Aggregator<'_> as IfNeither<_>>::holds();
        <farside::To<'_> as IfNeither<_>>::holds();
        <farside_kit::heap::RemoteHeap<'_> as IfNeither<_>>::holds();
        <farside_kit::heap::Block<'_> as IfNeither<_>>::holds();
        <farside_kit::heap::OwnedBlock<'_> as IfNeither<_>>::holds();
        <farside_kit::pipe::PipeWriter<'_> as IfNeither<_>>::holds();
        <farside_kit::pipe::PipeReader<'_> as IfNeither<_>>::holds();
        <farside_kit::pipe::Loan<'_, '_> as IfNeither<_>>::holds();
        <farside_kit::pipe::Received<'_, '_> as IfNeither<_>>::holds();
    }
}
