// The release handshake: status.ipam.release-ips.

package suite

import (
	"testing"
	"time"
)

// The table of docs/cilium.md, all rows at once.
func TestHandshake(t *testing.T) {
	n := newNode(t, "192.0.2.13")
	addresses := block("10.13.0.0/28")
	a := n.agent("--ipv4", "--health=false")
	a.startOn(n, addresses)
	pods := a.allocateMany("ns/p", 3)
	free := addresses.free(a.held())
	const elsewhere, gone = "10.13.9.1", "10.13.9.2"
	rows := map[string]struct{ put, answered string }{
		pods[0].IPv4: {marked, doNotRelease},
		free[0]:      {marked, ready},
		elsewhere:    {marked, doNotRelease},
		pods[1].IPv4: {ready, ready},
		free[1]:      {ready, ready},
		pods[2].IPv4: {doNotRelease, doNotRelease},
		free[2]:      {doNotRelease, doNotRelease},
		free[3]:      {released, released},
		gone:         {released, noEntry},
	}
	entries := map[string]string{}
	for ip, row := range rows {
		entries[ip] = row.put
	}
	n.setEntries(entries)
	seen := n.awaitMarks(doNotRelease, elsewhere)
	for ip, row := range rows {
		if got := seen.mark(ip); got != row.answered {
			t.Errorf("%s: %q was answered with %q, want %q", ip, row.put, got, row.answered)
		}
	}

	got := a.call(command{Cmd: "allocate-many", Prefix: "ns/q", Count: len(addresses)})
	for _, pod := range got.Allocations {
		if ip := pod.IPv4; ip == free[0] || ip == free[1] || ip == free[3] {
			t.Errorf("%s got %s, which is in the handshake", pod.Owner, ip)
		}
	}
	// All but those three; what was refused is there for pods.
	if want := len(free) - 3; len(got.Allocations) != want || got.Error != cilium.full {
		t.Errorf("%d pods, want %d: %v", len(got.Allocations), want, got.Error)
	}
}

// The whole way of an address off the node and back.
func TestAddressLeavesAndReturns(t *testing.T) {
	n := newNode(t, "192.0.2.14")
	addresses := block("10.14.0.0/29")
	a := n.agent("--ipv4", "--health=false")
	a.startOn(n, addresses)
	a.allocateMany("ns/p", len(addresses)-2)
	last := addresses.free(a.held())[0]
	refused := func(when string) {
		t.Helper()
		if got := a.call(command{Cmd: "allocate", Owner: "ns/last"}); got.OK || got.Error != cilium.full {
			t.Errorf("%s %s is given to a pod: %+v", last, when, got)
		}
	}
	n.setMarks(marked, last)
	n.awaitMarks(ready, last)
	refused("ready-for-release")
	n.setMarks(released, last)
	n.ping()
	refused("released, and still in the pool")

	without := block("10.14.0.0/29")
	delete(without, last)
	n.publish(without)
	n.awaitMarks(noEntry, last)
	refused("out of the pool")
	n.publish(addresses)
	if pod := a.allocateWhenSeen("ns/last"); pod.IPv4 != last {
		t.Errorf("the pod got %v instead of %s", pod, last)
	}
}

// An entry released for an address that is in the pool stays for ever; without the entry the address is free again.
func TestReleasedEntryOfAnAddressInThePoolMustBeDeleted(t *testing.T) {
	n := newNode(t, "192.0.2.15")
	a := n.agent("--ipv4", "--health=false")
	started := a.startOn(n, block("10.15.0.0/31"))
	other := block("10.15.0.0/31").free(a.held())[0]
	n.setMarks(released, other)
	n.ping()
	a.kill()

	b := n.agent("--ipv4", "--health=false")
	lost := b.do(restart(started, allocation{Owner: "ns/p", Addresses: addresses{IPv4: other}})).Lost
	if len(lost) != 1 || !sameText(lost[0].Error, "IP not available, marked or ready for release") {
		t.Errorf("a pod on a released address: %v", lost)
	}
	if got := b.call(command{Cmd: "allocate", Owner: "ns/p"}); got.OK {
		t.Errorf("a released address was given out: %+v", got)
	}
	if got := n.ping().mark(other); got != released {
		t.Errorf("the entry became %q", got)
	}
	n.setMarks(noEntry, other)
	if pod := b.allocateWhenSeen("ns/p"); pod.IPv4 != other {
		t.Errorf("the pod got %v", pod)
	}
}

// No time runs out for an answer: it outlives other writes and a restart.
func TestReadyIsHeld(t *testing.T) {
	n := newNode(t, "192.0.2.16")
	addresses := block("10.16.0.0/29")
	a := n.agent("--ipv4", "--health=false")
	before := a.startOn(n, addresses)
	held := addresses.free(a.held())[0]
	n.setMarks(marked, held)
	n.awaitMarks(ready, held)
	a.allocate("ns/p")
	n.awaitUsed(a.held())
	a.release("ns/p")
	n.awaitUsed(a.held())
	n.awaitMarks(ready, held)
	a.kill()

	b := n.agent("--ipv4", "--health=false")
	b.do(restart(before))
	pods := b.call(command{Cmd: "allocate-many", Prefix: "ns/q", Count: len(addresses)})
	if len(pods.Allocations) != len(addresses)-2 {
		t.Errorf("%d pods: %+v", len(pods.Allocations), pods)
	}
	n.awaitUsed(b.held())
	n.awaitMarks(ready, held)
}

