// Which parts of Cilium make up the agent, and how they are configured. The parts are Cilium's own, unmodified; the
// selection, the configuration and standins.go are ours.

package main

import (
	"github.com/cilium/hive/cell"
	"github.com/spf13/pflag"

	agentK8s "github.com/cilium/cilium/daemon/k8s"
	"github.com/cilium/cilium/pkg/datapath"
	"github.com/cilium/cilium/pkg/datapath/linux/sysctl"
	datapathTypes "github.com/cilium/cilium/pkg/datapath/types"
	"github.com/cilium/cilium/pkg/defaults"
	"github.com/cilium/cilium/pkg/hive"
	"github.com/cilium/cilium/pkg/ipam"
	"github.com/cilium/cilium/pkg/ipam/metadata"
	k8sClient "github.com/cilium/cilium/pkg/k8s/client"
	k8sSynced "github.com/cilium/cilium/pkg/k8s/synced"
	"github.com/cilium/cilium/pkg/k8s/watchers"
	"github.com/cilium/cilium/pkg/node"
	nodeTypes "github.com/cilium/cilium/pkg/node/types"
	"github.com/cilium/cilium/pkg/nodediscovery"
	"github.com/cilium/cilium/pkg/option"
	"nodeipam.io/tests/agent/rig"
)

// parts are Cilium's objects that the daemon calls in its order (agent.go).
type parts struct {
	cell.In

	Addressing        datapathTypes.NodeAddressing
	LocalNodeStore    *node.LocalNodeStore
	NodeDiscovery     *nodediscovery.NodeDiscovery
	CiliumNodeWatcher *watchers.K8sCiliumNodeWatcher
	IPAM              *ipam.IPAM
	K8s               agentK8s.Resources
	Clientset         k8sClient.Clientset
}

// assemble builds the agent; nothing runs before the hive is started.
func assemble(c rig.Config, into *parts) (*hive.Hive, error) {
	nodeTypes.SetName(c.Node)
	configure(option.Config, c)

	h := hive.New(
		cell.Module("agent", "IPAM side of the Cilium agent",
			k8sClient.Cell,
			k8sSynced.Cell,
			agentK8s.ResourcesCell,
			node.LocalNodeStoreCell,
			datapath.NodeAddressingCell,
			watchers.Cell,
			nodediscovery.Cell,
			metadata.Cell,
			cell.Provide(
				func() *option.DaemonConfig { return option.Config },
				newLocalNodeSynchronizer,
				newIPAM,
			),
			standins,
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
	d.IPAM = c.IPAM
	d.IPAMDefaultIPPool = c.DefaultPool
	d.IPAMMultiPoolPreAllocation = c.PreAllocate
	if c.IPAM == rig.ClusterPool || c.IPAM == rig.Kubernetes {
		d.K8sRequireIPv4PodCIDR = c.IPv4
		d.K8sRequireIPv6PodCIDR = c.IPv6
	}
	d.AnnotateK8sNode = c.Annotations
	d.EnableIPv4 = c.IPv4
	d.EnableIPv6 = c.IPv6
	d.EnableHealthChecking = c.Health
	d.EnableEndpointHealthChecking = c.Health
	d.EnableEnvoyConfig = c.Ingress
	d.IPAMCiliumNodeUpdateRate = c.UpdateRate

	// The defaults of these flags, which option.Config does not hold before flags are parsed.
	d.ClusterName = defaults.ClusterName
	d.IPv4NodeAddr = "auto"
	d.IPv6NodeAddr = "auto"
	d.K8sSyncTimeout = defaults.K8sSyncTimeout
	d.AutoCreateCiliumNodeResource = defaults.AutoCreateCiliumNodeResource
}

func newIPAM(
	c *option.DaemonConfig,
	addressing datapathTypes.NodeAddressing,
	discovery *nodediscovery.NodeDiscovery,
	localNode *node.LocalNodeStore,
	events *watchers.K8sEventReporter,
	resource agentK8s.LocalCiliumNodeResource,
	clientset k8sClient.Clientset,
	pools metadata.Manager,
) *ipam.IPAM {
	var noSysctl sysctl.Sysctl
	return ipam.NewIPAM(addressing, c, discovery, localNode, events, resource, ethernetMTU{}, clientset, podless{pools}, noSysctl)
}
