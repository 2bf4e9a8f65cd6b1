// What an answer of the agent proves while it gives addresses to pods at the same time.

package suite

import (
	"fmt"
	"slices"
	"testing"
)

// An address whose mark was answered with ready belongs to nobody and goes to nobody, and one whose mark was refused is
// in use, however the marks meet the allocations.
func TestMarksAmongAllocations(t *testing.T) {
	n := newNode(t, "192.0.2.61")
	addresses := block("10.61.0.0/22")
	a := n.agent("--ipv4", "--health=false")
	a.startOn(n, addresses)
	all := sortedKeys(addresses)

	stop := a.churn()
	var seen ciliumNode
	for part := range slices.Chunk(all, len(all)/4) {
		n.setMarks(marked, part...)
		seen = n.ping()
	}
	holders := map[string]string{}
	for _, pod := range append(stop(), a.call(command{Cmd: "allocate-many", Prefix: "ns/q", Count: len(all)}).Allocations...) {
		holders[pod.IPv4] = pod.Owner
	}
	for _, ip := range all {
		switch owner, taken := holders[ip]; seen.mark(ip) {
		case ready:
			if taken {
				t.Errorf("%s is ready for release, and belongs to %s", ip, owner)
			}
		case doNotRelease:
		default:
			t.Errorf("%s was not answered: %q", ip, seen.mark(ip))
		}
	}
}

// Behind a fence, the version that answers a ping lists all that the agent has given out and will give out of the block.
func TestFenceAndPingAmongAllocations(t *testing.T) {
	n := newNode(t, "192.0.2.62")
	kept, fenced := block("10.62.0.0/23"), block("10.62.2.0/23")
	a := n.agent("--ipv4", "--health=false")
	a.startOn(n, kept, fenced)

	stop := a.churn()
	owners := map[string]string{}
	for ip := range fenced {
		owners[ip] = fence
	}
	n.own(owners)
	used := n.ping().used()
	held := stop()
	fresh := a.call(command{Cmd: "allocate-many", Prefix: "ns/q", Count: len(kept)}).Allocations
	late := 0
	for _, pod := range append(held, fresh...) {
		if _, known := used[pod.IPv4]; fenced.within(pod.IPv4) && !known {
			late++
		}
	}
	if late != 0 {
		t.Errorf("%d pods got addresses behind the fence that the answer does not list", late)
	}
}

// churn has pods come and go until stop is called, which returns those that are there then. Nothing else may be asked of
// the agent meanwhile.
func (a *agentProcess) churn() (stop func() []allocation) {
	enough, last := make(chan struct{}), make(chan []allocation)
	go func() {
		for round := 0; ; round++ {
			pods := a.call(command{Cmd: "allocate-many", Prefix: fmt.Sprintf("ns/round-%d-", round), Count: 50}).Allocations
			select {
			case <-enough:
				last <- pods
				return
			default:
			}
			for _, pod := range pods {
				a.call(command{Cmd: "release", Addresses: pod.Addresses})
			}
		}
	}()
	return func() []allocation {
		close(enough)
		return <-last
	}
}
