// The agent: what Cilium's daemon does around the allocator, in its order, and the commands.
//
// The order of start is that of configureDaemon in Cilium's daemon/cmd/daemon.go, which also starts the datapath and so
// can't be called itself. restore follows allocateIPsLocked of daemon/cmd/endpoint_restore.go. Everything called
// here is Cilium's own.

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/cilium/cilium/pkg/ipam"
	"github.com/cilium/cilium/pkg/logging"
	"github.com/cilium/cilium/pkg/node"
)

// restoredSuffix marks the owner of an address that was restored, as Cilium's endpoint restoration does.
const restoredSuffix = " [restored]"

var errNotStarted = errors.New("not started")

// agent is one node's agent. It carries out one command after the other.
type agent struct {
	config  config
	out     *answers
	parts   parts
	running bool
}

// serve answers every command in order.
func (a *agent) serve(commands <-chan command) {
	for c := range commands {
		reply, err := a.do(c)
		reply.ID = c.ID
		reply.OK = err == nil
		if err != nil {
			reply.Error = err.Error()
		}
		a.out.write(reply)
		if c.Cmd == "start" && !a.running {
			// As the daemon: a start that fails ends the process.
			os.Exit(1)
		}
	}
}

func (a *agent) do(c command) (answer, error) {
	switch {
	case c.err != nil:
		return answer{}, c.err
	case c.Cmd == "start":
		return a.start(c)
	case !a.running:
		return answer{}, errNotStarted
	}
	switch c.Cmd {
	case "allocate":
		got, err := a.allocate(c.Owner)
		return answer{addresses: got}, err
	case "allocate-many":
		return a.allocateMany(c)
	case "release":
		return a.release(c)
	case "dump":
		return a.dump(), nil
	case "touch-node":
		a.parts.NodeDiscovery.UpdateCiliumNodeResource()
		return answer{}, nil
	default:
		return answer{}, fmt.Errorf("unknown command %q", c.Cmd)
	}
}

// start blocks until the agent has its addresses and has begun to publish their use. It fails where the daemon's
// start fails; where Cilium's code ends the process itself, there is a fatal event and no answer.
func (a *agent) start(c command) (answer, error) {
	if a.running {
		return answer{}, errors.New("already started")
	}
	hive, err := assemble(a.config, &a.parts)
	if err != nil {
		return answer{}, err
	}
	// Starts the local node store, which waits for the Node and then reads what the CiliumNode has kept.
	ctx := context.Background()
	if err := hive.Start(logging.DefaultSlogLogger, ctx); err != nil {
		return answer{}, err
	}
	if err := a.checkNodeAddresses(ctx); err != nil {
		return answer{}, err
	}
	a.parts.LocalNodeStore.Update(func(n *node.LocalNode) {
		keep(&n.IPv4HealthIP, c.Health.IPv4)
		keep(&n.IPv6HealthIP, c.Health.IPv6)
		keep(&n.IPv4IngressIP, c.Ingress.IPv4)
		keep(&n.IPv6IngressIP, c.Ingress.IPv6)
	})

	a.parts.K8sWatcher.InitK8sSubsystem(ctx)
	a.parts.IPAM.ConfigureAllocator()
	restored, lost := a.restoreAll(c.Restore)
	if err := withRouterState(c.Router, func() error { return a.parts.InfraIPs.AllocateIPs(ctx) }); err != nil {
		return answer{Restored: restored, Lost: lost}, err
	}
	a.parts.NodeDiscovery.StartDiscovery(ctx)
	a.parts.IPAM.RestoreFinished()
	a.running = true

	local, err := a.parts.LocalNodeStore.Get(ctx)
	return answer{
		Router:   known(local.GetCiliumInternalIP(false), local.GetCiliumInternalIP(true)),
		Health:   known(local.IPv4HealthIP, local.IPv6HealthIP),
		Ingress:  known(local.IPv4IngressIP, local.IPv6IngressIP),
		Restored: restored,
		Lost:     lost,
	}, err
}

// checkNodeAddresses refuses a Node without an InternalIP of an enabled family. A real agent then reads the address of
// a device; here there is none, and Cilium's code would take an IPv4 address for the IPv6 router.
func (a *agent) checkNodeAddresses(ctx context.Context) error {
	local, err := a.parts.LocalNodeStore.Get(ctx)
	if err != nil {
		return err
	}
	switch {
	case a.config.ipv4 && local.GetNodeIP(false) == nil:
		return fmt.Errorf("node %s has no IPv4 InternalIP", a.config.node)
	case a.config.ipv6 && local.GetNodeIP(true) == nil:
		return fmt.Errorf("node %s has no IPv6 InternalIP", a.config.node)
	}
	return nil
}

