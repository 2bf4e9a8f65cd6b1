// What a cluster with Cilium in crd mode has: Cilium's CRDs, the ConfigMap cilium-config, and further manifests.

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

const (
	// ciliumVersion is the release whose CRDs are installed unless a flag says otherwise.
	ciliumVersion = "v1.20.2"
	ciliumModule  = "github.com/cilium/cilium"
	ciliumCRDs    = "pkg/k8s/apis/cilium.io/client/crds"

	fieldManager = "controlplane"
)

// crdKind is the kind whose objects make others possible.
var crdKind = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}

// ciliumCRDFiles are the CRDs that a controller beside Cilium reads or writes, and the folders of Cilium's module in
// which they lie.
var ciliumCRDFiles = []struct {
	folder, name string
	// optional says that older releases have no such CRD.
	optional bool
}{
	{folder: "v2", name: "ciliumnodes.yaml"},
	{folder: "v2", name: "ciliumendpoints.yaml"},
	{folder: "v2alpha1", name: "ciliumpodippools.yaml", optional: true},
	{folder: "v2", name: "ciliumnodeconfigs.yaml", optional: true},
}

// ciliumCRDPaths finds the CRDs, in the folder of the administrator if there is one.
func ciliumCRDPaths(ctx context.Context, folder, version, scratch string) ([]string, error) {
	module := ""
	if folder == "" {
		var err error
		if module, err = ciliumModuleFolder(ctx, version, scratch); err != nil {
			return nil, err
		}
	}
	var paths []string
	for _, file := range ciliumCRDFiles {
		path := filepath.Join(folder, file.name)
		if module != "" {
			path = filepath.Join(module, ciliumCRDs, file.folder, file.name)
		}
		if _, err := os.Stat(path); file.optional && errors.Is(err, os.ErrNotExist) {
			continue
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// ciliumModuleFolder finds the Go module of a Cilium release, downloading it if need be. The module is not a dependency
// in go.mod: its requirements would change the versions with which the API server is built, and the release to be
// tested is chosen at run time. The Go checksum database vouches for the content.
func ciliumModuleFolder(ctx context.Context, version, scratch string) (string, error) {
	command := exec.CommandContext(ctx, "go", "mod", "download", "-json", ciliumModule+"@"+version)
	command.Dir = scratch // No go.mod of the caller may have a say.
	command.Env = append(os.Environ(), "GOWORK=off", "GO111MODULE=on", "GOFLAGS=")
	var complaint bytes.Buffer
	command.Stderr = &complaint
	out, err := command.Output()
	var module struct{ Dir, Error string }
	if jsonErr := json.Unmarshal(out, &module); jsonErr == nil && module.Dir != "" {
		return module.Dir, nil
	}
	return "", fmt.Errorf("getting %s@%s from the Go module proxy: %v: %s%s (--cilium-crds DIR takes the CRDs from a folder)",
		ciliumModule, version, err, module.Error, complaint.String())
}

// installer writes objects to the API server.
type installer struct {
	dynamic dynamic.Interface
	core    kubernetes.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
}

func newInstaller(config *rest.Config) (*installer, error) {
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	found, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(found))
	return &installer{dynamic: dynamicClient, core: core, mapper: mapper}, nil
}

// applyFiles applies every object in the YAML files and returns when the CRDs among them are served.
func (i *installer) applyFiles(ctx context.Context, files []string) error {
	for _, file := range files {
		objects, err := readObjects(file)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for _, object := range objects {
			if err := i.apply(ctx, object); err != nil {
				return fmt.Errorf("%s: %s %s: %w", file, object.GetKind(), object.GetName(), err)
			}
		}
	}
	return nil
}

// yamlFiles lists the YAML files of a folder, in order of their names; the path of a file yields that file.
func yamlFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	files, err := filepath.Glob(filepath.Join(path, "*.yaml"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s has no *.yaml file", path)
	}
	return files, err
}

func readObjects(file string) ([]*unstructured.Unstructured, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096); ; {
		object := &unstructured.Unstructured{}
		switch err := decoder.Decode(&object.Object); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, err
		case len(object.Object) > 0: // An empty document lies between two separators.
			objects = append(objects, object)
		}
	}
}

