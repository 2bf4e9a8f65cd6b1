// Start, growth and restart.

package suite

import (
	"maps"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestFreshNodeWaitsForItsPoolAndGrowsWithIt(t *testing.T) {
	n := newNode(t, "192.0.2.1")
	a := n.agent("--ipv4")
	start := a.send(command{Cmd: "start"})
	a.expectEvent("created-ciliumnode")
	a.expectEvent("waiting")

	first := block("10.1.0.0/29")
	n.publish(first)
	started := a.await(start)
	if !started.OK || started.Router == nil || started.Health == nil || started.Ingress != nil {
		t.Fatalf("router and health must have an address, ingress none: %+v", started)
	}

	filled := a.call(command{Cmd: "allocate-many", Prefix: "ns/first-", Count: len(first)})
	if got, want := len(filled.Allocations), len(first)-2; filled.OK || got != want {
		t.Errorf("allocated %d of a block of %d beside router and health, ok %v", got, len(first), filled.OK)
	}
	if filled.Error != cilium.full {
		t.Errorf("the error of a full pool is %q", filled.Error)
	}

	second := block("10.1.0.8/29")
	n.publish(first, second)
	a.allocateWhenSeen("ns/second")
	a.allocateMany("ns/second-", len(second)-1)

	held := a.held()
	if want := len(first) + len(second); len(held) != want {
		t.Errorf("%d different addresses are held, want %d", len(held), want)
	}
	n.awaitUsed(held)
}

// All entries count, of both families and in whatever state, and min-allocate replaces the two that health checking
// needs.
func TestStartWaitsForMinAllocate(t *testing.T) {
	n := newNode(t, "192.0.2.1", "2001:db8::1")
	a := n.agent("--ipv4", "--ipv6")
	start := a.send(command{Cmd: "start"})
	a.expectEvent("created-ciliumnode")
	n.patch(object{"spec": object{"ipam": object{"min-allocate": 6}}})
	n.publish(block("10.2.0.0/30"), pool{"fd00:2::1": {}})
	n.setMarks(ready, "10.2.0.0")
	a.expectEventWith("waiting", func(e event) bool {
		// Five entries are there; the one in the handshake is missing in what the agent calls available only.
		return e.Details["required"] == "6" && e.Details["available"] == "4"
	})
	n.publish(block("10.2.0.0/30"), block("fd00:2::/127"))
	started := a.await(start)
	if !started.OK {
		t.Fatalf("six entries are enough, whatever their state: %+v", started)
	}
	if got := n.get().Spec.IPAM.MinAllocate; got != 6 {
		t.Errorf("the agent has changed min-allocate to %d", got)
	}
}

// Two entries end the wait, and then a family without any ends the start.
func TestStartFailsWithoutAddressesOfOneFamily(t *testing.T) {
	n := newNode(t, "192.0.2.1", "2001:db8::1")
	a := n.agent("--ipv4", "--ipv6")
	start := a.send(command{Cmd: "start"})
	a.expectEvent("created-ciliumnode")
	n.publish(block("10.3.0.0/29"))
	got := a.await(start)
	if got.OK || !sameText(got.Error, "unable to allocate router IP for family ipv6") {
		t.Errorf("%+v", got)
	}
	a.awaitEnd()
}

func TestRestartedAgentKeepsWhatIsRestored(t *testing.T) {
	n := newNode(t, "192.0.2.2")
	a := n.agent("--ipv4", "--ingress")
	before := a.startOn(n, block("10.2.0.0/28"))
	pods := a.allocateMany("ns/p", 3)
	n.awaitUsed(a.held())
	a.kill()

	gone := allocation{Owner: "ns/gone", Addresses: addresses{IPv4: "10.2.0.200"}}
	b := n.agent("--ipv4", "--ingress")
	after := b.do(restart(before, append(slices.Clone(pods), gone)...))
	if !slices.Equal(after.Restored, pods) {
		t.Errorf("restored %v, want %v", after.Restored, pods)
	}
	if len(after.Lost) != 1 || after.Lost[0].Error != "unable to reallocate 10.2.0.200 IPv4 address: IP 10.2.0.200 is not available" {
		t.Errorf("lost %v", after.Lost)
	}
	next := b.allocate("ns/new")
	held := b.held()
	if len(held) != 7 || held[next.IPv4] != "ns/new" || held[pods[0].IPv4] != "ns/p0 [restored]" {
		t.Errorf("held after the restart: %v", held)
	}
	n.awaitUsed(held)
}

func TestBothFamilies(t *testing.T) {
	n := newNode(t, "192.0.2.4", "2001:db8::4")
	a := n.agent("--ipv4", "--ipv6")
	before := a.startOn(n, block("10.4.0.0/29"), block("fd00:4::/125"))
	pod := a.allocate("ns/p")
	if !strings.HasPrefix(pod.IPv4, "10.4.0.") || !strings.HasPrefix(pod.IPv6, "fd00:4::") {
		t.Errorf("one address of each family: %+v", pod)
	}
	n.awaitUsed(a.held())
	a.kill()

	b := n.agent("--ipv4", "--ipv6")
	after := b.do(restart(before, allocation{Owner: "ns/p", Addresses: pod}))
	if len(after.Lost) != 0 || *after.Router != *before.Router {
		t.Errorf("after the restart: %+v, before: %+v", after, before)
	}
	held := b.held()
	if held[pod.IPv4] != "ns/p [restored]" || held[pod.IPv6] != "ns/p [restored]" {
		t.Errorf("held after the restart: %v", held)
	}
}

// A pod that lacks one family gets none: the address of the other is given back.
func TestPodGetsBothFamiliesOrNone(t *testing.T) {
	n := newNode(t, "192.0.2.4", "2001:db8::4")
	a := n.agent("--ipv4", "--ipv6", "--health=false")
	a.startOn(n, block("10.5.0.0/32"), block("fd00:5::/125"))
	before := a.held()
	if got := a.call(command{Cmd: "allocate", Owner: "ns/p"}); got.OK || got.Error != cilium.full {
		t.Errorf("without an IPv4 address: %+v", got)
	}
	if held := a.held(); !maps.Equal(held, before) {
		t.Errorf("held after a refused pod: %v, before: %v", held, before)
	}
}

func TestIPv6Alone(t *testing.T) {
	n := newNode(t, "2001:db8::6")
	a := n.agent("--ipv6", "--health=false")
	started := a.startOn(n, block("fd00:6::/126"))
	if started.Health != nil || started.Router.IPv4 != "" || started.Router.IPv6 == "" {
		t.Errorf("one router address of IPv6 alone: %+v", started)
	}
	n.awaitUsed(a.held())
}

// The whole object is written with PUT; the fields of an IPAM controller stay, the metadata of anybody else does not.
func TestNodeLabelsReachTheCiliumNode(t *testing.T) {
	n := newNode(t, "192.0.2.7")
	a := n.agent("--ipv4")
	a.startOn(n, block("10.7.0.0/29"))
	n.patch(object{
		"metadata": object{"labels": object{"ours": "x"}, "annotations": object{"example.org/ours": "x"}},
		"spec":     object{"ipam": object{"podCIDRs": []string{"10.7.0.0/29", "10.7.0.8/29"}, "min-allocate": 3}},
	})
	n.label("rack", "r1")
	seen := n.awaitCiliumNode("label rack", func(c ciliumNode) bool { return c.Metadata.Labels["rack"] == "r1" })
	if seen.Metadata.Labels["ours"] != "" || seen.Metadata.Annotations["example.org/ours"] != "" {
		t.Errorf("foreign metadata was kept: %v, %v", seen.Metadata.Labels, seen.Metadata.Annotations)
	}
	if len(seen.Metadata.OwnerReferences) != 1 || seen.Metadata.OwnerReferences[0].Name != n.name {
		t.Errorf("the Node is not its owner: %v", seen.Metadata.OwnerReferences)
	}
	if ipam := seen.Spec.IPAM; !slices.Equal(ipam.PodCIDRs, []string{"10.7.0.0/29", "10.7.0.8/29"}) || ipam.MinAllocate != 3 || len(ipam.Pool) != 8 {
		t.Errorf("the fields of the controller were changed: %+v", ipam)
	}
	a.do(command{Cmd: "touch-node"})
}

// An address of the node itself is used up without reaching a pod.
func TestAddressOfTheNodeReachesNoPod(t *testing.T) {
	n := newNode(t, "10.8.0.1")
	a := n.agent("--ipv4", "--health=false")
	started := a.startOn(n, block("10.8.0.0/29"))
	got := a.call(command{Cmd: "allocate-many", Prefix: "ns/p", Count: 8})
	if len(got.Allocations) != 6 || got.Error != cilium.full {
		t.Errorf("8 addresses less that of the router and that of the node: %+v", got)
	}
	for _, pod := range got.Allocations {
		if pod.IPv4 == "10.8.0.1" {
			t.Errorf("%s got the address of the node", pod.Owner)
		}
	}
	if started.Router.IPv4 == "10.8.0.1" {
		t.Error("the router got the address of the node")
	}
	n.awaitCiliumNode("the address of the node to be used", func(c ciliumNode) bool {
		_, used := c.used()["10.8.0.1"]
		return used && len(c.used()) == 8
	})
}

// Pods spread over all blocks of a node.
func TestChoiceIsRandom(t *testing.T) {
	n := newNode(t, "192.0.2.9")
	first, second := block("10.9.0.0/26"), block("10.9.0.64/26")
	a := n.agent("--ipv4")
	a.startOn(n, first, second)
	lie := map[bool]int{}
	// That all lie in one block has a probability of about 2^-40.
	for _, pod := range a.allocateMany("ns/p", 32) {
		lie[first.within(pod.IPv4)]++
	}
	if lie[true] == 0 || lie[false] == 0 {
		t.Errorf("all of 32 pods lie in one of two blocks: %v", lie)
	}
}

// The server takes text for a CIDR that agents of 1.20 can't parse. One such CiliumNode can't be read by its own agent,
// nor the list of all by any other, so that no agent starts. Earlier agents go on.
func TestPodCIDRThatTheServerTakesAndTheAgentDoesNot(t *testing.T) {
	n, other := newNodeAlone(t, "192.0.2.10"), newNodeAlone(t, "192.0.2.11")
	p, q := n.newProxy(), other.newProxy()
	a := n.agentWith(p.kubeconfig, "--ipv4")
	a.startOn(n, block("10.10.0.0/29"))
	n.awaitUsed(a.held())
	podCIDRs := func(text string) {
		if _, err := n.tryPatch(object{"spec": object{"ipam": object{"podCIDRs": []string{text}}}}); err != nil {
			t.Error(err)
		}
	}
	podCIDRs("010.010.000.000/29")
	defer podCIDRs("10.10.0.0/29")
	n.setMarks(marked, nobody)

	b := other.agentWith(q.kubeconfig, "--ipv4")
	start := b.send(command{Cmd: "start"})
	if cilium.strictCIDRs {
		// They list again and again, because they can't read what they get.
		before, _ := p.nLists()
		a.awaitState("the agent to list its CiliumNode again", func() bool {
			own, _ := p.nLists()
			return own > before+2
		})
		b.awaitState("the other agent to list all CiliumNodes again", func() bool {
			_, all := q.nLists()
			return all > 2
		})
		if got := n.get().mark(nobody); got != marked {
			t.Errorf("the mark became %q", got)
		}
		if _, err := other.ciliumNodes.Get(t.Context(), other.name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the other agent's CiliumNode: %v", err)
		}
		podCIDRs("10.10.0.0/29")
	}
	b.expectEvent("created-ciliumnode")
	other.publish(block("10.10.1.0/29"))
	if got := b.await(start); !got.OK {
		t.Errorf("the other agent: %+v", got)
	}
	n.awaitMarks(doNotRelease, nobody)
	a.allocate("ns/p")
	n.awaitUsed(a.held())
}
