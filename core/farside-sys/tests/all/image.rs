//! The image of this test program: its own functions are found in it, and nothing else is.

use std::process::Command;

use farside_sys::image::{Image, ImageError};

fn plain(x: u64) -> u64 {
    x + 1
}

fn generic<T: Into<u64>>(x: T) -> u64 {
    // Long enough that its middle is not its end.
    (0..x.into()).map(|i| i.wrapping_mul(0x9E37_79B9) ^ plain(i)).sum()
}

extern "C" fn foreign(x: u64) -> u64 {
    generic(x)
}

/// Functions of every kind that can be sent, from this crate and from the standard library.
fn functions() -> Vec<usize> {
    let closure: fn(u64) -> u64 = |x| generic(x) + 3;
    vec![
        plain as fn(u64) -> u64 as usize,
        generic::<u8> as fn(u8) -> u64 as usize,
        generic::<u32> as fn(u32) -> u64 as usize,
        foreign as extern "C" fn(u64) -> u64 as usize,
        closure as usize,
        <Vec<u32> as Clone>::clone as fn(&Vec<u32>) -> Vec<u32> as usize,
        functions as fn() -> Vec<usize> as usize,
    ]
}

#[test]
fn own_functions_are_found() -> Result<(), ImageError> {
    let image = Image::of_this_program()?;
    assert!(image.checks_function_starts());
    assert!(image.function_count() > functions().len());
    for address in functions() {
        let offset = image.text_offset(address).expect("it is part of this program");
        assert_eq!(image.function_at(offset), Some(address));
    }
    Ok(())
}

#[test]
fn the_middle_of_a_function_is_refused() -> Result<(), ImageError> {
    let image = Image::of_this_program()?;
    for address in functions() {
        let offset = image.text_offset(address + 1).expect("it is part of this program");
        assert_eq!(image.function_at(offset), None);
    }
    Ok(())
}

#[test]
fn addresses_outside_the_text_are_refused() -> Result<(), ImageError> {
    let image = Image::of_this_program()?;
    let text = image.text();
    assert_eq!(image.text_offset(text.start), Some(0));
    assert_eq!(image.text_offset(text.end - 1), Some(text.len() as u32 - 1));
    let on_the_heap = Box::new(0_u8);
    let data = std::ptr::from_ref(&*on_the_heap).addr();
    for address in [0, text.start - 1, text.end, data, usize::MAX] {
        assert_eq!(image.text_offset(address), None, "{address:#x}");
    }
    for offset in [text.len() as u32, text.len() as u32 + 1, 1 << 31, u32::MAX] {
        assert_eq!(image.function_at(offset), None, "{offset:#x}");
    }
    Ok(())
}

/// Exactly as many offsets are accepted as functions are known, so nothing outside the table is
/// accepted.
#[test]
fn only_function_starts_pass() -> Result<(), ImageError> {
    let image = Image::of_this_program()?;
    let passing = (0..image.text().len() as u32).filter(|&offset| image.function_at(offset).is_some()).count();
    assert_eq!(passing, image.function_count());
    Ok(())
}

const FACTS: &str = "facts of the image: ";

/// The next test runs this one in another process and reads what it prints.
#[test]
fn tell_facts() -> Result<(), ImageError> {
    let image = Image::of_this_program()?;
    let offset = image.text_offset(plain as fn(u64) -> u64 as usize).expect("it is part of this program");
    assert!(image.function_at(offset).is_some());
    println!("{FACTS}{} {} {offset}", image.fingerprint(), image.function_count());
    Ok(())
}

#[test]
fn another_process_of_this_program_has_the_same_facts() {
    let facts = || {
        let program = std::env::current_exe().expect("the test program has a path");
        let told = Command::new(program)
            .args(["--exact", "image::tell_facts", "--nocapture"])
            .output()
            .expect("it can be started");
        let text = String::from_utf8_lossy(&told.stdout).into_owned();
        let (_, facts) = text.split_once(FACTS).expect("it told its facts");
        facts.lines().next().expect("on a line").to_owned()
    };
    let image = Image::of_this_program().expect("this program has an image");
    let (one, two) = (facts(), facts());
    assert_eq!(one, two);
    assert!(one.starts_with(&image.fingerprint().to_string()), "{one}");
}
