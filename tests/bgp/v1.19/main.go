// Command bgp-1.19 is the BGP control plane of one node's Cilium agent, release 1.19.5, as a process for tests.
//
// Cilium's own code, unmodified, from the module that go.mod pins: the BGP control plane (pkg/bgp) with its own BGP
// speaker, the resources and tables that it watches, and the Kubernetes client. Ours: which parts are put together (as
// Cilium's own tests of it do, but with the real client), and their configuration.
package main

import (
	"github.com/cilium/hive/cell"
	"github.com/cilium/statedb"
	"github.com/spf13/pflag"

	agentK8s "github.com/cilium/cilium/daemon/k8s"
	"github.com/cilium/cilium/pkg/bgp"
	"github.com/cilium/cilium/pkg/datapath/tables"
	envoy "github.com/cilium/cilium/pkg/envoy/config"
	"github.com/cilium/cilium/pkg/hive"
	k8sClient "github.com/cilium/cilium/pkg/k8s/client"
	"github.com/cilium/cilium/pkg/kpr"
	"github.com/cilium/cilium/pkg/lbipamconfig"
	"github.com/cilium/cilium/pkg/loadbalancer"
	"github.com/cilium/cilium/pkg/loadbalancer/reflectors"
	"github.com/cilium/cilium/pkg/loadbalancer/writer"
	"github.com/cilium/cilium/pkg/logging"
	"github.com/cilium/cilium/pkg/metrics"
	"github.com/cilium/cilium/pkg/node"
	nodeTypes "github.com/cilium/cilium/pkg/node/types"
	"github.com/cilium/cilium/pkg/nodeipamconfig"
	"github.com/cilium/cilium/pkg/option"
	"github.com/cilium/cilium/pkg/source"
	"github.com/cilium/cilium/pkg/svcrouteconfig"
	"nodeipam.io/tests/bgp/rig"
)

func main() { rig.Main("1.19", run) }

func run(c rig.Config) error {
	nodeTypes.SetName(c.Node)
	// What Cilium's daemon reads from its flags. Whatever is not named keeps the default that Cilium's code gives it.
	option.Config.EnableBGPControlPlane = true
	option.Config.BGPRouterIDAllocationMode = option.BGPRouterIDAllocationModeDefault
	option.Config.IPAM = c.IPAM
	option.Config.EnableIPv4 = c.IPv4
	option.Config.EnableIPv6 = c.IPv6

	h := hive.New(
		cell.Module("agent", "BGP control plane of the Cilium agent",
			k8sClient.Cell,
			agentK8s.ResourcesCell,
			agentK8s.TablesCell,
			node.LocalNodeStoreTestCell, // The real store with a synchronizer that does nothing.
			metrics.Cell,
			bgp.Cell,
			routes,
			services,
			cell.Config(envoy.SecretSyncConfig{}),
			cell.Provide(func() *option.DaemonConfig { return option.Config }),
		),
	)
	flags := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	h.RegisterFlags(flags)
	if err := flags.Set(option.K8sKubeConfigPath, c.Kubeconfig); err != nil {
		return err
	}
	return h.Run(logging.DefaultSlogLogger)
}

// routes are tables of the datapath, which stay empty: there is none.
var routes = cell.Provide(
	tables.NewRouteTable, statedb.RWTable[*tables.Route].ToTable,
	tables.NewDeviceTable, statedb.RWTable[*tables.Device].ToTable,
	tables.NewNodeAddressTable, statedb.RWTable[tables.NodeAddress].ToTable,
)

// services are the Services of the cluster, as the BGP control plane of this release reads them.
var services = cell.Group(
	loadbalancer.ConfigCell,
	writer.Cell,
	reflectors.Cell,
	lbipamconfig.Cell,
	nodeipamconfig.Cell,
	svcrouteconfig.Cell,
	cell.Provide(
		func() source.Sources { return source.Sources{} },
		func() kpr.KPRConfig { return kpr.KPRConfig{} },
	),
)
