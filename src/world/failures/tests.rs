//! Tests of the failures by themselves.

use super::*;
use crate::model::request::NewClaim;
use crate::net::addresses::AddressSet;

const DOWN: &str = "failed calling webhook \"x\": connection refused";

fn now(seconds: u64) -> Now {
    let uptime = Duration::from_secs(seconds);
    Now { uptime, wall: Timestamp::default() + uptime }
}

fn node(name: &str) -> Waiter {
    Waiter::Node(name.into())
}

/// The claim of a block for a node.
fn claim(node: &str, cidr: &str) -> Write {
    Write::CreateClaim(NewClaim {
        cidr: cidr.parse().unwrap(),
        pool: "p".into(),
        node: node.into(),
        node_uid: "u".into(),
        pod_ip_pool: None,
        excluded: AddressSet::new(),
        since: Timestamp::default(),
        created_for: None,
    })
}

/// The claim of this node fails at a time, in these words.
fn fails(failures: &mut Failures, name: &str, words: &str, seconds: u64) -> Next {
    let (answer, at) = (Answer::Unknown(words.to_owned()), now(seconds));
    failures.failed(&node(name), &claim(name, "10.0.0.0/28"), &answer, at.uptime, at)
}

#[test]
fn of_all_that_wait_for_one_cause_one_tries_every_5_s_in_turn() {
    let mut failures = Failures::default();
    let names = ["a", "b", "c"];
    for name in names {
        assert_eq!(fails(&mut failures, name, DOWN, 0), Next::Turn);
    }
    let mut tries = Vec::new();
    for second in 1..60 {
        for waiter in failures.take_turns(Duration::from_secs(second)) {
            let Waiter::Node(name) = waiter else { panic!("a pool") };
            fails(&mut failures, name.as_str(), DOWN, second);
            tries.push((second, name.to_string()));
        }
    }
    let last: Vec<(u64, &str)> =
        tries.iter().rev().take(4).rev().map(|(second, name)| (*second, name.as_str())).collect();
    let (first, of_first) = last[0];
    let next = names[(names.iter().position(|name| *name == of_first).unwrap() + 1) % 3];
    assert_eq!((last[1], last[3]), ((first + 5, next), (first + 15, of_first)), "{tries:?}");
    assert!(tries.len() < 20, "{tries:?}");
    let released = failures.succeeded(&node("b"), &claim("b", "10.0.0.16/28"));
    assert_eq!(released.len(), 3);
    assert_eq!((failures.next_turn(), failures), (None, Failures::default()));
}

#[test]
fn a_failure_is_reported_after_10_s_even_if_its_words_change() {
    let mut failures = Failures::default();
    for second in 0..=9 {
        fails(&mut failures, "a", if second % 2 == 0 { "one" } else { "two" }, second);
    }
    assert_eq!(failures.reported().count(), 0);
    fails(&mut failures, "a", "three", 10);
    let reported: Vec<(&str, &str, Timestamp)> =
        failures.reported().map(|(action, of)| (action, of.words.as_str(), of.since_wall)).collect();
    assert_eq!(reported, [("create NodeIPBlock", "three", Timestamp::default())]);
    failures.forget(&node("a"));
    assert_eq!(failures, Failures::default());
}

/// A webhook that hangs has failed from when the first request was sent.
#[test]
fn the_time_without_an_answer_counts() {
    let mut failures = Failures::default();
    let answer = Answer::Unknown("no answer within 10s".to_owned());
    failures.failed(&node("a"), &claim("a", "10.0.0.0/28"), &answer, Duration::ZERO, now(10));
    assert_eq!(failures.reported().count(), 1);
}

#[test]
fn a_conflict_is_of_its_object_alone() {
    let mut failures = Failures::default();
    let answer = Answer::Conflict("it exists".to_owned());
    for name in ["a", "b"] {
        let next =
            failures.failed(&node(name), &claim(name, "10.0.0.0/28"), &answer, Duration::ZERO, now(10));
        assert_eq!(next, Next::Own);
    }
    assert_eq!((failures.reported().count(), failures.next_turn()), (2, None));
    assert_eq!(failures.succeeded(&node("a"), &claim("a", "10.0.0.0/28")).len(), 1);
}

/// It tries all its writes at once, so after a conflict of one of them it waits for no turn for the others.
#[test]
fn one_whose_write_conflicts_awaits_no_turn() {
    let mut failures = Failures::default();
    for name in ["a", "b"] {
        fails(&mut failures, name, DOWN, 0);
    }
    let answer = Answer::Conflict("it exists".to_owned());
    failures.failed(&node("a"), &claim("a", "10.0.0.16/28"), &answer, Duration::ZERO, now(0));
    assert_eq!(["a", "b"].map(|name| failures.awaits_turn(&node(name))), [false, true]);
    assert_eq!(failures.take_turns(Duration::from_secs(1)), [node("b")]);
    assert_eq!((failures.awaits_turn(&node("b")), failures.next_turn()), (false, None));
}

#[test]
fn a_server_that_asks_for_a_longer_wait_gets_it() {
    let mut failures = Failures::default();
    let answer = Answer::Refused("too many".to_owned(), Some(Duration::from_secs(20)));
    failures.failed(&node("a"), &claim("a", "10.0.0.0/28"), &answer, Duration::ZERO, now(0));
    assert_eq!(failures.next_turn(), Some(Duration::from_secs(20)));
}

#[test]
fn causes_with_ever_different_words_become_one() {
    let mut failures = Failures::default();
    for letter in 'a'..='z' {
        let name = letter.to_string();
        fails(&mut failures, &name, &format!("refused by {letter}"), 0);
    }
    assert_eq!(failures.causes.len(), MAX_CAUSES + 1);
}

#[test]
fn equal_causes_are_seen_in_words_about_different_objects() {
    let words = |name: &str, port: u16| format!("\"{name}\" is forbidden: 127.0.0.1:{port} is closed");
    assert_eq!(gist(&words("10.0.0.0-28", 4711), "10.0.0.0-28"), gist(&words("a", 9), "a"));
    assert_ne!(gist(&words("a", 9), "a"), gist("other", "a"));
}
