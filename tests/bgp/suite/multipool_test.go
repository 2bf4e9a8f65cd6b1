// Mode multi-pool: what is announced of spec.ipam.pools.allocated.

package suite

import (
	"slices"
	"testing"
)

func TestPoolsAllocatedCIDRsAreAnnounced(t *testing.T) {
	s := newScene(t, multiPool)
	s.createPool("web", ipv4("10.1.0.0/16", 24))
	s.create(podIPPool, s.pool("unlabelled"), nil, ipv4("10.2.0.0/16", 24))
	n := s.newNode("a")
	n.allocate(s.in("web", "10.1.0.0/24", "10.1.7.0/24"), s.in("unlabelled", "10.2.0.0/24"), s.in("missing", "10.3.0.0/24"))
	n.start()
	s.awaitRoutes("10.1.0.0/24 a", "10.1.7.0/24 a")
	n.settle()
	s.awaitRoutes("10.1.0.0/24 a", "10.1.7.0/24 a")

	// The object that was missing comes.
	s.createPool("missing", ipv4("10.3.0.0/16", 24))
	s.awaitRoutes("10.1.0.0/24 a", "10.1.7.0/24 a", "10.3.0.0/24 a")
	// The other gets its label.
	s.patch(podIPPool, s.pool("unlabelled"), object{"metadata": object{"labels": object{advertised: s.name}}})
	s.awaitRoutes("10.1.0.0/24 a", "10.1.7.0/24 a", "10.2.0.0/24 a", "10.3.0.0/24 a")
}

func TestPoolsCIDRsOfTheObjectAreNotLookedAt(t *testing.T) {
	s := newScene(t, multiPool)
	s.createPool("web", ipv4("10.1.0.0/16", 24))
	n := s.newNode("a")
	n.allocate(s.in("web", "172.16.5.0/24"))
	n.start()
	s.awaitRoutes("172.16.5.0/24 a")
}

func TestPoolsBothFamiliesAreAnnounced(t *testing.T) {
	s := newScene(t, multiPool)
	spec := ipv4("10.1.0.0/16", 26)
	spec["ipv6"] = family("fd00:1::/64", 122)
	s.createPool("web", spec)
	n := s.newNode("a")
	n.start()
	n.allocate(s.in("web", "10.1.0.64/26", "fd00:1::40/122"))
	s.awaitRoutes("10.1.0.64/26 a", "fd00:1::40/122 a")
	n.allocate(s.in("web", "10.1.0.64/26"))
	s.awaitRoutes("10.1.0.64/26 a")
}

// Growth and release: the CIDRs that stay are never withdrawn.
func TestPoolsAddedIsAnnouncedAndRemovedIsWithdrawn(t *testing.T) {
	s := newScene(t, multiPool)
	s.createPool("web", ipv4("10.1.0.0/16", 26))
	n := s.newNode("a")
	n.start()
	n.allocate(s.in("web", "10.1.0.0/26"))
	s.awaitRoutes("10.1.0.0/26 a")
	from := s.router.now()

	n.allocate(s.in("web", "10.1.0.0/26", "10.1.0.64/26"))
	s.awaitRoutes("10.1.0.0/26 a", "10.1.0.64/26 a")
	n.allocate(s.in("web", "10.1.0.64/26", "10.1.0.0/26", "10.1.9.0/26"))
	s.awaitRoutes("10.1.0.0/26 a", "10.1.0.64/26 a", "10.1.9.0/26 a")
	n.allocate(s.in("web", "10.1.0.0/26", "10.1.9.0/26"))
	s.awaitRoutes("10.1.0.0/26 a", "10.1.9.0/26 a")
	n.allocate(s.in("web", "10.1.0.0/26"))
	s.awaitRoutes("10.1.0.0/26 a")
	// What the router says of this one comes after what it said of the others.
	n.settle()
	s.awaitBest(from, canary, route{})
	if changes := s.router.since(from, "10.1.0.0/26"); len(changes) > 0 {
		t.Errorf("the CIDR that stayed was touched: %+v", changes)
	}

	n.allocate()
	s.awaitRoutes()
	n.awaitSession(true)
}

// awaitBest waits until the router has said this of the best route to the prefix. Its events come behind its table.
func (s *scene) awaitBest(from moment, prefix string, best route) {
	s.t.Helper()
	best.Prefix = prefix
	s.await("the best route "+s.describe(best), func() bool {
		return slices.Contains(s.router.since(from, prefix), best)
	}, func() string { return "" })
}

