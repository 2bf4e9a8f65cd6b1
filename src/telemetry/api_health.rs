//! The relation of the process to the API server: which kinds it does not follow at the moment, and which requests
//! the server forbids.
//!
//! Knows no requests and no back-off: the sender of a request reports its outcome. `/readyz` and `/metrics` show it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::model::kind::Kind;
use crate::model::speaker::SpeakerKind;
use crate::wire::freeze;

/// How long a kind may not be followed before the controller counts as not ready. An API server that restarts is back
/// sooner.
pub const LONGEST_LAPSE: Duration = Duration::from_secs(60);

/// How long the Lease can't be written before a line says so. A renewal may fail once.
const UNWRITTEN_FROM: Duration = Duration::from_secs(10);

/// An answer that takes this long explains why the Lease can't be renewed in time.
const SLOW: Duration = Duration::from_secs(2);

/// The end of a sentence about the Lease that says that the API server is slow. Empty if its answers take less than
/// [`SLOW`].
#[must_use]
pub fn slowness(answers_take: Duration) -> String {
    if answers_take < SLOW {
        return String::new();
    }
    format!("; answers of the API server take {} s", answers_take.as_secs())
}

/// A ConfigMap that the process follows beside the kinds of the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FollowedConfigMap {
    /// Its name.
    pub name: &'static str,
    /// Its name among the kinds that are followed.
    pub kind: &'static str,
}

/// Cilium's own. It is called as it was while it was the only one, because alerts rely on that.
pub const CILIUM_CONFIG: FollowedConfigMap = FollowedConfigMap { name: "cilium-config", kind: "ConfigMap" };

/// The controller's own, with its freeze.
pub const FREEZE: FollowedConfigMap =
    FollowedConfigMap { name: freeze::CONFIG_MAP, kind: "ConfigMap cilium-node-ipam" };

/// All that are followed.
pub const CONFIG_MAPS: [FollowedConfigMap; 2] = [CILIUM_CONFIG, FREEZE];

/// The Lease of the election. A replica that does not follow it leads only by chance, so it is not ready either.
pub const LEASE: &str = "Lease";

/// Its resource, as RBAC names it.
pub const LEASES: &str = "leases";

/// The Pods of Cilium's agents. The controller serves without them, so it is ready without them too.
pub const AGENT_PODS: &str = "Pod";

/// CiliumPodIPPools, which are followed in one mode only. The same holds for them.
pub const POD_IP_POOLS: &str = "CiliumPodIPPool";

/// CiliumNodeConfigs. The same holds for them.
pub const NODE_CONFIGS: &str = "CiliumNodeConfig";

/// FRRConfigurations, which are followed where routes are announced by them. The same holds for them.
pub const FRR_CONFIGURATIONS: &str = "FRRConfiguration";

/// FRRNodeStates. The same holds for them.
pub const FRR_NODE_STATES: &str = "FRRNodeState";

/// CiliumBGPAdvertisements. The same holds for them.
pub const BGP_ADVERTISEMENTS: &str = SpeakerKind::Advertisement.as_str();

/// CiliumBGPPeeringPolicies. The same holds for them.
pub const BGP_PEERING_POLICIES: &str = SpeakerKind::PeeringPolicy.as_str();

/// The kinds that are followed beside those of the world. The controller serves without them.
pub const AUXILIARY_KINDS: [&str; 7] = [
    AGENT_PODS,
    POD_IP_POOLS,
    NODE_CONFIGS,
    FRR_CONFIGURATIONS,
    FRR_NODE_STATES,
    BGP_ADVERTISEMENTS,
    BGP_PEERING_POLICIES,
];

/// The other causes of a 403.
pub const OR_ADMISSION: &str = "or an admission plugin refuses the request, or the CustomResourceDefinition is being deleted: see the log";

/// A request that the process may send to the API server, as RBAC names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// The verb.
    pub verb: &'static str,
    /// The API group; empty for the core group.
    pub group: String,
    /// The resource, with its subresource if it is for one.
    pub resource: String,
    /// The namespace; `None` for a resource without one.
    pub namespace: Option<String>,
    /// The only object in the namespace that is asked for, where it is one: a rule may name it.
    pub name: Option<String>,
}

/// For a person: `patch ciliumnodes/status of cilium.io`.
impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, " of {}", self.group)?;
        }
        if let Some(name) = &self.name {
            write!(f, " named {name}")?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " in namespace {namespace}"),
            None => Ok(()),
        }
    }
}

