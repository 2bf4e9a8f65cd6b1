//! Tests of the event budget: nodes that ask for turns, at times that the test sets.

use super::*;

/// The nodes that may go, in the order of their turns, up to this time. Nothing is decided in between.
fn turns_until(pacing: &mut Pacing, needs: &BTreeMap<NodeName, Need>, seconds: u64) -> Vec<(f64, String)> {
    let (mut turns, end) = (Vec::new(), Duration::from_secs(seconds));
    let mut now = pacing.filled_until;
    loop {
        let n_watchers = pacing.n_watchers();
        pacing.advance(now, || n_watchers);
        while let Some(node) = pacing.next().cloned() {
            assert!(pacing.has_turn(&node, needs[&node], now), "{node} is next and must wait");
            turns.push((now.as_secs_f64(), node.to_string()));
        }
        match pacing.next_turn() {
            Some(at) if at <= end => now = at.max(now),
            Some(_) | None => return turns,
        }
    }
}

fn need(class: WriteClass, purpose: Purpose) -> Need {
    Need { class, n_writes: if purpose == Purpose::Start { 5 } else { 1 }, purpose }
}

/// A budget in a cluster of this size, after as many nodes of each class have asked for a turn: how many of them have
/// had theirs after so many seconds.
#[track_caller]
fn check(budget: u32, n_nodes: usize, asking: &[(WriteClass, usize)], seconds: u64, expected: &[usize]) {
    let mut pacing = Pacing::new(budget);
    pacing.advance(Duration::ZERO, || n_nodes);
    // As after a long quiet time.
    pacing.advance(Duration::from_secs(60), || n_nodes);
    let start = Duration::from_secs(60);
    let mut needs = BTreeMap::new();
    let mut at_once = BTreeMap::from(WriteClass::ALL.map(|class| (class.as_str(), 0)));
    for (class, n_asking) in asking {
        let purpose = if *class == WriteClass::Reclaim { Purpose::Start } else { Purpose::Write };
        for number in 0..*n_asking {
            let node = NodeName::from(format!("{}-{number:05}", class.as_str()).as_str());
            if pacing.has_turn(&node, need(*class, purpose), start) {
                *at_once.entry(class.as_str()).or_default() += 1;
            }
            needs.insert(node, need(*class, purpose));
        }
    }
    for (_, node) in turns_until(&mut pacing, &needs, 60 + seconds) {
        let class = node.split('-').next().unwrap_or_default();
        if let Some(n_turns) = at_once.get_mut(class) {
            *n_turns += 1;
        }
    }
    let found: Vec<usize> = asking.iter().map(|(class, _)| at_once[class.as_str()]).collect();
    assert_eq!(found, expected, "after {seconds} s");
}

#[test]
fn a_small_cluster_is_written_at_once() {
    check(30_000, 300, &[(WriteClass::First, 300)], 0, &[300]);
    check(30_000, 60, &[(WriteClass::First, 60), (WriteClass::Growth, 60)], 0, &[60, 60]);
}

#[test]
fn a_small_cluster_is_written_at_once_also_after_a_start() {
    let mut pacing = Pacing::new(30_000);
    pacing.advance(Duration::ZERO, || 300);
    let first = need(WriteClass::First, Purpose::Write);
    for number in 0..300 {
        assert!(pacing.has_turn(&format!("n{number}").as_str().into(), first, Duration::ZERO), "{number}");
    }
}

#[test]
fn a_large_cluster_has_a_small_burst_and_then_the_rate_of_its_budget() {
    // 30 writes/s.
    check(30_000, 1000, &[(WriteClass::Growth, 1000)], 0, &[10]);
    check(30_000, 1000, &[(WriteClass::Growth, 1000)], 10, &[310]);
}

#[test]
fn first_blocks_have_twenty_writes_per_second_in_any_cluster() {
    check(30_000, 100_000, &[(WriteClass::First, 5000)], 10, &[209]);
    check(1, 5000, &[(WriteClass::First, 5000)], 10, &[209]);
}

#[test]
fn each_class_keeps_its_part_while_more_urgent_ones_use_up_the_budget() {
    // 30 writes/s: 3 of them are for reclaims, which start with five writes each, and 9 for growth.
    let all = [(WriteClass::First, 9000), (WriteClass::Growth, 9000), (WriteClass::Reclaim, 9000)];
    check(30_000, 1000, &all, 100, &[2147, 893, 60]);
    let lower = [(WriteClass::Growth, 9000), (WriteClass::Reclaim, 9000)];
    check(30_000, 1000, &lower, 100, &[2710, 60]);
}

#[test]
fn a_class_without_competitors_has_the_whole_budget() {
    check(30_000, 1000, &[(WriteClass::Reclaim, 9000)], 100, &[602]);
}

/// A pacing without tokens, of a cluster in which one write per second is allowed.
fn drained() -> Pacing {
    let mut pacing = Pacing::new(1000);
    pacing.advance(Duration::ZERO, || 1000);
    pacing.all = 0.0;
    for kept in pacing.kept.values_mut() {
        *kept = 0.0;
    }
    pacing
}

