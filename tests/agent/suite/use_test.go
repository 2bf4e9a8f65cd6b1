// What status.ipam.used says, when it lies, and how to ask.

package suite

import (
	"maps"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The answer to a mark on an address in no pool comes with everything that the agent has given out.
func TestPingIsAnsweredWithAllUse(t *testing.T) {
	n := newNode(t, "192.0.2.31")
	a := n.agent("--ipv4", "--update-rate", "5s")
	a.startOn(n, block("10.31.0.0/27"))
	for range 2 {
		a.allocateMany("ns/"+n.get().Metadata.ResourceVersion+"-", 10)
		held := a.held()
		if seen := n.ping(); !maps.Equal(seen.used(), held) {
			t.Errorf("answered with %v, held are %v", seen.used(), held)
		}
		n.setMarks(noEntry, nobody)
	}
}

// Until the restoration is finished, use is what the agent's last run has written.
func TestUseIsOldDuringARestoration(t *testing.T) {
	n := newNode(t, "192.0.2.32")
	a := n.agent("--ipv4", "--health=false")
	before := a.startOn(n, block("10.32.0.0/29"))
	pods := a.allocateMany("ns/p", 2)
	old := a.held()
	n.awaitUsed(old)
	a.kill()

	b := n.agent("--ipv4", "--health=false")
	hold := restart(before)
	hold.Hold = true
	b.do(hold)
	if used := n.get().used(); !maps.Equal(used, old) {
		t.Errorf("during the restoration %v, before %v", used, old)
	}
	b.do(command{Cmd: "restore", Owner: pods[1].Owner, Addresses: pods[1].Addresses})
	b.do(command{Cmd: "restored"})
	n.awaitUsed(b.held())
}

// The first lie: an entry that the agent must answer or delete makes it write use before it has restored anything.
func TestUseIsGoneBeforeARestoration(t *testing.T) {
	for name, c := range map[string]struct{ address, put, answered string }{
		"released": {"10.33.9.9", released, noEntry},
		"marked":   {nobody, marked, doNotRelease},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "192.0.2.33")
			a := n.agent("--ipv4", "--health=false")
			before := a.startOn(n, block("10.33.0.0/29"))
			pods := a.allocateMany("ns/p", 3)
			n.awaitUsed(a.held())
			a.kill()
			n.setMarks(c.put, c.address)

			b := n.agent("--ipv4", "--health=false")
			hold := restart(before)
			hold.Hold = true
			b.do(hold)
			// An empty map is not written, so that it can't be told from one that was never written.
			if seen := n.awaitMarks(c.answered, c.address); seen.used() != nil {
				t.Errorf("used before the restoration: %v", seen.used())
			}
			for _, pod := range pods {
				b.do(command{Cmd: "restore", Owner: pod.Owner, Addresses: pod.Addresses})
			}
			b.do(command{Cmd: "restored"})
			n.awaitUsed(b.held())
		})
	}
}

// The second lie: a CiliumNode that is made again under a running agent says nothing of use, on a full node for ever.
// A ping gets the truth.
func TestRecreatedCiliumNodeSaysNothingOfUse(t *testing.T) {
	n := newNode(t, "192.0.2.34")
	addresses := block("10.34.0.0/29")
	p := n.newProxy()
	a := n.agentWith(p.kubeconfig, "--ipv4")
	a.startOn(n, addresses)
	a.allocateMany("ns/p", len(addresses)-2)
	held := a.held()
	before := n.awaitUsed(held)

	n.recreate(a, p, before)
	if got := n.get(); got.used() != nil || len(got.Spec.IPAM.Pool) != 0 {
		t.Errorf("the new CiliumNode: pool %v, used %v", got.Spec.IPAM.Pool, got.used())
	}
	n.publish(addresses)
	// The agent sees the pool of the new CiliumNode, and a full node still says nothing.
	b := a.call(command{Cmd: "allocate", Owner: "ns/q"})
	if b.OK {
		t.Errorf("a full node has given %v", b.Addresses)
	}
	if used := n.get().used(); used != nil {
		t.Errorf("used without a reason to write it: %v", used)
	}
	if seen := n.ping(); !maps.Equal(seen.used(), held) {
		t.Errorf("answered with %v, held are %v", seen.used(), held)
	}
	// Further addresses are seen too.
	n.publish(addresses, block("10.34.0.8/29"))
	a.allocateWhenSeen("ns/q")
	n.awaitUsed(a.held())
}