func (a *agent) restoreAll(endpoints []allocation) (restored []allocation, lost []loss) {
	for _, e := range endpoints {
		if err := a.restore(e); err != nil {
			lost = append(lost, loss{Owner: e.Owner, Error: err.Error()})
			continue
		}
		restored = append(restored, e)
	}
	return restored, lost
}

// restore takes the addresses of one endpoint, all or none: IPv6, then IPv4.
func (a *agent) restore(e allocation) error {
	var taken []netip.Addr
	for _, family := range []struct {
		name    ipam.Family
		enabled bool
		text    string
	}{{ipam.IPv6, a.config.ipv6, e.IPv6}, {ipam.IPv4, a.config.ipv4, e.IPv4}} {
		if !family.enabled || family.text == "" {
			continue
		}
		addr, err := netip.ParseAddr(family.text)
		if err == nil {
			_, err = a.parts.IPAM.AllocateIPWithoutSyncUpstream(addr, e.Owner+restoredSuffix, ipam.PoolDefault())
		}
		if err != nil {
			for _, t := range taken {
				err = errors.Join(err, a.parts.IPAM.ReleaseIP(t, ipam.PoolDefault()))
			}
			return fmt.Errorf("unable to reallocate %s %s address: %w", family.text, familyName(family.name), err)
		}
		taken = append(taken, addr)
	}
	return nil
}

// allocate asks as Cilium's CNI plugin does: every enabled family, IPv6 first, both or none.
func (a *agent) allocate(owner string) (addresses, error) {
	if owner == "" {
		return addresses{}, errors.New("allocate needs an owner")
	}
	v4, v6, err := a.parts.IPAM.AllocateNext("", owner, "")
	if err != nil {
		return addresses{}, err
	}
	var got addresses
	if v4 != nil {
		got.IPv4 = v4.IP.String()
	}
	if v6 != nil {
		got.IPv6 = v6.IP.String()
	}
	return got, nil
}

// allocateMany serves the owners prefix0, prefix1, … and stops at the first failure, which it reports beside what was
// got.
func (a *agent) allocateMany(c command) (answer, error) {
	var reply answer
	if c.Prefix == "" {
		return reply, errors.New("allocate-many needs a prefix")
	}
	for i := range c.Count {
		owner := fmt.Sprintf("%s%d", c.Prefix, i)
		got, err := a.allocate(owner)
		if err != nil {
			return reply, err
		}
		reply.Allocations = append(reply.Allocations, allocation{Owner: owner, addresses: got})
	}
	return reply, nil
}

// release gives back the addresses that are named, and those of the owner that is named.
func (a *agent) release(c command) (answer, error) {
	var reply answer
	texts := slices.DeleteFunc([]string{c.IPv4, c.IPv6}, func(s string) bool { return s == "" })
	if c.Owner != "" {
		for _, held := range a.dump().Allocations {
			if strings.TrimSuffix(held.Owner, restoredSuffix) == c.Owner {
				texts = append(texts, held.IPv4+held.IPv6)
			}
		}
	}
	if len(texts) == 0 {
		return reply, fmt.Errorf("nothing to release for owner %q", c.Owner)
	}
	for _, text := range texts {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return reply, err
		}
		if err := a.parts.IPAM.ReleaseIP(addr, ipam.PoolDefault()); err != nil {
			return reply, err
		}
	}
	return reply, nil
}

// dump lists every allocated address in the order of text, one per entry, with the owner as Cilium has it.
func (a *agent) dump() answer {
	v4, v6, status := a.parts.IPAM.Dump()
	reply := answer{Status: status}
	for ip, owner := range v4 {
		reply.Allocations = append(reply.Allocations, allocation{Owner: owner, addresses: addresses{IPv4: ip}})
	}
	for ip, owner := range v6 {
		reply.Allocations = append(reply.Allocations, allocation{Owner: owner, addresses: addresses{IPv6: ip}})
	}
	slices.SortFunc(reply.Allocations, func(x, y allocation) int {
		return strings.Compare(x.IPv4+x.IPv6, y.IPv4+y.IPv6)
	})
	return reply
}

// keep replaces ip where text names an address.
func keep(ip *net.IP, text string) {
	if parsed := net.ParseIP(text); parsed != nil {
		*ip = parsed
	}
}

// known is nil where neither family has an address.
func known(v4, v6 net.IP) *addresses {
	if v4 == nil && v6 == nil {
		return nil
	}
	var a addresses
	if v4 != nil {
		a.IPv4 = v4.String()
	}
	if v6 != nil {
		a.IPv6 = v6.String()
	}
	return &a
}

func familyName(f ipam.Family) string {
	if f == ipam.IPv6 {
		return "IPv6"
	}
	return "IPv4"
}
