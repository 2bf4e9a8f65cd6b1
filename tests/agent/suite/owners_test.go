// Owners of pool entries: pins and the fence.

package suite

import (
	"testing"
)

func TestOwnersPinAndFence(t *testing.T) {
	n := newNode(t, "192.0.2.3")
	entries := block("10.10.0.0/28").owned(fence)
	entries["10.10.0.1"] = entry{Owner: "router"}
	entries["10.10.0.2"] = entry{Owner: "health"}
	entries["10.10.0.3"] = entry{Owner: "ingress"}
	entries["10.10.0.4"] = entry{Owner: "ns/pinned"}
	entries["10.10.0.5"] = entry{}
	a := n.agent("--ipv4", "--ingress")
	started := a.startOn(n, entries)
	if started.Router.IPv4 != "10.10.0.1" || started.Health.IPv4 != "10.10.0.2" || started.Ingress.IPv4 != "10.10.0.3" {
		t.Errorf("router %v, health %v and ingress %v did not take what they own", started.Router, started.Health, started.Ingress)
	}
	if pod := a.allocate("ns/p"); pod.IPv4 != "10.10.0.5" {
		t.Errorf("a pod without an address of its own got %s", pod.IPv4)
	}
	if full := a.call(command{Cmd: "allocate", Owner: "ns/q"}); full.Error != cilium.full {
		t.Errorf("with owned addresses only: %+v", full)
	}
	if pod := a.allocate("ns/pinned"); pod.IPv4 != "10.10.0.4" {
		t.Errorf("a pod with an address of its own got %s", pod.IPv4)
	}
	a.release("ns/p")
	n.awaitUsed(map[string]string{
		"10.10.0.1": "router", "10.10.0.2": "health", "10.10.0.3": "ingress", "10.10.0.4": "ns/pinned",
	})
}

// A fence does not touch pods that are there, not even when the agent restarts.
func TestFencedAddressesAreRestored(t *testing.T) {
	n := newNode(t, "192.0.2.3")
	first, second := block("10.11.0.0/29"), block("10.11.0.8/29")
	a := n.agent("--ipv4", "--health=false")
	before := a.startOn(n, first)
	pods := a.allocateMany("ns/p", len(first)-1)
	n.publish(first.owned(fence), second)
	fresh := a.allocateWhenSeen("ns/fresh")
	if !second.within(fresh.IPv4) {
		t.Errorf("a full fenced block has given %v", fresh)
	}
	a.release("ns/p0")
	n.awaitUsed(a.held())
	a.kill()

	b := n.agent("--ipv4", "--health=false")
	after := b.do(restart(before, append(pods[1:len(pods):len(pods)], allocation{Owner: "ns/fresh", Addresses: fresh})...))
	if len(after.Lost) != 0 || *after.Router != *before.Router {
		t.Errorf("lost behind the fence: %+v", after)
	}
	n.awaitUsed(b.held())
	got := b.call(command{Cmd: "allocate-many", Prefix: "ns/new", Count: 16})
	want := len(second) - 1
	if len(got.Allocations) != want || got.Error != cilium.full {
		t.Errorf("%d new pods, want %d: %+v", len(got.Allocations), want, got)
	}
}

// The owner is looked at before anything else: neither a handshake nor a pod that has the address stops it.
func TestOwnerIsStrongerThanTheHandshake(t *testing.T) {
	n := newNode(t, "192.0.2.3")
	a := n.agent("--ipv4")
	a.startOn(n, block("10.12.0.0/29"))
	address := block("10.12.0.0/29").free(a.held())[0]
	n.setMarks(marked, address)
	n.awaitMarks(ready, address)
	n.own(map[string]string{address: "ns/s-0"})
	n.ping()
	first := a.allocate("ns/s-0")
	second := a.allocate("ns/s-0")
	if first.IPv4 != address || second.IPv4 != address {
		t.Errorf("ns/s-0 got %v and %v instead of %s twice", first, second, address)
	}
	if got := n.get().mark(address); got != ready {
		t.Errorf("the entry became %q", got)
	}
}
