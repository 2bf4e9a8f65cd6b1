// The scene of a test: a router, and nodes whose control plane talks to it.

package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

// patience bounds every wait for a state. The slowest is a session that is refused and tried again, on a busy machine.
const patience = 2 * time.Minute

// The modes of IPAM, as the option ipam has them.
const (
	multiPool      = "multi-pool"
	clusterPool    = "cluster-pool"
	kubernetesMode = "kubernetes"
	crdMode        = "crd"
)

const (
	nodeASN   = 64512
	routerASN = 64513
)

// advertised is the label by which advertisements select pools and peers select advertisements; its value is the name
// of the scene.
const advertised = "advertised"

// object is a JSON object.
type object = map[string]any

var scenes, nodes atomic.Int32

// scene is a part of the cluster that no other test touches, with a router of its own.
type scene struct {
	t       *testing.T
	cluster cluster
	name    string
	ipam    string
	objects dynamic.Interface
	kube    kubernetes.Interface
	router  *router
	nodes   []*node
}

// newScene starts a router, and lets the test run beside others. Nodes announce to it what the mode of IPAM has: the
// CIDRs of pools that carry the scene's label, and podCIDRs.
func newScene(t *testing.T, ipam string) *scene {
	t.Helper()
	t.Parallel()
	return newSceneIn(shared, t, ipam)
}

func newSceneIn(c cluster, t *testing.T, ipam string) *scene {
	t.Helper()
	s := &scene{
		t:       t,
		cluster: c,
		name:    fmt.Sprintf("scene-%d", scenes.Add(1)),
		ipam:    ipam,
		objects: dynamic.NewForConfigOrDie(c.client),
		kube:    kubernetes.NewForConfigOrDie(c.client),
		router:  startRouter(t),
	}
	s.create(bgpObject("CiliumBGPAdvertisement", "ciliumbgpadvertisements"), s.name, object{advertised: s.name}, object{
		"advertisements": []any{
			object{"advertisementType": "PodCIDR"},
			object{"advertisementType": "CiliumPodIPPool", "selector": object{"matchLabels": object{advertised: s.name}}},
			object{
				"advertisementType": "Service",
				"service":           object{"addresses": []any{"LoadBalancerIP"}},
				"selector":          object{"matchLabels": object{advertised: s.name}},
			},
		},
	})
	family := func(afi string) object {
		return object{"afi": afi, "safi": "unicast", "advertisements": object{"matchLabels": object{advertised: s.name}}}
	}
	s.create(bgpObject("CiliumBGPPeerConfig", "ciliumbgppeerconfigs"), s.name, nil, object{
		"transport": object{"peerPort": s.router.port},
		"timers":    object{"connectRetryTimeSeconds": 1, "holdTimeSeconds": 90, "keepAliveTimeSeconds": 30},
		"families":  []any{family("ipv4"), family("ipv6")},
	})
	return s
}

// kind is a kind of objects of Cilium, all of which are cluster scoped.
type kind struct {
	name     string
	resource schema.GroupVersionResource
}

func ciliumObject(name, plural, version string) kind {
	return kind{name, schema.GroupVersionResource{Group: "cilium.io", Version: version, Resource: plural}}
}

func bgpObject(name, plural string) kind { return ciliumObject(name, plural, cilium.bgpVersion) }

var (
	ciliumNode = ciliumObject("CiliumNode", "ciliumnodes", "v2")
	podIPPool  = ciliumObject("CiliumPodIPPool", "ciliumpodippools", "v2alpha1")
)

func (s *scene) create(k kind, name string, labels, spec object) {
	s.t.Helper()
	metadata := object{"name": name}
	if labels != nil {
		metadata["labels"] = labels
	}
	body := &unstructured.Unstructured{Object: object{
		"apiVersion": k.resource.GroupVersion().String(),
		"kind":       k.name,
		"metadata":   metadata,
		"spec":       spec,
	}}
	// Numbers of an unstructured object are those of JSON.
	encoded, err := json.Marshal(body.Object)
	if err == nil {
		err = body.UnmarshalJSON(encoded)
	}
	if err == nil {
		_, err = s.objects.Resource(k.resource).Create(s.t.Context(), body, metav1.CreateOptions{})
	}
	if err != nil {
		s.t.Fatalf("creating %s %s: %v", k.name, name, err)
	}
}

// tryPatch sends a merge patch, as a controller does.
func (s *scene) tryPatch(k kind, name string, change object) error {
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	_, err = s.objects.Resource(k.resource).Patch(s.t.Context(), name, types.MergePatchType, body, metav1.PatchOptions{})
	return err
}

func (s *scene) patch(k kind, name string, change object) {
	s.t.Helper()
	if err := s.tryPatch(k, name, change); err != nil {
		s.t.Fatalf("patching %s %s: %v", k.name, name, err)
	}
}

