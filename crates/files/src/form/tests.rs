use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::*;

#[derive(Debug, Default, Deserialize, PartialEq)]
struct Whole {
    name: String,
    #[serde(default)]
    parts: Vec<Part>,
    #[serde(default)]
    by_name: BTreeMap<String, Part>,
    #[serde(default)]
    free: Option<Value>,
    #[serde(default)]
    choice: Option<Choice>,
}

#[derive(Debug, Deserialize, PartialEq)]
struct Part {
    #[serde(rename = "match")]
    pattern: String,
    #[serde(default)]
    inner: Option<Box<Part>>,
    #[serde(default)]
    span: Vec<[u64; 2]>,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Choice {
    First,
}

fn json(text: &str) -> Result<Whole, String> {
    from_json(text.as_bytes()).map_err(|error| error.to_string())
}

#[test]
fn good_forms_are_read_and_foreign_members_ignored() {
    let whole = json(
        r#"{"x-a": 1, "x-a": {"b": 1, "b": 2}, "name": "n", "choice": "first", "free": {"any": [null]},
           "parts": [{"match": "p", "x-": [], "inner": {"match": "q"}, "span": [[1, 2]]}],
           "by_name": {"x-kept": {"match": "r"}}}"#,
    )
    .unwrap();
    assert_eq!(whole.parts[0].inner.as_ref().unwrap().pattern, "q");
    assert_eq!(whole.by_name["x-kept"].pattern, "r");
    let toml = r#"
        name = "n"
        choice = "first"
        x-made = 2020-01-01
        [x-mine]
        whatever = 1
        [free]
        any = 1
        [[parts]]
        match = "p"
        span = [[1, 2]]
        inner = {match = "q", x-y = 1}
    "#;
    let from_toml: Whole = from_toml(toml).unwrap();
    assert_eq!(from_toml.parts, whole.parts);
}

#[test]
fn unknown_and_doubled_members_are_named_with_their_place() {
    for (text, expected) in [
        (r#"{"nam": "n"}"#, "line 1, column 6: unknown member `nam` (did you mean `name`?)"),
        (
            r#"{"name": "n", "elsewhere": 1}"#,
            "unknown member `elsewhere`; known are `name`, `parts`, `by_name`, `free`, `choice`",
        ),
        (r#"{"name": "n", "name": "m"}"#, "line 1, column 20: the member `name` is given twice"),
        (
            r#"{"name": "n", "parts": [{"match": "p"}, {"match": "p", "inner": {"mtach": "q"}}]}"#,
            "column 72: parts[1].inner: unknown member `mtach` (did you mean `match`?)",
        ),
        (
            "{\"name\": \"n\",\n \"by_name\": {\"a\": {\"match\": \"p\"}, \"a\": {\"match\": \"q\"}}}",
            "line 2, column 37: by_name: the member `a` is given twice",
        ),
        (
            r#"{"name": "n", "free": {"deep": [{"k": 1, "k": 2}]}}"#,
            "free.deep[0]: the member `k` is given twice",
        ),
        (r#"{"name": "n", "parts": [{"match": 3}]}"#, "parts[0].match: invalid type: integer `3`"),
        (r#"{"name": "n", "parts": [{}]}"#, "parts[0]: missing field `match`"),
        (r#"{"name": "n"} 1"#, "line 1, column 15: not JSON: trailing characters"),
        ("{", "not JSON: EOF while parsing"),
    ] {
        let error = json(text).unwrap_err();
        assert!(error.contains(expected), "{text}\n{error}");
    }
    for (text, expected) in [
        ("name = \"n\"\nnme = 1", "line 2, column 1: unknown member `nme` (did you mean `name`?)"),
        ("name = \"n\"\nname = \"m\"", "line 2, column 1: duplicate key"),
        (
            "name = \"n\"\n[[parts]]\nmatch = \"p\"\ninner = {match = \"q\", iner = 1}",
            "line 4, column 23: parts[0].inner: unknown member `iner` (did you mean `inner`?)",
        ),
        ("name = 1", "line 1, column 8: name: invalid type: integer `1`"),
    ] {
        let error = from_toml::<Whole>(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}\n{error}");
    }
}

#[test]
fn values_read_inside_other_readers_are_strict() {
    let read = |text: &str| {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        Strict::<Value>::NEW.deserialize(&mut deserializer)
    };
    assert_eq!(read(r#"{"a": [1, {"x-b": 2}]}"#).unwrap()["a"][1]["x-b"], 2);
    assert!(read(r#"{"a": [1, {"b": 2, "b": 2}]}"#).is_err());
}