func TestPoolsCIDROnTwoNodesForAMomentHasNoGap(t *testing.T) {
	s := newScene(t, multiPool)
	s.createPool("web", ipv4("10.1.0.0/16", 24))
	a, b := s.newNode("a"), s.newNode("b")
	a.start()
	b.start()
	a.allocate(s.in("web", "10.1.0.0/24"))
	b.allocate(s.in("web", "10.1.1.0/24"))
	s.awaitRoutes("10.1.0.0/24 a", "10.1.1.0/24 b")
	from := s.router.now()

	b.allocate(s.in("web", "10.1.1.0/24", "10.1.0.0/24"))
	s.awaitRoutes("10.1.0.0/24 a", "10.1.0.0/24 b", "10.1.1.0/24 b")
	a.allocate()
	s.awaitRoutes("10.1.0.0/24 b", "10.1.1.0/24 b")
	s.awaitBest(from, "10.1.0.0/24", route{NextHop: b.address, Node: b.address})
	for _, change := range s.router.since(from, "10.1.0.0/24") {
		if change.NextHop == "" {
			t.Errorf("for a moment nobody announced it: %+v", s.router.since(from, "10.1.0.0/24"))
		}
	}
}

// As a controller moves a block: it leaves one node before another gets it.
func TestPoolsCIDRThatMovesIsNeverOnTwoNodes(t *testing.T) {
	s := newScene(t, multiPool)
	s.createPool("web", ipv4("10.1.0.0/16", 24))
	a, b := s.newNode("a"), s.newNode("b")
	a.start()
	b.start()
	a.allocate(s.in("web", "10.1.0.0/24"))
	s.awaitRoutes("10.1.0.0/24 a")
	b.awaitSession(true)
	from := s.router.now()

	a.allocate()
	s.awaitRoutes()
	b.allocate(s.in("web", "10.1.0.0/24"))
	s.awaitRoutes("10.1.0.0/24 b")
	s.awaitBest(from, "10.1.0.0/24", route{NextHop: b.address, Node: b.address})
	want := []route{{Prefix: "10.1.0.0/24"}, {Prefix: "10.1.0.0/24", NextHop: b.address, Node: b.address}}
	if changes := s.router.since(from, "10.1.0.0/24"); !slices.Equal(changes, want) {
		t.Errorf("the router saw %+v, and not that it left and came", changes)
	}
}

func TestPoolsKilledAgentIsGoneAndComesBack(t *testing.T) {
	s := newScene(t, multiPool)
	s.createPool("web", ipv4("10.1.0.0/16", 24))
	a, b := s.newNode("a"), s.newNode("b")
	a.start()
	b.start()
	a.allocate(s.in("web", "10.1.0.0/24", "10.1.2.0/24"))
	b.allocate(s.in("web", "10.1.1.0/24"))
	s.awaitRoutes("10.1.0.0/24 a", "10.1.1.0/24 b", "10.1.2.0/24 a")

	a.agent.kill()
	s.awaitRoutes("10.1.1.0/24 b")
	a.start()
	s.awaitRoutes("10.1.0.0/24 a", "10.1.1.0/24 b", "10.1.2.0/24 a")

	// What has left while it was away does not come back with it.
	a.agent.kill()
	s.awaitRoutes("10.1.1.0/24 b")
	from := s.router.now()
	a.allocate(s.in("web", "10.1.0.0/24", "10.1.3.0/24"))
	a.start()
	s.awaitRoutes("10.1.0.0/24 a", "10.1.1.0/24 b", "10.1.3.0/24 a")
	a.settle()
	s.awaitBest(from, canary, route{})
	if changes := s.router.since(from, "10.1.2.0/24"); len(changes) > 0 {
		t.Errorf("a CIDR that is no longer allocated was announced: %+v", changes)
	}
}

func TestPoolsDeletedCiliumNodeIsStillAnnounced(t *testing.T) {
	s := newScene(t, multiPool)
	s.createPool("web", ipv4("10.1.0.0/16", 24))
	n := s.newNode("a")
	n.start()
	n.allocate(s.in("web", "10.1.0.0/24"))
	s.awaitRoutes("10.1.0.0/24 a")

	n.deleteCiliumNode()
	// A change of the pool makes the control plane look at everything anew.
	unlabelled := object{"metadata": object{"labels": object{advertised: nil}}}
	labelled := object{"metadata": object{"labels": object{advertised: s.name}}}
	s.patch(podIPPool, s.pool("web"), unlabelled)
	s.awaitRoutes()
	s.patch(podIPPool, s.pool("web"), labelled)
	s.awaitRoutes("10.1.0.0/24 a")

	// One that is recreated counts as it is, without CIDRs at first.
	n.createCiliumNode()
	s.awaitRoutes()
	n.allocate(s.in("web", "10.1.4.0/24"))
	s.awaitRoutes("10.1.4.0/24 a")

	// A control plane that starts without a CiliumNode waits for it.
	n.agent.kill()
	s.awaitRoutes()
	n.deleteCiliumNode()
	from := s.router.now()
	n.start()
	n.awaitSaid("BGP Control Plane Controller now running", 1)
	n.createCiliumNode()
	n.allocate(s.in("web", "10.1.5.0/24"))
	s.awaitRoutes("10.1.5.0/24 a")
	s.awaitBest(from, "10.1.5.0/24", route{NextHop: n.address, Node: n.address})
	if changes := s.router.since(from, "10.1.4.0/24"); len(changes) > 0 {
		t.Errorf("a CIDR of the CiliumNode that is gone was announced: %+v", changes)
	}
}
