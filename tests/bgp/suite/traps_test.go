// What must not be written, or not be missing, where agents announce pools.

package suite

import (
	"testing"
)

// Only CIDRs of exactly the pool's mask size are announced.
func TestTrapMaskSizeThatIsNotThatOfTheBlock(t *testing.T) {
	s := newScene(t, multiPool)
	s.createPool("longer", ipv4("10.1.0.0/16", 28))
	s.createPool("shorter", ipv4("10.2.0.0/16", 16))
	s.createPool("mixed", ipv4("10.3.0.0/16", 26))
	n := s.newNode("a")
	n.allocate(
		s.in("longer", "10.1.0.0/24"),
		s.in("shorter", "10.2.0.0/24"),
		s.in("mixed", "10.3.0.0/24", "10.3.1.0/26", "10.3.2.0/27"),
	)
	n.start()
	s.awaitRoutes("10.3.1.0/26 a")
	n.settle()
	s.awaitRoutes("10.3.1.0/26 a")

	s.patch(podIPPool, s.pool("longer"), object{"spec": ipv4("10.1.0.0/16", 24)})
	s.patch(podIPPool, s.pool("shorter"), object{"spec": ipv4("10.2.0.0/16", 24)})
	s.awaitRoutes("10.1.0.0/24 a", "10.2.0.0/24 a", "10.3.1.0/26 a")

	// What is announced stays when the mask size changes under it, until the agent restarts. That the agent has heard of
	// the change is seen by the pool that changes after it.
	s.patch(podIPPool, s.pool("longer"), object{"spec": ipv4("10.1.0.0/16", 25)})
	s.patch(podIPPool, s.pool("shorter"), object{"metadata": object{"labels": object{advertised: nil}}})
	s.awaitRoutes("10.1.0.0/24 a", "10.3.1.0/26 a")
	n.settle()
	s.awaitRoutes("10.1.0.0/24 a", "10.3.1.0/26 a")
	n.agent.kill()
	n.start()
	s.awaitRoutes("10.3.1.0/26 a")
	n.settle()
	s.awaitRoutes("10.3.1.0/26 a")
}

// crash is what the Go runtime says when it ends a process that uses what is not there.
const crash = "nil pointer dereference"

func TestTrapPoolWithoutTheFamilyOfItsCIDRs(t *testing.T) {
	for _, c := range []struct {
		name       string
		spec       object
		cidr       string
		right      object
		announcing string
	}{
		{"Empty", object{}, "10.1.0.0/24", ipv4("10.1.0.0/16", 24), "10.1.0.0/24 a"},
		{"IPv6Alone", ipv6("fd00:1::/64", 120), "10.1.0.0/24", ipv4("10.1.0.0/16", 24), "10.1.0.0/24 a"},
		{"IPv4Alone", ipv4("10.1.0.0/16", 24), "fd00:1::/120", ipv6("fd00:1::/64", 120), "fd00:1::/120 a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t, multiPool)
			s.createPool("fine", ipv4("10.9.0.0/16", 24))
			s.createPool("bad", c.spec)
			n := s.newNode("a")
			n.allocate(s.in("fine", "10.9.0.0/24"))
			n.start()
			// As long as the node has no CIDR of it, nothing happens.
			s.awaitRoutes("10.9.0.0/24 a")
			n.settle()

			n.allocate(s.in("fine", "10.9.0.0/24"), s.in("bad", c.cidr))
			n.awaitDeath(crash)
			s.awaitRoutes()
			n.start()
			n.awaitDeath(crash)

			s.patch(podIPPool, s.pool("bad"), object{"spec": c.right})
			n.start()
			s.awaitRoutes("10.9.0.0/24 a", c.announcing)
		})
	}
}

func TestTrapFamilyThatLeavesThePool(t *testing.T) {
	s := newScene(t, multiPool)
	s.createPool("web", ipv4("10.1.0.0/16", 24))
	n := s.newNode("a")
	n.allocate(s.in("web", "10.1.0.0/24"))
	n.start()
	s.awaitRoutes("10.1.0.0/24 a")
	s.patch(podIPPool, s.pool("web"), object{"spec": object{"ipv4": nil}})
	n.awaitDeath(crash)
	s.awaitRoutes()
}

