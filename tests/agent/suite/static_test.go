// The modes cluster-pool and kubernetes: an agent takes its pod CIDRs at its start, and nothing afterwards.

package suite

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	clusterPool    = "--ipam=cluster-pool"
	kubernetesMode = "--ipam=kubernetes"
)

// newStaticNode makes a Node for an agent in the modes cluster-pool and kubernetes.
func newStaticNode(t *testing.T, internalIPs ...string) testNode {
	t.Helper()
	// The behaviour of earlier agents in these modes is known from their code alone.
	if !cilium.static {
		t.Skip("the agent of this release is not run in the modes cluster-pool and kubernetes")
	}
	return newNode(t, internalIPs...)
}

// setPodCIDRs writes the podCIDRs of the CiliumNode.
func (n testNode) setPodCIDRs(cidrs ...string) {
	n.t.Helper()
	n.patch(object{"spec": object{"ipam": object{"podCIDRs": cidrs}}})
}

// setNodePodCIDRs writes those of the Node, which the API server allows once.
func (n testNode) setNodePodCIDRs(cidrs ...string) error {
	return n.patchNode(object{"spec": object{"podCIDR": cidrs[0], "podCIDRs": cidrs}})
}

func (n testNode) patchNode(change object) error {
	body, err := json.Marshal(change)
	if err == nil {
		_, err = n.kube.CoreV1().Nodes().Patch(n.t.Context(), n.name, types.MergePatchType, body, metav1.PatchOptions{})
	}
	return err
}

// awaitExists waits for the CiliumNode.
func (n testNode) awaitExists() ciliumNode {
	n.t.Helper()
	return n.awaitCiliumNode("the CiliumNode", func(ciliumNode) bool { return true })
}

// fill takes all that is left, and returns it.
func (a *agentProcess) fill(prefix string) []allocation {
	a.t.Helper()
	got := a.call(command{Cmd: "allocate-many", Prefix: prefix, Count: 64})
	if got.OK {
		a.t.Errorf("more than %d pods got an address", len(got.Allocations))
	}
	return got.Allocations
}

// In mode cluster-pool the agent makes its CiliumNode and waits for a CIDR of each family. It uses the first of each.
func TestStaticClusterPoolTakesTheFirstCIDRs(t *testing.T) {
	n := newStaticNode(t, "192.0.2.81", "2001:db8::81")
	a := n.agent(clusterPool, "--ipv4", "--ipv6", "--health=false")
	start := a.send(command{Cmd: "start"})
	n.awaitExists()
	n.setPodCIDRs("10.91.0.0/28")
	a.expectEventWith("waiting", func(e event) bool { return sameText(e.Details["error"], "IPv6") })
	n.setPodCIDRs("10.91.0.0/28", "10.91.1.0/28", "fd00:91::/124", "fd00:91:1::/124")
	if got := a.await(start); !got.OK {
		t.Fatalf("%+v", got)
	}
	pods := a.fill("ns/p")
	// The first and the last address are nobody's, and the router has one.
	if len(pods) != 13 {
		t.Errorf("%d pods", len(pods))
	}
	for _, pod := range pods {
		if !block("10.91.0.0/28").within(pod.IPv4) || !block("fd00:91::/124").within(pod.IPv6) {
			t.Errorf("%+v", pod)
		}
	}
}

// What changes later has no effect before the next start; then the order of the list decides, and pods outside the first
// CIDR are lost.
func TestStaticClusterPoolIgnoresChanges(t *testing.T) {
	n := newStaticNode(t, "192.0.2.82")
	const first, second = "10.92.0.0/28", "10.92.1.0/28"
	a := n.agent(clusterPool, "--ipv4", "--health=false")
	start := a.send(command{Cmd: "start"})
	n.awaitExists()
	n.setPodCIDRs(first)
	before := a.await(start)
	pods := a.allocateMany("ns/p", 2)
	n.setPodCIDRs(first, second)
	n.label("rack", "r1")
	n.awaitCiliumNode("label rack", func(c ciliumNode) bool { return c.Metadata.Labels["rack"] == "r1" })
	if more := a.fill("ns/q"); len(more) != 11 {
		t.Errorf("%d more pods", len(more))
	}
	n.setPodCIDRs(second, first)
	n.label("rack", "r2")
	seen := n.awaitCiliumNode("label rack", func(c ciliumNode) bool { return c.Metadata.Labels["rack"] == "r2" })
	if !slices.Equal(seen.Spec.IPAM.PodCIDRs, []string{second, first}) {
		t.Errorf("the agent has changed podCIDRs to %v", seen.Spec.IPAM.PodCIDRs)
	}
	a.release("ns/q0")
	if got := a.allocate("ns/again"); !block(first).within(got.IPv4) {
		t.Errorf("%+v", got)
	}
	a.kill()

	b := n.agent(clusterPool, "--ipv4", "--health=false")
	after := b.do(restart(before, pods...))
	if len(after.Lost) != len(pods) || !block(second).within(after.Router.IPv4) {
		t.Errorf("%+v", after)
	}
	b.kill()
	n.setPodCIDRs(first, second)
	c := n.agent(clusterPool, "--ipv4", "--health=false")
	if after := c.do(restart(before, pods...)); len(after.Lost) != 0 || *after.Router != *before.Router {
		t.Errorf("%+v", after)
	}
}

