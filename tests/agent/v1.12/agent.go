// The agent: what Cilium's daemon does around the allocator, in its order.
//
// The order of start is that of NewDaemon in Cilium's daemon/cmd/daemon.go, which also starts the datapath and so can't
// be called itself. Everything called here is Cilium's own.

package main

import (
	"context"
	"maps"
	"net"
	"net/netip"

	"github.com/cilium/cilium/pkg/cidr"
	"github.com/cilium/cilium/pkg/defaults"
	"github.com/cilium/cilium/pkg/ipam"
	ipamOption "github.com/cilium/cilium/pkg/ipam/option"
	"github.com/cilium/cilium/pkg/k8s"
	"github.com/cilium/cilium/pkg/mtu"
	"github.com/cilium/cilium/pkg/node"
	nodemanager "github.com/cilium/cilium/pkg/node/manager"
	nodeTypes "github.com/cilium/cilium/pkg/node/types"
	"github.com/cilium/cilium/pkg/nodediscovery"
	"github.com/cilium/cilium/pkg/option"
	"nodeipam.io/tests/agent/rig"
)

// agent is one node's agent.
type agent struct {
	config    rig.Config
	events    *rig.Events
	discovery *nodediscovery.NodeDiscovery
	ipam      *ipam.IPAM
}

func (a *agent) Start(kept rig.Kept) error {
	nodeTypes.SetName(a.config.Node)
	configure(option.Config, a.config)
	k8s.Configure("", a.config.Kubeconfig, defaults.K8sClientQPSLimit, defaults.K8sClientBurst)
	if err := k8s.Init(option.Config); err != nil {
		return err
	}
	others, err := nodemanager.NewManager("all", noDatapath{}, option.Config, nil, nil)
	if err != nil {
		return err
	}
	a.discovery = nodediscovery.NewNodeDiscovery(others.WithIPCache(noIPCache{}), mtu.Configuration{}, nil)

	ctx := context.Background()
	objects := &objects{}
	a.discovery.RegisterK8sGetters(objects)
	if err := objects.watchNode(ctx, a.discovery); err != nil {
		return err
	}
	if err := k8s.WaitForNodeInformation(ctx, objects); err != nil {
		return err
	}
	if err := a.config.CheckNodeAddresses(node.GetIPv4(), node.GetIPv6()); err != nil {
		return err
	}
	if err := objects.watchCiliumNodes(ctx); err != nil {
		return err
	}
	set(node.SetIngressIPv4, kept.Ingress.IPv4)
	set(node.SetIngressIPv6, kept.Ingress.IPv6)
	fromK8s4, fromK8s6 := node.GetInternalIPv4Router(), node.GetIPv6Router()
	if err := a.configureIPAM(kept.Router); err != nil {
		return err
	}
	a.ipam = ipam.NewIPAM(nil, option.Config, a.discovery, noEvents{}, ethernetMTU{})
	a.restoreRouter(fromK8s4, fromK8s6)
	return nil
}

// configure sets what Cilium's daemon reads from its flags, for the parts that are used here. Whatever is not named
// keeps the default that Cilium's code gives it. This release has no option for the update rate.
func configure(d *option.DaemonConfig, c rig.Config) {
	d.IPAM = ipamOption.IPAMCRD
	d.EnableIPv4 = c.IPv4
	d.EnableIPv6 = c.IPv6
	d.EnableHealthChecking = c.Health
	d.EnableEndpointHealthChecking = c.Health
	d.EnableEnvoyConfig = c.Ingress
	if c.NativeRoutingIPv4 != "" {
		d.SetIPv4NativeRoutingCIDR(cidr.MustParseCIDR(c.NativeRoutingIPv4))
	}
	if c.NativeRoutingIPv6 != "" {
		d.SetIPv6NativeRoutingCIDR(cidr.MustParseCIDR(c.NativeRoutingIPv6))
	}

	// The defaults of these flags, which option.Config does not hold before flags are parsed.
	d.ClusterName = defaults.ClusterName
	d.IPv4ServiceRange = nodediscovery.AutoCIDR
	d.IPv6ServiceRange = nodediscovery.AutoCIDR
	d.K8sSyncTimeout = defaults.K8sSyncTimeout
}

// configureIPAM completes the addresses of the node as configureIPAM of daemon/cmd/ipam.go, which reads the router's
// address from Cilium's state directory.
func (a *agent) configureIPAM(router rig.Addresses) error {
	if !a.config.IPv4 {
		// Cilium derives this range from the IPv4 address otherwise. It has no meaning in crd mode.
		node.SetIPv6NodeRange(cidr.MustParseCIDR("f00d::a0f:0:0:0/96"))
	}
	return rig.WithRouterState(router, func(stateDir string) error {
		option.Config.StateDir = stateDir
		return node.AutoComplete()
	})
}

