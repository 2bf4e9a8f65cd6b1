//! Selectors of Calico as conditions on labels.
//!
//! Reads the grammar of Calico's parser (`libcalico-go/lib/selector`), and names the first word that has no meaning for
//! whole labels, such as `contains`.

use std::iter::Peekable;
use std::vec::IntoIter;

use super::predicate::Predicate;

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

/// The condition that the selector is; an error is a reason for a user.
pub(super) fn parse(selector: &str) -> Result<Predicate, String> {
    let mut rest = Rest(tokens(selector)?.into_iter().peekable());
    if rest.0.peek().is_none() {
        return Ok(Predicate::All(Vec::new()));
    }
    let predicate = rest.any()?;
    match rest.0.next() {
        None => Ok(predicate),
        other => Err(unexpected(other.as_ref())),
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
        "a label selector can't express {found} here; all(), has(), ==, !=, in, not in, !, &&, || and parentheses are \
         read"
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

    /// Whether the next token is this sign, which is then read.
    fn takes(&mut self, sign: &'static str) -> bool {
        self.0.next_if_eq(&Token::Sign(sign)).is_some()
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

    /// Conditions with `||`, which binds less than `&&`.
    fn any(&mut self) -> Result<Predicate, String> {
        let mut parts = vec![self.all()?];
        while self.takes("||") {
            parts.push(self.all()?);
        }
        Ok(Predicate::Any(parts).without_one())
    }

    fn all(&mut self) -> Result<Predicate, String> {
        let mut parts = vec![self.operation()?];
        while self.takes("&&") {
            parts.push(self.operation()?);
        }
        Ok(Predicate::All(parts).without_one())
    }

    /// One condition, perhaps negated or in parentheses.
    fn operation(&mut self) -> Result<Predicate, String> {
        if self.takes("!") {
            return self.operation().map(Predicate::negated);
        }
        if self.takes("(") {
            let inner = self.any()?;
            self.expect(")")?;
            return Ok(inner);
        }
        let word = self.word()?;
        if !self.takes("(") {
            return self.comparison(word);
        }
        let found = match word.as_str() {
            // A selector of nodes selects all of them with `global()`, too.
            "all" | "global" => Predicate::All(Vec::new()),
            "has" => Predicate::Has(self.word()?),
            _ => return Err(unexpected(Some(&Token::Word(word)))),
        };
        self.expect(")")?;
        Ok(found)
    }

    fn comparison(&mut self, key: String) -> Result<Predicate, String> {
        match self.0.next() {
            Some(Token::Sign("==")) => Ok(Predicate::In(key, vec![self.text()?])),
            Some(Token::Sign("!=")) => Ok(Predicate::In(key, vec![self.text()?]).negated()),
            Some(Token::Word(word)) if word == "in" => Ok(Predicate::In(key, self.set()?)),
            Some(Token::Word(word)) if word == "notin" => Ok(Predicate::In(key, self.set()?).negated()),
            Some(Token::Word(word)) if word == "not" => match self.word()? {
                word if word == "in" => Ok(Predicate::In(key, self.set()?).negated()),
                word => Err(unexpected(Some(&Token::Word(word)))),
            },
            other => Err(unexpected(other.as_ref())),
        }
    }

    fn set(&mut self) -> Result<Vec<String>, String> {
        self.expect("{")?;
        let mut values = Vec::new();
        // Calico reads a comma behind the last value, and an empty set.
        while !self.takes("}") {
            values.push(self.text()?);
            if !self.takes(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok(values)
    }
}

impl Predicate {
    /// One condition in a list is that condition.
    fn without_one(self) -> Self {
        match self {
            Self::All(mut parts) | Self::Any(mut parts) if parts.len() == 1 => parts.remove(0),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn requirements(selector: &str) -> Result<Value, String> {
        let found = parse(selector)?.requirements()?;
        assert!(!found.select_nothing, "{selector}");
        Ok(Value::from(found.expressions))
    }

    fn in_(key: &str, values: &[&str]) -> Value {
        json!({"key": key, "operator": "In", "values": values})
    }

    fn not_in(key: &str, values: &[&str]) -> Value {
        json!({"key": key, "operator": "NotIn", "values": values})
    }

    fn exists(key: &str) -> Value {
        json!({"key": key, "operator": "Exists"})
    }

    fn absent(key: &str) -> Value {
        json!({"key": key, "operator": "DoesNotExist"})
    }

    #[test]
    fn expressions_of_a_label_selector_are_read() {
        for (selector, expected) in [
            ("", vec![]),
            ("all()", vec![]),
            ("!!all() && global()", vec![]),
            ("has(example.com/pods)", vec![exists("example.com/pods")]),
            ("! has( a )", vec![absent("a")]),
            ("a=='x'&&all()", vec![in_("a", &["x"])]),
            ("has != \"x y\"", vec![not_in("has", &["x y"])]),
            ("a in {'x', \"y\",}", vec![in_("a", &["x", "y"])]),
            ("a not in {'x'}", vec![not_in("a", &["x"])]),
            ("a notin{'x'} && b not in {}", vec![not_in("a", &["x"])]),
        ] {
            assert_eq!(requirements(selector), Ok(Value::from(expected)), "{selector}");
        }
    }

    #[test]
    fn alternatives_over_one_key_and_negations_become_requirements() {
        for (selector, expected) in [
            ("(a == 'x')", vec![in_("a", &["x"])]),
            ("a == 'x' || a == 'y'", vec![in_("a", &["x", "y"])]),
            ("(a == 'x' || a in {'y', 'z'}) && has(b)", vec![in_("a", &["x", "y", "z"]), exists("b")]),
            ("a != 'x' && a != 'y'", vec![not_in("a", &["x", "y"])]),
            ("has(a) && a != 'x'", vec![exists("a"), not_in("a", &["x"])]),
            ("!(a == 'x' || has(b))", vec![not_in("a", &["x"]), absent("b")]),
            ("!(a != 'x')", vec![in_("a", &["x"])]),
            ("!(a == 'x' && a == 'y')", vec![]),
            ("a == 'x' || !has(a) || has(a)", vec![]),
            ("a in {'x', 'y'} && a != 'y'", vec![in_("a", &["x"])]),
            // One side includes the other.
            ("(a == 'x' && b == 'y') || a == 'x'", vec![in_("a", &["x"])]),
            // Both sides of a key that does not matter.
            ("(a == 'x' && has(b)) || (a == 'x' && !has(b))", vec![in_("a", &["x"])]),
            // A product of two keys that is written out.
            (
                "a == '1' && b == '3' || a == '1' && b == '4' || a == '2' && b == '3' || a == '2' && b == '4'",
                vec![in_("a", &["1", "2"]), in_("b", &["3", "4"])],
            ),
        ] {
            assert_eq!(requirements(selector), Ok(Value::from(expected)), "{selector}");
        }
        let many: Vec<String> = (0..40).map(|n| format!("(k{n} == 'x' || k{n} == 'y')")).collect();
        assert_eq!(requirements(&many.join(" && ")).unwrap().as_array().unwrap().len(), 40);
    }

    #[test]
    fn a_selector_of_nothing_selects_nothing() {
        for (selector, key) in [
            ("!all()", "kubernetes.io/hostname"),
            ("a == 'x' && a == 'y'", "a"),
            ("has(b) && a == 'x' && !has(b)", "b"),
            ("a in {}", "a"),
        ] {
            let found = parse(selector).unwrap().requirements().unwrap();
            assert_eq!(
                (found.select_nothing, found.expressions),
                (true, vec![exists(key), absent(key)]),
                "{selector}"
            );
        }
    }

    #[test]
    fn everything_else_is_refused_and_never_approximated() {
        for (selector, why) in [
            ("a == 'x' || b == 'y'", "no `||` over several keys (a, b)"),
            ("!(a == 'x' && b == 'y')", "no `||` over several keys (a, b)"),
            ("a == 'x' || !has(a)", "that the label a is missing or is x"),
            ("a contains 'x'", "`contains`"),
            ("a starts with 'x'", "`starts`"),
            ("any()", "`any`"),
            ("a == x", "`x`"),
            ("a == 'x' b == 'y'", "`b`"),
            ("(a == 'x'", "the end"),
            ("a ==", "the end"),
            ("a == 'x", "a quote is not closed"),
            ("a = 'x'", "`=` is no part"),
            ("a == 'x' &&", "the end"),
        ] {
            let error = requirements(selector).expect_err(selector);
            assert!(error.contains(why), "{selector}: {error}");
        }
        let many: Vec<String> = (0..40).map(|n| format!("has(k{n})")).collect();
        assert!(requirements(&many.join(" || ")).unwrap_err().contains("too many keys"));
    }
}
