//! The store is restored from a backup, and people do as `docs/how-to/restore-etcd.md` asks: no controller writes before each
//! machine has its Node again and every agent has written its status.

use cilium_node_ipam::model::names::NodeName;

use super::super::agent::Agent;
use super::Cluster;

impl Cluster {
    /// The store returns to its state after `part` of 256 parts of all its revisions.
    pub(super) fn store_is_restored(&mut self, part: u8) {
        self.taint_all();
        let at = 1 + (self.store.revision().number() - 1) * u64::from(part) / 256;
        self.store.restore(at);
        // The backup does not have later damage.
        self.broken.retain(|broken| broken.at <= at);
        self.strays.clear();
        let machines: Vec<NodeName> = self.agents.keys().cloned().collect();
        for name in &machines {
            if !self.lost.contains_key(name) {
                // Its kubelet creates the Node again, and its agent the CiliumNode.
                self.joins(name, 0, None);
            }
            Agent::start(&mut self.store, name);
            if let Some(agent) = self.agents.get_mut(name) {
                agent.report_all(&mut self.store, name);
            }
            self.show_pod(name);
        }
        for number in 0..self.replicas.len() {
            drop(self.replicas[number].restart(self.clock, self.store.revision(), self.mode));
        }
        self.taint_all();
    }
}