impl Right {
    /// The remedy for an administrator.
    #[must_use]
    pub fn remedy(&self) -> String {
        let role = match &self.namespace {
            Some(namespace) => format!("Role in namespace {namespace}"),
            None => "ClusterRole".to_owned(),
        };
        let named =
            self.name.as_ref().map(|name| format!(" resourceNames: [\"{name}\"],")).unwrap_or_default();
        format!(
            "add to the {role} of the controller the rule {{apiGroups: [\"{}\"], resources: [\"{}\"],{named} \
             verbs: [\"{}\"]}}",
            self.group, self.resource, self.verb
        )
    }
}

/// A time in which a kind is not followed.
#[derive(Debug, Clone)]
struct Lapse {
    since: Instant,
    /// The last error; `None` where nothing has failed yet.
    why: Option<String>,
}

#[derive(Debug, Default)]
struct State {
    lapses: BTreeMap<&'static str, Lapse>,
    forbidden: BTreeMap<Right, Instant>,
    /// The time in which this process can't write the Lease, although it should.
    unwritten: Option<Lapse>,
    /// How long the last answer took.
    answer_took: Duration,
}

impl State {
    /// That the Lease can't be written, for how long, and why.
    fn unwritten(&self) -> Option<(Duration, String)> {
        let Lapse { since, why } = self.unwritten.as_ref()?;
        let (lasted, why) = (since.elapsed(), why.as_deref().unwrap_or("it was never tried"));
        let slowness = slowness(self.answer_took);
        let text = format!("the Lease can't be written for {} s, because {why}{slowness}", lasted.as_secs());
        Some((lasted, text))
    }
}

/// The relation of the process to the API server. Clones share it.
#[derive(Debug, Clone)]
pub struct ApiHealth {
    state: watch::Sender<State>,
    /// When the server last answered a request.
    heard: watch::Sender<Instant>,
}

impl Default for ApiHealth {
    /// Nothing is followed yet.
    fn default() -> Self {
        let api_health = Self { state: watch::Sender::default(), heard: watch::Sender::new(Instant::now()) };
        for kind in Kind::ALL {
            api_health.starts_to_follow(kind.as_str());
        }
        api_health
    }
}

impl ApiHealth {
    /// From now on the process should follow this kind, and does not yet.
    pub fn starts_to_follow(&self, kind: &'static str) {
        let lapse = || Lapse { since: Instant::now(), why: None };
        self.state.send_modify(|state| {
            state.lapses.entry(kind).or_insert_with(lapse);
        });
    }

    /// A kind is not followed, because of this error. Returns for how long.
    #[allow(clippy::must_use_candidate, reason = "the time is for a log line")]
    pub fn lapsed(&self, kind: &'static str, why: String) -> Duration {
        let now = Instant::now();
        let mut since = now;
        self.state.send_modify(|state| {
            let lapse = state.lapses.entry(kind).or_insert(Lapse { since: now, why: None });
            lapse.why = Some(why);
            since = lapse.since;
        });
        now.saturating_duration_since(since)
    }

    /// The server has accepted a watch of a kind. Returns for how long the kind was not followed, if it was not.
    #[allow(clippy::must_use_candidate, reason = "the time is for a log line")]
    pub fn follows(&self, kind: &'static str) -> Option<Duration> {
        let mut ended = None;
        self.state.send_modify(|state| ended = state.lapses.remove(kind));
        ended.map(|lapse| lapse.since.elapsed())
    }

    /// The server has answered a request, with a success or an error.
    pub fn note_answer(&self) {
        self.heard.send_replace(Instant::now());
    }

    /// The last answer took so long.
    pub fn note_time(&self, took: Duration) {
        self.state.send_modify(|state| state.answer_took = took);
    }

    /// A write of the Lease by this process has failed, for this reason.
    pub fn lease_failed(&self, why: String) {
        self.state.send_modify(|state| {
            state.unwritten.get_or_insert(Lapse { since: Instant::now(), why: None }).why = Some(why);
        });
    }

    /// This process has written the Lease, or need not write it now.
    pub fn lease_settled(&self) {
        self.state.send_if_modified(|state| state.unwritten.take().is_some());
    }

    /// The server has answered a request with 403.
    pub fn forbid(&self, right: Right) {
        self.state.send_modify(|state| {
            state.forbidden.entry(right).or_insert_with(Instant::now);
        });
    }

