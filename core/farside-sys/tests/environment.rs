//! Defaults of the environment are set while the program has one thread, and not once it has more.

use farside_sys::process::set_default_environment;

fn main() {
    let value = |name| std::env::var(name).ok();
    let path = value("PATH");
    assert!(path.is_some(), "PATH is set in every environment");
    assert!(set_default_environment(&[("FARSIDE_TEST_ONE", "one"), ("PATH", "another")]));
    assert_eq!(value("FARSIDE_TEST_ONE").as_deref(), Some("one"));
    assert_eq!(value("PATH"), path, "a variable that was set keeps its value");

    let set = std::thread::spawn(|| set_default_environment(&[("FARSIDE_TEST_TWO", "two")])).join();
    assert!(
        !set.expect("setting does not panic") && value("FARSIDE_TEST_TWO").is_none(),
        "the process has a second thread"
    );
    println!("test environment ... ok");
}
