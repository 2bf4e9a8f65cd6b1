// The cluster that an agent runs in.

package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"nodeipam.io/tests/agent/rig/controlplane"
)

// patience bounds every wait for a state. The agent itself looks for addresses every 5 s, some write their use every
// 15 s, and the machine may be loaded.
const patience = 3 * time.Minute

// What TestMain finds out for all tests.
var (
	agentBinary string
	kubeconfig  string
	clientConf  *rest.Config
	cilium      release
)

func TestMain(m *testing.M) {
	stop, err := prepare()
	if err != nil {
		fmt.Fprintln(os.Stderr, "agent tests:", err)
		os.Exit(1)
	}
	code := m.Run()
	stop()
	os.Exit(code)
}

func prepare() (stop func(), err error) {
	name := os.Getenv("AGENT")
	var known bool
	if cilium, known = releases[name]; !known {
		return nil, fmt.Errorf("AGENT must name the release of the agent: one of %v", sortedKeys(releases))
	}
	if agentBinary = os.Getenv("AGENT_BIN"); agentBinary == "" {
		if agentBinary, err = filepath.Abs("../../../build/bin/agent-" + name); err != nil {
			return nil, err
		}
	}
	if _, err := os.Stat(agentBinary); err != nil {
		return nil, fmt.Errorf("the agent is not built, see tests/agent/README.md: %w", err)
	}
	crds := cilium
	if other := os.Getenv("AGENT_CRDS"); other != "" {
		if crds, known = releases[other]; !known {
			return nil, fmt.Errorf("AGENT_CRDS must be one of %v", sortedKeys(releases))
		}
	}
	return startControlPlane(crds.version)
}

// startControlPlane sets kubeconfig; stop ends the servers and removes their data.
func startControlPlane(crds string) (stop func(), err error) {
	if kubeconfig, stop, err = controlplane.Start(crds); err != nil {
		return nil, err
	}
	if clientConf, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		stop()
		return nil, err
	}
	// Tests run side by side and poll.
	clientConf.QPS, clientConf.Burst = 1000, 1000
	return stop, nil
}

// ciliumNode is what the tests look at in a CiliumNode.
type ciliumNode struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		IPAM struct {
			Pool        map[string]entry `json:"pool"`
			PodCIDRs    []string         `json:"podCIDRs"`
			MinAllocate int              `json:"min-allocate"`
			Pools       pools            `json:"pools"`
		} `json:"ipam"`
	} `json:"spec"`
	Status struct {
		IPAM struct {
			Used       map[string]entry  `json:"used"`
			ReleaseIPs map[string]string `json:"release-ips"`
		} `json:"ipam"`
	} `json:"status"`
}

// entry is an address in a pool, or one in use.
type entry struct {
	Owner string `json:"owner,omitempty"`
}

// used is the owner of each address that the agent reports as used; nil where it reports nothing.
func (c ciliumNode) used() map[string]string {
	if c.Status.IPAM.Used == nil {
		return nil
	}
	owners := map[string]string{}
	for ip, e := range c.Status.IPAM.Used {
		owners[ip] = e.Owner
	}
	return owners
}

func (c ciliumNode) mark(ip string) string {
	return c.Status.IPAM.ReleaseIPs[ip]
}

// testNode is one Node, seen by an administrator and by an IPAM controller. Its agent does not run yet.
type testNode struct {
	t    *testing.T
	name string
	kube kubernetes.Interface
	// ciliumNodes reaches every CiliumNode, whatever the release's type of it is.
	ciliumNodes dynamic.NamespaceableResourceInterface
}

// newNode makes a Node of a name that no other test has, and lets the test run beside others.
func newNode(t *testing.T, internalIPs ...string) testNode {
	t.Parallel()
	return newNodeAlone(t, internalIPs...)
}

// newNodeAlone is for a test that would disturb the others.
func newNodeAlone(t *testing.T, internalIPs ...string) testNode {
	resource := schema.GroupVersionResource{Group: "cilium.io", Version: "v2", Resource: "ciliumnodes"}
	n := testNode{
		t:           t,
		kube:        kubernetes.NewForConfigOrDie(clientConf),
		ciliumNodes: dynamic.NewForConfigOrDie(clientConf).Resource(resource),
	}
	nodes := n.kube.CoreV1().Nodes()
	created, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "node-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, ip := range internalIPs {
		created.Status.Addresses = append(created.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
	}
	if _, err := nodes.UpdateStatus(t.Context(), created, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	n.name = created.Name
	return n
}

func (n testNode) label(key, value string) {
	n.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value)
	if _, err := n.kube.CoreV1().Nodes().Patch(n.t.Context(), n.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		n.t.Fatal(err)
	}
}

// object is a JSON object.
type object = map[string]any

// patch writes to the CiliumNode as a controller does.
func (n testNode) patch(change object, subresources ...string) {
	n.t.Helper()
	if _, err := n.tryPatch(change, subresources...); err != nil {
		n.t.Fatal(err)
	}
}

// tryPatch may be called by any goroutine.
func (n testNode) tryPatch(change object, subresources ...string) (*unstructured.Unstructured, error) {
	body, err := json.Marshal(change)
	if err != nil {
		return nil, err
	}
	return n.ciliumNodes.Patch(n.t.Context(), n.name, types.MergePatchType, body, metav1.PatchOptions{}, subresources...)
}