    /// The server has carried out a request.
    pub fn allow(&self, right: &Right) {
        self.state.send_modify(|state| {
            state.forbidden.remove(right);
        });
    }

    /// Forgets refused requests for a resource that this process does not repeat now.
    pub fn forget(&self, resource: &str) {
        self.state.send_modify(|state| state.forbidden.retain(|right, _| right.resource != resource));
    }

    /// The rights that have been missing for this time: every request of this kind was answered with 403 since.
    #[must_use]
    pub fn forbidden(&self, at_least: Duration) -> Vec<Right> {
        let state = self.state.borrow();
        let lasting = state.forbidden.iter().filter(|(_, since)| since.elapsed() >= at_least);
        lasting.map(|(right, _)| right.clone()).collect()
    }

    /// For how long each kind has not been followed.
    #[must_use]
    pub fn lapses(&self) -> Vec<(&'static str, Duration)> {
        let state = self.state.borrow();
        state.lapses.iter().map(|(kind, lapse)| (*kind, lapse.since.elapsed())).collect()
    }

    /// An error that names the causes: the server is silent, kinds have not been followed for too long, or a right is
    /// missing without which a replica can't lead.
    pub fn verdict(&self) -> Result<(), String> {
        let silence = self.heard.borrow().elapsed();
        if silence > LONGEST_LAPSE {
            return Err(format!("the API server has answered no request for {} s", silence.as_secs()));
        }
        let too_long: Vec<&str> = self
            .lapses()
            .into_iter()
            .filter(|(kind, lapse)| *lapse > LONGEST_LAPSE && !AUXILIARY_KINDS.contains(kind))
            .map(|(kind, _)| kind)
            .collect();
        let unled = self.forbidden(LONGEST_LAPSE).into_iter().find(|right| right.resource == LEASES);
        if let Some(right) = unled {
            return Err(format!("this replica can't lead: it is not allowed to {right}; {}", right.remedy()));
        }
        if let Some((lasted, text)) = self.state.borrow().unwritten()
            && lasted > LONGEST_LAPSE
        {
            return Err(text);
        }
        if too_long.is_empty() {
            return Ok(());
        }
        Err(format!("no watch for more than {} s: {}", LONGEST_LAPSE.as_secs(), too_long.join(", ")))
    }

