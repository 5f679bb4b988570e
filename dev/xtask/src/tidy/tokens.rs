//! Rust source as words and punctuation, without comments, strings and tests.

/// The tokens of a source: identifiers, numbers, `::`, and single characters of punctuation.
/// Comments are left out; a string or character literal becomes the one token `"`.
pub(super) fn tokens(text: &str) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    let (mut found, mut at) = (Vec::new(), 0);
    while at < characters.len() {
        let (current, next) = (characters[at], characters.get(at + 1).copied());
        if current.is_whitespace() {
            at += 1;
        } else if current == '/' && next == Some('/') {
            at = position(&characters, at, |character| character == '\n');
        } else if current == '/' && next == Some('*') {
            at = behind_block_comment(&characters, at);
        } else if let Some(end) = behind_string(&characters, at) {
            found.push("\"".to_owned());
            at = end;
        } else if current == '_' || current.is_alphanumeric() {
            let end = position(&characters, at, |character| character != '_' && !character.is_alphanumeric());
            found.push(characters[at..end].iter().collect());
            at = end;
        } else if current == ':' && next == Some(':') {
            found.push("::".to_owned());
            at += 2;
        } else {
            found.push(current.to_string());
            at += 1;
        }
    }
    found
}

/// The first position from `from` on whose character passes, or the end.
fn position(characters: &[char], from: usize, passes: impl Fn(char) -> bool) -> usize {
    (from..characters.len()).find(|at| passes(characters[*at])).unwrap_or(characters.len())
}

fn behind_block_comment(characters: &[char], from: usize) -> usize {
    let (mut depth, mut at) = (0, from);
    while at < characters.len() {
        match (characters[at], characters.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// The end of the string or character literal that begins at `at`, if one begins there. A lifetime
/// is no literal.
fn behind_string(characters: &[char], at: usize) -> Option<usize> {
    let prefix_end = position(characters, at, |character| !matches!(character, 'b' | 'c' | 'r'));
    let hashes_end = position(characters, prefix_end, |character| character != '#');
    let (is_raw, hashes) = (characters[at..prefix_end].contains(&'r'), hashes_end - prefix_end);
    let quote = characters.get(hashes_end).copied()?;
    if quote == '"' && is_raw && prefix_end - at <= 2 {
        let is_end = |end: usize| {
            let after = &characters[end + 1..];
            characters[end] == '"' && after.len() >= hashes && after[..hashes].iter().all(|after| *after == '#')
        };
        return Some(
            (hashes_end + 1..characters.len())
                .find(|end| is_end(*end))
                .map_or(characters.len(), |end| end + 1 + hashes),
        );
    }
    if hashes > 0 || prefix_end - at > 1 {
        return None;
    }
    if quote == '\'' {
        // `'a'` and `'\n'` are characters; `'a` without the second quote is a lifetime.
        let is_escape = characters.get(hashes_end + 1) == Some(&'\\');
        if !is_escape && characters.get(hashes_end + 2) != Some(&'\'') {
            return None;
        }
    } else if quote != '"' {
        return None;
    }
    let mut end = hashes_end + 1;
    while end < characters.len() && characters[end] != quote {
        end += if characters[end] == '\\' { 2 } else { 1 };
    }
    Some(end + 1)
}

/// A source without the items that are built for tests only.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Product {
    /// What remains.
    pub(super) tokens: Vec<String>,
    /// The modules whose files are built for tests only.
    pub(super) test_modules: Vec<String>,
}

/// Leaves out the items behind `#[cfg(test)]` and `#[cfg(all(test, …))]`.
pub(super) fn product(text: &str) -> Product {
    let all = tokens(text);
    let (mut product, mut at) = (Product::default(), 0);
    while at < all.len() {
        let attribute =
            (all[at] == "#" && all.get(at + 1).is_some_and(|next| next == "[")).then(|| behind_group(&all, at + 1));
        match attribute {
            Some(end) if is_for_tests(&all[at..end]) => {
                let item_end = behind_item(&all, end);
                let item = &all[end..item_end];
                if let [.., keyword, name, last] = item
                    && keyword == "mod"
                    && last == ";"
                {
                    product.test_modules.push(name.clone());
                }
                at = item_end;
            }
            _ => {
                product.tokens.push(all[at].clone());
                at += 1;
            }
        }
    }
    product
}

/// Whether an attribute keeps an item out of every build but those for tests.
fn is_for_tests(attribute: &[String]) -> bool {
    let words: Vec<&str> = attribute.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["#", "[", "cfg", "(", "test", ")", "]"] => true,
        ["#", "[", "cfg", "(", "all", "(", "test", rest @ ..] => !rest.contains(&"any"),
        _ => false,
    }
}

/// The end of the bracketed group that begins at `open`.
fn behind_group(all: &[String], open: usize) -> usize {
    let mut depth = 0;
    for (at, token) in all.iter().enumerate().skip(open) {
        match token.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    all.len()
}

/// The end of the item that begins at `from`, behind its other attributes.
fn behind_item(all: &[String], from: usize) -> usize {
    let mut at = from;
    while all.get(at).is_some_and(|token| token == "#") {
        at = behind_group(all, at + 1);
    }
    let ends_with_semicolon =
        all[at..].iter().take(4).any(|token| ["use", "static", "let", "type"].contains(&token.as_str()));
    while at < all.len() {
        match all[at].as_str() {
            ";" => return at + 1,
            "{" if !ends_with_semicolon => return behind_group(all, at),
            "(" | "[" | "{" => at = behind_group(all, at),
            _ => at += 1,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_no_words() {
        let text =
            "a::b // crate::c\n/* crate::d /* e */ */ \"crate::f\\\"\" 'x' '\\'' &'static r#\"g\"h\"# b\"i\" br\"j\"";
        assert_eq!(tokens(text), ["a", "::", "b", "\"", "\"", "\"", "&", "'", "static", "\"", "\"", "\""]);
    }

    #[test]
    fn tests_are_left_out() {
        let text = "use a::b;\n#[cfg(test)]\nmod tests;\n#[cfg(test)] mod inside { fn f() { x } }\n#[cfg(test)] #[x] use c::{d};\n\
                    #[cfg(all(test, not(loom)))] pub(crate) fn g(h: [u8; 2]) -> u8 { 1 }\n#[cfg(not(test))] i!();";
        let product = product(text);
        assert_eq!(product.test_modules, ["tests"]);
        assert_eq!(product.tokens.concat(), "usea::b;#[cfg(not(test))]i!();");
    }
}