func (s *scene) delete(k kind, name string) {
	s.t.Helper()
	if err := s.objects.Resource(k.resource).Delete(s.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		s.t.Fatalf("deleting %s %s: %v", k.name, name, err)
	}
}

// pool is the name of a CiliumPodIPPool of this scene.
func (s *scene) pool(short string) string { return s.name + "-" + short }

// createPool makes a CiliumPodIPPool that is advertised.
func (s *scene) createPool(short string, spec object) {
	s.t.Helper()
	s.create(podIPPool, s.pool(short), object{advertised: s.name}, spec)
}

// ipv4 and ipv6 are specs of a CiliumPodIPPool with one family.
func ipv4(cidr string, maskSize int) object { return object{"ipv4": family(cidr, maskSize)} }
func ipv6(cidr string, maskSize int) object { return object{"ipv6": family(cidr, maskSize)} }

func family(cidr string, maskSize int) object {
	return object{"cidrs": []any{cidr}, "maskSize": maskSize}
}

// awaitRoutes waits until the router's table is exactly this: "PREFIX NODE" for each route, the node by its short name.
// The next hop of a route is the node that it is of.
func (s *scene) awaitRoutes(want ...string) {
	s.t.Helper()
	slices.Sort(want)
	var last, sessions []string
	asked := time.Now()
	s.await(fmt.Sprintf("the routes %q", want), func() bool {
		seen := s.router.table()
		last, sessions = nil, seen.Sessions
		for _, r := range seen.Routes {
			last = append(last, s.describe(r))
		}
		slices.Sort(last)
		return slices.Equal(last, want)
	}, func() string { return fmt.Sprintf("the router has %q, and sessions with %v", last, sessions) })
	s.t.Logf("%v after it was written: %q", time.Since(asked).Round(time.Millisecond), want)
}

// describe is "PREFIX NODE" where the next hop is the node's address, and tells the difference otherwise.
func (s *scene) describe(r route) string {
	name := r.Node
	hop := r.NextHop
	for _, n := range s.nodes {
		if n.address == r.Node {
			name = n.short
		}
		if n.hop(r.Prefix) == r.NextHop && n.address == r.Node {
			hop = ""
		}
	}
	if hop != "" {
		return fmt.Sprintf("%s %s via %s", r.Prefix, name, hop)
	}
	return r.Prefix + " " + name
}

// await waits for a state.
func (s *scene) await(what string, reached func() bool, state func() string) {
	s.t.Helper()
	err := wait.PollUntilContextTimeout(s.t.Context(), 20*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		return reached(), nil
	})
	if err != nil {
		s.t.Fatalf("waiting for %s: %v; %s", what, err, state())
	}
}

// node is a node of the scene. Its control plane does not run before start.
type node struct {
	scene *scene
	short string
	name  string
	// address is that of its end of the session.
	address string
	// carried is what its CiliumNode has.
	carried ipam
	agent   *process
	starts  int
}

// ipam is spec.ipam of a CiliumNode.
type ipam struct {
	podCIDRs []string
	pools    []entry
}

// entry is an entry of spec.ipam.pools.allocated.
type entry struct {
	pool  string
	cidrs []string
}

// in is an entry; the pool is named by its short name.
func (s *scene) in(pool string, cidrs ...string) entry { return entry{s.pool(pool), cidrs} }

// newNode makes the CiliumNode and the CiliumBGPNodeConfig of a node.
func (s *scene) newNode(short string) *node {
	s.t.Helper()
	n := s.configureNode(short)
	n.createCiliumNode()
	return n
}

// configureNode makes the CiliumBGPNodeConfig of a node.
func (s *scene) configureNode(short string) *node {
	s.t.Helper()
	i := nodes.Add(1)
	n := &node{
		scene: s, short: short, name: s.name + "-" + short,
		// Linux lets everybody use every address of 127.0.0.0/8.
		address: fmt.Sprintf("127.1.%d.%d", i/250, i%250+1),
	}
	s.nodes = append(s.nodes, n)
	s.create(bgpObject("CiliumBGPNodeConfig", "ciliumbgpnodeconfigs"), n.name, nil, object{
		"bgpInstances": []any{object{
			"name": "instance", "localASN": nodeASN, "routerID": n.address,
			"peers": []any{object{
				"name": "router", "peerASN": routerASN, "peerAddress": s.router.address, "localAddress": n.address,
				"peerConfigRef": object{"name": s.name},
			}},
		}},
	})
	return n
}

func (n *node) createCiliumNode() {
	n.scene.t.Helper()
	n.scene.create(ciliumNode, n.name, nil, object{"ipam": object{}})
	n.carried = ipam{}
}

// hop is the next hop that the node announces for a prefix.
func (n *node) hop(prefix string) string {
	if strings.Contains(prefix, ":") {
		return "::ffff:" + n.address // The session is one of IPv4.
	}
	return n.address
}

