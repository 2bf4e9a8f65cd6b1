// Command agent-1.20 is the IPAM side of one node's Cilium agent, release 1.20.2, as a process for tests.
//
// Cilium's own code, unmodified, from the module that go.mod pins: the crd-mode allocator with its node store and
// release handshake (pkg/ipam), node discovery that creates and updates the CiliumNode (pkg/nodediscovery), the local
// node store that is filled from the Node and the CiliumNode (pkg/node, pkg/node/sync), the CiliumNode watcher whose
// cache node discovery reads (pkg/k8s/watchers), the allocation of router, ingress and health addresses
// (daemon/infraendpoints), and the Kubernetes client with its default rate limits (pkg/k8s/client).
//
// Ours: this file (flags), protocol.go (commands and answers), agent.go (the order of calls, copied from Cilium's
// daemon), cells.go (which parts of Cilium are put together), standins.go (what Cilium's parts require and this process
// has not: endpoints, datapath, kvstore), logs.go (log lines that become events).
package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/cilium/cilium/pkg/defaults"
)

// config is what the command line says.
type config struct {
	kubeconfig string
	node       string
	ipv4       bool
	ipv6       bool
	health     bool
	ingress    bool
	updateRate time.Duration
}

func main() {
	var c config
	flag.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig of the API server")
	flag.StringVar(&c.node, "node", "", "name of the Node that this agent runs on")
	flag.BoolVar(&c.ipv4, "ipv4", false, "enable-ipv4")
	flag.BoolVar(&c.ipv6, "ipv6", false, "enable-ipv6")
	flag.BoolVar(&c.health, "health", true, "enable-health-checking and enable-endpoint-health-checking")
	flag.BoolVar(&c.ingress, "ingress", false, "enable-envoy-config: an ingress address for each family")
	flag.DurationVar(&c.updateRate, "update-rate", 15*time.Second, "ipam-cilium-node-update-rate: the minimum time between two writes of status.ipam.used")
	flag.Parse()

	if err := c.check(); err != nil {
		fmt.Fprintln(os.Stderr, "agent-1.20:", err)
		os.Exit(2)
	}
	// The API server derives the field manager from the user agent, and Cilium derives that from the program's name.
	os.Args[0] = "cilium-agent"

	out := newAnswers(os.Stdout)
	forwardLogs(out)
	a := &agent{config: c, out: out}
	a.serve(readCommands(os.Stdin))
}

func (c config) check() error {
	switch {
	case c.kubeconfig == "" || c.node == "":
		return fmt.Errorf("--kubeconfig and --node are required")
	case !c.ipv4 && !c.ipv6:
		return fmt.Errorf("at least one of --ipv4 and --ipv6 is required")
	case flag.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	// Cilium's start removes foreign addresses from this device. On a machine that runs Cilium itself that would cut
	// its pods off.
	if _, err := net.InterfaceByName(defaults.HostDevice); err == nil {
		return fmt.Errorf("this machine has a device %s, so it runs Cilium itself: not started", defaults.HostDevice)
	}
	return nil
}
