// Mode multi-pool: start, demand, growth and restart.

package suite

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A fresh agent says at once what it needs, and waits until its default pool has an address of each family.
func TestPoolsFreshNodeSaysItsNeedAndWaits(t *testing.T) {
	n := newPoolNode(t, "192.0.2.1", "2001:db8::1")
	a := n.poolAgent("--ipv4", "--ipv6", "--update-rate=15s")
	start := a.send(command{Cmd: "start"})
	created := a.expectEvent("created-ciliumnode")
	seen := n.awaitPools("demand", func(p pools) bool { return p.names(defaultPool) })
	if took := time.Since(created.at); took > 5*time.Second {
		t.Errorf("the demand came %s after the CiliumNode", took)
	}
	if got := seen.Spec.IPAM.Pools.requested(defaultPool); got.IPv4 != step || got.IPv6 != step {
		t.Errorf("the first demand is %+v", got)
	}
	a.expectEvent("waiting")
	n.setCIDRs(defaultPool, "10.81.0.0/28")
	waited := time.Now()
	a.expectEventWith("waiting", func(e event) bool { return e.at.After(waited) && e.Details["family"] == "ipv6" })
	n.addCIDRs(defaultPool, "fd00:81::/124")
	started := a.await(start)
	if !started.OK || !block("10.81.0.0/28").within(started.Router.IPv4) || !block("fd00:81::/124").within(started.Health.IPv6) {
		t.Errorf("%+v", started)
	}
}

// Every pool with pre-allocation is waited for, under whatever name.
func TestPoolsAllPreAllocatedPoolsAreWaitedFor(t *testing.T) {
	n := newPoolNode(t, "192.0.2.2")
	other := n.ownPool()
	n.createPodIPPool(other)
	a := n.poolAgent("--ipv4", "--pre-allocate=default=4", "--pre-allocate="+other+"=16")
	start := a.send(command{Cmd: "start"})
	n.awaitPools("demand for both", func(p pools) bool {
		return p.requested(defaultPool).IPv4 == 4 && p.requested(other).IPv4 == 16
	})
	n.setCIDRs(defaultPool, "10.82.0.0/28")
	a.expectEventWith("waiting", func(e event) bool {
		return e.Details["poolName"] == other || strings.Contains(e.Message, other)
	})
	n.setCIDRs(other, "10.82.1.0/27")
	if started := a.await(start); !started.OK {
		t.Fatalf("%+v", started)
	}
	if pod := a.allocateFrom(other, "ns/p", 1)[0]; pod.Pool != other || !inside(pod, "10.82.1.0/27") {
		t.Errorf("%+v", pod)
	}
}

// Demand is in whole steps, one beyond what is in use, and CIDRs that are added serve it.
func TestPoolsDemandRisesInSteps(t *testing.T) {
	n := newPoolNode(t, "192.0.2.3")
	a := n.poolAgent("--ipv4", "--health=false")
	a.startOnPool(n, defaultPool, "10.83.0.0/28")
	used := 1
	a.awaitDemand(n, defaultPool, whole(used, step))
	for i, count := range []int{7, 1, 5} {
		a.allocateMany(fmt.Sprintf("ns/part-%d-", i), count)
		used += count
		a.awaitDemand(n, defaultPool, whole(used, step))
	}
	full := a.call(command{Cmd: "allocate", Owner: "ns/late"})
	if full.OK || !sameText(full.Error, exhausted) {
		t.Errorf("from 14 addresses of a /28, 15 were given: %+v", full)
	}
	n.addCIDRs(defaultPool, "10.83.0.16/28")
	a.allocateWhenSeen("ns/late")
	used++
	got := a.allocateMany("ns/z", 4)
	for _, pod := range got {
		if !inside(pod, "10.83.0.16/28") {
			t.Errorf("%+v", pod)
		}
	}
	a.awaitDemand(n, defaultPool, whole(used+4, step))
}

// A pod that waits counts as one in use, of a pool that the agent does not have too; such a pool is served as soon as it
// has a CIDR, without pre-allocation.
func TestPoolsPendingPodsAreDemand(t *testing.T) {
	n := newPoolNode(t, "192.0.2.4")
	other := n.ownPool()
	n.createPodIPPool(other)
	a := n.poolAgent("--ipv4")
	a.startOnPool(n, defaultPool, "10.84.0.0/28")
	for _, owner := range []string{"ns/p", "ns/q", "ns/q"} {
		if got := a.call(command{Cmd: "allocate", Owner: owner, Pool: other}); got.OK || !sameText(got.Error, "pool not (yet) available") {
			t.Errorf("%+v", got)
		}
	}
	a.awaitDemand(n, other, 2)
	n.setCIDRs(other, "10.84.1.0/30")
	a.awaitSeen(other, "10.84.1.0/30")
	got := a.allocateFrom(other, "ns/r", 2)
	if !inside(got[0], "10.84.1.0/30") || got[0].Pool != other {
		t.Errorf("%+v", got)
	}
}

