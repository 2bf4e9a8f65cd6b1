// What the tests of mode multi-pool have in common: the pools of a CiliumNode, and a controller's writes to them.

package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"nodeipam.io/tests/agent/rig"
)

// pools is spec.ipam.pools of a CiliumNode.
type pools struct {
	Requested []request `json:"requested,omitempty"`
	Allocated []grant   `json:"allocated,omitempty"`
}

// request is what the agent wants of a pool.
type request struct {
	Pool   string `json:"pool"`
	Needed struct {
		IPv4 int `json:"ipv4-addrs,omitempty"`
		IPv6 int `json:"ipv6-addrs,omitempty"`
	} `json:"needed"`
}

// grant is what somebody has given the agent of a pool.
type grant struct {
	Pool         string   `json:"pool"`
	CIDRs        []string `json:"cidrs,omitempty"`
	AllowFirstIP bool     `json:"allowFirstIP,omitempty"`
	AllowLastIP  bool     `json:"allowLastIP,omitempty"`
}

// requested is the demand for a pool; nothing where the agent does not name it.
func (p pools) requested(pool string) rig.Demand {
	for _, r := range p.Requested {
		if r.Pool == pool {
			return rig.Demand{IPv4: r.Needed.IPv4, IPv6: r.Needed.IPv6}
		}
	}
	return rig.Demand{}
}

// names says whether the agent, or whoever asks it, has an entry for the pool, be it without need.
func (p pools) names(pool string) bool {
	return slices.ContainsFunc(p.Requested, func(r request) bool { return r.Pool == pool })
}

// cidrs are those of a pool, in order of text: in which order the agent writes them has no meaning.
func (p pools) cidrs(pool string) []string {
	for _, g := range p.Allocated {
		if g.Pool == pool {
			return slices.Sorted(slices.Values(g.CIDRs))
		}
	}
	return nil
}

const (
	// defaultPool is Cilium's name of it.
	defaultPool = "default"
	// step is Cilium's default pre-allocation from that pool.
	step = 8
	// tick is the interval at which an agent looks after its pools without being asked.
	tick = time.Minute
)

// exhausted is a part of the error of a pool without free addresses.
const exhausted = "CIDR ranges are exhausted"

// whole is the demand of a pool with pre-allocation: one whole step beyond what is in use.
func whole(used, step int) int {
	return ((used+step-1)/step + 1) * step
}

// newPoolNode makes a Node for an agent in mode multi-pool, in a cluster whose default pool has its CiliumPodIPPool.
func newPoolNode(t *testing.T, internalIPs ...string) testNode {
	t.Helper()
	needMultiPool(t)
	n := newNode(t, internalIPs...)
	n.createPodIPPool(defaultPool)
	return n
}

// newPoolNodeAlone is for a test that would disturb the others.
func newPoolNodeAlone(t *testing.T, internalIPs ...string) testNode {
	t.Helper()
	needMultiPool(t)
	n := newNodeAlone(t, internalIPs...)
	n.createPodIPPool(defaultPool)
	return n
}

func needMultiPool(t *testing.T) {
	t.Helper()
	// In 1.14 the mode has no tick that handles demand and usage queries.
	if !cilium.multiPool {
		t.Skip("the agent of this release is not run in mode multi-pool")
	}
}

// createPodIPPool makes a CiliumPodIPPool with an empty spec, unless it is there.
func (n testNode) createPodIPPool(name string) {
	n.t.Helper()
	body := object{
		"apiVersion": "cilium.io/v2alpha1", "kind": "CiliumPodIPPool",
		"metadata": object{"name": name}, "spec": object{},
	}
	_, err := podIPPools().Create(n.t.Context(), &unstructured.Unstructured{Object: body}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		n.t.Fatal(err)
	}
}

func (n testNode) deletePodIPPool(name string) {
	n.t.Helper()
	if err := podIPPools().Delete(n.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		n.t.Fatal(err)
	}
}

func podIPPools() dynamic.NamespaceableResourceInterface {
	resource := schema.GroupVersionResource{Group: "cilium.io", Version: "v2alpha1", Resource: "ciliumpodippools"}
	return dynamic.NewForConfigOrDie(clientConf).Resource(resource)
}

// ownPool is the name of a pool that no other test has, without its CiliumPodIPPool.
func (n testNode) ownPool() string {
	return "pool-" + n.name
}

// promptFlags make an agent in mode multi-pool that looks after its pools at each allocation and release, without a
// minimum interval. It may then meet a conflict with its own last write, so that tests nudge it.
var promptFlags = []string{"--ipam=multi-pool", "--update-rate=0s"}

func (n testNode) poolAgent(flags ...string) *agentProcess {
	n.t.Helper()
	return n.agent(slices.Concat(promptFlags, flags)...)
}

// setCIDRs writes the CIDRs of one pool as a controller does: based on the version that it has read, and with the
// entries of other pools as they are. Without CIDRs it removes the entry.
func (n testNode) setCIDRs(pool string, cidrs ...string) ciliumNode {
	n.t.Helper()
	return n.setGrant(grant{Pool: pool, CIDRs: cidrs})
}

func (n testNode) setGrant(g grant) ciliumNode {
	n.t.Helper()
	return n.writePools(func(p *pools) {
		p.Allocated = slices.DeleteFunc(p.Allocated, func(other grant) bool { return other.Pool == g.Pool })
		if len(g.CIDRs) > 0 {
			p.Allocated = append(p.Allocated, g)
		}
	})
}

// addCIDRs adds CIDRs to those of a pool.
func (n testNode) addCIDRs(pool string, cidrs ...string) ciliumNode {
	n.t.Helper()
	return n.writePools(func(p *pools) {
		added := append(p.cidrs(pool), cidrs...)
		p.Allocated = slices.DeleteFunc(p.Allocated, func(g grant) bool { return g.Pool == pool })
		p.Allocated = append(p.Allocated, grant{Pool: pool, CIDRs: added})
	})
}

