// Command agent-1.12 is the IPAM side of one node's Cilium agent, release 1.12.19, as a process for tests.
//
// Cilium's own code, unmodified, from the module that go.mod pins: the crd-mode allocator with its node store and
// release handshake (pkg/ipam), node discovery that creates and updates the CiliumNode (pkg/nodediscovery), the
// addresses of the local node and the choice of an earlier router address (pkg/node), and the client (pkg/k8s) with its
// default rate limits.
//
// Ours: agent.go (the order of calls, copied from Cilium's daemon, and the configuration), objects.go (the Node and
// the CiliumNode as node discovery reads them, copied from Cilium's watchers), standins.go (what Cilium's parts
// require and this process has not), and the package rig (flags, commands and answers, log lines that become events,
// and the order in which the agent takes addresses for itself, copied from Cilium's daemon).
package main

import (
	"github.com/cilium/cilium/pkg/logging"
	"nodeipam.io/tests/agent/rig"
	"nodeipam.io/tests/agent/rig/hook"
)

func main() {
	rig.Main("1.12", []string{rig.CRD}, func(c rig.Config, events *rig.Events) rig.Agent {
		logging.DefaultLogger.AddHook(hook.Into(events))
		return &agent{config: c, events: events}
	})
}
