// What an agent does when somebody else has written its CiliumNode first.

package suite

import (
	"net/http"
	"strconv"
	"testing"
	"time"
)

// attempts is how often an agent tries to update its CiliumNode before it ends itself.
const attempts = 10

// write is a write by somebody else that changes nothing of importance.
func (n testNode) write(number int) {
	change := object{"metadata": object{"annotations": object{"example.org/write": strconv.Itoa(number)}}}
	if _, err := n.tryPatch(change); err != nil {
		n.t.Error(err)
	}
}

func TestTenConflictsInARowEndTheAgent(t *testing.T) {
	n := newNode(t, "192.0.2.51")
	p := n.newProxy()
	a := n.agentWith(p.kubeconfig, "--ipv4")
	a.startOn(n, block("10.51.0.0/29"))
	n.awaitUsed(a.held())

	p.onUpdate(func(number int) int { n.write(number); return 0 })
	a.send(command{Cmd: "touch-node"})
	var refused []event
	for range attempts {
		refused = append(refused, a.expectEvent("update-failed"))
	}
	fatal := a.expectEvent("fatal")
	if !sameText(fatal.Message, "Could not create or update CiliumNode resource") {
		t.Errorf("the last line is %q", fatal.Message)
	}
	if got := p.nUpdates(); got != attempts {
		t.Errorf("%d attempts", got)
	}
	took, pauses := refused[attempts-1].at.Sub(refused[0].at), (attempts-1)*retryPause
	// The first is seen late where the machine is busy.
	if took < pauses/2 {
		t.Errorf("%d attempts in %v", attempts, took)
	}
	// Each of them may be slow where the machine is busy, but not all.
	fastest := took
	for k := 1; k < attempts; k++ {
		fastest = min(fastest, refused[k].at.Sub(refused[k-1].at))
	}
	if pauses == 0 && fastest > 500*time.Millisecond {
		t.Errorf("%d attempts without pauses took %v, the fastest %v", attempts, took, fastest)
	}
	a.awaitEnd()
}

// Nine are survived.
func TestNineConflictsInARowDelayTheAgent(t *testing.T) {
	n := newNode(t, "192.0.2.52")
	p := n.newProxy()
	a := n.agentWith(p.kubeconfig, "--ipv4")
	a.startOn(n, block("10.52.0.0/29"))
	n.awaitUsed(a.held())

	p.onUpdate(func(number int) int {
		if number < attempts {
			// For the news of its own status: without it the tenth attempt would be a conflict too.
			time.Sleep(100 * time.Millisecond)
			return http.StatusConflict
		}
		return 0
	})
	a.do(command{Cmd: "touch-node"})
	a.allocate("ns/p")
	n.awaitUsed(a.held())
}

// Each attempt carries the version from the agent's cache, so late news of one write of ours delays the agent.
func TestOneWriteAndLateNews(t *testing.T) {
	n := newNode(t, "192.0.2.53")
	p := n.newProxy()
	a := n.agentWith(p.kubeconfig, "--ipv4")
	a.startOn(n, block("10.53.0.0/29"))
	n.awaitUsed(a.held())

	p.holdNews()
	n.write(1)
	p.onUpdate(func(number int) int {
		// As late as the second attempt after a pause.
		if number == 2 {
			p.passNews()
		}
		return 0
	})
	a.do(command{Cmd: "touch-node"})
	if got := p.nUpdates(); got < 2 || got > 4 {
		t.Errorf("%d attempts", got)
	}
	a.allocate("ns/p")
	n.awaitUsed(a.held())
}

// Any other refusal ends an agent at once up to 1.19, and is tried again since.
func TestRefusalThatIsNoConflict(t *testing.T) {
	n := newNode(t, "192.0.2.54")
	p := n.newProxy()
	a := n.agentWith(p.kubeconfig, "--ipv4")
	a.startOn(n, block("10.54.0.0/29"))
	n.awaitUsed(a.held())

	p.onUpdate(func(number int) int {
		if number == 1 {
			return http.StatusInternalServerError
		}
		return 0
	})
	if cilium.fatalErrors {
		a.send(command{Cmd: "touch-node"})
		if fatal := a.expectEvent("fatal"); !sameText(fatal.Message, "Unable to update CiliumNode resource") {
			t.Errorf("the last line is %q", fatal.Message)
		}
		a.awaitEnd()
		return
	}
	a.do(command{Cmd: "touch-node"})
	a.allocate("ns/p")
	n.awaitUsed(a.held())
}

// So an agent up to 1.19 that updates its CiliumNode before it knows that it was deleted ends itself.
func TestUpdateOfADeletedCiliumNode(t *testing.T) {
	n := newNode(t, "192.0.2.56")
	p := n.newProxy()
	a := n.agentWith(p.kubeconfig, "--ipv4")
	a.startOn(n, block("10.56.0.0/29"))
	before := n.awaitUsed(a.held())

	p.holdNews()
	n.deleteCiliumNode()
	if cilium.fatalErrors {
		a.send(command{Cmd: "touch-node"})
		if fatal := a.expectEvent("fatal"); !sameText(fatal.Details["error"], "not found") {
			t.Errorf("the last line is %+v", fatal)
		}
		a.awaitEnd()
		p.passNews()
		return
	}
	p.onUpdate(func(number int) int {
		if number == 2 {
			p.passNews()
		}
		return 0
	})
	a.do(command{Cmd: "touch-node"})
	n.awaitCiliumNode("another CiliumNode", func(c ciliumNode) bool { return c.Metadata.UID != before.Metadata.UID })
}

// The agent's status comes with the version that it has seen. What somebody else has written since is not undone, and
// the agent writes again.
func TestStaleStatusIsRefused(t *testing.T) {
	n := newNode(t, "192.0.2.55")
	addresses := block("10.55.0.0/29")
	p := n.newProxy()
	a := n.agentWith(p.kubeconfig, "--ipv4", "--health=false")
	a.startOn(n, addresses)
	n.awaitUsed(a.held())

	pod := a.call(command{Cmd: "dump"}).Allocations[0]
	free := addresses.free(a.held())[0]
	p.onStatus(func(number int) int {
		if number == 1 {
			entries := object{free: ready, nobody: marked, pod.IPv4: doNotRelease}
			if _, err := n.tryPatch(object{"status": object{"ipam": object{"release-ips": entries}}}, "status"); err != nil {
				t.Error(err)
			}
		}
		return 0
	})
	a.do(command{Cmd: "allocate", Owner: "ns/p"})
	a.expectEvent("status-update-failed")
	seen := n.awaitMarks(doNotRelease, nobody)
	if seen.mark(free) != ready || seen.mark(pod.IPv4) != doNotRelease {
		t.Errorf("what was written meanwhile: %v", seen.Status.IPAM.ReleaseIPs)
	}
	n.awaitUsed(a.held())
}
