// Command bgp-1.17 is the BGP control plane of one node's Cilium agent, release 1.17.8, as a process for tests.
//
// Cilium's own code, unmodified, from the module that go.mod pins: the BGP control plane of both generations
// (pkg/bgpv1) with its own BGP speaker, the resources that it watches, and the Kubernetes client. Ours: which parts are
// put together, and their configuration.
package main

import (
	"github.com/cilium/hive/cell"
	"github.com/spf13/pflag"

	agentK8s "github.com/cilium/cilium/daemon/k8s"
	"github.com/cilium/cilium/pkg/bgpv1"
	"github.com/cilium/cilium/pkg/hive"
	"github.com/cilium/cilium/pkg/k8s"
	k8sClient "github.com/cilium/cilium/pkg/k8s/client"
	"github.com/cilium/cilium/pkg/logging"
	"github.com/cilium/cilium/pkg/metrics"
	nodeTypes "github.com/cilium/cilium/pkg/node/types"
	"github.com/cilium/cilium/pkg/option"
	"nodeipam.io/tests/bgp/rig"
)

func main() { rig.Main("1.17", run) }

func run(c rig.Config) error {
	nodeTypes.SetName(c.Node)
	// What Cilium's daemon reads from its flags. Whatever is not named keeps the default that Cilium's code gives it.
	option.Config.EnableBGPControlPlane = true
	option.Config.IPAM = c.IPAM
	option.Config.EnableIPv4 = c.IPv4
	option.Config.EnableIPv6 = c.IPv6

	h := hive.New(
		cell.Module("agent", "BGP control plane of the Cilium agent",
			k8sClient.Cell,
			cell.Config(k8s.DefaultConfig),
			agentK8s.LocalNodeCell,
			cell.Provide(
				k8s.ServiceResource,
				k8s.EndpointsResource,
				k8s.LBIPPoolsResource,
				func() *option.DaemonConfig { return option.Config },
			),
			metrics.Cell,
			bgpv1.Cell,
		),
	)
	flags := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	h.RegisterFlags(flags)
	if err := flags.Set(option.K8sKubeConfigPath, c.Kubeconfig); err != nil {
		return err
	}
	return h.Run(logging.DefaultSlogLogger)
}
