// The agent: what Cilium's daemon does around the allocator, in its order.
//
// The order of start is that of newDaemon in Cilium's daemon/cmd/daemon.go, which also starts the datapath and so can't
// be called itself. Everything called here is Cilium's own.

package main

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"

	agentK8s "github.com/cilium/cilium/daemon/k8s"
	"github.com/cilium/cilium/pkg/ipam"
	"github.com/cilium/cilium/pkg/k8s"
	"github.com/cilium/cilium/pkg/logging"
	"github.com/cilium/cilium/pkg/node"
	"github.com/cilium/cilium/pkg/option"
	"nodeipam.io/tests/agent/rig"
)

// agent is one node's agent.
type agent struct {
	config rig.Config
	events *rig.Events
	parts  parts
	// fromK8s are the router addresses that the CiliumNode has kept.
	fromK8s rig.Addresses
}

func (a *agent) Start(kept rig.Kept) error {
	hive, err := assemble(a.config, &a.parts)
	if err != nil {
		return err
	}
	// Starts the local node store, which waits for the Node and then reads what the CiliumNode has kept.
	ctx := context.Background()
	if err := hive.Start(logging.DefaultSlogLogger, ctx); err != nil {
		return err
	}
	local, err := a.parts.LocalNodeStore.Get(ctx)
	if err != nil {
		return err
	}
	if err := a.config.CheckNodeAddresses(local.GetNodeIP(false), local.GetNodeIP(true)); err != nil {
		return err
	}
	a.parts.LocalNodeStore.Update(func(n *node.LocalNode) {
		keep(&n.IPv4HealthIP, kept.Health.IPv4)
		keep(&n.IPv6HealthIP, kept.Health.IPv6)
		keep(&n.IPv4IngressIP, kept.Ingress.IPv4)
		keep(&n.IPv6IngressIP, kept.Ingress.IPv6)
	})
	if a.config.IPAM == rig.MultiPool || a.config.IPAM == rig.ClusterPool {
		// In crd mode the allocator does it, in kubernetes mode it is done when the agent runs.
		a.parts.NodeDiscovery.UpdateCiliumNodeResource()
	}
	if err := agentK8s.WaitForNodeInformation(ctx, logging.DefaultLogger, a.parts.K8s.LocalNode, a.parts.K8s.LocalCiliumNode); err != nil {
		return err
	}
	watchCiliumNodes(ctx, a.parts.CiliumNodeWatcher)
	a.fromK8s = rig.Texts(node.GetInternalIPv4Router(), node.GetIPv6Router())
	a.parts.IPAM.ConfigureAllocator()
	return nil
}

// Restore calls and names as allocateIPsLocked of daemon/cmd/state.go.
func (a *agent) Restore(ip netip.Addr, owner, pool string) error {
	_, err := a.parts.IPAM.AllocateIPWithoutSyncUpstream(ip.AsSlice(), owner+" [restored]", ipam.PoolOrDefault(pool))
	return err
}

func (a *agent) Run(kept rig.Kept) (rig.Kept, error) {
	ctx := context.Background()
	before, err := a.before(ctx, kept)
	if err != nil {
		return rig.Kept{}, err
	}
	for _, ip := range a.nodeIPs() {
		a.parts.IPAM.ExcludeIP(ip, "node-ip", ipam.PoolDefault())
	}
	own, err := rig.TakeOwn(a.config, a.events, allocator{a.parts.IPAM}, before)
	if err != nil {
		return rig.Kept{}, err
	}
	set(node.SetInternalIPv4Router, own.Router.IPv4)
	set(node.SetIPv6Router, own.Router.IPv6)
	set(node.SetIngressIPv4, own.Ingress.IPv4)
	set(node.SetIngressIPv6, own.Ingress.IPv6)
	set(node.SetEndpointHealthIPv4, own.Health.IPv4)
	set(node.SetEndpointHealthIPv6, own.Health.IPv6)

	a.parts.NodeDiscovery.StartDiscovery()
	if a.config.Annotations {
		local, err := a.parts.LocalNodeStore.Get(ctx)
		if err != nil {
			return rig.Kept{}, err
		}
		if _, err := k8s.AnnotateNode(a.parts.Clientset, local.Name, local.Node, 0); err != nil {
			return rig.Kept{}, err
		}
	}
	if a.config.IPv6 {
		a.parts.IPAM.IPv6Allocator.RestoreFinished()
	}
	if a.config.IPv4 {
		a.parts.IPAM.IPv4Allocator.RestoreFinished()
	}
	return own, nil
}