func TestEmptyPoolStopsTheHandshake(t *testing.T) {
	n := newNode(t, "192.0.2.17")
	addresses := block("10.17.0.0/29")
	a := n.agent("--ipv4", "--health=false")
	a.startOn(n, addresses)
	a.allocate("ns/p")
	n.awaitUsed(a.held())
	free := addresses.free(a.held())[0]

	n.patch(object{"spec": object{"ipam": object{"pool": nil}}})
	n.setMarks(marked, free)
	a.release("ns/p")
	// A write of the agent that says so carries the version that it has seen, and the mark with it.
	if got := n.awaitUsed(a.held()).mark(free); got != marked {
		t.Errorf("with no pool the mark became %q", got)
	}
	if got := a.call(command{Cmd: "allocate", Owner: "ns/q"}); got.OK {
		t.Errorf("with no pool a pod got %v", got.Addresses)
	}
	n.publish(addresses)
	n.awaitMarks(ready, free)
}

// An answer that is not written yet is lost when only metadata changes, and stays lost until something else changes. A
// ping makes up for it.
func TestAnswerIsLostByAChangeOfMetadata(t *testing.T) {
	n := newNode(t, "192.0.2.18")
	addresses := block("10.18.0.0/28")
	a := n.agent("--ipv4", "--health=false", "--update-rate", "10s")
	a.startOn(n, addresses)
	pod := a.allocate("ns/p")
	n.awaitUsed(a.held())

	// The agent has just written, so that it will not write before its period is over.
	free := addresses.free(a.held())[0]
	n.setMarks(marked, free, pod.IPv4)
	n.patch(object{"metadata": object{"annotations": object{"example.org/unrelated": "x"}}})
	a.allocate("ns/q")
	seen := n.awaitUsed(a.held())
	if seen.mark(free) != marked || seen.mark(pod.IPv4) != marked {
		t.Errorf("the answers were not lost: %v", seen.Status.IPAM.ReleaseIPs)
	}
	// The write of the agent has changed the status, so it looks at the marks again. Where it has done so already, the
	// ping finds them answered.
	seen = n.ping()
	if seen.mark(free) != ready || seen.mark(pod.IPv4) != doNotRelease {
		t.Errorf("after the ping: %v", seen.Status.IPAM.ReleaseIPs)
	}
}

// A pod whose address is marked while its agent is down is not restored, whether the agent has answered or not.
func TestMarkedPodIsLostAtARestart(t *testing.T) {
	n := newNode(t, "192.0.2.19")
	a := n.agent("--ipv4", "--health=false")
	before := a.startOn(n, block("10.19.0.0/29"))
	pod := a.allocate("ns/p")
	n.awaitUsed(a.held())
	a.kill()
	n.setMarks(marked, pod.IPv4)

	b := n.agent("--ipv4", "--health=false")
	lost := b.do(restart(before, allocation{Owner: "ns/p", Addresses: pod})).Lost
	if len(lost) != 1 || !sameText(lost[0].Error, "IP not available, marked or ready for release") {
		t.Errorf("lost %v", lost)
	}
	// After the restoration the address is free in the agent's eyes.
	n.awaitMarks(ready, pod.IPv4)
}

// A refused address is as any other: it is restored.
func TestRefusedAddressIsRestored(t *testing.T) {
	n := newNode(t, "192.0.2.20")
	a := n.agent("--ipv4", "--health=false")
	before := a.startOn(n, block("10.20.0.0/29"))
	pod := a.allocate("ns/p")
	n.setMarks(marked, pod.IPv4)
	n.awaitMarks(doNotRelease, pod.IPv4)
	a.kill()

	b := n.agent("--ipv4", "--health=false")
	if lost := b.do(restart(before, allocation{Owner: "ns/p", Addresses: pod})).Lost; len(lost) != 0 {
		t.Errorf("lost %v", lost)
	}
	n.awaitMarks(doNotRelease, pod.IPv4)
}

func TestUseIsWrittenOncePerPeriod(t *testing.T) {
	n := newNode(t, "192.0.2.21")
	const period = 4 * time.Second
	a := n.agent("--ipv4", "--update-rate", period.String())
	a.startOn(n, block("10.21.0.0/29"))
	a.allocate("ns/p0")
	n.awaitUsed(a.held())
	since := time.Now()
	a.allocate("ns/p1")
	n.awaitUsed(a.held())
	took := time.Since(since)
	// A write that waits for no period comes within milliseconds. The first is seen late where the machine is busy.
	if took < period/2 || took > 3*period {
		t.Errorf("the next write came after %v, the period is %v", took, period)
	}
}
