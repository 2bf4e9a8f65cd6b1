// The addresses that an agent takes for itself.

package suite

import (
	"fmt"
	"testing"
)

// One of each family for the router, and for health and ingress where they are on.
func TestOwnAddresses(t *testing.T) {
	for _, health := range []bool{false, true} {
		for _, ingress := range []bool{false, true} {
			flags := []string{fmt.Sprintf("--health=%t", health), fmt.Sprintf("--ingress=%t", ingress)}
			t.Run(flags[0]+flags[1], func(t *testing.T) {
				n := newNode(t, "192.0.2.41", "2001:db8::41")
				a := n.agent(append(flags, "--ipv4", "--ipv6")...)
				started := a.startOn(n, block("10.41.0.0/29"), block("fd00:41::/125"))
				want := map[string]string{started.Router.IPv4: "router", started.Router.IPv6: "router"}
				for owner, got := range map[string]*addresses{"health": started.Health, "ingress": started.Ingress} {
					on := map[string]bool{"health": health, "ingress": ingress}[owner]
					if on != (got != nil) {
						t.Fatalf("%s: on %t, taken %v", owner, on, got)
					}
					if on {
						want[got.IPv4], want[got.IPv6] = owner, owner
					}
				}
				if _, missing := want[""]; missing {
					t.Errorf("an address of each family: %v", want)
				}
				n.awaitUsed(want)
			})
		}
	}
}

// Router and ingress keep their addresses whatever the pool says of owners; health does so from 1.16 on, and takes an
// address anew before.
func TestRestartedAgentKeepsItsOwnAddresses(t *testing.T) {
	n := newNode(t, "192.0.2.42", "2001:db8::42")
	v4, v6 := block("10.42.0.0/25"), block("fd00:42::/121")
	a := n.agent("--ipv4", "--ipv6", "--ingress")
	before := a.startOn(n, v4, v6)
	held := a.held()
	n.awaitUsed(held)
	free4, free6 := v4.free(held), v6.free(held)
	pins := map[string]string{}
	for i, owner := range []string{"router", "health", "ingress"} {
		pins[free4[i]], pins[free6[i]] = owner, owner
	}
	n.own(pins)
	a.kill()

	b := n.agent("--ipv4", "--ipv6", "--ingress")
	after := b.do(restart(before))
	if *after.Router != *before.Router || *after.Ingress != *before.Ingress {
		t.Errorf("router %v and ingress %v, before %v and %v", after.Router, after.Ingress, before.Router, before.Ingress)
	}
	pinned := addresses{IPv4: free4[1], IPv6: free6[1]}
	switch {
	case cilium.keepsHealth:
		if *after.Health != *before.Health {
			t.Errorf("health %v, before %v", after.Health, before.Health)
		}
	case *after.Health != pinned:
		t.Errorf("health %v, pinned is %v", after.Health, pinned)
	}
}

// Without its state directory an agent finds its router's address in the CiliumNode.
func TestRouterWithoutStateDirectory(t *testing.T) {
	n := newNode(t, "192.0.2.43")
	a := n.agent("--ipv4")
	before := a.startOn(n, block("10.43.0.0/26"))
	a.kill()

	b := n.agent("--ipv4")
	if router := b.do(command{Cmd: "start"}).Router.IPv4; router != before.Router.IPv4 {
		t.Errorf("router %s, before %s", router, before.Router.IPv4)
	}
}

// Up to 1.15 a router address outside the native routing range is given up, and so is any where that is unset.
func TestRouterOutsideTheNativeRoutingRange(t *testing.T) {
	n := newNode(t, "192.0.2.44")
	addresses := block("10.44.0.0/26")
	a := n.agent("--ipv4", "--ipv4-native-routing-cidr=")
	before := a.startOn(n, addresses)
	pin := addresses.free(a.held())[0]
	n.own(map[string]string{pin: "router"})
	a.kill()

	b := n.agent("--ipv4", "--ipv4-native-routing-cidr=")
	after := b.do(restart(before))
	kept := after.Router.IPv4 == before.Router.IPv4
	if kept == cilium.routerInNativeRange {
		t.Errorf("router %v, before %v", after.Router, before.Router)
	}
}

// An agent whose own addresses have left the pool takes others, and the owners of the pool decide which.
func TestOwnAddressesThatLeftThePoolAreReplaced(t *testing.T) {
	n := newNode(t, "192.0.2.45")
	a := n.agent("--ipv4", "--ingress")
	before := a.startOn(n, block("10.45.0.0/29"))
	n.awaitUsed(a.held())
	a.kill()
	fresh := pool{"10.45.1.1": {Owner: "router"}, "10.45.1.2": {Owner: "health"}, "10.45.1.3": {Owner: "ingress"}}
	n.publish(fresh)

	b := n.agent("--ipv4", "--ingress")
	after := b.do(restart(before))
	b.expectEvent("router-not-restored")
	b.expectEvent("ingress-not-restored")
	for owner, got := range map[string]*addresses{"router": after.Router, "health": after.Health, "ingress": after.Ingress} {
		if fresh[got.IPv4].Owner != owner {
			t.Errorf("%s took %v of %v", owner, got, fresh)
		}
	}
	n.awaitUsed(b.held())
}
