// Package controlplane starts the API server of tests/controlplane, for tests that run Cilium's own code beside it.
package controlplane

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// Start starts etcd and the API server with the CRDs of a Cilium release, and whatever else the flags of controlplane
// ask for, and returns the kubeconfig of an administrator. stop ends the servers and removes their data; they also end
// when this process does. CONTROLPLANE_BIN names the program.
func Start(ciliumVersion string, flags ...string) (kubeconfig string, stop func(), err error) {
	binary := os.Getenv("CONTROLPLANE_BIN")
	if binary == "" {
		return "", nil, errors.New("CONTROLPLANE_BIN must name the binary that is built from tests/controlplane; without an API server nothing can be tested")
	}
	data, err := os.MkdirTemp("", "agent-test-")
	if err != nil {
		return "", nil, err
	}
	server := exec.Command(binary, append([]string{"run", "--data", data, "--cilium-version", ciliumVersion}, flags...)...)
	server.Stderr = os.Stderr
	stdin, err := server.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	stdout, err := server.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := server.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		stdin.Close()
		if err := server.Wait(); err != nil {
			fmt.Fprintln(os.Stderr, "control plane:", err)
		}
		os.RemoveAll(data)
	}
	if kubeconfig, err = awaitReady(stdout); err != nil {
		stop()
		return "", nil, err
	}
	return kubeconfig, stop, nil
}

// awaitReady reads the control plane's lines up to the one that says where the API server is, and drains the rest.
func awaitReady(stdout io.Reader) (string, error) {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		var line struct {
			Event      string `json:"event"`
			Message    string `json:"message"`
			Kubeconfig string `json:"adminKubeconfig"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return "", fmt.Errorf("unexpected line %q: %w", lines.Text(), err)
		}
		switch line.Event {
		case "ready":
			go io.Copy(io.Discard, stdout)
			return line.Kubeconfig, nil
		case "fatal":
			return "", fmt.Errorf("the control plane ended: %s", line.Message)
		}
	}
	return "", errors.New("the control plane ended before it was ready")
}
