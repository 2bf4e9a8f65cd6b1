// Command agent-1.20 is the IPAM side of one node's Cilium agent, release 1.20.2, as a process for tests.
//
// Cilium's own code, unmodified, from the module that go.mod pins: the allocators of all modes that
// are run here (pkg/ipam, pkg/ipam/podippool, pkg/ipam/metadata), node discovery that creates and updates the CiliumNode (pkg/nodediscovery), the local
// node store that is filled from the Node and the CiliumNode (pkg/node, pkg/node/sync), the CiliumNode watcher whose
// cache node discovery reads (pkg/k8s/watchers), the allocation of router, ingress and health addresses
// (daemon/infraendpoints), and the Kubernetes client with its default rate limits (pkg/k8s/client).
//
// Ours: agent.go (the order of calls, copied from Cilium's daemon), cells.go (which parts of Cilium are put together),
// pools.go (what is read of the allocator's memory), standins.go (what Cilium's parts require and this process has not:
// endpoints, datapath, kvstore), logs.go (log lines that become events), and the package rig (flags, commands and
// answers).
package main

import "nodeipam.io/tests/agent/rig"

func main() {
	rig.Main("1.20", []string{rig.CRD, rig.MultiPool, rig.ClusterPool, rig.Kubernetes}, func(c rig.Config, events *rig.Events) rig.Agent {
		forwardLogs(events)
		return &agent{config: c}
	})
}