// Where there is room, the next allocation tells.
func TestRecreatedCiliumNodeTellsUseAtTheNextAllocation(t *testing.T) {
	n := newNode(t, "192.0.2.35")
	p := n.newProxy()
	a := n.agentWith(p.kubeconfig, "--ipv4")
	a.startOn(n, block("10.35.0.0/30"))
	a.allocateMany("ns/p", 2)
	n.recreate(a, p, n.awaitUsed(a.held()))
	n.publish(block("10.35.0.0/29"))
	a.allocateWhenSeen("ns/q")
	n.awaitUsed(a.held())
}

// recreate deletes the CiliumNode of a full node, and has the agent make another.
func (n testNode) recreate(a *agentProcess, p *proxy, before ciliumNode) {
	n.t.Helper()
	n.deleteCiliumNode()
	a.awaitState("the agent to miss its CiliumNode", func() bool {
		got := a.call(command{Cmd: "allocate", Owner: "ns/nobody"})
		return sameText(got.Error, "CiliumNode for own node is not available")
	})
	// Node discovery has a cache of its own, which may know less. That it would end the agent is another test's matter
	// (TestUpdateOfADeletedCiliumNode), so it is told of a conflict until it looks again.
	p.onUpdate(func(int) int {
		if _, err := n.ciliumNodes.Get(n.t.Context(), n.name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			return http.StatusConflict
		}
		return 0
	})
	a.do(command{Cmd: "touch-node"})
	n.awaitCiliumNode("another CiliumNode", func(c ciliumNode) bool { return c.Metadata.UID != before.Metadata.UID })
}

// The third lie: a mark that arrives before the pod of the address is restored is answered as if it were free, and the
// pod is lost. The answer lists as used what has been restored by then, so it does not look empty.
func TestMarkThatMeetsARestorationIsAnsweredAsFree(t *testing.T) {
	n := newNode(t, "192.0.2.36")
	a := n.agent("--ipv4", "--health=false")
	before := a.startOn(n, block("10.36.0.0/29"))
	pods := a.allocateMany("ns/p", 2)
	n.awaitUsed(a.held())
	a.kill()

	b := n.agent("--ipv4", "--health=false")
	hold := restart(before)
	hold.Hold = true
	b.do(hold)
	b.do(command{Cmd: "restore", Owner: pods[0].Owner, Addresses: pods[0].Addresses})
	n.setMarks(marked, pods[0].IPv4, pods[1].IPv4)
	seen := n.awaitMarks(ready, pods[1].IPv4)
	if got := seen.mark(pods[0].IPv4); got != doNotRelease {
		t.Errorf("the mark on the restored pod was answered with %q", got)
	}
	if restored := b.held(); !maps.Equal(seen.used(), restored) || len(restored) != 1 {
		t.Errorf("the answer lists %v, restored are %v", seen.used(), restored)
	}
	got := b.call(command{Cmd: "restore", Owner: pods[1].Owner, Addresses: pods[1].Addresses})
	if got.OK || !sameText(got.Error, "IP not available, marked or ready for release") {
		t.Errorf("restored: %+v", got)
	}
	b.do(command{Cmd: "restored"})
	n.awaitUsed(b.held())
}

// An address that leaves the pool stays with its pod and in use, and is gone when the pod is.
func TestAddressThatLeftThePoolStaysInUse(t *testing.T) {
	n := newNode(t, "192.0.2.37")
	a := n.agent("--ipv4", "--health=false")
	a.startOn(n, block("10.37.0.0/30"))
	pods := a.allocateMany("ns/p", 3)
	n.publish(pool{pods[0].IPv4: {}, "10.37.9.9": {}})
	a.allocateWhenSeen("ns/q")
	held := a.held()
	if held[pods[1].IPv4] != "ns/p1" {
		t.Errorf("held: %v", held)
	}
	n.awaitUsed(held)
	a.release("ns/p1")
	if got := a.call(command{Cmd: "allocate", Owner: "ns/r"}); got.OK {
		t.Errorf("got %v, which has left the pool", got.Addresses)
	}
	n.awaitUsed(a.held())
}
