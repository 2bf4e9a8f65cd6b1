// What the agent does against a real API server, with this test as its IPAM controller.

package main

import (
	"slices"
	"strings"
	"testing"

	ipamTypes "github.com/cilium/cilium/pkg/ipam/types"
)

const poolIsFull = "no IPs currently available on the node, allocation will be retried once IPs are added to CiliumNode spec.ipam.pool"

func TestFreshNodeWaitsForItsPoolAndGrowsWithIt(t *testing.T) {
	n := newNode(t, "192.0.2.1")
	a := n.startAgent("--ipv4")
	start := a.send(command{Cmd: "start"})
	a.expectEvent("created-ciliumnode")
	a.expectEvent("waiting")

	first := block("10.1.0.0/29")
	n.publish(first)
	started := a.await(start)
	a.ok(started)
	if started.Router == nil || started.Health == nil || started.Ingress != nil {
		t.Fatalf("router and health must have an address, ingress none: %+v", started)
	}

	filled := a.call(command{Cmd: "allocate-many", Prefix: "ns/first-", Count: len(first)})
	if got, want := len(filled.Allocations), len(first)-2; filled.OK || got != want {
		t.Errorf("allocated %d of a block of %d beside router and health, ok %v", got, len(first), filled.OK)
	}
	if filled.Error != poolIsFull {
		t.Errorf("the error of a full pool is %q", filled.Error)
	}

	second := block("10.1.0.8/29")
	n.publish(first, second)
	a.allocateWhenSeen("ns/second")
	more := a.call(command{Cmd: "allocate-many", Prefix: "ns/second-", Count: len(second) - 1})
	a.ok(more)

	held := a.held()
	if want := len(first) + len(second); len(held) != want {
		t.Errorf("%d different addresses are held, want %d", len(held), want)
	}
	n.awaitUsed(held)
}

func TestRestartedAgentKeepsWhatIsRestored(t *testing.T) {
	n := newNode(t, "192.0.2.2")
	pool := block("10.2.0.0/28")
	a := n.startAgent("--ipv4", "--ingress")
	start := a.send(command{Cmd: "start"})
	a.expectEvent("created-ciliumnode")
	n.publish(pool)
	before := a.await(start)
	a.ok(before)
	pods := a.call(command{Cmd: "allocate-many", Prefix: "ns/p", Count: 3})
	a.ok(pods)
	n.awaitUsed(a.held())
	a.kill()

	gone := allocation{Owner: "ns/gone", addresses: addresses{IPv4: "10.2.0.200"}}
	b := n.startAgent("--ipv4", "--ingress")
	after := b.call(command{
		Cmd: "start", Restore: append(slices.Clone(pods.Allocations), gone), Router: *before.Router, Ingress: *before.Ingress,
	})
	b.ok(after)
	if *after.Router != *before.Router || *after.Health != *before.Health || *after.Ingress != *before.Ingress {
		t.Errorf("infrastructure addresses moved: %+v, before %+v", after, before)
	}
	if !slices.Equal(after.Restored, pods.Allocations) {
		t.Errorf("restored %v, want %v", after.Restored, pods.Allocations)
	}
	if len(after.Lost) != 1 || after.Lost[0].Error != "unable to reallocate 10.2.0.200 IPv4 address: IP 10.2.0.200 is not available" {
		t.Errorf("lost %v", after.Lost)
	}
	next := b.call(command{Cmd: "allocate", Owner: "ns/new"})
	b.ok(next)
	held := b.held()
	if len(held) != 7 || held[next.IPv4] != "ns/new" || held[pods.Allocations[0].IPv4] != "ns/p0 [restored]" {
		t.Errorf("held after the restart: %v", held)
	}
	n.awaitUsed(held)
}

func TestOwnersPinAndFence(t *testing.T) {
	n := newNode(t, "192.0.2.3")
	pool := block("10.3.0.0/28")
	for ip := range pool {
		pool[ip] = ipamTypes.AllocationIP{Owner: "nodeipam.io/fenced"}
	}
	pool["10.3.0.1"] = ipamTypes.AllocationIP{Owner: "router"}
	pool["10.3.0.2"] = ipamTypes.AllocationIP{Owner: "health"}
	pool["10.3.0.3"] = ipamTypes.AllocationIP{}
	a := n.startAgent("--ipv4")
	start := a.send(command{Cmd: "start"})
	a.expectEvent("created-ciliumnode")
	n.publish(pool)
	started := a.await(start)
	a.ok(started)
	if started.Router.IPv4 != "10.3.0.1" || started.Health.IPv4 != "10.3.0.2" {
		t.Errorf("router %v and health %v did not take what they own", started.Router, started.Health)
	}
	pod := a.call(command{Cmd: "allocate", Owner: "ns/p"})
	a.ok(pod)
	if pod.IPv4 != "10.3.0.3" {
		t.Errorf("the pod got %s", pod.IPv4)
	}
	if full := a.call(command{Cmd: "allocate", Owner: "ns/q"}); full.Error != poolIsFull {
		t.Errorf("with fenced addresses only: %+v", full)
	}
	a.ok(a.call(command{Cmd: "release", Owner: "ns/p"}))
	n.awaitUsed(map[string]string{"10.3.0.1": "router", "10.3.0.2": "health"})
}

func TestBothFamilies(t *testing.T) {
	n := newNode(t, "192.0.2.4", "2001:db8::4")
	a := n.startAgent("--ipv4", "--ipv6")
	start := a.send(command{Cmd: "start"})
	a.expectEvent("created-ciliumnode")
	n.publish(block("10.4.0.0/30"), block("fd00:4::/126"))
	a.ok(a.await(start))
	pod := a.call(command{Cmd: "allocate", Owner: "ns/p"})
	a.ok(pod)
	if !strings.HasPrefix(pod.IPv4, "10.4.0.") || !strings.HasPrefix(pod.IPv6, "fd00:4::") {
		t.Errorf("one address of each family: %+v", pod)
	}
	n.awaitUsed(a.held())
}

func TestIPv6Alone(t *testing.T) {
	n := newNode(t, "2001:db8::6")
	a := n.startAgent("--ipv6", "--health=false")
	start := a.send(command{Cmd: "start"})
	a.expectEvent("created-ciliumnode")
	n.publish(block("fd00:6::/126"))
	started := a.await(start)
	a.ok(started)
	if started.Health != nil || started.Router.IPv4 != "" || started.Router.IPv6 == "" {
		t.Errorf("one router address of IPv6 alone: %+v", started)
	}
	n.awaitUsed(a.held())
}

func TestNodeLabelsReachTheCiliumNode(t *testing.T) {
	n := newNode(t, "192.0.2.7")
	a := n.startAgent("--ipv4")
	start := a.send(command{Cmd: "start"})
	a.expectEvent("created-ciliumnode")
	n.publish(block("10.7.0.0/29"))
	a.ok(a.await(start))
	n.label("rack", "r1")
	n.awaitCiliumNode("label rack", func(c ciliumNode) bool { return c.Labels["rack"] == "r1" })
	a.ok(a.call(command{Cmd: "touch-node"}))
}