#[test]
fn within_a_class_the_first_comes_first() {
    let mut pacing = drained();
    let growth = need(WriteClass::Growth, Purpose::Write);
    let nodes = ["c", "a", "b"];
    for (number, node) in (1..).zip(nodes) {
        assert!(!pacing.has_turn(&node.into(), growth, Duration::from_millis(number)));
    }
    // Asking again is not a new wait.
    assert!(!pacing.has_turn(&"c".into(), growth, Duration::from_millis(9)));
    let needs = nodes.into_iter().map(|node| (node.into(), growth)).collect();
    let turns = turns_until(&mut pacing, &needs, 10);
    assert_eq!(turns.iter().map(|(_, node)| node.as_str()).collect::<Vec<_>>(), nodes);
}

#[test]
fn a_turn_for_a_read_is_also_one_for_the_write_that_follows() {
    let mut pacing = drained();
    let (node, at) = (NodeName::from("a"), Duration::from_secs(1));
    let (read, write) = (need(WriteClass::First, Purpose::Read), need(WriteClass::First, Purpose::Write));
    assert!(!pacing.has_turn(&node, read, Duration::ZERO));
    pacing.advance(at, || 1000);
    assert!(pacing.has_turn(&node, read, at));
    pacing.all = 0.0;
    pacing.kept.insert(WriteClass::First, 0.0);
    assert!(pacing.has_turn(&node, write, at));
    assert!(!pacing.has_turn(&node, write, at), "it was for one write");
}

#[test]
fn a_reclaim_that_has_started_does_not_wait() {
    let mut pacing = drained();
    let (node, at) = (NodeName::from("a"), Duration::from_secs(100));
    let start = need(WriteClass::Reclaim, Purpose::Start);
    assert!(!pacing.has_turn(&node, start, Duration::ZERO));
    pacing.advance(at, || 1000);
    assert!(pacing.has_turn(&node, start, at));
    let step = need(WriteClass::Growth, Purpose::Step);
    pacing.all = -100.0;
    pacing.kept.insert(WriteClass::Growth, 0.0);
    for n_unpaid in [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0] {
        assert!(pacing.has_turn(&node, step, at), "five writes were paid, and conflicts need more");
        assert!((pacing.all + 100.0 + n_unpaid).abs() < 0.01, "{}", pacing.all);
    }
    // Neither do those that an earlier leader has started.
    assert!(pacing.has_turn(&"b".into(), step, at));
    assert!(!pacing.has_turn(&node, need(WriteClass::Growth, Purpose::Write), at), "growth waits");
}

#[test]
fn a_read_of_pods_takes_a_turn_only_if_its_node_waits_for_one() {
    let mut pacing = drained();
    let (node, look) = (NodeName::from("a"), need(WriteClass::Growth, Purpose::Look));
    assert!(pacing.has_turn(&node, look, Duration::ZERO));
    assert!(pacing.read.is_empty());
    assert!(!pacing.has_turn(&node, need(WriteClass::Growth, Purpose::Write), Duration::ZERO));
    assert!(!pacing.has_turn(&node, look, Duration::ZERO));
    let at = Duration::from_secs(10);
    pacing.advance(at, || 1000);
    assert_eq!(pacing.next(), Some(&node));
    assert!(pacing.has_turn(&node, look, at));
    assert_eq!((pacing.next(), &pacing.read), (None, &[node].into()));
}

#[test]
fn a_start_whose_turn_went_to_its_read_is_not_put_behind_the_others() {
    let mut pacing = drained();
    let (look, start) = (need(WriteClass::Growth, Purpose::Look), need(WriteClass::Reclaim, Purpose::Start));
    for node in ["a", "b"] {
        assert!(!pacing.has_turn(&node.into(), start, Duration::ZERO));
    }
    let at = Duration::from_secs(10);
    pacing.advance(at, || 1000);
    assert_eq!(pacing.next(), Some(&"a".into()));
    assert!(pacing.has_turn(&"a".into(), look, at));
    assert!(pacing.has_turn(&"a".into(), start, at), "b waits for less long");
}

#[test]
fn the_pace_is_said_while_a_node_waits() {
    let mut pacing = drained();
    assert_eq!(pacing.in_words(Duration::ZERO), None);
    assert!(!pacing.has_turn(&"a".into(), need(WriteClass::Growth, Purpose::Write), Duration::ZERO));
    let at = Duration::from_secs(3);
    assert_eq!(pacing.in_words(at).as_deref(), Some("1.0 writes/s, 1 node waits 3 s"));
    pacing.advance(at, || 50);
    pacing.kept.insert(WriteClass::Reclaim, 0.0);
    assert!(!pacing.has_turn(&"b".into(), need(WriteClass::Reclaim, Purpose::Start), at));
    assert_eq!(pacing.in_words(at).as_deref(), Some("20 writes/s, 2 nodes wait 3 s"));
    let queue = |n_nodes, seconds| Queue { n_nodes, longest: Duration::from_secs(seconds) };
    let expected = [
        (WriteClass::First, queue(0, 0)),
        (WriteClass::Growth, queue(1, 3)),
        (WriteClass::Reclaim, queue(1, 0)),
    ];
    assert_eq!(pacing.queues(at), expected.into());
}
