//! Tests of the loop over a world whose writes never get an answer.

use std::collections::BTreeSet;

use kube::Config;

use super::super::connectivity::Connectivity;
use super::super::lead::Lead;
use super::*;
use crate::model::frr::{FrrConfiguration, FrrConfigurationNews, Selector, name_of};
use crate::model::names::{NodeName, PoolName};
use crate::model::outcome::{Answer, Outcome, Seen};
use crate::model::pod_ip_pool::PodIpPoolNews;
use crate::model::revision::Revision;
use crate::plan::{Policy, SetLimits};
use crate::publisher::settings::{Settings, from_config};
use crate::telemetry::metrics::tests::world;
use crate::telemetry::readiness::Readiness;
use crate::world::check::Inconsistency;
use crate::world::frr::Exporting;

const SELF_CHECK_INTERVAL: Duration = Duration::from_secs(300);

/// A loop over a world in which there is something to write, and whose writes never get an answer.
fn serving(telemetry: &Telemetry) -> (Loop, mpsc::Receiver<Input>) {
    let (sender, inputs) = mpsc::channel(CAPACITY);
    let nowhere = Config::new("http://127.0.0.1:1".parse().unwrap());
    let clients =
        Clients::new(&nowhere, Duration::from_secs(10), Connectivity::default(), Lead::unelected()).unwrap();
    let set = SetLimits { min_write_interval: Some(Duration::ZERO), ..SetLimits::default() };
    let options = Options {
        mode: ModeSource::ConfigMapIn(String::new(), Settings::default()),
        namespace: String::new(),
        cilium_namespace: String::new(),
        policy: ScalingPolicy { budget: 0, set, settings: Policy::DEFAULT },
        max_parallel_writes: 1,
        managed_fields: ManagedFields::Kept,
        self_check_interval: SELF_CHECK_INTERVAL,
        routes: None,
    };
    let timeline = Arc::new(Timeline::default());
    let events = Events::channel(telemetry.metrics.clone(), Lead::unelected()).0;
    let world = world();
    let serving = Loop {
        configured: world.mode().clone(),
        world,
        clock: Clock::default(),
        places: WriteSlots::new(options.max_parallel_writes),
        pacing: Pacing::new(options.policy.budget),
        daemon: None,
        executor: Arc::new(Executor {
            clients,
            timeline,
            managed_fields: options.managed_fields,
            events,
            cilium_namespace: String::new(),
            frr_namespace: String::new(),
        }),
        options,
        sender,
        writers: Tasks::default(),
        reporter: Reporter::new(
            telemetry.clone(),
            Events::channel(telemetry.metrics.clone(), Lead::unelected()).0,
        ),
        mode_to_come: None,
    };
    (serving, inputs)
}

