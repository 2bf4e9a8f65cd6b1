// Mode multi-pool: what is late, and text that is no CIDR.

package suite

import (
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// Demand that changes within the interval of the agent's writes is told of at the interval's end in 1.17, at the agent's
// next tick in 1.20.
func TestPoolsDemandWithinTheInterval(t *testing.T) {
	n := newPoolNode(t, "192.0.2.71")
	const interval = 15 * time.Second
	a := n.agent("--ipam=multi-pool", "--ipv4", "--update-rate="+interval.String())
	a.startOnPool(n, defaultPool, "10.71.0.0/27")
	a.allocateMany("ns/p", 20)
	at := time.Now()
	n.awaitPools("the demand", func(p pools) bool { return p.requested(defaultPool).IPv4 == whole(22, step) })
	least, most := time.Duration(0), interval
	if cilium.pools.lateDemand {
		least, most = 2*interval, tick
	}
	if took := time.Since(at); took < least || took > most+5*time.Second {
		t.Errorf("told after %s", took)
	}
}

// An update that is refused as a conflict is tried again within seconds in 1.17, at the agent's next tick in 1.20, where
// one write by somebody else in the first moment costs a new node a minute.
func TestPoolsConflictOfTheFirstUpdate(t *testing.T) {
	n := newPoolNode(t, "192.0.2.72")
	p := n.newProxy()
	a := n.agentWith(p.kubeconfig, "--ipam=multi-pool", "--ipv4", "--update-rate=15s")
	var once sync.Once
	p.onUpdate(func(int) int {
		// Updates before are by node discovery.
		if _, demanded := p.firstUpdate(func(c ciliumNode) bool { return c.Spec.IPAM.Pools.names(defaultPool) }); demanded {
			once.Do(func() { n.write(1) })
		}
		return 0
	})
	a.send(command{Cmd: "start"})
	a.expectEvent("created-ciliumnode")
	a.awaitState("a conflict", func() bool { return p.refused(http.StatusConflict) })
	at := time.Now()
	n.awaitPools("demand", func(p pools) bool { return p.names(defaultPool) })
	least, most := time.Duration(0), 5*time.Second
	if cilium.pools.lateRetry {
		least, most = tick/2, tick+5*time.Second
	}
	if took := time.Since(at); took < least || took > most {
		t.Errorf("tried again after %s", took)
	}
}

// The server refuses text that is no CIDR, but not all that agents can't parse. 1.17 leaves such an entry out, and at its
// next write it is gone. It makes an agent of 1.20 blind, so that a change of its Node ends it; that it keeps every other
// agent from starting is shown with podCIDRs. Host bits are harmless.
func TestPoolsTextThatIsNoCIDR(t *testing.T) {
	n := newPoolNodeAlone(t, "192.0.2.73")
	const first = "10.73.0.0/28"
	a := n.poolAgent("--ipv4", "--pre-allocate=default=32")
	a.startOnPool(n, defaultPool, first)
	write := func(cidrs ...string) error {
		allocated := []object{{"pool": defaultPool, "cidrs": cidrs}}
		_, err := n.tryPatch(object{"spec": object{"ipam": object{"pools": object{"allocated": allocated}}}})
		return err
	}
	for _, text := range []string{"10.73.1.0", "10.73.1.0/33", "nonsense", ""} {
		if err := write(first, text); err == nil {
			t.Errorf("the server has taken %q", text)
		}
	}
	if err := write(first, "10.73.1.5/28"); err != nil {
		t.Fatal(err)
	}
	a.awaitSeen(defaultPool, "10.73.1.0/28")

	if err := write(first, "010.073.002.000/28"); err != nil {
		t.Fatal(err)
	}
	if !cilium.strictCIDRs {
		a.expectEvent("cidr-refused")
		a.awaitNudged(n, "the text to be gone", func(p pools) bool { return slices.Equal(p.cidrs(defaultPool), []string{first}) })
		return
	}
	if _, known := a.cidr(defaultPool, "10.73.2.0/28"); known {
		t.Error("the agent can read it")
	}
	n.label("rack", "r1")
	if fatal := a.expectEvent("fatal"); !sameText(fatal.Message, "Could not create or update CiliumNode resource") {
		t.Errorf("%+v", fatal)
	}
	a.awaitEnd()
	if err := write(first, "10.73.2.0/28"); err != nil {
		t.Fatal(err)
	}
	b := n.poolAgent("--ipv4")
	b.do(command{Cmd: "start"})
}