// question is a pool name for which nobody has need.
const question = "nodeipam.io-question"

// ask adds an entry to the demand that only the agent's allocator removes.
func (n testNode) ask() ciliumNode {
	n.t.Helper()
	return n.writePools(func(p *pools) { p.Requested = append(p.Requested, request{Pool: question}) })
}

// writePools patches spec.ipam.pools of the version that it has read, and tries again where that was not the newest.
func (n testNode) writePools(change func(*pools)) ciliumNode {
	n.t.Helper()
	var written ciliumNode
	err := wait.PollUntilContextTimeout(n.t.Context(), 10*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		seen := n.get()
		next := seen.Spec.IPAM.Pools
		change(&next)
		// A list is replaced as a whole; an empty one must be there to be replaced.
		if next.Allocated == nil {
			next.Allocated = []grant{}
		}
		raw, err := n.tryPatch(object{
			"metadata": object{"resourceVersion": seen.Metadata.ResourceVersion, "uid": seen.Metadata.UID},
			"spec":     object{"ipam": object{"pools": asObject(n.t, next)}},
		})
		if apierrors.IsConflict(err) {
			return false, nil
		}
		if err == nil {
			written = parse(n.t, raw)
		}
		return err == nil, err
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return written
}

// asObject keeps empty lists, which the fields themselves would leave out.
func asObject(t *testing.T, p pools) object {
	t.Helper()
	text, err := json.Marshal(struct {
		Requested []request `json:"requested"`
		Allocated []grant   `json:"allocated"`
	}{p.Requested, p.Allocated})
	o := object{}
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func (n testNode) awaitPools(what string, reached func(pools) bool) ciliumNode {
	n.t.Helper()
	var last pools
	defer func() {
		if n.t.Failed() {
			n.t.Logf("last seen: %+v", last)
		}
	}()
	return n.awaitCiliumNode(what, func(c ciliumNode) bool {
		last = c.Spec.IPAM.Pools
		return reached(last)
	})
}

// awaitCIDRs waits until a pool has exactly these CIDRs.
func (n testNode) awaitCIDRs(pool string, cidrs ...string) ciliumNode {
	n.t.Helper()
	slices.Sort(cidrs)
	return n.awaitPools("exactly these CIDRs", func(p pools) bool { return slices.Equal(p.cidrs(pool), cidrs) })
}

// nudge has the agent look after its pools: an address that it does not have is given back.
func (a *agentProcess) nudge(pool string) {
	a.t.Helper()
	a.do(command{Cmd: "release", Pool: pool, Addresses: addresses{IPv4: nobody}})
}

// awaitNudged waits for what the agent is to write, and nudges it meanwhile.
func (a *agentProcess) awaitNudged(n testNode, what string, reached func(pools) bool) ciliumNode {
	a.t.Helper()
	return n.awaitPools(what, func(p pools) bool {
		if reached(p) {
			return true
		}
		a.nudge(defaultPool)
		return false
	})
}

// awaitDemand waits until the agent has written this demand for IPv4.
func (a *agentProcess) awaitDemand(n testNode, pool string, want int) {
	a.t.Helper()
	a.awaitNudged(n, fmt.Sprintf("demand of %d from pool %s", want, pool), func(p pools) bool {
		return p.requested(pool).IPv4 == want
	})
}

// startOnPool starts a fresh agent's work when it has said what it needs.
func (a *agentProcess) startOnPool(n testNode, pool string, cidrs ...string) answer {
	a.t.Helper()
	id := a.send(command{Cmd: "start"})
	n.awaitPools("demand", func(p pools) bool { return p.names(pool) })
	n.setCIDRs(pool, cidrs...)
	got := a.await(id)
	if !got.OK {
		a.t.Fatalf("start: %+v", got)
	}
	return got
}

// state is what the agent has in memory of a pool.
func (a *agentProcess) state(pool string) rig.PoolState {
	a.t.Helper()
	for _, state := range a.do(command{Cmd: "dump"}).Pools {
		if state.Pool == pool {
			return state
		}
	}
	return rig.PoolState{}
}

// cidr is what the agent has in memory of a CIDR; ok is false where it does not have it.
func (a *agentProcess) cidr(pool, cidr string) (rig.CIDRState, bool) {
	a.t.Helper()
	for _, state := range a.state(pool).CIDRs {
		if state.CIDR == cidr {
			return state, true
		}
	}
	return rig.CIDRState{}, false
}

// awaitSeen waits until the agent has taken over a CIDR.
func (a *agentProcess) awaitSeen(pool, cidr string) {
	a.t.Helper()
	a.awaitState("the agent to have "+cidr, func() bool {
		_, known := a.cidr(pool, cidr)
		return known
	})
}

// allocateFrom allocates from a pool that is named.
func (a *agentProcess) allocateFrom(pool, prefix string, count int) []allocation {
	a.t.Helper()
	return a.do(command{Cmd: "allocate-many", Pool: pool, Prefix: prefix, Count: count}).Allocations
}

// inside says whether an allocation lies in a CIDR.
func inside(pod allocation, cidr string) bool {
	return block(cidr).within(pod.IPv4 + pod.IPv6)
}

// awaitAnswer returns the version in which the question is gone.
func (n testNode) awaitAnswer() ciliumNode {
	n.t.Helper()
	return n.awaitPools("the question to be answered", func(p pools) bool { return !p.names(question) })
}

// number compares the versions of one object.
func number(t *testing.T, c ciliumNode) int {
	t.Helper()
	version, err := strconv.Atoi(c.Metadata.ResourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	return version
}
