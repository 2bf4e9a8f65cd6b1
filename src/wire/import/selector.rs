//! Selectors of Calico as terms of a label selector.
//!
//! Reads only expressions that a label selector can express exactly, and names the first that it can't.

use std::iter::Peekable;
use std::vec::IntoIter;

use serde_json::{Value, json};

/// A word of a selector.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    /// A key, an operator or a function.
    Word(String),
    /// A quoted text.
    Text(String),
    Sign(&'static str),
}

const SIGNS: [&str; 11] = ["&&", "||", "==", "!=", "!", "(", ")", "{", "}", ",", "*"];

/// The terms that must all hold; an error is a rule for a person.
pub(super) fn requirements(selector: &str) -> Result<Vec<Value>, String> {
    let mut rest = Rest(tokens(selector)?.into_iter().peekable());
    let mut terms = Vec::new();
    if rest.0.peek().is_none() {
        return Ok(terms);
    }
    loop {
        terms.extend(rest.term()?);
        match rest.0.next() {
            None => return Ok(terms),
            Some(Token::Sign("&&")) => {}
            Some(Token::Sign("||")) => {
                return Err("a label selector has no `||`: create an IPPool per alternative".to_owned());
            }
            Some(other) => return Err(unexpected(Some(&other))),
        }
    }
}

fn unexpected(found: Option<&Token>) -> String {
    let found = match found {
        Some(Token::Word(word)) => format!("`{word}`"),
        Some(Token::Text(text)) => format!("`\"{text}\"`"),
        Some(Token::Sign(sign)) => format!("`{sign}`"),
        None => "the end".to_owned(),
    };
    format!(
        "a label selector can't express {found} here; all(), has(), !has(), ==, !=, in, not in and && can be converted"
    )
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        if let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
            tokens.push(Token::Sign(sign));
            rest = &rest[sign.len()..];
        } else if first == '"' || first == '\'' {
            let Some(end) = rest[1..].find(first) else { return Err("a quote is not closed".to_owned()) };
            tokens.push(Token::Text(rest[1..=end].to_owned()));
            rest = &rest[end + 2..];
        } else {
            let is_word = |char: char| char.is_alphanumeric() || "-_./".contains(char);
            let end = rest.find(|char| !is_word(char)).unwrap_or(rest.len());
            if end == 0 {
                return Err(format!("`{first}` is no part of a selector"));
            }
            tokens.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        rest = rest.trim_start();
    }
    Ok(tokens)
}

/// The tokens that are not read yet.
struct Rest(Peekable<IntoIter<Token>>);

impl Rest {
    fn expect(&mut self, sign: &'static str) -> Result<(), String> {
        match self.0.next() {
            Some(Token::Sign(found)) if found == sign => Ok(()),
            other => Err(unexpected(other.as_ref())),
        }
    }

    fn word(&mut self) -> Result<String, String> {
        match self.0.next() {
            Some(Token::Word(word)) => Ok(word),
            other => Err(unexpected(other.as_ref())),
        }
    }

    fn text(&mut self) -> Result<String, String> {
        match self.0.next() {
            Some(Token::Text(text)) => Ok(text),
            other => Err(unexpected(other.as_ref())),
        }
    }

    /// One term; `None` for `all()`.
    fn term(&mut self) -> Result<Option<Value>, String> {
        let exists = match self.0.next() {
            Some(Token::Sign("!")) => {
                let word = self.word()?;
                if word != "has" {
                    return Err(unexpected(Some(&Token::Word(word))));
                }
                "DoesNotExist"
            }
            Some(Token::Word(word)) => {
                let opens = self.0.peek() == Some(&Token::Sign("("));
                match (word.as_str(), opens) {
                    ("all", true) => {
                        self.expect("(")?;
                        self.expect(")")?;
                        return Ok(None);
                    }
                    ("has", true) => "Exists",
                    (_, true) => return Err(unexpected(Some(&Token::Word(word)))),
                    (_, false) => return self.comparison(&word).map(Some),
                }
            }
            other => return Err(unexpected(other.as_ref())),
        };
        self.expect("(")?;
        let key = self.word()?;
        self.expect(")")?;
        Ok(Some(json!({"key": key, "operator": exists})))
    }

    fn comparison(&mut self, key: &str) -> Result<Value, String> {
        let (operator, values) = match self.0.next() {
            Some(Token::Sign("==")) => ("In", vec![self.text()?]),
            Some(Token::Sign("!=")) => ("NotIn", vec![self.text()?]),
            Some(Token::Word(word)) if word == "in" => ("In", self.set()?),
            Some(Token::Word(word)) if word == "not" => {
                let word = self.word()?;
                if word != "in" {
                    return Err(unexpected(Some(&Token::Word(word))));
                }
                ("NotIn", self.set()?)
            }
            other => return Err(unexpected(other.as_ref())),
        };
        Ok(json!({"key": key, "operator": operator, "values": values}))
    }

    fn set(&mut self) -> Result<Vec<String>, String> {
        self.expect("{")?;
        let mut values = vec![self.text()?];
        loop {
            match self.0.next() {
                Some(Token::Sign(",")) => values.push(self.text()?),
                Some(Token::Sign("}")) => return Ok(values),
                other => return Err(unexpected(other.as_ref())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_of_a_label_selector_are_read() {
        for (selector, expected) in [
            ("", json!([])),
            ("all()", json!([])),
            ("has(example.com/pods)", json!([{"key": "example.com/pods", "operator": "Exists"}])),
            ("! has( a )", json!([{"key": "a", "operator": "DoesNotExist"}])),
            ("a=='x'&&all()", json!([{"key": "a", "operator": "In", "values": ["x"]}])),
            ("has != \"x y\"", json!([{"key": "has", "operator": "NotIn", "values": ["x y"]}])),
            ("a in {'x', \"y\"}", json!([{"key": "a", "operator": "In", "values": ["x", "y"]}])),
            ("a not in {'x'}", json!([{"key": "a", "operator": "NotIn", "values": ["x"]}])),
        ] {
            assert_eq!(requirements(selector).map(Value::from), Ok(expected), "{selector}");
        }
    }

    #[test]
    fn everything_else_is_refused_and_never_approximated() {
        for (selector, why) in [
            ("a == 'x' || b == 'y'", "`||`"),
            ("(a == 'x')", "`(`"),
            ("!(has(a))", "`(`"),
            ("a contains 'x'", "`contains`"),
            ("a starts with 'x'", "`starts`"),
            ("global()", "`global`"),
            ("a == x", "`x`"),
            ("a == 'x' b == 'y'", "`b`"),
            ("a in {}", "`}`"),
            ("a ==", "the end"),
            ("a == 'x", "a quote is not closed"),
            ("a = 'x'", "`=` is no part"),
            ("a == 'x' &&", "the end"),
        ] {
            let error = requirements(selector).expect_err(selector);
            assert!(error.contains(why), "{selector}: {error}");
        }
    }
}