// A Pod's annotation chooses its pool.
func TestPoolsPodChoosesItsPool(t *testing.T) {
	n := newPoolNode(t, "192.0.2.5")
	other := n.ownPool()
	n.createPodIPPool(other)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: n.name, Annotations: map[string]string{"ipam.cilium.io/ip-pool": other}},
		Spec:       corev1.PodSpec{NodeName: n.name, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if _, err := n.kube.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	a := n.poolAgent("--ipv4")
	a.startOnPool(n, defaultPool, "10.85.0.0/28")
	a.awaitState("the Pod to be seen", func() bool {
		got := a.call(command{Cmd: "allocate", Owner: "default/" + n.name})
		if got.OK {
			a.release("default/" + n.name)
		}
		return !got.OK
	})
	a.awaitDemand(n, other, 1)
	n.setCIDRs(other, "10.85.1.0/28")
	a.awaitSeen(other, "10.85.1.0/28")
	if got := a.do(command{Cmd: "allocate", Owner: "default/" + n.name}); got.Pool != other || !block("10.85.1.0/28").within(got.IPv4) {
		t.Errorf("%+v", got)
	}
}

// Without the CiliumPodIPPool of its default pool an agent starts a minute late, and then fails.
func TestPoolsStartWithoutCiliumPodIPPool(t *testing.T) {
	n := newPoolNode(t, "192.0.2.6")
	pool := n.ownPool()
	if !cilium.pools.needsCiliumPodIPPool {
		a := n.poolAgent("--ipv4", "--default-pool="+pool)
		a.startOnPool(n, pool, "10.86.0.0/28")
		a.allocate("ns/p")
		return
	}
	a := n.poolAgent("--ipv4", "--default-pool="+pool)
	begun := time.Now()
	start := a.send(command{Cmd: "start"})
	n.awaitPools("demand", func(p pools) bool { return p.requested(pool).IPv4 == step })
	n.setCIDRs(pool, "10.86.0.0/28")
	a.expectEvent("waiting-podippool")
	got := a.await(start)
	if got.OK || !sameText(got.Error, "IP pool '"+pool+"' not found") {
		t.Errorf("%+v", got)
	}
	if took := time.Since(begun); took < time.Minute {
		t.Errorf("it took %s", took)
	}
	a.awaitEnd()
}

// One that is made meanwhile lets it go on at once. One that is deleted later stops allocations, and nothing else.
func TestPoolsCiliumPodIPPoolComesAndGoes(t *testing.T) {
	n := newPoolNode(t, "192.0.2.7")
	// Before 1.19 the agent does not look for one, so there is nothing that comes or goes.
	if !cilium.pools.needsCiliumPodIPPool {
		t.Skip("this release needs no CiliumPodIPPool")
	}
	pool := n.ownPool()
	a := n.poolAgent("--ipv4", "--default-pool="+pool)
	start := a.send(command{Cmd: "start"})
	n.awaitPools("demand", func(p pools) bool { return p.requested(pool).IPv4 == step })
	n.setCIDRs(pool, "10.87.0.0/28")
	a.expectEvent("waiting-podippool")
	n.createPodIPPool(pool)
	made := time.Now()
	if got := a.await(start); !got.OK || time.Since(made) > 5*time.Second {
		t.Fatalf("%s after the CiliumPodIPPool: %+v", time.Since(made), got)
	}
	a.allocate("ns/p")
	n.deletePodIPPool(pool)
	var got answer
	a.awaitState("allocations to fail", func() bool {
		got = a.call(command{Cmd: "allocate", Owner: "ns/late"})
		if got.OK {
			a.release("ns/late")
		}
		return !got.OK
	})
	if !sameText(got.Error, "not found in stateDB") {
		t.Errorf("%+v", got)
	}
	if held := a.held(); len(held) != 3 {
		t.Errorf("%v", held)
	}
	n.awaitCIDRs(pool, "10.87.0.0/28")
	n.createPodIPPool(pool)
	a.allocateWhenSeen("ns/late")
}

