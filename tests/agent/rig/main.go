// Package rig is what the agents of all releases of Cilium have in common: flags, the protocol, the commands, and the
// addresses that an agent takes for itself. It depends on no release of Cilium and on no Kubernetes library, because
// those of the releases exclude each other.
package rig

import (
	"flag"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"
)

// The modes of IPAM, as the option ipam has them.
const (
	CRD         = "crd"
	MultiPool   = "multi-pool"
	ClusterPool = "cluster-pool"
	Kubernetes  = "kubernetes"
)

// Config is what the command line says.
type Config struct {
	Kubeconfig string
	Node       string
	IPAM       string
	IPv4       bool
	IPv6       bool
	Health     bool
	Ingress    bool
	UpdateRate time.Duration
	// NativeRoutingIPv4 and NativeRoutingIPv6 are empty where the option is unset.
	NativeRoutingIPv4 string
	NativeRoutingIPv6 string
	// DefaultPool and PreAllocate are of the mode multi-pool alone.
	DefaultPool string
	PreAllocate map[string]string
	// Annotations says that the agent reads pod CIDRs from annotations of its Node too, and writes them there.
	Annotations bool
}

// hostDevice is the device of the router's address. Cilium's start removes foreign addresses from it.
const hostDevice = "cilium_host"

// Main runs the agent of one release, named as "1.20", and does not return. modes are those that it can run in; build
// constructs the agent and starts nothing.
func Main(release string, modes []string, build func(Config, *Events) Agent) {
	name := "agent-" + release
	var c Config
	// Cilium's dependencies put flags of their own into the default set.
	flags := flag.NewFlagSet(name, flag.ExitOnError)
	flags.StringVar(&c.Kubeconfig, "kubeconfig", "", "kubeconfig of the API server")
	flags.StringVar(&c.Node, "node", "", "name of the Node that this agent runs on")
	flags.StringVar(&c.IPAM, "ipam", CRD, "ipam: one of "+strings.Join(modes, ", "))
	flags.BoolVar(&c.IPv4, "ipv4", false, "enable-ipv4")
	flags.BoolVar(&c.IPv6, "ipv6", false, "enable-ipv6")
	flags.BoolVar(&c.Health, "health", true, "enable-health-checking and enable-endpoint-health-checking")
	flags.BoolVar(&c.Ingress, "ingress", false, "enable-envoy-config: an ingress address for each family")
	flags.DurationVar(&c.UpdateRate, "update-rate", 15*time.Second,
		"ipam-cilium-node-update-rate: the minimum time between two writes of what is in use")
	flags.StringVar(&c.NativeRoutingIPv4, "ipv4-native-routing-cidr", "0.0.0.0/0", "ipv4-native-routing-cidr")
	flags.StringVar(&c.NativeRoutingIPv6, "ipv6-native-routing-cidr", "::/0", "ipv6-native-routing-cidr")
	flags.StringVar(&c.DefaultPool, "default-pool", "default", "ipam-default-ip-pool, in mode multi-pool")
	flags.Func("pre-allocate", "ipam-multi-pool-pre-allocation, as pool=count; repeatable; otherwise 8 of the default pool", c.preAllocate)
	flags.BoolVar(&c.Annotations, "annotate-k8s-node", false, "annotate-k8s-node, in mode kubernetes")
	// It exits on an error.
	_ = flags.Parse(os.Args[1:])

	if len(c.PreAllocate) == 0 {
		c.PreAllocate = map[string]string{c.DefaultPool: "8"}
	}
	if err := c.check(modes, flags.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(2)
	}
	// The API server derives the field manager from the user agent, and Cilium derives that from the program's name.
	os.Args[0] = "cilium-agent"

	out := newOutput(os.Stdout)
	s := server{config: c, out: out, agent: build(c, &Events{out: out})}
	s.serve(readCommands(os.Stdin))
	os.Exit(0)
}

func (c *Config) preAllocate(text string) error {
	pool, count, found := strings.Cut(text, "=")
	if !found {
		return fmt.Errorf("%q is not pool=count", text)
	}
	if c.PreAllocate == nil {
		c.PreAllocate = map[string]string{}
	}
	c.PreAllocate[pool] = count
	return nil
}

func (c Config) check(modes, rest []string) error {
	switch {
	case !slices.Contains(modes, c.IPAM):
		return fmt.Errorf("--ipam must be one of %s, not %q", strings.Join(modes, ", "), c.IPAM)
	case c.Kubeconfig == "" || c.Node == "":
		return fmt.Errorf("--kubeconfig and --node are required")
	case !c.IPv4 && !c.IPv6:
		return fmt.Errorf("at least one of --ipv4 and --ipv6 is required")
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q", rest[0])
	}
	// On a machine that runs Cilium itself, removing addresses from its device would cut its pods off.
	if _, err := net.InterfaceByName(hostDevice); err == nil {
		return fmt.Errorf("this machine has a device %s, so it runs Cilium itself: not started", hostDevice)
	}
	return nil
}

// CheckNodeAddresses refuses a Node without an InternalIP of an enabled family. A real agent then reads the address of
// a device; here there is none, and Cilium's code would take an IPv4 address for the IPv6 router.
func (c Config) CheckNodeAddresses(ipv4, ipv6 net.IP) error {
	switch {
	case c.IPv4 && ipv4 == nil:
		return fmt.Errorf("node %s has no IPv4 InternalIP", c.Node)
	case c.IPv6 && ipv6 == nil:
		return fmt.Errorf("node %s has no IPv6 InternalIP", c.Node)
	}
	return nil
}
