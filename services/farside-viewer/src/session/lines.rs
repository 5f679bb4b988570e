//! Questions and answers on a pair of streams: a line for each.

use std::io::{self, BufRead, Read, Write};

use serde_json::{Value, json};

use super::{Answer, Session};

/// The longest line of a question.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Answers questions, one line of JSON each, until the input ends.
///
/// An answer is one line. If it has elements, its field `bytes` is their size, and they follow the
/// line. So they follow a question that has this field. The field `id` of a question comes back in
/// the answer.
///
/// # Errors
/// The error of a stream.
pub fn serve_lines(session: &Session, mut input: impl BufRead, mut output: impl Write) -> io::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(());
        }
        if read as u64 == LINE_BYTES_MAX && !line.ends_with(b"\n") {
            let head = json!({ "error": format!("invalid question: a line has {LINE_BYTES_MAX} bytes at most") });
            writeln!(output, "{head}")?;
            return output.flush();
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let Answer { mut head, body } = match serde_json::from_slice::<Value>(&line) {
            Ok(question) => {
                let bytes = question.get("bytes").and_then(Value::as_u64).unwrap_or(0);
                let mut elements = Vec::new();
                // It grows as the elements arrive.
                if (input.by_ref().take(bytes).read_to_end(&mut elements)? as u64) < bytes {
                    return Ok(());
                }
                let mut answer = session.answer(&question, &elements);
                if let Some(id) = question.get("id") {
                    answer.head["id"] = id.clone();
                }
                answer
            }
            Err(error) => Answer { head: json!({ "error": format!("invalid question: {error}") }), body: Vec::new() },
        };
        // A single element has a body, too, so an empty one means that there is none.
        if !body.is_empty() {
            head["bytes"] = body.len().into();
        }
        writeln!(output, "{head}")?;
        output.write_all(&body)?;
        output.flush()?;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn answers(input: &[u8]) -> Vec<Value> {
        let session = Session::new("no such job", Duration::from_secs(1));
        let mut output = Vec::new();
        serve_lines(&session, input, &mut output).unwrap();
        output.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
    }

    #[test]
    fn a_wrong_question_is_an_answer_and_the_next_one_is_read() {
        let found = answers(
            b"{\n[]\n\n{\"do\": 7}\n{\"do\": \"fly\", \"id\": 5}\n{\"do\": \"list\", \"jobs\": 1}\n\xff\n\
              {\"do\": \"get\", \"area\": \"a\", \"step\": -1}\n{\"do\": \"list\", \"id\": [1]}",
        );
        let errors: Vec<&str> = found.iter().map(|answer| answer["error"].as_str().unwrap()).collect();
        for (error, word) in errors.iter().zip([
            "EOF",
            "no object",
            "no text",
            "\"fly\"",
            "no \"jobs\"",
            "line 1",
            "no whole number",
            "no such job",
        ]) {
            assert!(error.contains(word), "{error} should say {word}");
        }
        assert_eq!((errors.len(), &found[3]["id"], &found[7]["id"]), (8, &json!(5), &json!([1])));
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let long = vec![b' '; 2 << 20];
        let found = answers(&long);
        assert_eq!(found.len(), 1);
        assert!(found[0]["error"].as_str().unwrap().contains("1048576 bytes at most"));
    }
}
