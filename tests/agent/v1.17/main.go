// Command agent-1.17 is the IPAM side of one node's Cilium agent, release 1.17.8, as a process for tests.
//
// Cilium's own code, unmodified, from the module that go.mod pins: the allocators of every mode (pkg/ipam,
// pkg/ipam/metadata), node discovery that creates and updates the CiliumNode (pkg/nodediscovery), the local
// node store (pkg/node), the CiliumNode watcher whose cache node discovery reads (pkg/k8s/watchers), and the Kubernetes
// client with its default rate limits (pkg/k8s/client).
//
// Ours: agent.go (the order of calls, copied from Cilium's daemon), cells.go (which parts of Cilium are put together),
// localnode.go (how the local node store is filled, copied from Cilium's daemon), pools.go (what is read of the
// allocator's memory), standins.go (what Cilium's parts require and this process has not), and the package rig (flags,
// commands and answers, log lines that become events, and the order in which the agent takes addresses for itself,
// copied from Cilium's daemon).
package main

import (
	"github.com/cilium/cilium/pkg/logging"
	"nodeipam.io/tests/agent/rig"
	"nodeipam.io/tests/agent/rig/hook"
)

func main() {
	rig.Main("1.17", []string{rig.CRD, rig.MultiPool, rig.ClusterPool, rig.Kubernetes}, func(c rig.Config, events *rig.Events) rig.Agent {
		logging.DefaultLogger.AddHook(hook.Into(events))
		return &agent{config: c, events: events}
	})
}