func (i *installer) apply(ctx context.Context, object *unstructured.Unstructured) error {
	kind := object.GroupVersionKind()
	mapping, err := i.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		i.mapper.Reset() // Its CRD may have come since.
		mapping, err = i.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	if err != nil {
		return err
	}
	var target dynamic.ResourceInterface = i.dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		namespace := object.GetNamespace()
		if namespace == "" {
			namespace = metav1.NamespaceDefault
		}
		if err := i.ensureNamespace(ctx, namespace); err != nil {
			return err
		}
		target = i.dynamic.Resource(mapping.Resource).Namespace(namespace)
	}
	options := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
	if _, err := target.Apply(ctx, object.GetName(), object, options); err != nil {
		return err
	}
	if kind.GroupKind() == crdKind {
		return i.awaitServed(ctx, object.GetName(), target)
	}
	return nil
}

// awaitServed returns when the CRD is established and each of its served versions can be listed; the server takes
// a moment from the one to the other.
func (i *installer) awaitServed(ctx context.Context, name string, crds dynamic.ResourceInterface) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		err := i.served(ctx, name, crds)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it is not served: %w", err)
		case <-time.After(probePause):
		}
	}
}

func (i *installer) served(ctx context.Context, name string, crds dynamic.ResourceInterface) error {
	crd, err := crds.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	established := false
	for _, entry := range conditions {
		condition, _ := entry.(map[string]any)
		established = established || condition["type"] == "Established" && condition["status"] == "True"
	}
	if !established {
		return fmt.Errorf("not established: %v", conditions)
	}
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, entry := range versions {
		version, _ := entry.(map[string]any)
		if version["served"] != true {
			continue
		}
		resource := schema.GroupVersionResource{Group: group, Version: fmt.Sprint(version["name"]), Resource: plural}
		if _, err := i.dynamic.Resource(resource).List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
			return err
		}
	}
	return nil
}

// ensureNamespace makes the namespace unless it is there; the server makes kube-system itself, a moment after it is
// ready.
func (i *installer) ensureNamespace(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := i.core.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// families says which address families the agents run.
type families struct{ ipv4, ipv6 bool }

// ensureCiliumConfig makes the ConfigMap that Cilium's installation makes for this mode with native routing. One that
// is there stays: a test may have changed it before a restart.
func (i *installer) ensureCiliumConfig(ctx context.Context, f families, ipam string) error {
	data := map[string]string{
		"ipam":                             ipam,
		"enable-ipv4":                      fmt.Sprint(f.ipv4),
		"enable-ipv6":                      fmt.Sprint(f.ipv6),
		"routing-mode":                     "native",
		"auto-direct-node-routes":          "true",
		"enable-endpoint-routes":           "true",
		"enable-endpoint-health-checking":  "true",
		"enable-health-checking":           "true",
		"enable-ipv4-masquerade":           fmt.Sprint(f.ipv4),
		"enable-ipv6-masquerade":           fmt.Sprint(f.ipv6),
		"enable-bpf-masquerade":            "true",
		"annotate-k8s-node":                "false",
		"auto-create-cilium-node-resource": "true",
		"identity-allocation-mode":         "crd",
		"cilium-endpoint-gc-interval":      "5m0s",
		"cluster-name":                     "default",
		"cluster-id":                       "0",
		"cni-exclusive":                    "true",
		"kube-proxy-replacement":           "false",
	}
	if f.ipv4 {
		data["ipv4-native-routing-cidr"] = "10.0.0.0/8"
	}
	if f.ipv6 {
		data["ipv6-native-routing-cidr"] = "fd00::/8"
	}
	if err := i.ensureNamespace(ctx, metav1.NamespaceSystem); err != nil {
		return err
	}
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "cilium-config"}, Data: data}
	_, err := i.core.CoreV1().ConfigMaps(metav1.NamespaceSystem).Create(ctx, config, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
