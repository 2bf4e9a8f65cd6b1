// Mode multi-pool: how CIDRs leave an agent, by its own will and by force, and what proves that they are gone.

package suite

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"
)

// What nobody needs leaves as soon as the restoration is finished, the last CIDR of the list first, and an entry that
// has no CIDR left goes with it. So neither a floor above the demand nor a CIDR for a pool without demand can be held.
func TestPoolsExcessLeavesAfterTheRestoration(t *testing.T) {
	n := newPoolNode(t, "192.0.2.61")
	other := n.ownPool()
	a := n.poolAgent("--ipv4", "--health=false")
	start := a.send(command{Cmd: "start", Hold: true})
	n.awaitPools("demand", func(p pools) bool { return p.names(defaultPool) })
	n.setCIDRs(other, "10.61.9.0/28")
	n.setCIDRs(defaultPool, "10.61.0.0/28", "10.61.0.16/28", "10.61.0.32/28")
	if got := a.await(start); !got.OK {
		t.Fatalf("%+v", got)
	}
	// An answer says that the agent has looked after its pools while the restoration is open.
	n.ask()
	seen := n.awaitAnswer()
	if p := seen.Spec.IPAM.Pools; len(p.cidrs(defaultPool)) != 3 || len(p.cidrs(other)) != 1 {
		t.Errorf("before the restoration is finished: %+v", p)
	}

	a.do(command{Cmd: "restored"})
	// The router has one address, and two steps are needed: one block is too little. The agent does this of itself, but
	// where it meets a conflict with its own update of the CiliumNode, only at its next tick.
	a.awaitNudged(n, "the excess to be gone", func(p pools) bool {
		return slices.Equal(p.cidrs(defaultPool), []string{"10.61.0.0/28", "10.61.0.16/28"}) && p.cidrs(other) == nil
	})
}

// A CIDR whose pods are gone leaves where the others have enough free addresses for the demand.
func TestPoolsEmptyCIDRLeaves(t *testing.T) {
	n := newPoolNode(t, "192.0.2.62")
	const first, second = "10.62.0.0/27", "10.62.1.0/27"
	a := n.poolAgent("--ipv4", "--health=false")
	a.startOnPool(n, defaultPool, first)
	pods := a.allocateMany("ns/p", 29)
	n.addCIDRs(defaultPool, second)
	a.awaitSeen(defaultPool, second)
	late := a.allocate("ns/late")
	a.awaitDemand(n, defaultPool, whole(31, step))
	for _, pod := range pods[:20] {
		a.release(pod.Owner)
	}
	a.awaitDemand(n, defaultPool, whole(11, step))
	n.awaitCIDRs(defaultPool, first, second)
	if !block(second).within(late.IPv4) {
		t.Errorf("%v", late)
	}
	a.release("ns/late")
	a.awaitNudged(n, "the empty CIDR to be gone", func(p pools) bool { return slices.Equal(p.cidrs(defaultPool), []string{first}) })
	if _, known := a.cidr(defaultPool, second); known {
		t.Error("the agent still has what it has given back")
	}
}

// The question is answered by the agent's allocator alone, with an update that is based on the version with the question
// or on a later one; an agent with nothing else to say answers at its next tick. An update by node discovery leaves the
// question as it is.
func TestPoolsQuestion(t *testing.T) {
	n := newPoolNode(t, "192.0.2.63")
	p := n.newProxy()
	a := n.agentWith(p.kubeconfig, "--ipam=multi-pool", "--ipv4", "--update-rate=15s")
	a.startOnPool(n, defaultPool, "10.63.0.0/28")
	asked := n.ask()
	at := time.Now()
	n.label("rack", "r1")
	discovery := n.awaitCiliumNode("label rack", func(c ciliumNode) bool { return c.Metadata.Labels["rack"] == "r1" })
	if !discovery.Spec.IPAM.Pools.names(question) {
		t.Error("the update by node discovery has answered")
	}
	n.awaitAnswer()
	if took := time.Since(at); took > tick+5*time.Second {
		t.Errorf("answered after %s", took)
	}
	answer, tried := p.firstUpdate(func(c ciliumNode) bool {
		return number(t, c) >= number(t, asked) && !c.Spec.IPAM.Pools.names(question)
	})
	if !tried || number(t, answer) < number(t, discovery) {
		t.Errorf("based on version %s; the question is in %s, and still in %s",
			answer.Metadata.ResourceVersion, asked.Metadata.ResourceVersion, discovery.Metadata.ResourceVersion)
	}
}

// What is taken away in one write with the question is there again in the answer if it is in use, and not if it is free.
func TestPoolsTakenAwayWithTheQuestion(t *testing.T) {
	n := newPoolNode(t, "192.0.2.64")
	const kept, used, free = "10.64.0.0/28", "10.64.1.0/28", "10.64.2.0/28"
	a := n.poolAgent("--ipv4", "--health=false", "--pre-allocate=default=32")
	a.startOnPool(n, defaultPool, used)
	n.addCIDRs(defaultPool, kept, free)
	a.awaitSeen(defaultPool, free)
	n.writePools(func(p *pools) {
		p.Allocated = []grant{{Pool: defaultPool, CIDRs: []string{kept}}}
		p.Requested = append(p.Requested, request{Pool: question})
	})
	a.awaitNudged(n, "the answer", func(p pools) bool { return !p.names(question) })
	n.awaitCIDRs(defaultPool, kept, used)
	if _, known := a.cidr(defaultPool, free); known {
		t.Error("the agent still has the free CIDR")
	}
}

