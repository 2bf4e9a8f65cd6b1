// The agent: what Cilium's daemon does around the allocator, in its order.
//
// The order of start is that of configureDaemon in Cilium's daemon/cmd/daemon.go, which also starts the datapath and so
// can't be called itself. Everything called here is Cilium's own.

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"time"

	"github.com/cilium/cilium/pkg/ipam"
	"github.com/cilium/cilium/pkg/ipam/metadata"
	"github.com/cilium/cilium/pkg/logging"
	"github.com/cilium/cilium/pkg/node"
	"github.com/cilium/cilium/pkg/option"
	"nodeipam.io/tests/agent/rig"
)

// agent is one node's agent.
type agent struct {
	config rig.Config
	parts  parts
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
	if err := a.parts.LocalNodeStore.WaitForNodeInformation(ctx); err != nil {
		return err
	}
	a.parts.K8sWatcher.InitK8sSubsystem(ctx)
	a.parts.IPAM.ConfigureAllocator()
	return nil
}

// Restore calls and names as allocateIPsLocked of daemon/cmd/endpoint_restore.go.
func (a *agent) Restore(ip netip.Addr, owner, pool string) error {
	_, err := a.parts.IPAM.AllocateIPWithoutSyncUpstream(ip, owner+" [restored]", ipam.PoolOrDefault(pool))
	return err
}

func (a *agent) Run(kept rig.Kept) (rig.Kept, error) {
	ctx := context.Background()
	err := rig.WithRouterState(kept.Router, func(stateDir string) error {
		option.Config.StateDir = stateDir
		return a.parts.InfraIPs.AllocateIPs(ctx)
	})
	if err != nil {
		return rig.Kept{}, err
	}
	a.parts.NodeDiscovery.StartDiscovery(ctx)
	a.parts.NodeDiscovery.AnnotateK8sNode(ctx)
	a.parts.IPAM.RestoreFinished()
	a.awaitPoolChoice()

	local, err := a.parts.LocalNodeStore.Get(ctx)
	return rig.Kept{
		Router:  rig.Texts(local.GetCiliumInternalIP(false), local.GetCiliumInternalIP(true)),
		Health:  rig.Texts(local.IPv4HealthIP, local.IPv6HealthIP),
		Ingress: rig.Texts(local.IPv4IngressIP, local.IPv6IngressIP),
	}, err
}

// awaitPoolChoice returns when Cilium can say which pool serves a pod. Until it has read the CiliumPodIPPools it refuses
// pods, and the kubelet would ask again.
func (a *agent) awaitPoolChoice() {
	for {
		_, err := a.parts.Metadata.GetIPPoolForPod("anybody", ipam.IPv4)
		if !errors.Is(err, metadata.ErrManagerPoolsNotSynced) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
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
	return a.parts.IPAM.ReleaseIP(ip, ipam.PoolOrDefault(pool))
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

// keep replaces ip where text names an address.
func keep(ip *net.IP, text string) {
	if parsed := net.ParseIP(text); parsed != nil {
		*ip = parsed
	}
}