// before is what an earlier run has held: the router from Cilium's state directory or else from the CiliumNode, the
// others from the local node store.
func (a *agent) before(ctx context.Context, kept rig.Kept) (rig.Kept, error) {
	var v4, v6 net.IP
	err := rig.WithRouterState(kept.Router, func(stateDir string) error {
		option.Config.StateDir = stateDir
		v4, v6 = node.ExtractCiliumHostIPFromFS()
		return nil
	})
	if err != nil {
		return rig.Kept{}, err
	}
	local, err := a.parts.LocalNodeStore.Get(ctx)
	before := rig.Kept{
		Router:  rig.Texts(v4, v6),
		Health:  rig.Texts(local.IPv4HealthIP, local.IPv6HealthIP),
		Ingress: rig.Texts(local.IPv4IngressIP, local.IPv6IngressIP),
	}
	if before.Router.IPv4 == "" {
		before.Router.IPv4 = a.fromK8s.IPv4
	}
	if before.Router.IPv6 == "" {
		before.Router.IPv6 = a.fromK8s.IPv6
	}
	return before, err
}

// nodeIPs are the addresses of the machine, which no pod must get.
func (a *agent) nodeIPs() []net.IP {
	var ips []net.IP
	if a.config.IPv4 {
		ips = append(ips, a.parts.Addressing.IPv4().PrimaryExternal())
	}
	if a.config.IPv6 {
		ips = append(ips, a.parts.Addressing.IPv6().PrimaryExternal())
	}
	return ips
}

func (a *agent) Allocate(owner, pool string) (rig.Allocation, error) {
	v4, v6, err := a.parts.IPAM.AllocateNext("", owner, ipam.Pool(pool))
	if err != nil {
		return rig.Allocation{}, err
	}
	var got rig.Allocation
	if v4 != nil {
		got.IPv4, got.Pool = v4.IP.String(), v4.IPPoolName.String()
	}
	if v6 != nil {
		got.IPv6, got.Pool = v6.IP.String(), v6.IPPoolName.String()
	}
	if v4 != nil && v6 != nil && v4.IPPoolName != v6.IPPoolName {
		return got, fmt.Errorf("Cilium chose pool %s for IPv4 and %s for IPv6: not supported here", v4.IPPoolName, v6.IPPoolName)
	}
	if a.config.IPAM != rig.MultiPool {
		got.Pool = ""
	}
	return got, nil
}

func (a *agent) Release(ip netip.Addr, pool string) error {
	return a.parts.IPAM.ReleaseIP(ip.AsSlice(), ipam.PoolOrDefault(pool))
}

func (a *agent) Dump() (map[string]string, string) {
	v4, v6, status := a.parts.IPAM.Dump()
	owners := map[string]string{}
	maps.Copy(owners, v4)
	maps.Copy(owners, v6)
	return owners, status
}

func (a *agent) TouchNode() {
	a.parts.NodeDiscovery.UpdateCiliumNodeResource()
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
	_, err := a.ipam.AllocateIPWithoutSyncUpstream(ip.AsSlice(), owner, ipam.PoolDefault())
	return err
}

func (a allocator) TakeNext(f rig.Family, owner string) (netip.Addr, error) {
	got, err := a.ipam.AllocateNextFamilyWithoutSyncUpstream(ipam.Family(f.String()), owner, ipam.PoolDefault())
	if err != nil {
		return netip.Addr{}, err
	}
	ip, _ := netip.AddrFromSlice(got.IP)
	return ip.Unmap(), nil
}

// keep replaces ip where text names an address.
func keep(ip *net.IP, text string) {
	if parsed := net.ParseIP(text); parsed != nil {
		*ip = parsed
	}
}