    /// A line for each kind whose watch or list fails, for each request that the server forbids, and for a Lease that
    /// can't be written.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let state = self.state.borrow();
        let lapses = state.lapses.iter().filter_map(|(kind, lapse)| {
            let why = lapse.why.as_ref()?;
            Some(format!("no watch of {kind} for {} s: {why}", lapse.since.elapsed().as_secs()))
        });
        let forbidden = state.forbidden.iter().map(|(right, since)| {
            format!(
                "forbidden (403) for {} s: {right}: {}; {OR_ADMISSION}",
                since.elapsed().as_secs(),
                right.remedy()
            )
        });
        let unwritten = state.unwritten().filter(|(lasted, _)| *lasted >= UNWRITTEN_FROM);
        lapses.chain(forbidden).chain(unwritten.map(|(_, text)| text)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn right() -> Right {
        let (group, resource) = ("cilium.io".to_owned(), "ciliumnodes/status".to_owned());
        Right { verb: "patch", group, resource, namespace: None, name: None }
    }

    fn following_all() -> ApiHealth {
        let api_health = ApiHealth::default();
        for kind in Kind::ALL {
            assert!(api_health.follows(kind.as_str()).is_some());
        }
        api_health
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_is_not_followed_for_a_minute_is_no_longer_ready() {
        let api_health = following_all();
        assert_eq!((api_health.verdict(), api_health.lines()), (Ok(()), Vec::new()));
        assert_eq!(api_health.lapsed("Node", "first".to_owned()), Duration::ZERO);
        tokio::time::advance(Duration::from_secs(60)).await;
        api_health.note_answer();
        assert_eq!(api_health.lapsed("Node", "connection refused".to_owned()), Duration::from_secs(60));
        assert_eq!(api_health.verdict(), Ok(()));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(api_health.verdict(), Err("no watch for more than 60 s: Node".to_owned()));
        assert_eq!(api_health.lines(), ["no watch of Node for 61 s: connection refused"]);
        assert_eq!(api_health.follows("Node"), Some(Duration::from_secs(61)));
        assert_eq!((api_health.verdict(), api_health.lines()), (Ok(()), Vec::new()));
        assert_eq!(api_health.follows("Node"), None);
    }

    /// A watch does not fail while its connection only swallows requests.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_answers_nothing_for_a_minute_makes_the_controller_not_ready() {
        let api_health = following_all();
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(api_health.verdict(), Ok(()));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(api_health.verdict(), Err("the API server has answered no request for 61 s".to_owned()));
        api_health.note_answer();
        assert_eq!(api_health.verdict(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_forbidden_is_named_with_the_rule_that_is_missing_until_it_is_allowed() {
        let api_health = following_all();
        api_health.forbid(right());
        tokio::time::advance(Duration::from_secs(7)).await;
        api_health.forbid(right());
        assert_eq!(api_health.forbidden(Duration::from_secs(7)), [right()]);
        assert_eq!(api_health.forbidden(Duration::from_secs(8)), []);
        let [line] = &api_health.lines()[..] else { panic!("{:?}", api_health.lines()) };
        let expected = [
            "forbidden (403) for 7 s: patch ciliumnodes/status of cilium.io: ",
            "add to the ClusterRole of the controller the rule {apiGroups: [\"cilium.io\"], resources: \
             [\"ciliumnodes/status\"], verbs: [\"patch\"]}",
        ];
        assert!(expected.iter().all(|part| line.contains(part)), "{line}");
        api_health.allow(&right());
        assert_eq!((api_health.forbidden(Duration::ZERO), api_health.lines()), (Vec::new(), Vec::new()));
    }

    #[tokio::test(start_paused = true)]
    async fn the_controller_is_ready_without_the_agents_pods_and_says_so() {
        let api_health = following_all();
        api_health.lapsed(AGENT_PODS, "pods is forbidden".to_owned());
        tokio::time::advance(Duration::from_secs(3600)).await;
        api_health.note_answer();
        assert_eq!(api_health.verdict(), Ok(()));
        assert_eq!(api_health.lines(), ["no watch of Pod for 3600 s: pods is forbidden"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_that_may_not_write_its_lease_is_not_ready() {
        let api_health = following_all();
        let (group, resource) = ("coordination.k8s.io".to_owned(), LEASES.to_owned());
        let namespace = Some("kube-system".to_owned());
        let right = Right { verb: "create", group, resource, namespace, name: None };
        api_health.forbid(right.clone());
        assert_eq!(api_health.verdict(), Ok(()));
        tokio::time::advance(LONGEST_LAPSE).await;
        api_health.note_answer();
        let why = api_health.verdict().unwrap_err();
        assert!(
            why.contains("not allowed to create leases of coordination.k8s.io in namespace kube-system"),
            "{why}"
        );
        assert!(why.contains("of the controller the rule {apiGroups: [\"coordination.k8s.io\"]"), "{why}");
        api_health.allow(&right);
        assert_eq!(api_health.verdict(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_can_not_be_written_is_named_with_the_reason() {
        let api_health = following_all();
        api_health.lease_failed("it is refused (500)".to_owned());
        assert_eq!(api_health.lines(), [""; 0], "a renewal may fail once");
        tokio::time::advance(UNWRITTEN_FROM).await;
        api_health.lease_failed("no answer within 5s".to_owned());
        assert_eq!(api_health.lines(), ["the Lease can't be written for 10 s, because no answer within 5s"]);
        assert_eq!(api_health.verdict(), Ok(()));
        tokio::time::advance(Duration::from_secs(65)).await;
        api_health.note_answer();
        api_health.note_time(Duration::from_secs(8));
        let reported = "the Lease can't be written for 75 s, because no answer within 5s; answers of the API server \
                    take 8 s";
        assert_eq!(api_health.verdict(), Err(reported.to_owned()));
        api_health.lease_settled();
        assert_eq!((api_health.verdict(), api_health.lines()), (Ok(()), Vec::new()));
    }

    #[test]
    fn a_right_in_a_namespace_is_that_of_a_role() {
        let (group, resource) = (String::new(), "configmaps".to_owned());
        let (namespace, name) = (Some("kube-system".to_owned()), Some("cilium-config".to_owned()));
        let right = Right { verb: "list", group, resource, namespace, name };
        assert_eq!(right.to_string(), "list configmaps named cilium-config in namespace kube-system");
        assert_eq!(
            right.remedy(),
            "add to the Role in namespace kube-system of the controller the rule {apiGroups: [\"\"], resources: \
             [\"configmaps\"], resourceNames: [\"cilium-config\"], verbs: [\"list\"]}"
        );
    }
}
