//! A cluster to which changes happen, and the search for decisions that would come out differently unheard.

use super::*;

/// A cluster in which everything that was on the agenda has been decided.
#[derive(Clone)]
pub(super) struct Settled {
    pub(super) cluster: Cluster,
    revision: u64,
    decided: BTreeMap<NodeName, NodePlan>,
}

impl Settled {
    /// The cluster in these lines, in the mode of these words ([`mode`]), to which these changes have happened.
    pub(super) fn of(words: &str, text: &str, changes: &[Change]) -> Self {
        let cluster = Cluster::serving(words, text);
        let mut settled = Self { cluster, revision: LISTED, decided: BTreeMap::new() };
        settled.settle();
        for change in changes {
            settled.apply(change);
            settled.settle();
        }
        settled
    }

    /// A change happens, and everything that is on the agenda then is decided. Returns what was not on it and should
    /// have been.
    pub(super) fn lost_after(&mut self, change: &Change) -> Vec<String> {
        self.apply(change);
        self.settle();
        self.pass(1);
        let mut lost = self.lost();
        // The status of a pool is looked at once per second, and what is told on its claims may change it once more.
        for _ in 0..2 {
            self.pass(2);
            lost.extend(self.lost());
        }
        lost.extend(self.lost_pools());
        lost
    }

    /// Time passes, and then until nothing is due within a second: those who only look on at what others take look once
    /// per second, and a node whose pause ended meanwhile may just have taken something.
    fn pass(&mut self, seconds: u64) {
        self.cluster.pass(seconds);
        self.settle();
        // Pauses grow, so that there is an end to what is due so soon.
        for _ in 0..8 {
            let now = self.cluster.now.uptime;
            let soon = self.cluster.world.next_wake().filter(|wake| *wake <= now + Duration::from_secs(1));
            let Some(wait) = soon.map(|wake| wake.saturating_sub(now)) else { break };
            self.cluster.now.uptime += wait;
            self.cluster.now.wall += wait;
            self.cluster.world.advance(self.cluster.now);
            self.settle();
        }
    }

    fn next_revision(&mut self) -> u64 {
        self.revision += 1;
        self.revision
    }

    pub(super) fn apply(&mut self, change: &Change) {
        let revision = self.next_revision();
        match change {
            Change::Shown(line) => self.cluster.observe(&format!("{line} @{revision}")),
            Change::Deleted(line) => {
                let object = object(&format!("{line} @{revision}"));
                self.cluster.delete(object.kind(), &object.name(), revision);
            }
            Change::NotListed(kind, omitted) => self.relist(*kind, *omitted, revision),
            Change::Mode(words) => self.cluster.world.set_mode(mode(words)),
            Change::Freeze(switch) => {
                let on = switch.map(|switch| (switch, "of a test".to_owned()));
                self.cluster.world.set_freeze(Freeze::of(on));
            }
            Change::Ends(place, end) => self.end(*place, *end, revision),
            Change::Agents(news) => self.cluster.observe_agents(news.clone()),
            Change::PodIpPools(news) => {
                self.cluster.world.observe_pod_ip_pools(numbered(news.clone(), revision));
            }
            Change::NodeConfigs(news) => self.cluster.world.observe_node_configs(news.clone()),
            Change::Passes(seconds) => self.cluster.pass(*seconds),
        }
        assert_eq!(self.cluster.world.check(), []);
    }

    fn relist(&mut self, kind: Kind, omitted: usize, revision: u64) {
        let world = &self.cluster.world;
        let mut objects: Vec<Object> = match kind {
            Kind::Node => world.nodes().cloned().map(Object::Node).collect(),
            Kind::CiliumNode => NODES
                .iter()
                .filter_map(|name| world.cilium_node(&NodeName::from(*name)).cloned().map(Object::CiliumNode))
                .collect(),
            Kind::Pool => world.pool_objects().cloned().map(Object::Pool).collect(),
            Kind::Claim => world.claims().map(|known| Object::Claim(known.claim.clone())).collect(),
        };
        let unreadable = world.all_unreadable().filter(|(of, _)| *of == kind);
        let unreadable: Vec<Object> =
            unreadable.map(|(kind, unreadable)| Object::Unreadable(kind, unreadable.clone())).collect();
        objects.retain(|object| !unreadable.iter().any(|other| other.name() == object.name()));
        objects.extend(unreadable);
        if !objects.is_empty() {
            objects.remove(omitted % objects.len());
        }
        let at = AnyRevision::of(kind, revision);
        self.cluster.world.observe(Observation::Listed(Listing { kind, at_least: at, at_most: at, objects }));
    }

