// The oracle's self-test: each violation is written to the real store, and must be found there.

package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var nodeIPBlocks = schema.GroupVersionResource{Group: "nodeipam.io", Version: "v1alpha1", Resource: "nodeipblocks"}

func blockName(cidr string) string { return strings.ReplaceAll(cidr, "/", "-") }

func (h *harness) createClaim(cidr, node string) {
	h.t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "nodeipam.io/v1alpha1", "kind": "NodeIPBlock",
		"metadata": map[string]any{"name": blockName(cidr)},
		"spec":     map[string]any{"cidr": cidr, "pool": "p", "node": node, "nodeUID": "u", "state": "Held"},
	}}
	if _, err := h.dynamic.Resource(nodeIPBlocks).Create(h.t.Context(), object, metav1.CreateOptions{}); err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) patchClaim(cidr, spec string) {
	h.t.Helper()
	h.patch(nodeIPBlocks, blockName(cidr), fmt.Sprintf(`{"spec":{%s}}`, spec))
}

// publish replaces what a CiliumNode carries.
func (h *harness) publish(node, cidrs, pool string) {
	h.t.Helper()
	h.patch(ciliumNodes, node, fmt.Sprintf(`{"spec":{"ipam":{"podCIDRs":%s,"pool":%s}}}`, cidrs, pool))
}

func (h *harness) use(node, used string) {
	h.t.Helper()
	h.patch(ciliumNodes, node, fmt.Sprintf(`{"status":{"ipam":{"used":%s}}}`, used), "status")
}

func (h *harness) patch(resource schema.GroupVersionResource, name, patch string, subresources ...string) {
	h.t.Helper()
	_, err := h.dynamic.Resource(resource).Patch(h.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	if err != nil {
		h.t.Fatal(err)
	}
}

func TestOracleFindsEachViolationInTheStore(t *testing.T) {
	h := start(t, t.TempDir(), "--crds", "testdata")
	for _, name := range []string{"a", "b"} {
		h.createCiliumNode(name, nil)
	}
	h.createClaim("10.0.0.0/30", "a")
	h.publish("a", `["10.0.0.0/30"]`, `{"10.0.0.1":{}}`)
	h.use("a", `{"10.0.0.1":{"owner":"default/p"}}`)
	if found := h.rules(); len(found) != 0 {
		t.Fatalf("a clean history breaks %v", found)
	}

	var seen []string
	finds := func(rule string, violate func()) {
		t.Helper()
		violate()
		seen = append(seen, rule)
		slices.Sort(seen)
		if found := h.rules(); !slices.Equal(found, seen) {
			t.Fatalf("after %s the rules found broken are %v, want %v", rule, found, seen)
		}
	}
	finds("address-outside-podcidrs", func() { h.publish("b", `[]`, `{"10.9.9.9":{}}`) })
	finds("cidr-without-claim", func() { h.publish("b", `["10.9.9.8/30"]`, `{"10.9.9.9":{}}`) })
	finds("overlapping-podcidrs", func() {
		h.createClaim("10.0.0.0/29", "b")
		h.publish("b", `["10.9.9.8/30","10.0.0.0/29"]`, `{"10.9.9.9":{}}`)
	})
	finds("address-in-two-pools", func() {
		h.publish("b", `["10.9.9.8/30","10.0.0.0/29"]`, `{"10.0.0.1":{},"10.9.9.9":{}}`)
	})
	finds("used-twice", func() { h.use("b", `{"10.0.0.1":{}}`) })
	finds("agent-address-twice", func() {
		h.do(map[string]any{"cmd": "holds", "node": "a", "add": []string{"10.0.0.1"}})
		h.do(map[string]any{"cmd": "holds", "node": "b", "add": []string{"10.0.0.1"}})
	})
	finds("claim-deleted-while-carried", func() {
		if err := h.dynamic.Resource(nodeIPBlocks).Delete(t.Context(), blockName("10.0.0.0/29"), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	finds("undecodable", func() { h.patchClaim("10.0.0.0/30", `"state":"Lost"`) })
	finds("compacted", func() { h.do(map[string]any{"cmd": "compact", "behindOracle": true}) })
}

func TestPlantedFindingsAreListedApart(t *testing.T) {
	h := start(t, t.TempDir(), "--crds", "testdata")
	h.createCiliumNode("a", nil)
	h.do(map[string]any{"cmd": "allow", "rule": "cidr-without-claim", "node": "a", "cidr": "10.7.0.0/24"})
	h.publish("a", `["10.7.0.0/24"]`, `{}`)
	if answer := h.do(map[string]any{"cmd": "oracle"}); len(answer.Violations) != 0 || len(answer.Planted) != 1 {
		t.Fatalf("%+v", answer)
	}
	// A claim that cools while its CiliumNode carries its CIDR is a breach that nobody has planted; it is told at once.
	h.createClaim("10.8.0.0/24", "a")
	h.publish("a", `["10.7.0.0/24","10.8.0.0/24"]`, `{}`)
	h.patchClaim("10.8.0.0/24", `"state":"Cooling"`)
	h.await(func(l line) bool { return l.Event == "violation" })

	// A compaction that the oracle has not fallen behind of takes nothing from it.
	h.do(map[string]any{"cmd": "compact"})
	h.publish("a", `[]`, `{}`)
	if answer := h.do(map[string]any{"cmd": "oracle"}); len(answer.Violations) != 1 {
		t.Fatalf("%+v", answer)
	}
}