// restoreRouter chooses the earlier address of the router, as restoreCiliumHostIPs of daemon/cmd/daemon.go.
func (a *agent) restoreRouter(fromK8s4, fromK8s6 net.IP) {
	if a.config.IPv4 {
		cidrs := []*cidr.CIDR{option.Config.GetIPv4NativeRoutingCIDR()}
		node.RestoreHostIPs(false, fromK8s4, node.GetInternalIPv4Router(), cidrs)
	}
	if a.config.IPv6 {
		cidrs := []*cidr.CIDR{option.Config.GetIPv6NativeRoutingCIDR()}
		node.RestoreHostIPs(true, fromK8s6, node.GetIPv6Router(), cidrs)
	}
}

// Restore calls and names as allocateIPsLocked of daemon/cmd/state.go, where the space is missing for IPv4.
func (a *agent) Restore(ip netip.Addr, owner, _ string) error {
	suffix := "[restored]"
	if ip.Is6() {
		suffix = " [restored]"
	}
	_, err := a.ipam.AllocateIPWithoutSyncUpstream(ip.AsSlice(), owner+suffix)
	return err
}

func (a *agent) Run(rig.Kept) (rig.Kept, error) {
	if a.config.IPv4 {
		a.ipam.BlacklistIP(node.GetIPv4(), "node-ip")
	}
	if a.config.IPv6 {
		a.ipam.BlacklistIP(node.GetIPv6(), "node-ip")
	}
	// This release does not look for an earlier health address.
	own, err := rig.TakeOwn(a.config, a.events, allocator{a.ipam}, rig.Kept{
		Router:  rig.Texts(node.GetInternalIPv4Router(), node.GetIPv6Router()),
		Ingress: rig.Texts(node.GetIngressIPv4(), node.GetIngressIPv6()),
	})
	if err != nil {
		return rig.Kept{}, err
	}
	set(node.SetInternalIPv4Router, own.Router.IPv4)
	set(node.SetIPv6Router, own.Router.IPv6)
	set(node.SetIngressIPv4, own.Ingress.IPv4)
	set(node.SetIngressIPv6, own.Ingress.IPv6)
	set(node.SetEndpointHealthIPv4, own.Health.IPv4)
	set(node.SetEndpointHealthIPv6, own.Health.IPv6)

	a.discovery.StartDiscovery()
	if a.config.IPv6 {
		a.ipam.IPv6Allocator.RestoreFinished()
	}
	if a.config.IPv4 {
		a.ipam.IPv4Allocator.RestoreFinished()
	}
	return own, nil
}

func (a *agent) Allocate(owner, _ string) (rig.Allocation, error) {
	v4, v6, err := a.ipam.AllocateNext("", owner)
	if err != nil {
		return rig.Allocation{}, err
	}
	var got rig.Allocation
	if v4 != nil {
		got.IPv4 = v4.IP.String()
	}
	if v6 != nil {
		got.IPv6 = v6.IP.String()
	}
	return got, nil
}

func (a *agent) Release(ip netip.Addr, _ string) error {
	return a.ipam.ReleaseIP(ip.AsSlice())
}

func (a *agent) Dump() (map[string]string, string) {
	v4, v6, status := a.ipam.Dump()
	owners := map[string]string{}
	maps.Copy(owners, v4)
	maps.Copy(owners, v6)
	return owners, status
}

func (a *agent) TouchNode() {
	a.discovery.UpdateLocalNode()
}

// set tells Cilium an address if there is one: to be told of none would remove those of the other family too.
func set(setter func(net.IP), text string) {
	if ip := net.ParseIP(text); ip != nil {
		setter(ip)
	}
}

// allocator takes the agent's own addresses.
type allocator struct {
	ipam *ipam.IPAM
}

func (a allocator) Take(ip netip.Addr, owner string) error {
	_, err := a.ipam.AllocateIPWithoutSyncUpstream(ip.AsSlice(), owner)
	return err
}

func (a allocator) TakeNext(f rig.Family, owner string) (netip.Addr, error) {
	got, err := a.ipam.AllocateNextFamilyWithoutSyncUpstream(ipam.Family(f.String()), owner)
	if err != nil {
		return netip.Addr{}, err
	}
	ip, _ := netip.AddrFromSlice(got.IP)
	return ip.Unmap(), nil
}
