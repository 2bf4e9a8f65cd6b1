package rig

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// Agent is the IPAM side of the agent of one release, made of Cilium's own parts. Its methods are called one after the
// other: Start, Restore any number of times, Run, then the others.
type Agent interface {
	// Start does what the daemon does before it restores endpoints. It blocks until the CiliumNode has enough
	// addresses. Where Cilium's code ends the process itself, there is a fatal event and no return.
	Start(Kept) error
	// Restore takes an address for an endpoint that an earlier run has left, under the owner that Cilium gives it then.
	// Here and below, pool is empty in modes without named pools.
	Restore(ip netip.Addr, owner, pool string) error
	// Run does what the daemon does after it has restored endpoints: it takes the agent's own addresses, starts node
	// discovery and declares the restoration finished, which lets it publish what is in use.
	Run(Kept) (Kept, error)
	// Allocate takes an address of each enabled family, both or none, as Cilium's CNI plugin asks for them. Where no pool
	// is named, Cilium chooses it.
	Allocate(owner, pool string) (Allocation, error)
	// Release gives an address back.
	Release(ip netip.Addr, pool string) error
	// Dump is the owner of each address, as Cilium has it, and Cilium's line about it. An address of a pool that is not
	// the default is preceded by the pool's name and a slash.
	Dump() (owners map[string]string, status string)
	// TouchNode updates the CiliumNode as after a change of the local node.
	TouchNode()
}

// Pooled is an agent that may run in mode multi-pool.
type Pooled interface {
	// Pools is what the agent knows of each pool; nothing in other modes.
	Pools() []PoolState
}

// restoredSuffix ends the owner of an address that was restored, in every release.
const restoredSuffix = "[restored]"

var (
	errNotStarted = errors.New("not started")
	errHeld       = errors.New("restoration is not finished: send restored")
)

// phase is how far the start has come.
type phase int

const (
	idle phase = iota
	restoring
	running
)

// server carries out one command after the other.
type server struct {
	config Config
	out    *output
	agent  Agent
	phase  phase
	kept   Kept
}

// serve answers every command in order.
func (s *server) serve(commands <-chan Command) {
	for c := range commands {
		reply, err := s.do(c)
		reply.ID = c.ID
		reply.OK = err == nil
		if err != nil {
			reply.Error = err.Error()
		}
		s.out.write(reply)
		if err != nil && (c.Cmd == "start" && s.phase != running || c.Cmd == "restored" && s.phase == restoring) {
			// As the daemon: a start that fails ends the process.
			os.Exit(1)
		}
	}
}

func (s *server) do(c Command) (Answer, error) {
	if c.err != nil {
		return Answer{}, c.err
	}
	switch {
	case c.Cmd == "start":
		return s.start(c)
	case s.phase == idle:
		return Answer{}, errNotStarted
	case c.Cmd == "dump":
		return s.dump(), nil
	case c.Cmd == "restore" && s.phase == restoring:
		return Answer{}, s.restore(Allocation{Owner: c.Owner, Pool: c.Pool, Addresses: c.Addresses})
	case c.Cmd == "restored" && s.phase == restoring:
		return s.run()
	case s.phase == restoring:
		return Answer{}, errHeld
	}
	switch c.Cmd {
	case "allocate":
		got, err := s.allocate(c.Owner, c.Pool)
		return Answer{Addresses: got.Addresses, Pool: got.Pool}, err
	case "allocate-many":
		return s.allocateMany(c)
	case "release":
		return s.release(c)
	case "touch-node":
		s.agent.TouchNode()
		return Answer{}, nil
	default:
		return Answer{}, fmt.Errorf("unknown command %q", c.Cmd)
	}
}

// start blocks until the agent has its addresses and has begun to publish their use; with hold, until endpoints can be
// restored. It fails where the daemon's start fails.
func (s *server) start(c Command) (Answer, error) {
	if s.phase != idle {
		return Answer{}, errors.New("already started")
	}
	s.kept = c.Kept
	if err := s.agent.Start(c.Kept); err != nil {
		return Answer{}, err
	}
	s.phase = restoring
	var restored []Allocation
	var lost []Loss
	for _, e := range c.Restore {
		if err := s.restore(e); err != nil {
			lost = append(lost, Loss{Owner: e.Owner, Error: err.Error()})
			continue
		}
		restored = append(restored, e)
	}
	reply, err := Answer{}, error(nil)
	if !c.Hold {
		reply, err = s.run()
	}
	reply.Restored, reply.Lost = restored, lost
	return reply, err
}

func (s *server) run() (Answer, error) {
	own, err := s.agent.Run(s.kept)
	if err != nil {
		return Answer{}, err
	}
	s.phase = running
	return Answer{Router: known(own.Router), Health: known(own.Health), Ingress: known(own.Ingress)}, nil
}

