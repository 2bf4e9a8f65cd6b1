// Which parts of Cilium make up the agent, and how they are configured. The parts are Cilium's own, unmodified; the
// selection, the configuration and standins.go are ours.

package main

import (
	"github.com/cilium/hive/cell"
	"github.com/cilium/hive/job"
	"github.com/spf13/pflag"

	"github.com/cilium/cilium/daemon/infraendpoints"
	agentK8s "github.com/cilium/cilium/daemon/k8s"
	cmtypes "github.com/cilium/cilium/pkg/clustermesh/types"
	datapathnode "github.com/cilium/cilium/pkg/datapath/node"
	"github.com/cilium/cilium/pkg/defaults"
	"github.com/cilium/cilium/pkg/hive"
	"github.com/cilium/cilium/pkg/ipam"
	ipamOption "github.com/cilium/cilium/pkg/ipam/option"
	k8sClient "github.com/cilium/cilium/pkg/k8s/client"
	k8sSynced "github.com/cilium/cilium/pkg/k8s/synced"
	"github.com/cilium/cilium/pkg/k8s/watchers"
	"github.com/cilium/cilium/pkg/kvstore"
	"github.com/cilium/cilium/pkg/logging"
	"github.com/cilium/cilium/pkg/node"
	nodesync "github.com/cilium/cilium/pkg/node/sync"
	nodeTypes "github.com/cilium/cilium/pkg/node/types"
	"github.com/cilium/cilium/pkg/nodediscovery"
	"github.com/cilium/cilium/pkg/option"
	"nodeipam.io/tests/agent/rig"
)

// parts are Cilium's objects that the daemon calls in its order (agent.go).
type parts struct {
	cell.In

	LocalNodeStore *node.LocalNodeStore
	NodeDiscovery  *nodediscovery.NodeDiscovery
	K8sWatcher     *watchers.K8sWatcher
	IPAM           *ipam.IPAM
	InfraIPs       infraendpoints.InfraIPAllocator
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
			kvstore.Cell(kvstore.DisabledBackendName),
			cell.Config(cmtypes.DefaultClusterInfo),
			node.LocalNodeStoreCell,
			nodesync.LocalNodeSyncCell,
			datapathnode.AddressingCell,
			watchers.Cell,
			nodediscovery.Cell,
			infraendpoints.Cell,
			cell.Provide(
				func() *option.DaemonConfig { return option.Config },
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
	d.IPAM = ipamOption.IPAMCRD
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
	d.BootIDFile = "/proc/sys/kernel/random/boot_id"
}

func newIPAM(
	c *option.DaemonConfig,
	addressing node.Addressing,
	discovery *nodediscovery.NodeDiscovery,
	localNode *node.LocalNodeStore,
	events *watchers.K8sEventReporter,
	resource agentK8s.LocalCiliumNodeResource,
	clientset k8sClient.Clientset,
	jobs job.Group,
) *ipam.IPAM {
	return ipam.NewIPAM(ipam.NewIPAMParams{
		Logger:         logging.DefaultSlogLogger,
		NodeAddressing: addressing,
		AgentConfig:    c,
		NodeDiscovery:  discovery,
		LocalNodeStore: localNode,
		K8sEventReg:    events,
		NodeResource:   resource,
		MTUConfig:      ethernetMTU{},
		Clientset:      clientset,
		Metadata:       defaultPool{},
		JobGroup:       jobs,
	})
}
