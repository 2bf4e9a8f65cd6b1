// What the control plane offers: a verified server, RBAC, Cilium's objects, restarts on the same data, garbage
// collection.

package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

var ciliumNodes = schema.GroupVersionResource{Group: "cilium.io", Version: "v2", Resource: "ciliumnodes"}

func (h *harness) createNode(name string) *corev1.Node {
	h.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	node, err := h.core.CoreV1().Nodes().Create(h.t.Context(), node, metav1.CreateOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	return node
}

func (h *harness) deleteNode(name string) {
	h.t.Helper()
	if err := h.core.CoreV1().Nodes().Delete(h.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		h.t.Fatal(err)
	}
}

// createCiliumNode makes a CiliumNode; owner nil leaves it without one.
func (h *harness) createCiliumNode(name string, owner *corev1.Node) {
	h.t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumNode",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{},
	}}
	if owner != nil {
		object.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: owner.Name, UID: owner.UID}})
	}
	if _, err := h.dynamic.Resource(ciliumNodes).Create(h.t.Context(), object, metav1.CreateOptions{}); err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) hasCiliumNode(name string) bool {
	h.t.Helper()
	_, err := h.dynamic.Resource(ciliumNodes).Get(h.t.Context(), name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		h.t.Fatal(err)
	}
	return err == nil
}

func TestServerIsVerifiedAndPermissionsCount(t *testing.T) {
	h := start(t, t.TempDir(), "--ipv6=true")
	config, err := h.core.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "cilium-config", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if config.Data["ipam"] != "crd" || config.Data["enable-ipv4"] != "true" || config.Data["enable-ipv6"] != "true" {
		t.Fatalf("%v", config.Data)
	}

	stranger := rest.CopyConfig(h.config)
	stranger.CAData = nil
	if _, err := kubernetes.NewForConfigOrDie(stranger).Discovery().ServerVersion(); err == nil || !strings.Contains(err.Error(), "x509") {
		t.Fatalf("a client without the CA got %v", err)
	}

	controller := kubernetes.NewForConfigOrDie(h.load(h.ready.ControllerKubeconfig))
	if _, err := controller.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("a controller without a role got %v", err)
	}
	if !strings.Contains(h.ready.Version, "v1.") {
		t.Fatalf("version %q", h.ready.Version)
	}
	if answer := h.try(map[string]any{"cmd": "nonsense"}); answer.OK || answer.Error == "" {
		t.Fatalf("%+v", answer)
	}
}

func TestServersComeBackOnTheSameData(t *testing.T) {
	data := t.TempDir()
	h := start(t, data)
	h.createCiliumNode("stays", nil)
	for _, end := range []string{"kill", "stop"} {
		for _, target := range []string{"apiserver", "etcd"} {
			h.server(end, target)
			if answer := h.try(map[string]any{"cmd": end, "target": target}); answer.OK {
				t.Fatalf("%s was ended twice", target)
			}
			h.server("start", target)
			eventually(t, "the server answers after "+end+" of "+target, func() bool {
				_, err := h.dynamic.Resource(ciliumNodes).Get(t.Context(), "stays", metav1.GetOptions{})
				return err == nil
			})
		}
	}
	// The oracle has lost nothing over the restarts of etcd.
	if answer := h.do(map[string]any{"cmd": "oracle"}); len(answer.Violations) > 0 || string(answer.Nodes) != "1" {
		t.Fatalf("%+v", answer)
	}
	h.end()

	again := start(t, data)
	if again.ready.Server != h.ready.Server || !again.hasCiliumNode("stays") {
		t.Fatalf("a second run on the same folder does not continue the first: %+v", again.ready)
	}
	if answer := again.do(map[string]any{"cmd": "oracle"}); len(answer.Violations) > 0 || string(answer.Nodes) != "1" {
		t.Fatalf("%+v", answer)
	}
}

func TestCiliumNodesGoWithTheirNodes(t *testing.T) {
	h := start(t, t.TempDir())
	a, b := h.createNode("a"), h.createNode("b")
	h.createCiliumNode("a", a)
	h.createCiliumNode("b", b)
	h.createCiliumNode("unowned", nil)
	h.deleteNode("a")
	eventually(t, "the CiliumNode of a deleted Node goes", func() bool { return !h.hasCiliumNode("a") })

	// A Node that comes back under its old name is another owner.
	h.createCiliumNode("a", a)
	h.createNode("a")
	eventually(t, "the CiliumNode of the former Node goes", func() bool { return !h.hasCiliumNode("a") })

	// It works on after a restart of the server.
	h.server("kill", "apiserver")
	h.server("start", "apiserver")
	c := h.createNode("c")
	h.createCiliumNode("c", c)

	h.do(map[string]any{"cmd": "gc", "enabled": false})
	h.deleteNode("c")
	h.do(map[string]any{"cmd": "gc", "enabled": true})
	eventually(t, "what became ownerless meanwhile goes", func() bool { return !h.hasCiliumNode("c") })
	if !h.hasCiliumNode("b") || !h.hasCiliumNode("unowned") {
		t.Fatal("a CiliumNode went whose owner exists, or that has none")
	}
}

// The binaries in KUBEBUILDER_ASSETS are used when it is set. Here they are scripts that leave a trace and become ours.
func TestServersOfAssetsAreUsed(t *testing.T) {
	assets := t.TempDir()
	for name, subcommand := range map[string]string{"etcd": "etcd", "kube-apiserver": "apiserver"} {
		path := filepath.Join(assets, name)
		script := fmt.Sprintf("#!/bin/sh\ntouch %q\nexec %q %s \"$@\"\n", path+".used", binary(t), subcommand)
		if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("KUBEBUILDER_ASSETS", assets)
	h := start(t, t.TempDir())
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if _, err := os.Stat(filepath.Join(assets, name+".used")); err != nil {
			t.Fatal(err)
		}
	}
	h.end()
	for _, pid := range []int{h.ready.EtcdPID, h.ready.ApiserverPID} {
		if !gone(pid) {
			t.Fatalf("process %d still runs", pid)
		}
	}
}

func TestAFolderServesOneControlPlaneAtATime(t *testing.T) {
	data := t.TempDir()
	start(t, data)
	second := exec.Command(binary(t), "run", "--data", data)
	if _, err := second.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := second.Output()
	if err == nil || !strings.Contains(string(out), `"event":"fatal"`) || !strings.Contains(string(out), "in use") {
		t.Fatalf("%v: %s", err, out)
	}
}