// An empty pool that no advertisement selects does no harm.
func TestEmptyPoolThatIsNotAdvertised(t *testing.T) {
	s := newScene(t, multiPool)
	s.createPool("fine", ipv4("10.9.0.0/16", 24))
	s.create(podIPPool, s.pool("empty"), nil, object{})
	n := s.newNode("a")
	n.allocate(s.in("fine", "10.9.0.0/24"), s.in("empty", "10.1.0.0/24"))
	n.start()
	s.awaitRoutes("10.9.0.0/24 a")
	n.settle()
	s.awaitRoutes("10.9.0.0/24 a")
}

func TestPoolThatIsDeletedOrLosesItsLabelIsWithdrawn(t *testing.T) {
	s := newScene(t, multiPool)
	s.createPool("deleted", ipv4("10.1.0.0/16", 24))
	s.createPool("unlabelled", ipv4("10.2.0.0/16", 24))
	s.createPool("stays", ipv4("10.3.0.0/16", 24))
	n := s.newNode("a")
	n.allocate(s.in("deleted", "10.1.0.0/24"), s.in("unlabelled", "10.2.0.0/24"), s.in("stays", "10.3.0.0/24"))
	n.start()
	s.awaitRoutes("10.1.0.0/24 a", "10.2.0.0/24 a", "10.3.0.0/24 a")
	from := s.router.now()

	s.delete(podIPPool, s.pool("deleted"))
	s.awaitRoutes("10.2.0.0/24 a", "10.3.0.0/24 a")
	s.patch(podIPPool, s.pool("unlabelled"), object{"metadata": object{"labels": object{advertised: nil}}})
	s.awaitRoutes("10.3.0.0/24 a")

	s.createPool("deleted", ipv4("10.1.0.0/16", 24))
	s.patch(podIPPool, s.pool("unlabelled"), object{"metadata": object{"labels": object{advertised: s.name}}})
	s.awaitRoutes("10.1.0.0/24 a", "10.2.0.0/24 a", "10.3.0.0/24 a")
	n.settle()
	s.awaitBest(from, canary, route{})
	if changes := s.router.since(from, "10.3.0.0/24"); len(changes) > 0 {
		t.Errorf("the CIDR of the pool that stayed was touched: %+v", changes)
	}
}

// gaveUp is what a control plane says that could not carry out what it read, after some seconds of trying.
const gaveUp = "Reconciliation with retries failed"

func TestTrapPodCIDRThatIsNone(t *testing.T) {
	s := newScene(t, clusterPool)
	n := s.newNode("a")
	n.start()
	n.assign("10.1.0.0/24", "10.2.0.0/24")
	s.awaitRoutes("10.1.0.0/24 a", "10.2.0.0/24 a")

	// What it announces stays; nothing is added and nothing withdrawn.
	n.assign("10.1.0.0/24", "10.3.0.0", "10.4.0.0/24")
	n.awaitSaid(gaveUp, 1)
	s.awaitRoutes("10.1.0.0/24 a", "10.2.0.0/24 a")
	// Whether that holds for what is no podCIDR depends on the release.
	service := s.createService() + " a"
	n.awaitSaid(gaveUp, 2)
	want := []string{"10.1.0.0/24 a", "10.2.0.0/24 a"}
	if cilium.failsApart {
		want = append(want, service)
	}
	s.awaitRoutes(want...)

	n.assign("10.1.0.0/24", "10.4.0.0/24")
	s.awaitRoutes("10.1.0.0/24 a", "10.4.0.0/24 a", service)
}

func TestTrapStartWithAPodCIDRThatIsNone(t *testing.T) {
	s := newScene(t, clusterPool)
	n := s.newNode("a")
	n.assign("10.1.0.0/24", "10.3.0.0")
	n.start()
	n.awaitSaid(gaveUp, 1)
	s.awaitRoutes()
	n.awaitSession(cilium.failsApart)
	n.assign("10.1.0.0/24")
	s.awaitRoutes("10.1.0.0/24 a")
}

// The server takes text in allocated that is no CIDR to Cilium.
func TestTrapAllocatedTextThatIsNoCIDR(t *testing.T) {
	s := newScene(t, multiPool)
	s.createPool("web", ipv4("10.1.0.0/16", 24))
	n := s.newNode("a")
	n.allocate(s.in("web", "10.1.0.0/24", "010.001.001.000/24"))
	n.start()
	s.awaitRoutes("10.1.0.0/24 a")
	n.allocate(s.in("web", "10.1.0.0/24", "010.001.001.000/24", "10.1.2.0/24"))
	s.awaitRoutes("10.1.0.0/24 a", "10.1.2.0/24 a")
	if err := n.write(ipam{pools: []entry{s.in("web", "10.1.0.0")}}); err == nil {
		t.Error("the server took an address for a CIDR")
	}
}
