// The hand-over from one test to the next: nothing is left, or it fails.

package integration

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// renew asks for a control plane in this mode; no connection of the test may be open then.
func (h *harness) renew(ipam string) line {
	h.t.Helper()
	client := h.core.CoreV1().RESTClient().(*rest.RESTClient)
	utilnet.CloseIdleConnectionsFor(client.Client.Transport)
	return h.try(map[string]any{"cmd": "renew", "ipv6": true, "ipam": ipam, "ciliumConfig": true})
}

func TestNothingOfATestIsLeftForTheNext(t *testing.T) {
	t.Parallel()
	h := start(t, t.TempDir())
	h.createCiliumNode("a", h.createNode("a"))
	h.publish("a", `["10.0.0.0/24"]`, `{}`)
	if rules := h.rules(); !slices.Contains(rules, "cidr-without-claim") {
		t.Fatalf("nothing was found: %v", rules)
	}
	h.do(map[string]any{"cmd": "gc", "enabled": false})

	if answer := h.renew("kubernetes"); !answer.OK {
		t.Fatal(answer.Error)
	}
	if h.hasCiliumNode("a") {
		t.Error("the CiliumNode is left")
	}
	nodes, err := h.core.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil || len(nodes.Items) != 0 {
		t.Errorf("the cache of the server shows Nodes: %v, %v", nodes.Items, err)
	}
	config, err := h.core.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "cilium-config", metav1.GetOptions{})
	if err != nil || config.Data["ipam"] != "kubernetes" || config.Data["enable-ipv4"] != "false" {
		t.Errorf("cilium-config is %v, %v", config.Data, err)
	}
	if rules := h.rules(); len(rules) != 0 {
		t.Errorf("findings are left: %v", rules)
	}
	h.createCiliumNode("b", h.createNode("b"))
	h.deleteNode("b")
	eventually(t, "garbage is collected again", func() bool { return !h.hasCiliumNode("b") })
}

func TestWhatIsNotRemovedKeepsTheControlPlaneFromTheNextTest(t *testing.T) {
	t.Parallel()
	h := start(t, t.TempDir())
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "left"}}
	if _, err := h.core.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if answer := h.renew("crd"); answer.OK || !strings.Contains(answer.Error, "/registry/namespaces/left") {
		t.Fatalf("it was handed on: %v", answer)
	}
}