// start runs the control plane of the node.
func (n *node) start() {
	n.scene.t.Helper()
	n.starts++
	name := fmt.Sprintf("%s, start %d,", n.short, n.starts)
	n.agent = startProcess(n.scene.t, name, nil, agentBinary, "--kubeconfig", n.scene.cluster.kubeconfig, "--node", n.name, "--ipam", n.scene.ipam)
}

// allocate writes spec.ipam.pools.allocated: the whole list, in one merge patch.
func (n *node) allocate(entries ...entry) {
	n.scene.t.Helper()
	if err := n.write(ipam{pools: entries}); err != nil {
		n.scene.t.Fatal(err)
	}
}

// assign writes spec.ipam.podCIDRs.
func (n *node) assign(podCIDRs ...string) {
	n.scene.t.Helper()
	if err := n.write(ipam{podCIDRs: podCIDRs}); err != nil {
		n.scene.t.Fatal(err)
	}
}

// write makes this what the CiliumNode has.
func (n *node) write(content ipam) error {
	allocated := []any{}
	for _, e := range content.pools {
		allocated = append(allocated, object{"pool": e.pool, "cidrs": e.cidrs})
	}
	change := object{"podCIDRs": content.podCIDRs, "pools": object{"allocated": allocated}}
	err := n.scene.tryPatch(ciliumNode, n.name, object{"spec": object{"ipam": change}})
	if err == nil {
		n.carried = content
	}
	return err
}

// deleteCiliumNode takes the CiliumNode away, whoever runs on the node.
func (n *node) deleteCiliumNode() {
	n.scene.t.Helper()
	n.scene.delete(ciliumNode, n.name)
}

// canary is a CIDR that a test writes to see whether the control plane is still at work, and how far.
const canary = "192.0.2.0/28"

// settle returns when the control plane has carried out all that was written to the CiliumNode before. It adds a CIDR
// and takes it off again: when the router has no more of it, a whole round has been made after that write.
func (n *node) settle() {
	n.scene.t.Helper()
	before := n.carried
	with := before
	switch n.scene.ipam {
	case multiPool:
		if !n.scene.hasCanary() {
			n.scene.createPool("canary", ipv4(canary, 28))
		}
		with.pools = append(slices.Clone(before.pools), n.scene.in("canary", canary))
	default:
		with.podCIDRs = append(slices.Clone(before.podCIDRs), canary)
	}
	if err := n.write(with); err != nil {
		n.scene.t.Fatal(err)
	}
	n.awaitAnnounced(canary, true)
	if err := n.write(before); err != nil {
		n.scene.t.Fatal(err)
	}
	n.awaitAnnounced(canary, false)
}

func (s *scene) hasCanary() bool {
	_, err := s.objects.Resource(podIPPool.resource).Get(s.t.Context(), s.pool("canary"), metav1.GetOptions{})
	return err == nil
}

// awaitAnnounced waits until this node announces a prefix, or no longer does, whatever the other routes are.
func (n *node) awaitAnnounced(prefix string, wanted bool) {
	n.scene.t.Helper()
	n.scene.await(fmt.Sprintf("%s of %s to be announced: %v", prefix, n.short, wanted), func() bool {
		return slices.ContainsFunc(n.scene.router.table().Routes, func(r route) bool {
			return r.Prefix == prefix && r.Node == n.address
		}) == wanted
	}, func() string { return fmt.Sprintf("the router has %+v", n.scene.router.table()) })
}

// awaitSession waits until the router has a session with the node, or none.
func (n *node) awaitSession(wanted bool) {
	n.scene.t.Helper()
	n.scene.await(fmt.Sprintf("a session with %s: %v", n.short, wanted), func() bool {
		return slices.Contains(n.scene.router.table().Sessions, n.address) == wanted
	}, func() string { return fmt.Sprintf("the router has %+v", n.scene.router.table()) })
}

// awaitDeath waits until the control plane has ended by itself, with this in its last words.
func (n *node) awaitDeath(words string) {
	n.scene.t.Helper()
	select {
	case <-n.agent.ended:
	case <-time.After(patience):
		n.scene.t.Fatalf("%s has not ended; the router has %+v", n.short, n.scene.router.table())
	}
	if n.agent.times(words) == 0 {
		n.scene.t.Fatalf("%s ended without saying %q, but: %s", n.short, words, strings.Join(n.agent.last(20), "\n"))
	}
}

// awaitSaid waits until the control plane has said this so many times.
func (n *node) awaitSaid(words string, times int) {
	n.scene.t.Helper()
	n.scene.await(fmt.Sprintf("%s to say %q %d times", n.short, words, times), func() bool {
		return n.agent.times(words) >= times
	}, func() string { return strings.Join(n.agent.last(10), "\n") })
}
