//! Conditions on the labels of a node, and the label selectors that are exactly the same conditions.
//!
//! A label selector is a list of requirements about one key each, and all of them must hold. So it can express a
//! condition if the labels that meet it are a product: any allowed state of one key together with any allowed state of
//! another. That is decided by trying all states, and nothing is ever approximated.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// A condition on labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Predicate {
    /// All of them hold. Without any, it always holds.
    All(Vec<Predicate>),
    /// One of them holds. Without any, it never holds.
    Any(Vec<Predicate>),
    /// The label exists.
    Has(String),
    /// The label exists, and has one of these values.
    In(String, Vec<String>),
    /// The opposite of one of the last two.
    Not(Box<Predicate>),
}

/// The requirements of a label selector.
#[derive(Debug, PartialEq)]
pub(super) struct Requirements {
    pub(super) expressions: Vec<Value>,
    /// Whether they contradict each other.
    pub(super) select_nothing: bool,
}

/// The label that every node has, for requirements that no node meets.
const ANY_KEY: &str = "kubernetes.io/hostname";

/// The maximum number of combinations of states that are tried.
const MAX_TRIED: usize = 1 << 18;

/// The state of a label, as far as a condition can distinguish states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State<'a> {
    Absent,
    /// A value that the condition names.
    Value(&'a str),
    /// Any other value.
    Other,
}

impl Predicate {
    /// The opposite. By the laws of De Morgan only the conditions about one key are negated.
    pub(super) fn negated(self) -> Self {
        match self {
            Self::All(parts) => Self::Any(parts.into_iter().map(Self::negated).collect()),
            Self::Any(parts) => Self::All(parts.into_iter().map(Self::negated).collect()),
            Self::Not(inner) => *inner,
            Self::Has(_) | Self::In(..) => Self::Not(Box::new(self)),
        }
    }

    /// The requirements that are exactly this condition; an error is a reason for a user.
    pub(super) fn requirements(&self) -> Result<Requirements, String> {
        let mut order = Vec::new();
        self.keys(&mut order);
        let mut found = BTreeMap::new();
        for group in independent(self.conjuncts()) {
            let Some(allowed) = allowed_states(&group)? else {
                let key = order.first().copied().unwrap_or(ANY_KEY);
                let expressions = ["Exists", "DoesNotExist"].map(|op| json!({"key": key, "operator": op}));
                return Ok(Requirements { expressions: expressions.into(), select_nothing: true });
            };
            for key in allowed {
                found.insert(key.name, key.requirements()?);
            }
        }
        let expressions = order.iter().filter_map(|key| found.remove(key)).flatten().collect();
        Ok(Requirements { expressions, select_nothing: false })
    }

    /// The keys, in the order in which they are named.
    fn keys<'a>(&'a self, into: &mut Vec<&'a str>) {
        match self {
            Self::All(parts) | Self::Any(parts) => parts.iter().for_each(|part| part.keys(into)),
            Self::Not(inner) => inner.keys(into),
            Self::Has(key) | Self::In(key, _) => {
                if !into.contains(&key.as_str()) {
                    into.push(key);
                }
            }
        }
    }

    /// The conditions that must all hold.
    fn conjuncts(&self) -> Vec<&Self> {
        match self {
            Self::All(parts) => parts.iter().flat_map(Self::conjuncts).collect(),
            Self::Any(_) | Self::Has(_) | Self::In(..) | Self::Not(_) => vec![self],
        }
    }

    /// Adds the values that are named for the key.
    fn values_of<'a>(&'a self, key: &str, into: &mut Vec<&'a str>) {
        match self {
            Self::All(parts) | Self::Any(parts) => parts.iter().for_each(|part| part.values_of(key, into)),
            Self::Not(inner) => inner.values_of(key, into),
            Self::In(of, values) if of == key => {
                for value in values {
                    if !into.contains(&value.as_str()) {
                        into.push(value);
                    }
                }
            }
            Self::Has(_) | Self::In(..) => {}
        }
    }

    fn holds<'s>(&self, state_of: &impl Fn(&str) -> State<'s>) -> bool {
        match self {
            Self::All(parts) => parts.iter().all(|part| part.holds(state_of)),
            Self::Any(parts) => parts.iter().any(|part| part.holds(state_of)),
            Self::Not(inner) => !inner.holds(state_of),
            Self::Has(key) => state_of(key) != State::Absent,
            Self::In(key, values) => match state_of(key) {
                State::Value(value) => values.iter().any(|one| one == value),
                State::Absent | State::Other => false,
            },
        }
    }
}