// In mode kubernetes the agent waits for the pod CIDRs of its Node, which can be set once, and copies them to its
// CiliumNode, over whatever is there.
func TestStaticKubernetesTakesThoseOfTheNode(t *testing.T) {
	n := newStaticNode(t, "192.0.2.83", "2001:db8::83")
	a := n.agent(kubernetesMode, "--ipv4", "--ipv6", "--health=false")
	start := a.send(command{Cmd: "start"})
	a.expectEvent("waiting")
	if err := n.setNodePodCIDRs("10.93.0.0/28", "fd00:93::/124"); err != nil {
		t.Fatal(err)
	}
	if got := a.await(start); !got.OK || !block("10.93.0.0/28").within(got.Router.IPv4) || !block("fd00:93::/124").within(got.Router.IPv6) {
		t.Fatalf("%+v", got)
	}
	whole := []string{"10.93.0.0/28", "fd00:93::/124"}
	n.awaitCiliumNode("podCIDRs", func(c ciliumNode) bool { return slices.Equal(c.Spec.IPAM.PodCIDRs, whole) })
	n.setPodCIDRs("10.93.0.0/28", "fd00:93::/124", "10.93.1.0/28")
	n.label("rack", "r1")
	n.awaitCiliumNode("its own podCIDRs", func(c ciliumNode) bool {
		return c.Metadata.Labels["rack"] == "r1" && slices.Equal(c.Spec.IPAM.PodCIDRs, whole)
	})
	for _, change := range [][]string{{"10.93.1.0/28", "fd00:93::/124"}, {"10.93.0.0/28"}, {"10.93.0.0/28", "fd00:93::/124", "10.93.1.0/28"}} {
		if err := n.setNodePodCIDRs(change...); !apierrors.IsInvalid(err) {
			t.Errorf("the server's answer to %v: %v", change, err)
		}
	}
}

// Annotations count where the agent writes them too, and where the Node itself has no pod CIDRs.
func TestStaticKubernetesAnnotations(t *testing.T) {
	for i, c := range []struct {
		name      string
		keys      [2]string
		obeyed    bool
		nodeCIDRs []string
	}{
		{"new names", [2]string{"network.cilium.io/ipv4-pod-cidr", "network.cilium.io/ipv6-pod-cidr"}, true, nil},
		{"old names", [2]string{"io.cilium.network.ipv4-pod-cidr", "io.cilium.network.ipv6-pod-cidr"}, true, nil},
		{"beside the Node's own", [2]string{"network.cilium.io/ipv4-pod-cidr", "network.cilium.io/ipv6-pod-cidr"}, true,
			[]string{"10.94.200.0/28", "fd00:94:200::/124"}},
		{"without the option", [2]string{"network.cilium.io/ipv4-pod-cidr", "network.cilium.io/ipv6-pod-cidr"}, false, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newStaticNode(t, "192.0.2.84", "2001:db8::84")
			v4, v6 := fmt.Sprintf("10.94.%d.0/28", i), fmt.Sprintf("fd00:94:%d::/124", i)
			if err := n.patchNode(object{"metadata": object{"annotations": object{c.keys[0]: v4, c.keys[1]: v6}}}); err != nil {
				t.Fatal(err)
			}
			want := []string{v4, v6}
			if c.nodeCIDRs != nil {
				want = c.nodeCIDRs
				if err := n.setNodePodCIDRs(want...); err != nil {
					t.Fatal(err)
				}
			}
			a := n.agent(kubernetesMode, "--ipv4", "--ipv6", fmt.Sprintf("--annotate-k8s-node=%t", c.obeyed))
			start := a.send(command{Cmd: "start"})
			if !c.obeyed {
				a.expectEvent("waiting")
				return
			}
			if got := a.await(start); !got.OK || !block(want[0]).within(got.Router.IPv4) || !block(want[1]).within(got.Router.IPv6) {
				t.Errorf("%+v", got)
			}
		})
	}
}
