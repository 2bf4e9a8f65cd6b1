// Which parts of Cilium make up the agent, and how they are configured. The parts are Cilium's own, unmodified; the
// selection, the configuration and standins.go are ours.

package main

import (
	"github.com/spf13/pflag"

	agentK8s "github.com/cilium/cilium/daemon/k8s"
	"github.com/cilium/cilium/pkg/cidr"
	"github.com/cilium/cilium/pkg/defaults"
	"github.com/cilium/cilium/pkg/hive"
	"github.com/cilium/cilium/pkg/hive/cell"
	ipamOption "github.com/cilium/cilium/pkg/ipam/option"
	k8sClient "github.com/cilium/cilium/pkg/k8s/client"
	"github.com/cilium/cilium/pkg/node"
	nodeTypes "github.com/cilium/cilium/pkg/node/types"
	"github.com/cilium/cilium/pkg/nodediscovery"
	"github.com/cilium/cilium/pkg/option"
	"nodeipam.io/tests/agent/rig"
)

// parts are Cilium's objects that the daemon calls in its order (agent.go).
type parts struct {
	cell.In

	Clientset      k8sClient.Clientset
	LocalNodeStore *node.LocalNodeStore
	LocalNode      agentK8s.LocalNodeResource
	CiliumNode     agentK8s.LocalCiliumNodeResource
}

// assemble builds the agent; nothing runs before the hive is started.
func assemble(c rig.Config, into *parts) (*hive.Hive, error) {
	nodeTypes.SetName(c.Node)
	configure(option.Config, c)

	h := hive.New(
		cell.Module("agent", "IPAM side of the Cilium agent",
			k8sClient.Cell,
			agentK8s.ResourcesCell,
			node.LocalNodeStoreCell,
			cell.Provide(newLocalNodeInitializer),
			cell.Invoke(func(p parts) { *into = p }),
		),
	)
	flags := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	h.RegisterFlags(flags)
	return h, flags.Set(option.K8sKubeConfigPath, c.Kubeconfig)
}

// configure sets what Cilium's daemon reads from its flags, for the parts that are used here. Whatever is not named
// keeps the default that Cilium's code gives it.
func configure(d *option.DaemonConfig, c rig.Config) {
	d.IPAM = ipamOption.IPAMCRD
	d.EnableIPv4 = c.IPv4
	d.EnableIPv6 = c.IPv6
	d.EnableHealthChecking = c.Health
	d.EnableEndpointHealthChecking = c.Health
	d.EnableEnvoyConfig = c.Ingress
	d.IPAMCiliumNodeUpdateRate = c.UpdateRate
	if c.NativeRoutingIPv4 != "" {
		d.IPv4NativeRoutingCIDR = cidr.MustParseCIDR(c.NativeRoutingIPv4)
	}
	if c.NativeRoutingIPv6 != "" {
		d.IPv6NativeRoutingCIDR = cidr.MustParseCIDR(c.NativeRoutingIPv6)
	}

	// The defaults of these flags, which option.Config does not hold before flags are parsed.
	d.ClusterName = defaults.ClusterName
	d.IPv4NodeAddr = "auto"
	d.IPv6NodeAddr = "auto"
	d.IPv4ServiceRange = nodediscovery.AutoCIDR
	d.IPv6ServiceRange = nodediscovery.AutoCIDR
	d.K8sSyncTimeout = defaults.K8sSyncTimeout
}
