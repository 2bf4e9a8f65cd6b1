// Which parts of Cilium make up the agent, and how they are configured. The parts are Cilium's own, unmodified; the
// selection, the configuration and standins.go are ours.

package main

import (
	"github.com/cilium/hive/cell"
	"github.com/cilium/hive/job"
	"github.com/cilium/statedb"
	"github.com/spf13/pflag"

	"github.com/cilium/cilium/daemon/infraendpoints"
	agentK8s "github.com/cilium/cilium/daemon/k8s"
	cmtypes "github.com/cilium/cilium/pkg/clustermesh/types"
	datapathnode "github.com/cilium/cilium/pkg/datapath/node"
	"github.com/cilium/cilium/pkg/defaults"
	"github.com/cilium/cilium/pkg/hive"
	"github.com/cilium/cilium/pkg/ipam"
	"github.com/cilium/cilium/pkg/ipam/metadata"
	"github.com/cilium/cilium/pkg/ipam/podippool"
	"github.com/cilium/cilium/pkg/k8s"
	k8sClient "github.com/cilium/cilium/pkg/k8s/client"
	k8sSynced "github.com/cilium/cilium/pkg/k8s/synced"
	k8sTables "github.com/cilium/cilium/pkg/k8s/tables"
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
	Metadata       metadata.Manager
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
			modeCell(c.IPAM),
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
	d.BootIDFile = "/proc/sys/kernel/random/boot_id"
}

// modeCell is what only one mode needs, or must not have.
func modeCell(mode string) cell.Cell {
	if mode == rig.MultiPool {
		return cell.Group(
			k8sTables.TablesCell,
			podippool.TableCell,
			metadata.Cell,
			cell.Provide(k8s.CiliumPodIPPoolResource),
		)
	}
	return cell.Provide(
		func() metadata.Manager { return defaultPool{} },
		func() statedb.Table[podippool.LocalPodIPPool] { return nil },
		// The pod watcher would read them; it is not started (resourceGroups).
		func() statedb.Table[k8sTables.LocalPod] { return nil },
		func() statedb.Table[k8sTables.Namespace] { return nil },
	)
}

// ipamParams are those that newIPAddressManager of Cilium's pkg/ipam/cell takes, without features that are off.
type ipamParams struct {
	cell.In

	Config     *option.DaemonConfig
	Addressing node.Addressing
	Discovery  *nodediscovery.NodeDiscovery
	LocalNode  *node.LocalNodeStore
	Events     *watchers.K8sEventReporter
	Resource   agentK8s.LocalCiliumNodeResource
	Clientset  k8sClient.Clientset
	Metadata   metadata.Manager
	Jobs       job.Group
	DB         *statedb.DB
	PodIPPools statedb.Table[podippool.LocalPodIPPool]
}

func newIPAM(p ipamParams) *ipam.IPAM {
	return ipam.NewIPAM(ipam.NewIPAMParams{
		Logger:         logging.DefaultSlogLogger,
		NodeAddressing: p.Addressing,
		AgentConfig:    p.Config,
		NodeDiscovery:  p.Discovery,
		LocalNodeStore: p.LocalNode,
		K8sEventReg:    p.Events,
		NodeResource:   p.Resource,
		MTUConfig:      ethernetMTU{},
		Clientset:      p.Clientset,
		Metadata:       podless{p.Metadata},
		JobGroup:       p.Jobs,
		DB:             p.DB,
		PodIPPools:     p.PodIPPools,
	})
}