// publish makes the blocks the pool of the node, and nothing else.
func (n testNode) publish(blocks ...pool) {
	n.t.Helper()
	whole := object{}
	for ip := range n.get().Spec.IPAM.Pool {
		whole[ip] = nil
	}
	for _, b := range blocks {
		for ip, e := range b {
			whole[ip] = object{"owner": e.Owner}
			if e.Owner == "" {
				whole[ip] = object{"owner": nil}
			}
		}
	}
	n.patch(object{"spec": object{"ipam": object{"pool": whole}}})
}

// own gives owners to addresses that are in the pool; an empty owner removes one.
func (n testNode) own(owners map[string]string) {
	n.t.Helper()
	change := object{}
	for ip, owner := range owners {
		change[ip] = object{"owner": owner}
		if owner == "" {
			change[ip] = object{"owner": nil}
		}
	}
	n.patch(object{"spec": object{"ipam": object{"pool": change}}})
}

// The states of an entry of status.ipam.release-ips.
const (
	marked       = "marked-for-release"
	ready        = "ready-for-release"
	doNotRelease = "do-not-release"
	released     = "released"
	noEntry      = ""
)

// setMarks writes the same entry of status.ipam.release-ips for several addresses.
func (n testNode) setMarks(state string, ips ...string) {
	n.t.Helper()
	entries := map[string]string{}
	for _, ip := range ips {
		entries[ip] = state
	}
	n.setEntries(entries)
}

// setEntries writes entries of status.ipam.release-ips; noEntry deletes one.
func (n testNode) setEntries(entries map[string]string) {
	n.t.Helper()
	change := object{}
	for ip, state := range entries {
		change[ip] = state
		if state == noEntry {
			change[ip] = nil
		}
	}
	n.patch(object{"status": object{"ipam": object{"release-ips": change}}}, "status")
}

func (n testNode) get() ciliumNode {
	n.t.Helper()
	raw, err := n.ciliumNodes.Get(n.t.Context(), n.name, metav1.GetOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	return parse(n.t, raw)
}

func (n testNode) deleteCiliumNode() {
	n.t.Helper()
	if err := n.ciliumNodes.Delete(n.t.Context(), n.name, metav1.DeleteOptions{}); err != nil {
		n.t.Fatal(err)
	}
}

func (n testNode) awaitCiliumNode(what string, reached func(ciliumNode) bool) ciliumNode {
	n.t.Helper()
	var last ciliumNode
	err := wait.PollUntilContextTimeout(n.t.Context(), 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		raw, err := n.ciliumNodes.Get(ctx, n.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		last = parse(n.t, raw)
		return reached(last), nil
	})
	if err != nil {
		n.t.Fatalf("waiting for %s: %v; last seen: pool %v, used %v, release-ips %v",
			what, err, last.Spec.IPAM.Pool, last.used(), last.Status.IPAM.ReleaseIPs)
	}
	return last
}

// awaitUsed waits until status.ipam.used says what the agent says.
func (n testNode) awaitUsed(held map[string]string) ciliumNode {
	n.t.Helper()
	return n.awaitCiliumNode(fmt.Sprintf("status.ipam.used to be %v", held), func(c ciliumNode) bool {
		return c.used() != nil && maps.Equal(c.used(), held)
	})
}

// awaitMarks waits until every address has an entry in this state.
func (n testNode) awaitMarks(state string, ips ...string) ciliumNode {
	n.t.Helper()
	return n.awaitCiliumNode(fmt.Sprintf("%v to be %q", ips, state), func(c ciliumNode) bool {
		for _, ip := range ips {
			if c.mark(ip) != state {
				return false
			}
		}
		return true
	})
}

// nobody is an address in no pool: a mark on it is the question that an agent always answers.
const nobody = "0.0.0.0"

// ping asks the agent and returns the version with its answer.
func (n testNode) ping() ciliumNode {
	n.t.Helper()
	n.setMarks(marked, nobody)
	return n.awaitMarks(doNotRelease, nobody)
}

func parse(t *testing.T, raw *unstructured.Unstructured) ciliumNode {
	t.Helper()
	var c ciliumNode
	body, err := raw.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(body, &c)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// pool is a pool or a part of one: entries by address.
type pool map[string]entry

// block lists every address of a prefix.
func block(prefix string) pool {
	addresses := pool{}
	p := netip.MustParsePrefix(prefix)
	for ip := p.Addr(); p.Contains(ip); ip = ip.Next() {
		addresses[ip.String()] = entry{}
	}
	return addresses
}

// owned is the pool with the same owner on every entry.
func (p pool) owned(owner string) pool {
	fenced := pool{}
	for ip := range p {
		fenced[ip] = entry{Owner: owner}
	}
	return fenced
}

// fence is an owner that is nobody.
const fence = "nodeipam.io/fenced"

// within says whether the address lies in the pool.
func (p pool) within(ip string) bool {
	_, found := p[ip]
	return found
}

// free are the addresses of the pool that nobody holds, in order.
func (p pool) free(held map[string]string) []string {
	left := maps.Clone(p)
	for ip := range held {
		delete(left, ip)
	}
	return sortedKeys(left)
}

// sameText compares without case: 1.20 writes the same errors in lower case.
func sameText(text, part string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(part))
}
