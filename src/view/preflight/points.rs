//! The points of a preflight, and its lines as they are found.

use std::collections::BTreeMap;

use crate::model::installation::Seen;
use crate::model::stable_names;

/// The settings in `cilium-config`.
pub(super) type Settings = BTreeMap<String, String>;

stable_names! {
    /// A point that is looked at. The names are stable.
    pub enum Point {
        /// The version of the API server.
        Kubernetes => "kubernetes",
        /// The versions of the agents.
        Agents => "agents",
        /// The mode of Cilium.
        Ipam => "ipam",
        /// Native routing or a tunnel.
        Routing => "routing-mode",
        /// The native routing CIDRs around the pools.
        NativeCidr => "native-routing-cidr",
        /// Endpoint routes.
        EndpointRoutes => "endpoint-routes",
        /// Masquerading.
        Masquerade => "masquerade",
        /// The ranges that agents take for their own.
        OwnRange => "own-range",
        /// Whether agents wait for podCIDRs.
        RequiredPodCidrs => "require-pod-cidrs",
        /// The process that announces the blocks of nodes.
        Announcements => "announcements",
        /// Annotations of Nodes.
        AnnotateNode => "annotate-k8s-node",
        /// Static IP tags.
        StaticIpTags => "ipam-static-ip-tags",
        /// A kvstore.
        Kvstore => "kvstore",
        /// Whether agents create their CiliumNodes.
        CiliumNodes => "ciliumnodes",
        /// The allocator of cilium-operator.
        CiliumOperator => "cilium-operator",
        /// The allocator of kube-controller-manager.
        ControllerManager => "kube-controller-manager",
        /// Other CNIs.
        OtherCni => "other-cni",
        /// The existing podCIDRs.
        PodCidrs => "pod-cidrs",
        /// The ranges of Services and load balancers.
        ServiceRanges => "service-ranges",
        /// The addresses of nodes.
        NodeAddresses => "node-addresses",
        /// The pools and the nodes that they select.
        Pools => "pools",
        /// The pods that kubelet allows on nodes, and the addresses that nodes can have.
        MaxPods => "max-pods",
        /// The number of nodes, by mode and block size.
        Size => "size",
        /// The families that agents run.
        Families => "families",
        /// The CustomResourceDefinitions.
        Definitions => "definitions",
        /// The webhooks and policies of admission.
        Admission => "admission",
        /// The APIServices.
        ApiServices => "apiservices",
        /// The rights of the user.
        YourRights => "your-rights",
        /// The rights of the controller.
        ControllerRights => "controller-rights",
    }
}

stable_names! {
    /// The state of a point, the worst first.
    pub enum State {
        /// Nodes get no addresses, or pods lose traffic.
        Fail => "FAIL",
        /// It harms under a further condition.
        Warn => "WARN",
        /// It could not be seen.
        Unseen => "?",
        /// It is as it should be.
        Ok => "ok",
    }
}

/// One line of the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The point.
    pub point: Point,
    /// Its state.
    pub state: State,
    /// The fact, in a sentence.
    pub text: String,
    /// The remedy, or how to look; `None` for a point that is as it should be.
    pub remedy: Option<String>,
}

/// The lines so far.
#[derive(Debug, Default)]
pub(super) struct Lines(pub(super) Vec<Line>);

impl Lines {
    pub(super) fn ok(&mut self, point: Point, text: impl Into<String>) {
        self.0.push(Line { point, state: State::Ok, text: text.into(), remedy: None });
    }

    pub(super) fn warn(&mut self, point: Point, text: impl Into<String>, remedy: impl Into<String>) {
        self.add(point, State::Warn, text, remedy);
    }

    pub(super) fn fail(&mut self, point: Point, text: impl Into<String>, remedy: impl Into<String>) {
        self.add(point, State::Fail, text, remedy);
    }

    pub(super) fn unseen(&mut self, point: Point, why: impl Into<String>, how: impl Into<String>) {
        self.add(point, State::Unseen, why, how);
    }

    pub(super) fn add(
        &mut self,
        point: Point,
        state: State,
        text: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.0.push(Line { point, state, text: text.into(), remedy: Some(remedy.into()) });
    }

    /// The point is as it should be, unless a line says otherwise.
    pub(super) fn ok_if_silent(&mut self, point: Point, text: impl Into<String>) {
        if !self.0.iter().any(|line| line.point == point) {
            self.ok(point, text);
        }
    }

    /// The fact, if it was seen. Otherwise a line says how to look.
    pub(super) fn seen<'a, T>(
        &mut self,
        point: Point,
        fact: &'a Seen<T>,
        how: impl Into<String>,
    ) -> Option<&'a T> {
        match fact {
            Ok(fact) => Some(fact),
            Err(why) => {
                self.unseen(point, why.clone(), how);
                None
            }
        }
    }
}
