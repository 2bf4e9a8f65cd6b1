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
	agentBinary string
	peerBinary  string
	kubeconfig  string
	clientConf  *rest.Config
	cilium      release
)

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
	if agentBinary, err = program("BGP_BIN", "bgp-"+name); err != nil {
		return nil, err
	}
	if peerBinary, err = program("PEER_BIN", "bgp-peer"); err != nil {
		return nil, err
	}
	version, crds, err := ciliumModule("../v" + name)
	if err != nil {
		return nil, err
	}
	config, stop, err := controlplane.Start(version, "--cilium-config=false",
		"--crds", filepath.Join(crds, "v2"), "--crds", filepath.Join(crds, "v2alpha1"))
	if err != nil {
		return nil, err
	}
	kubeconfig = config
	if clientConf, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		stop()
		return nil, err
	}
	// Tests run side by side and poll.
	clientConf.QPS, clientConf.Burst = 1000, 1000
	return stop, nil
}

func program(variable, name string) (string, error) {
	path := os.Getenv(variable)
	if path == "" {
		var err error
		if path, err = filepath.Abs("../../../build/bin/" + name); err != nil {
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