// Blocks of one and two addresses can be used whole, larger ones but for the first and the last, unless the entry says
// otherwise.
func TestPoolsAddressesOfABlock(t *testing.T) {
	n := newPoolNode(t, "192.0.2.8", "2001:db8::8")
	flags := []string{"--ipv4", "--ipv6", "--health=false", "--pre-allocate=default=8"}
	cases := []struct {
		pool, v4, v6 string
		free         int
		all          bool
	}{
		{"single", "10.88.1.0/32", "fd00:88:1::/128", 1, false},
		{"double", "10.88.2.0/31", "fd00:88:2::/127", 2, false},
		{"four", "10.88.3.0/30", "fd00:88:3::/126", 2, false},
		{"whole", "10.88.4.0/30", "fd00:88:4::/126", 4, true},
	}
	if !cilium.pools.firstAndLast {
		cases[3].free = 2
	}
	for i := range cases {
		cases[i].pool = n.ownPool() + "-" + cases[i].pool
		n.createPodIPPool(cases[i].pool)
		flags = append(flags, "--pre-allocate="+cases[i].pool+"=1")
	}
	a := n.poolAgent(flags...)
	start := a.send(command{Cmd: "start"})
	n.awaitPools("demand", func(p pools) bool { return p.names(defaultPool) })
	for _, c := range cases {
		n.setGrant(grant{Pool: c.pool, CIDRs: []string{c.v4, c.v6}, AllowFirstIP: c.all, AllowLastIP: c.all})
	}
	n.setCIDRs(defaultPool, "10.88.0.0/28", "fd00:88::/124")
	if got := a.await(start); !got.OK {
		t.Fatalf("%+v", got)
	}
	for _, c := range cases {
		for _, cidr := range []string{c.v4, c.v6} {
			if state, _ := a.cidr(c.pool, cidr); state.Free != c.free {
				t.Errorf("%s: %+v", c.pool, state)
			}
		}
		a.allocateFrom(c.pool, "ns/"+c.pool, c.free)
		if got := a.call(command{Cmd: "allocate", Owner: "ns/late", Pool: c.pool}); got.OK {
			t.Errorf("%s: one too many: %+v", c.pool, got)
		}
	}
}

// A pod of a node with both families gets one of each, or none, and both are demand.
func TestPoolsBothFamilies(t *testing.T) {
	n := newPoolNode(t, "192.0.2.9", "2001:db8::9")
	a := n.poolAgent("--ipv4", "--ipv6")
	a.startOnPool(n, defaultPool, "10.89.0.0/29", "fd00:89::/124")
	before := a.allocateMany("ns/p", 4)
	if !inside(allocation{Addresses: addresses{IPv4: before[0].IPv4}}, "10.89.0.0/29") || !block("fd00:89::/124").within(before[0].IPv6) {
		t.Errorf("%+v", before)
	}
	held := a.held()
	if got := a.call(command{Cmd: "allocate", Owner: "ns/late"}); got.OK {
		t.Errorf("%+v", got)
	}
	if after := a.held(); len(after) != len(held) {
		t.Errorf("held after a refused pod: %v, before: %v", after, held)
	}
	a.awaitNudged(n, "demand", func(p pools) bool {
		got := p.requested(defaultPool)
		// Six in use, and one that waits for IPv4.
		return got.IPv4 == whole(7, step) && got.IPv6 == whole(6, step)
	})
}

// A restarted agent keeps its own addresses and what it restores, under the pool that each pod has had; a pod whose pool
// no longer has the CIDR is lost.
func TestPoolsRestart(t *testing.T) {
	n := newPoolNode(t, "192.0.2.10")
	other, renamed := n.ownPool(), n.ownPool()+"-renamed"
	n.createPodIPPool(other)
	flags := []string{"--ipv4", "--pre-allocate=default=8", "--pre-allocate=" + other + "=1"}
	a := n.poolAgent(flags...)
	start := a.send(command{Cmd: "start"})
	n.awaitPools("demand", func(p pools) bool { return p.names(defaultPool) })
	n.setCIDRs(other, "10.90.1.0/28")
	n.setCIDRs(defaultPool, "10.90.0.0/28")
	before := a.await(start)
	pods := append(a.allocateMany("ns/p", 2), a.allocateFrom(other, "ns/other", 2)...)
	a.kill()

	b := n.poolAgent(flags...)
	if after := b.do(restart(before, pods...)); !slices.Equal(after.Restored, pods) || *after.Router != *before.Router {
		t.Errorf("restored %+v, lost %+v, router %v", after.Restored, after.Lost, after.Router)
	}
	b.kill()
	n.setCIDRs(other)
	n.setCIDRs(renamed, "10.90.1.0/28")

	c := n.poolAgent("--ipv4")
	after := c.do(restart(before, pods...))
	if !slices.Equal(after.Restored, pods[:2]) || len(after.Lost) != 2 || !sameText(after.Lost[0].Error, "pool not (yet) available") {
		t.Errorf("restored %+v, lost %+v", after.Restored, after.Lost)
	}
}
