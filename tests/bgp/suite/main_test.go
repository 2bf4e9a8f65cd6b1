// What all tests share: the API server and the programs.

package suite

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"nodeipam.io/tests/agent/rig/controlplane"
)

// What TestMain finds out for all tests.
var (
	agentBinary      string
	peerBinary       string
	ipamBinary       string
	controllerBinary string
	// version is the patch release of Cilium, and crds the flags that install its CRDs.
	version string
	crds    []string
	cilium  release
	// shared is the cluster of all tests but those that run a controller.
	shared cluster
)

// cluster is an API server.
type cluster struct {
	kubeconfig string
	client     *rest.Config
}

// startCluster starts an API server with all CRDs of Cilium, and more if flags ask for it.
func startCluster(flags ...string) (c cluster, stop func(), err error) {
	flags = append(append([]string{"--cilium-config=false"}, crds...), flags...)
	if c.kubeconfig, stop, err = controlplane.Start(version, flags...); err != nil {
		return c, nil, err
	}
	if c.client, err = clientcmd.BuildConfigFromFlags("", c.kubeconfig); err != nil {
		stop()
		return c, nil, err
	}
	// Tests run side by side and poll.
	c.client.QPS, c.client.Burst = 1000, 1000
	return c, stop, nil
}

func TestMain(m *testing.M) {
	stop, err := prepare()
	if err != nil {
		fmt.Fprintln(os.Stderr, "BGP tests:", err)
		os.Exit(1)
	}
	code := m.Run()
	stop()
	os.Exit(code)
}

func prepare() (stop func(), err error) {
	name := os.Getenv("BGP")
	var known bool
	if cilium, known = releases[name]; !known {
		return nil, fmt.Errorf("BGP must name the release of Cilium: one of %v", slices.Sorted(maps.Keys(releases)))
	}
	if agentBinary, err = program("BGP_BIN", "build/bin/bgp-"+name); err != nil {
		return nil, err
	}
	if peerBinary, err = program("PEER_BIN", "build/bin/bgp-peer"); err != nil {
		return nil, err
	}
	if ipamBinary, err = program("IPAM_BIN", "build/bin/agent-1.17"); err != nil {
		return nil, err
	}
	if controllerBinary, err = program("CONTROLLER_BIN", "target/debug/cilium-node-ipam"); err != nil {
		return nil, err
	}
	var folder string
	if version, folder, err = ciliumModule("../v" + name); err != nil {
		return nil, err
	}
	for _, each := range []string{"v2", "v2alpha1"} {
		crds = append(crds, "--crds", filepath.Join(folder, each))
	}
	shared, stop, err = startCluster()
	return stop, err
}

// program is the one that the variable names, else that of the path in the repository.
func program(variable, name string) (string, error) {
	path := os.Getenv(variable)
	if path == "" {
		var err error
		if path, err = filepath.Abs("../../../" + name); err != nil {
			return "", err
		}
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s is not built, see tests/bgp/README.md: %w", name, err)
	}
	return path, nil
}

// ciliumModule is the release that the program in the folder is built from, and the folder of its CRDs.
func ciliumModule(folder string) (version, crds string, err error) {
	list := exec.Command("go", "list", "-m", "-f", "{{.Version}} {{.Dir}}", "github.com/cilium/cilium")
	list.Dir = folder
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return "", "", fmt.Errorf("asking for the module of Cilium in %s: %w", folder, err)
	}
	version, module, found := strings.Cut(strings.TrimSpace(string(out)), " ")
	if !found || module == "" {
		return "", "", fmt.Errorf("the module of Cilium in %s is not downloaded: build the program first", folder)
	}
	return version, filepath.Join(module, "pkg/k8s/apis/cilium.io/client/crds"), nil
}