// A CIDR that is taken away in use is written back, and nothing is allocated from it until the agent restarts. Its free
// addresses still count as free: what is given instead goes back, and new pods starve.
func TestPoolsTakenAwayInUse(t *testing.T) {
	n := newPoolNode(t, "192.0.2.65")
	const used, instead = "10.65.0.0/27", "10.65.1.0/28"
	a := n.poolAgent("--ipv4")
	before := a.startOnPool(n, defaultPool, used)
	pods := a.allocateMany("ns/p", 2)
	a.awaitDemand(n, defaultPool, whole(4, step))
	n.setCIDRs(defaultPool, instead)
	a.expectEvent("cidr-removed")
	a.awaitNudged(n, "the CIDR to be back alone", func(p pools) bool {
		return slices.Equal(p.cidrs(defaultPool), []string{used})
	})
	if state, _ := a.cidr(defaultPool, used); !state.Removed || state.InUse != 4 || state.Free != 26 {
		t.Errorf("%+v", state)
	}
	for range 2 {
		if got := a.call(command{Cmd: "allocate", Owner: "ns/late"}); got.OK || !sameText(got.Error, exhausted) {
			t.Errorf("from a CIDR that was taken away: %+v", got)
		}
		n.addCIDRs(defaultPool, instead)
		a.awaitNudged(n, "what was given instead to be gone", func(p pools) bool {
			return slices.Equal(p.cidrs(defaultPool), []string{used})
		})
	}
	a.kill()

	b := n.poolAgent("--ipv4")
	if after := b.do(restart(before, pods...)); len(after.Lost) != 0 {
		t.Errorf("%+v", after.Lost)
	}
	if got := b.allocate("ns/late"); !block(used).within(got.IPv4) {
		t.Errorf("after the restart: %+v", got)
	}
}

// An agent that restarts before it has written back what was taken away loses the pods.
func TestPoolsTakenAwayInUseBeforeARestart(t *testing.T) {
	n := newPoolNode(t, "192.0.2.66")
	const used, instead = "10.66.0.0/28", "10.66.1.0/28"
	a := n.poolAgent("--ipv4")
	before := a.startOnPool(n, defaultPool, used)
	pods := a.allocateMany("ns/p", 2)
	a.kill()
	n.setCIDRs(defaultPool, instead)

	b := n.poolAgent("--ipv4")
	after := b.do(restart(before, pods...))
	if len(after.Lost) != 2 || !sameText(after.Lost[0].Error, "not in range of any") {
		t.Errorf("lost %+v", after.Lost)
	}
	b.expectEvent("router-not-restored")
	if !block(instead).within(after.Router.IPv4) {
		t.Errorf("%+v", after.Router)
	}
}

// A whole entry that is taken away changes nothing for the agent: it goes on giving addresses out, and writes the entry
// back at its next tick.
func TestPoolsWholeEntryTakenAway(t *testing.T) {
	n := newPoolNode(t, "192.0.2.67")
	const cidr = "10.67.0.0/27"
	a := n.agent("--ipam=multi-pool", "--ipv4", "--update-rate=15s")
	a.startOnPool(n, defaultPool, cidr)
	n.setCIDRs(defaultPool)
	at := time.Now()
	n.awaitCIDRs(defaultPool, cidr)
	if took := time.Since(at); took > tick+5*time.Second {
		t.Errorf("it was back after %s", took)
	}
	if got := a.allocate("ns/p"); !block(cidr).within(got.IPv4) {
		t.Errorf("%+v", got)
	}
	if state, _ := a.cidr(defaultPool, cidr); state.Removed {
		t.Errorf("%+v", state)
	}
}

// Writes to one pool leave the entry of another as it is, and so does the agent.
func TestPoolsEntriesOfOthersStay(t *testing.T) {
	n := newPoolNode(t, "192.0.2.68")
	other := n.ownPool()
	n.createPodIPPool(other)
	a := n.poolAgent("--ipv4", "--health=false", "--pre-allocate=default=8", "--pre-allocate="+other+"=4")
	start := a.send(command{Cmd: "start"})
	n.awaitPools("demand", func(p pools) bool { return p.names(defaultPool) })
	theirs := grant{Pool: other, CIDRs: []string{"10.68.9.0/29"}, AllowFirstIP: true}
	n.setGrant(theirs)
	n.setCIDRs(defaultPool, "10.68.0.0/28")
	if got := a.await(start); !got.OK {
		t.Fatalf("%+v", got)
	}
	used := 1
	for i, cidr := range []string{"10.68.1.0/28", "10.68.2.0/28"} {
		a.allocateMany(fmt.Sprintf("ns/part-%d-", i), 8)
		used += 8
		a.awaitDemand(n, defaultPool, whole(used, step))
		n.addCIDRs(defaultPool, cidr)
		a.awaitSeen(defaultPool, cidr)
		a.allocateFrom(other, fmt.Sprintf("ns/other-%d-", i), 1)
		a.awaitDemand(n, other, whole(i+1, 4))
		if p := n.get().Spec.IPAM.Pools; !slices.ContainsFunc(p.Allocated, func(g grant) bool {
			return g.Pool == other && slices.Equal(g.CIDRs, theirs.CIDRs) && g.AllowFirstIP == cilium.pools.firstAndLast && !g.AllowLastIP
		}) {
			t.Errorf("%+v", p)
		}
	}
}