// restore takes the addresses of one endpoint, all or none, as allocateIPsLocked of Cilium's daemon: IPv6, then IPv4.
func (s *server) restore(e Allocation) error {
	pool := s.poolOrDefault(e.Pool)
	var taken []netip.Addr
	for _, family := range []struct {
		name    string
		enabled bool
		text    string
	}{{"IPv6", s.config.IPv6, e.IPv6}, {"IPv4", s.config.IPv4, e.IPv4}} {
		if !family.enabled || family.text == "" {
			continue
		}
		addr, err := netip.ParseAddr(family.text)
		if err == nil {
			err = s.agent.Restore(addr, e.Owner, pool)
		}
		if err != nil {
			for _, t := range taken {
				err = errors.Join(err, s.agent.Release(t, pool))
			}
			return fmt.Errorf("unable to reallocate %s %s address: %w", family.text, family.name, err)
		}
		taken = append(taken, addr)
	}
	return nil
}

// poolOrDefault is empty in modes without named pools.
func (s *server) poolOrDefault(pool string) string {
	if pool == "" && s.config.IPAM == MultiPool {
		return s.config.DefaultPool
	}
	return pool
}

func (s *server) allocate(owner, pool string) (Allocation, error) {
	switch {
	case owner == "":
		return Allocation{}, errors.New("allocate needs an owner")
	case pool != "" && s.config.IPAM != MultiPool:
		return Allocation{}, fmt.Errorf("mode %s has no pool %q", s.config.IPAM, pool)
	}
	got, err := s.agent.Allocate(owner, pool)
	got.Owner = owner
	return got, err
}

// allocateMany serves the owners prefix0, prefix1, … and stops at the first failure, which it reports beside what was
// got.
func (s *server) allocateMany(c Command) (Answer, error) {
	var reply Answer
	if c.Prefix == "" {
		return reply, errors.New("allocate-many needs a prefix")
	}
	for i := range c.Count {
		owner := fmt.Sprintf("%s%d", c.Prefix, i)
		got, err := s.allocate(owner, c.Pool)
		if err != nil {
			return reply, err
		}
		reply.Allocations = append(reply.Allocations, got)
	}
	return reply, nil
}

// release gives back the addresses that are named, and those of the owner that is named.
func (s *server) release(c Command) (Answer, error) {
	type address struct{ text, pool string }
	var reply Answer
	var given []address
	for _, text := range []string{c.IPv4, c.IPv6} {
		if text != "" {
			given = append(given, address{text, s.poolOrDefault(c.Pool)})
		}
	}
	if c.Owner != "" {
		for _, held := range s.dump().Allocations {
			if PlainOwner(held.Owner) == c.Owner {
				given = append(given, address{held.IPv4 + held.IPv6, held.Pool})
			}
		}
	}
	if len(given) == 0 {
		return reply, fmt.Errorf("nothing to release for owner %q", c.Owner)
	}
	for _, g := range given {
		addr, err := netip.ParseAddr(g.text)
		if err != nil {
			return reply, err
		}
		if err := s.agent.Release(addr, g.pool); err != nil {
			return reply, err
		}
	}
	return reply, nil
}

// dump lists every allocated address in the order of text, one per entry, with the owner as Cilium has it.
func (s *server) dump() Answer {
	owners, status := s.agent.Dump()
	reply := Answer{Status: status}
	if a, pooled := s.agent.(Pooled); pooled {
		reply.Pools = a.Pools()
	}
	for ip, owner := range owners {
		a := Allocation{Owner: owner}
		if pool, rest, named := strings.Cut(ip, "/"); named {
			a.Pool, ip = pool, rest
		}
		a.Pool = s.poolOrDefault(a.Pool)
		if strings.Contains(ip, ":") {
			a.IPv6 = ip
		} else {
			a.IPv4 = ip
		}
		reply.Allocations = append(reply.Allocations, a)
	}
	slices.SortFunc(reply.Allocations, func(x, y Allocation) int {
		return cmp.Or(strings.Compare(x.IPv4+x.IPv6, y.IPv4+y.IPv6), strings.Compare(x.Pool, y.Pool))
	})
	return reply
}

// PlainOwner is the owner without what a restoration appends to it.
func PlainOwner(owner string) string {
	return strings.TrimSpace(strings.TrimSuffix(owner, restoredSuffix))
}

// Texts is an address of each family as the protocol has it; nil means none.
func Texts(v4, v6 net.IP) Addresses {
	var a Addresses
	if v4 != nil {
		a.IPv4 = v4.String()
	}
	if v6 != nil {
		a.IPv6 = v6.String()
	}
	return a
}

// known is nil where neither family has an address.
func known(a Addresses) *Addresses {
	if a == (Addresses{}) {
		return nil
	}
	return &a
}