#[tokio::test]
async fn nothing_is_decided_on_a_world_that_is_not_what_its_objects_say() {
    let telemetry = Telemetry::start();
    let (mut serving, mut inputs) = serving(&telemetry);
    serving.world.break_an_index();
    let (mut tasks, stop) = (Tasks::default(), CancellationToken::new());
    let end = serving.serve(&mut inputs, &mut tasks, &stop);
    let end = tokio::time::timeout(Duration::from_secs(10), end).await.expect("the loop did not end");
    assert_eq!(serving.world.n_in_flight(), 0);
    assert!(serving.finish(&end, &mut inputs).await);
    let reason = match telemetry.readiness() {
        Readiness::NotReady(reason) => reason,
        readiness @ (Readiness::Ready | Readiness::Passive(_)) => panic!("{readiness:?}"),
    };
    assert!(
        reason.contains("the index of nodes with address 127.0.0.1 does not match the objects"),
        "{reason}"
    );
    let differences = vec![Inconsistency::NodeAddresses("127.0.0.1".parse().unwrap())];
    assert_eq!(end.unwrap_err().downcast::<BrokenInvariant>().unwrap(), BrokenInvariant { differences });
    let text = telemetry.metrics.text();
    for line in ["self_check_differences 1", "findings{kind=\"BrokenInvariant\"} 1"] {
        assert!(text.contains(line), "{line} is not in:\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_difference_that_arises_later_ends_the_loop_too() {
    let (mut serving, mut inputs) = serving(&Telemetry::start());
    // Nothing to write, so that time is all that passes.
    serving.world.set_mode(Mode::Passive("a test".to_owned()));
    serving.world.break_an_index();
    let (mut tasks, stop) = (Tasks::default(), CancellationToken::new());
    let end = serving.turn(&mut inputs, &mut tasks, &stop);
    let end = tokio::time::timeout(SELF_CHECK_INTERVAL * 2, end).await.expect("the loop did not end");
    assert!(end.unwrap_err().is::<BrokenInvariant>());
}

#[tokio::test]
async fn a_mode_with_names_is_not_served_before_the_objects_of_its_names_are_known() {
    let (mut serving, _inputs) = serving(&Telemetry::start());
    serving.world.set_mode(Mode::Passive("a test".to_owned()));
    let settings = Settings::of_every_mode();
    let config = [("ipam".to_owned(), "multi-pool".to_owned())].into();
    let reported = |serving: &Loop| match serving.world.mode() {
        Mode::Active(_) => "active".to_owned(),
        Mode::Passive(why) => why.clone(),
    };
    serving.take_in(Input::Mode(from_config(&config, &settings)));
    assert_eq!(reported(&serving), "CiliumPodIPPools are not listed yet");
    serving.take_in(Input::PodIpPools(PodIpPoolNews::Listed(Vec::new())));
    // The world of this test was served in mode crd.
    assert!(reported(&serving).starts_with("cilium-config has changed"), "{}", reported(&serving));
}

#[tokio::test]
async fn writes_that_are_accepted_twice_without_effect_are_a_finding() {
    let telemetry = Telemetry::start();
    let (mut serving, _inputs) = serving(&telemetry);
    let pool = PoolName::from("beijing");
    let mut now = serving.clock.now();
    for n_writes in 1..=2 {
        let plan = plan::pool(&serving.world, &pool, Policy::DEFAULT, now);
        serving.world.begin_status(&pool, &plan, now);
        let write = plan.into_writes().pop().expect("it writes");
        let seen = Seen::Pool(Box::new(serving.world.pool_object(&pool).unwrap().clone()));
        let outcome = Outcome { request: write.into(), answer: Answer::Done, seen };
        assert!(!outcome.took_effect(), "it would be announced");
        serving.world.finish(outcome, now);
        serving.reporter.show(&serving.world, now);
        let line = format!("findings{{kind=\"WriteWithoutEffect\"}} {}", n_writes - 1);
        let text = telemetry.metrics.text();
        assert!(text.contains(&line), "{line} is not in:\n{text}");
        now.uptime += Duration::from_secs(1);
    }
}

#[tokio::test]
async fn what_was_decided_before_the_world_was_found_broken_does_not_begin() {
    let telemetry = Telemetry::start();
    let (mut serving, mut inputs) = serving(&telemetry);
    assert_eq!(serving.check(), Ok(()));
    serving.decide();
    assert_eq!(serving.world.n_in_flight(), 1, "decided, and its task has not run yet");
    serving.world.break_an_index();
    let end = serving.check().map_err(Into::into);
    assert!(end.is_err());
    // A write that had started would try for ever.
    assert!(serving.finish(&end, &mut inputs).await);
    assert!(inputs.recv().await.is_none(), "it has an outcome");
}

#[tokio::test]
async fn routes_leave_half_of_the_places_to_other_writes() {
    let (mut serving, _inputs) = serving(&Telemetry::start());
    serving.options.max_parallel_writes = 4;
    serving.world.export_routes(Exporting::Nothing);
    let node = |number: u32| NodeName::from(format!("n{number}").as_str());
    let wrong = (0..4).map(|number| FrrConfiguration {
        name: name_of(&node(number)),
        uid: "u".into(),
        revision: Revision::of(1),
        of_node: Some(node(number)),
        selector: Selector::Every,
        prefixes: BTreeSet::new(),
        sessions: String::new().into(),
        n_routers: 1,
        vrfs: BTreeSet::new(),
        for_nodes: Ok(std::collections::BTreeMap::new()),
        is_deleting: false,
        is_exact: false,
    });
    serving.world.observe_frr_configurations(FrrConfigurationNews::Listed(wrong.collect()));
    serving.decide_routes();
    assert_eq!(serving.world.n_routes_in_flight(), 2);
    serving.decide_routes();
    assert_eq!(serving.world.n_routes_in_flight(), 2);
}