    /// The request at this place among those in flight ends.
    fn end(&mut self, place: usize, end: End, revision: u64) {
        if self.cluster.in_flight.is_empty() {
            return;
        }
        let request = self.cluster.in_flight.remove(place % self.cluster.in_flight.len());
        let (answer, seen) = match end {
            End::Applied => (Answer::Done, self.answer(&request, revision)),
            End::Silent => (Answer::Done, Seen::Nothing),
            End::Conflict => (Answer::Conflict("of a test".to_owned()), Seen::Nothing),
        };
        self.cluster.world.finish(Outcome { request, answer, seen }, self.cluster.now);
    }

    /// What the server answers that has just the objects that the world knows.
    fn answer(&self, request: &Request, revision: u64) -> Seen {
        let world = &self.cluster.world;
        let revision = Revision::of(revision);
        match request {
            Request::Read(Read::ClaimsOf(node)) => claims_of(world, node, revision.number()),
            Request::Read(Read::Claim(cidr, _)) => world
                .claim(*cidr)
                .map_or(Seen::Absent(revision), |known| Seen::Claim(Box::new(known.claim.clone()))),
            Request::Read(Read::CiliumNode(node)) => world
                .cilium_node(node)
                .map_or(Seen::Absent(revision), |found| Seen::CiliumNode(Box::new(found.clone()))),
            Request::Read(Read::PodsOf(node, after)) => Seen::PodsOf {
                after: *after,
                pods: PodsOnNode {
                    agents: world.agents_on(node).cloned().collect(),
                    holders: BTreeMap::new(),
                    n_starting: 0,
                },
            },
            Request::Read(Read::Node(node, as_of)) => Seen::Node {
                as_of: *as_of,
                read_at: Revision::of(revision.number()),
                presence: world.node(node).map_or(Presence::Gone, |node| Presence::Is(node.uid.clone())),
            },
            Request::Write(Write::CreateClaim(new)) => {
                let line = format!("claim {} {} {} Held @{}", new.cidr, new.node, new.node_uid, revision);
                let Object::Claim(created) = object(&line) else { unreachable!() };
                Seen::Claim(Box::new(Claim {
                    pool: new.pool.clone(),
                    pod_ip_pool: new.pod_ip_pool.clone(),
                    created_for: new.created_for.clone(),
                    ..created
                }))
            }
            Request::Write(Write::UpdateClaim(update)) if update.change == ClaimChange::Delete => {
                Seen::Deleted(update.uid.clone())
            }
            Request::Write(Write::UpdateClaim(update)) => match world.claim(update.cidr) {
                // Of another version the server would refuse it.
                Some(known) if known.claim.revision == update.revision => {
                    let moved = moved(&known.claim, &update.change);
                    Seen::Claim(Box::new(Claim { revision, ..moved }))
                }
                Some(_) | None => Seen::Nothing,
            },
            Request::Write(write) => match write.target() {
                Target::Node(node) => {
                    let known = world.node(&node).and_then(|node| patched(node, write, revision.number()));
                    known.map_or(Seen::Nothing, |node| Seen::PatchedNode(Box::new(node)))
                }
                Target::Claim(_)
                | Target::CiliumNode(_)
                | Target::ClaimsOf(_)
                | Target::PodsOf(_)
                | Target::Pool(_)
                | Target::NodeCondition(_)
                | Target::PodIpPool(_)
                | Target::Frr(_) => Seen::Nothing,
            },
        }
    }

    /// Decides for whoever is on the agenda, until nobody is.
    pub(super) fn settle(&mut self) {
        let cluster = &mut self.cluster;
        loop {
            let reads = cluster.world.unconfirmed();
            cluster.world.begin_confirming(&reads, cluster.now);
            cluster.in_flight.extend(reads.into_iter().map(Request::Read));
            if let Some(node) = cluster.world.next_node().cloned() {
                let plan = cluster.plan(node.as_str());
                assert_eq!(cluster.held_back(plan.requests()), [""; 0], "writes are frozen");
                cluster.begin(&plan);
                let decided = cluster.plan(node.as_str());
                self.decided.insert(node, decided);
            } else if let Some(name) = cluster.world.next_pool().cloned() {
                let plan = pool(&cluster.world, &name, CREATING, cluster.now);
                cluster.world.begin_status(&name, &plan, cluster.now);
                for write in plan.into_writes() {
                    assert_eq!(cluster.held_back(&[write.clone().into()]), [""; 0], "writes are frozen");
                    self.revision += 1;
                    let seen = applied(&cluster.world, &write, self.revision);
                    cluster
                        .world
                        .finish(Outcome { request: write.into(), answer: Answer::Done, seen }, cluster.now);
                }
            } else {
                return;
            }
        }
    }