/// The conditions in groups that share no key.
fn independent(conjuncts: Vec<&Predicate>) -> Vec<Vec<&Predicate>> {
    let mut groups: Vec<(Vec<&str>, Vec<&Predicate>)> = Vec::new();
    for conjunct in conjuncts {
        let mut keys = Vec::new();
        conjunct.keys(&mut keys);
        let (touching, apart): (Vec<_>, Vec<_>) =
            groups.into_iter().partition(|(of, _)| of.iter().any(|key| keys.contains(key)));
        let mut members = Vec::new();
        for (more_keys, more_members) in touching {
            keys.extend(more_keys);
            members.extend(more_members);
        }
        members.push(conjunct);
        groups = apart;
        groups.push((keys, members));
    }
    groups.into_iter().map(|(_, members)| members).collect()
}

/// A key, its possible states, and which of them the conditions allow.
struct Key<'a> {
    name: &'a str,
    states: Vec<State<'a>>,
    is_allowed: Vec<bool>,
}

/// The allowed states of each key; `None` if the conditions contradict each other.
fn allowed_states<'a>(group: &[&'a Predicate]) -> Result<Option<Vec<Key<'a>>>, String> {
    let mut names = Vec::new();
    for condition in group {
        condition.keys(&mut names);
    }
    let mut keys: Vec<Key<'_>> = Vec::new();
    for name in names {
        let mut values = Vec::new();
        for condition in group {
            condition.values_of(name, &mut values);
        }
        let states: Vec<_> = [State::Absent]
            .into_iter()
            .chain(values.into_iter().map(State::Value))
            .chain([State::Other])
            .collect();
        keys.push(Key { name, is_allowed: vec![false; states.len()], states });
    }
    let n_combinations = keys.iter().try_fold(1usize, |all, key| all.checked_mul(key.states.len()));
    let Some(n_combinations) = n_combinations.filter(|n| *n <= MAX_TRIED) else {
        return Err("has too many keys and values under one `||`; select the nodes by a label of their own"
            .to_owned());
    };
    let mut n_met = 0;
    for combination in 0..n_combinations {
        let mut rest = combination;
        let mut chosen = Vec::with_capacity(keys.len());
        for key in &keys {
            chosen.push(rest % key.states.len());
            rest /= key.states.len();
        }
        let state_of = |name: &str| {
            let key = keys.iter().zip(&chosen).find(|(key, _)| key.name == name);
            key.map_or(State::Absent, |(key, index)| key.states[*index])
        };
        if group.iter().all(|condition| condition.holds(&state_of)) {
            n_met += 1;
            for (key, index) in keys.iter_mut().zip(&chosen) {
                key.is_allowed[*index] = true;
            }
        }
    }
    // They are a product if and only if their number is that of the product.
    let of_product: usize =
        keys.iter().map(|key| key.is_allowed.iter().filter(|allowed| **allowed).count()).product();
    if n_met == 0 {
        Ok(None)
    } else if n_met == of_product {
        Ok(Some(keys))
    } else {
        let names: Vec<&str> = keys.iter().map(|key| key.name).collect();
        Err(format!(
            "a label selector has no `||` over several keys ({}); give the nodes that it means one label, and select \
             that",
            names.join(", ")
        ))
    }
}

impl Key<'_> {
    /// The requirements about this key alone.
    fn requirements(&self) -> Result<Vec<Value>, String> {
        let allows = |wanted: State<'_>| {
            self.states.iter().zip(&self.is_allowed).any(|(state, allowed)| *allowed && *state == wanted)
        };
        let values = |wanted: bool| -> Vec<&str> {
            let states = self.states.iter().zip(&self.is_allowed).filter(|(_, allowed)| **allowed == wanted);
            states
                .filter_map(|(state, _)| if let State::Value(value) = state { Some(*value) } else { None })
                .collect()
        };
        let plain = |operator: &str| json!({"key": self.name, "operator": operator});
        let of = |operator: &str, values: &[&str]| json!({"key": self.name, "operator": operator, "values": values});
        let (allowed, refused) = (values(true), values(false));
        Ok(match (allows(State::Absent), allows(State::Other)) {
            (true, true) if refused.is_empty() => Vec::new(),
            (true, true) => vec![of("NotIn", &refused)],
            (true, false) if allowed.is_empty() => vec![plain("DoesNotExist")],
            (true, false) => {
                return Err(format!(
                    "a label selector can't express that the label {} is missing or is {}; give the nodes that it \
                     means one label, and select that",
                    self.name,
                    allowed.join(" or ")
                ));
            }
            (false, true) if refused.is_empty() => vec![plain("Exists")],
            (false, true) => vec![plain("Exists"), of("NotIn", &refused)],
            (false, false) => vec![of("In", &allowed)],
        })
    }
}