// An agent that hears late of its own giving back may take the CIDR again, place pods in it, and write it back. So that
// it is absent proves nothing; the answer to the question, which the agent can't give before it has heard, shows it.
func TestPoolsReleasedCIDRComesBack(t *testing.T) {
	n := newPoolNode(t, "192.0.2.69")
	const first, second = "10.69.0.0/27", "10.69.1.0/27"
	p := n.newProxy()
	a := n.agentWith(p.kubeconfig, slices.Concat(promptFlags, []string{"--ipv4", "--health=false"})...)
	a.startOnPool(n, defaultPool, first)
	pods := a.allocateMany("ns/p", 29)
	a.awaitDemand(n, defaultPool, whole(30, step))
	n.addCIDRs(defaultPool, second)
	a.awaitSeen(defaultPool, second)

	// One update tells of all that is given back, because those before it are refused.
	p.onUpdate(func(int) int { return http.StatusConflict })
	for _, pod := range pods[:20] {
		a.release(pod.Owner)
	}
	p.holdNews()
	p.onUpdate(nil)
	a.nudge(defaultPool)
	n.awaitPools("the CIDR to be given back", func(p pools) bool { return slices.Equal(p.cidrs(defaultPool), []string{first}) })
	if state := a.state(defaultPool); !slices.Equal(state.Released, []string{second}) {
		t.Errorf("%+v", state)
	}
	a.allocateMany("ns/q", 20)
	if !cilium.pools.takesBack {
		n.ask()
		a.awaitState("an update to be refused", func() bool { a.nudge(defaultPool); return p.refused(http.StatusConflict) })
		if got := a.call(command{Cmd: "allocate", Owner: "ns/late"}); got.OK {
			t.Errorf("%+v", got)
		}
		p.passNews()
		a.awaitNudged(n, "the answer", func(p pools) bool { return !p.names(question) })
		n.awaitCIDRs(defaultPool, first)
		return
	}
	a.awaitState("an address of the CIDR that was given back", func() bool {
		got := a.call(command{Cmd: "allocate", Owner: "ns/late"})
		return got.OK && block(second).within(got.IPv4)
	})
	// Another demand than the one that it has last heard of, or it has nothing to write.
	a.allocateMany("ns/r", 12)
	n.ask()
	a.awaitState("an update to be refused", func() bool { a.nudge(defaultPool); return p.refused(http.StatusConflict) })
	if p := n.get().Spec.IPAM.Pools; !p.names(question) || len(p.cidrs(defaultPool)) != 1 {
		t.Errorf("while the agent hears nothing: %+v", p)
	}
	p.passNews()
	a.awaitNudged(n, "the answer", func(p pools) bool { return !p.names(question) })
	n.awaitCIDRs(defaultPool, first, second)
	if state, _ := a.cidr(defaultPool, second); !state.Removed {
		t.Errorf("%+v", state)
	}
}

// A CiliumNode that is deleted under a living agent is made again only when its Node changes, and without CIDRs; the
// agent then writes back all that it has in memory, at its next tick or the next pod.
func TestPoolsDeletedCiliumNode(t *testing.T) {
	n := newPoolNode(t, "192.0.2.70")
	const first, second = "10.70.0.0/28", "10.70.1.0/28"
	p := n.newProxy()
	a := n.agentWith(p.kubeconfig, slices.Concat(promptFlags, []string{"--ipv4"})...)
	a.startOnPool(n, defaultPool, first)
	a.allocateMany("ns/p", 8)
	a.awaitDemand(n, defaultPool, whole(10, step))
	n.addCIDRs(defaultPool, second)
	a.awaitSeen(defaultPool, second)
	before := n.get()

	n.deleteCiliumNode()
	// A step more is asked for.
	a.allocateMany("ns/q", 7)
	a.awaitState("an update of what is gone", func() bool { return p.refused(http.StatusNotFound) })
	n.label("rack", "r1")
	made := n.awaitCiliumNode("another CiliumNode", func(c ciliumNode) bool { return c.Metadata.UID != before.Metadata.UID })
	if got := made.Spec.IPAM.Pools.Allocated; len(got) != 0 {
		t.Errorf("made again with %+v", got)
	}
	a.awaitNudged(n, "all CIDRs", func(p pools) bool {
		return slices.Equal(p.cidrs(defaultPool), []string{first, second}) && p.requested(defaultPool).IPv4 == whole(17, step)
	})
}