    /// The nodes about which something else would be decided now than was decided last.
    pub(super) fn lost(&self) -> Vec<String> {
        let compared = NODES.iter().filter(|name| self.exists(&NodeName::from(**name))).filter_map(|name| {
            let now = self.cluster.plan(name);
            let reported = |plan: &NodePlan| {
                let mut text: Vec<String> = plan.requests().iter().map(ToString::to_string).collect();
                text.extend(
                    plan.findings.iter().map(|finding| format!("{}: {}", finding.name, finding.message)),
                );
                format!("{:?}, {:?} unmet; {}", plan.verdict, plan.unmet, text.join("; "))
            };
            let is_new = match self.decided.get(&now.node) {
                Some(before) => {
                    (&before.verdict, &before.findings, &before.unmet)
                        != (&now.verdict, &now.findings, &now.unmet)
                }
                None => !now.requests().is_empty(),
            };
            is_new.then(|| {
                let before = self.decided.get(&now.node).map(reported);
                format!("node {name} was `{}` and would be `{}`", before.unwrap_or_default(), reported(&now))
            })
        });
        compared.collect()
    }

    /// Whether anything is left of a node.
    fn exists(&self, name: &NodeName) -> bool {
        let world = &self.cluster.world;
        let is_unreadable = |kind| world.unreadable(kind, name.as_str()).is_some();
        world.node(name).is_some()
            || world.cilium_node(name).is_some()
            || world.claims_of(name).next().is_some()
            || world.lost_claims_of(name).next().is_some()
            || [Kind::Node, Kind::CiliumNode].into_iter().any(is_unreadable)
    }

    /// The pools whose objects do not show what they should.
    pub(super) fn lost_pools(&self) -> Vec<String> {
        let later = Now { uptime: self.cluster.now.uptime + Duration::from_secs(10), ..self.cluster.now };
        let pools = self.cluster.world.pool_objects().map(|object| &object.name);
        pools
            .filter_map(|name| match pool(&self.cluster.world, name, CREATING, later) {
                PoolPlan::Write(writes) => Some(format!("pool {name} lacks {writes:?}")),
                PoolPlan::Unchanged
                | PoolPlan::UpToDate
                | PoolPlan::UpToDateUntil(_)
                | PoolPlan::Later(_) => None,
            })
            .collect()
    }
}

/// The claim after this change, which does not delete it.
fn moved(claim: &Claim, change: &ClaimChange) -> Claim {
    let mut moved = claim.clone();
    match change {
        ClaimChange::Hold(node_uid) => {
            (moved.state, moved.node_uid) = (ClaimState::Held, node_uid.clone());
        }
        ClaimChange::Keep => moved.finalizers.push(Claim::FINALIZER.to_owned()),
        ClaimChange::Drain(carrier) => moved.state = ClaimState::Draining(carrier.clone()),
        ClaimChange::Release(reason) => moved.state = ClaimState::Releasing(*reason),
        ClaimChange::Cool => {
            let ClaimState::Releasing(reason) = claim.state else { panic!("{} cools", claim.state) };
            moved.state = ClaimState::Cooling(reason);
        }
        ClaimChange::Delete => panic!("it is deleted"),
    }
    moved
}

/// The Node after this write, where it is of its version.
fn patched(node: &Node, write: &Write, revision: u64) -> Option<Node> {
    let mut patched = Node { revision: Revision::of(revision), ..node.clone() };
    let decided_on = match write {
        Write::Publish(publication) => {
            match &publication.change {
                CarrierChange::Kubernetes(cidrs) => patched.pod_cidrs.clone_from(cidrs),
                CarrierChange::Annotations(cidrs) => {
                    let annotated =
                        |cidr: &Cidr| Annotated { key: "network.cilium.io/pod-cidr", cidr: *cidr };
                    patched.annotated = cidrs.iter().map(annotated).collect();
                }
                other => panic!("no change of a Node: {other:?}"),
            }
            publication.revision
        }
        Write::BumpVersion(bump) => {
            patched.later_than = Some(bump.later_than);
            bump.revision
        }
        other => panic!("no write of a Node: {other}"),
    };
    (decided_on == AnyRevision::of(Kind::Node, node.revision.number())).then_some(patched)
}

/// The pool or the claim after this write of the plan of a pool.
pub(in crate::plan::tests) fn applied(world: &World, write: &Write, revision: u64) -> Seen {
    if let Write::ClaimStatus(write) = write {
        let mut claim = world.claim(write.cidr).expect("it is written").claim.clone();
        claim.revision = Revision::of(revision);
        claim.status.clone_from(&write.status);
        return Seen::Claim(Box::new(claim));
    }
    if let Write::PodIpPool(write) = write {
        return Seen::PodIpPool(Box::new(super::pod_ip_pools::after(world, write, revision)));
    }
    let mut object =
        world.pool_object(write.pool().expect("it is of a pool")).expect("it is written").clone();
    object.revision = Revision::of(revision);
    match write {
        Write::PoolStatus(write) => {
            object.status = write.status.clone();
            object.history = (*write.history).clone();
        }
        Write::PoolFinalizers(write) => object.finalizers.clone_from(&write.finalizers),
        other => panic!("no write of a pool: {other}"),
    }
    Seen::Pool(Box::new(object))
}
