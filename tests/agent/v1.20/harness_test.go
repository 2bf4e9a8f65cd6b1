// The agent as a process, and the cluster that it runs in.

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	ipamTypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/cilium/cilium/pkg/k8s/client/clientset/versioned"
)

type ciliumNode = ciliumv2.CiliumNode

const (
	// beTheAgent makes this test's own executable the agent.
	beTheAgent = "TEST_BE_THE_AGENT"
	// patience bounds every wait for a state. The agent itself looks for addresses every 5 s, with a server on a
	// loaded machine beside it.
	patience = 3 * time.Minute
)

var kubeconfig string

func TestMain(m *testing.M) {
	if os.Getenv(beTheAgent) != "" {
		main()
		return
	}
	os.Exit(runWithControlPlane(m))
}

func runWithControlPlane(m *testing.M) int {
	stop, err := startControlPlane()
	if err != nil {
		fmt.Fprintln(os.Stderr, "control plane:", err)
		return 1
	}
	defer stop()
	return m.Run()
}

// startControlPlane sets kubeconfig; stop ends the servers and removes their data.
func startControlPlane() (stop func(), err error) {
	binary := os.Getenv("CONTROLPLANE_BIN")
	if binary == "" {
		return nil, errors.New("CONTROLPLANE_BIN must name the binary that is built from tests/controlplane; without an API server nothing can be tested")
	}
	crds, err := crdsOfPinnedRelease()
	if err != nil {
		return nil, err
	}
	data, err := os.MkdirTemp("", "agent-test-")
	if err != nil {
		return nil, err
	}
	server := exec.Command(binary, "run", "--data", data, "--cilium-crds", crds)
	server.Stderr = os.Stderr
	stdin, err := server.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := server.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := server.Start(); err != nil {
		return nil, err
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
		return nil, err
	}
	return stop, nil
}

// awaitReady reads the control plane's lines up to the one that says where the API server is, and drains the rest.
func awaitReady(stdout io.Reader) (string, error) {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		var line struct {
			Event      string `json:"event"`
			Kubeconfig string `json:"adminKubeconfig"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return "", fmt.Errorf("unexpected line %q: %w", lines.Text(), err)
		}
		if line.Event == "ready" {
			go io.Copy(io.Discard, stdout)
			return line.Kubeconfig, nil
		}
	}
	return "", errors.New("ended before it was ready")
}

// crdsOfPinnedRelease is the folder of custom resource definitions in the module that this one pins.
func crdsOfPinnedRelease() (string, error) {
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/cilium/cilium").Output()
	if err != nil {
		return "", fmt.Errorf("finding Cilium's module: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(module)), "pkg/k8s/apis/cilium.io/client/crds/v2"), nil
}

// testNode is one Node, seen by an administrator and by an IPAM controller. Its agent does not run yet.
type testNode struct {
	t      *testing.T
	name   string
	kube   kubernetes.Interface
	cilium versioned.Interface
}

// newNode makes a Node of a name that no other test has, and lets the test run beside others.
func newNode(t *testing.T, internalIPs ...string) testNode {
	t.Parallel()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	n := testNode{t: t, kube: kubernetes.NewForConfigOrDie(config), cilium: versioned.NewForConfigOrDie(config)}
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

// publish writes the pool of a node as a controller does.
func (n testNode) publish(blocks ...ipamTypes.AllocationMap) {
	n.t.Helper()
	pool := ipamTypes.AllocationMap{}
	for _, b := range blocks {
		for ip, info := range b {
			pool[ip] = info
		}
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"ipam": map[string]any{"pool": pool}}})
	if err != nil {
		n.t.Fatal(err)
	}
	if _, err := n.cilium.CiliumV2().CiliumNodes().Patch(n.t.Context(), n.name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		n.t.Fatal(err)
	}
}

func (n testNode) awaitCiliumNode(what string, reached func(ciliumNode) bool) {
	n.t.Helper()
	var last *ciliumNode
	err := wait.PollUntilContextTimeout(n.t.Context(), 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		var err error
		last, err = n.cilium.CiliumV2().CiliumNodes().Get(ctx, n.name, metav1.GetOptions{})
		return err == nil && reached(*last), nil
	})
	if err != nil {
		n.t.Fatalf("waiting for %s: %v; last seen: %+v", what, err, last)
	}
}

// awaitUsed waits until status.ipam.used says what the agent says.
func (n testNode) awaitUsed(held map[string]string) {
	n.t.Helper()
	n.awaitCiliumNode(fmt.Sprintf("status.ipam.used to be %v", held), func(c ciliumNode) bool {
		for ip, owner := range held {
			if c.Status.IPAM.Used[ip].Owner != owner {
				return false
			}
		}
		return len(c.Status.IPAM.Used) == len(held)
	})
}

// block lists every address of a prefix.
func block(prefix string) ipamTypes.AllocationMap {
	pool := ipamTypes.AllocationMap{}
	p := netip.MustParsePrefix(prefix)
	for ip := p.Addr(); p.Contains(ip); ip = ip.Next() {
		pool[ip.String()] = ipamTypes.AllocationIP{}
	}
	return pool
}

// agentProcess is an agent under test; each of its lines is read once, by whoever waits for it.
type agentProcess struct {
	t       *testing.T
	process *exec.Cmd
	stdin   io.WriteCloser
	lines   chan json.RawMessage
	lastID  int
	events  []event
}

func (n testNode) startAgent(flags ...string) *agentProcess {
	n.t.Helper()
	executable, err := os.Executable()
	if err != nil {
		n.t.Fatal(err)
	}
	a := &agentProcess{t: n.t, lines: make(chan json.RawMessage, 1024)}
	a.process = exec.Command(executable, append([]string{"--kubeconfig", kubeconfig, "--node", n.name, "--update-rate", "200ms"}, flags...)...)
	a.process.Env = append(os.Environ(), beTheAgent+"=1")
	if testing.Verbose() {
		a.process.Stderr = os.Stderr
	}
	if a.stdin, err = a.process.StdinPipe(); err != nil {
		n.t.Fatal(err)
	}
	stdout, err := a.process.StdoutPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	if err := a.process.Start(); err != nil {
		n.t.Fatal(err)
	}
	go func() {
		defer close(a.lines)
		scanner := bufio.NewScanner(stdout)
		scanner.Buffer(nil, maxLine)
		for scanner.Scan() {
			a.lines <- json.RawMessage(append([]byte(nil), scanner.Bytes()...))
		}
	}()
	n.t.Cleanup(a.kill)
	return a
}

func (a *agentProcess) kill() {
	// Both fail once the process has ended, which is what is wanted.
	_ = a.process.Process.Kill()
	_ = a.process.Wait()
}

// next is the next line, which must come.
func (a *agentProcess) next(waitingFor string) json.RawMessage {
	a.t.Helper()
	select {
	case line, open := <-a.lines:
		if !open {
			a.t.Fatalf("the agent ended before %s; events: %+v", waitingFor, a.events)
		}
		return line
	case <-time.After(patience):
		a.t.Fatalf("no %s after %s; events: %+v", waitingFor, patience, a.events)
	}
	return nil
}

func (a *agentProcess) expectEvent(name string) {
	a.t.Helper()
	for {
		for i, e := range a.events {
			if e.Event == name {
				a.events = append(a.events[:i], a.events[i+1:]...)
				return
			}
		}
		line := a.next("event " + name)
		var e event
		if err := json.Unmarshal(line, &e); err != nil || e.Event == "" {
			a.t.Fatalf("waiting for event %s: %s", name, line)
		}
		a.events = append(a.events, e)
	}
}

func (a *agentProcess) send(c command) int {
	a.t.Helper()
	a.lastID++
	c.ID = json.RawMessage(strconv.Itoa(a.lastID))
	line, err := json.Marshal(c)
	if err == nil {
		_, err = a.stdin.Write(append(line, '\n'))
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return a.lastID
}

func (a *agentProcess) await(id int) answer {
	a.t.Helper()
	for {
		line := a.next(fmt.Sprintf("answer %d", id))
		var e event
		if err := json.Unmarshal(line, &e); err == nil && e.Event != "" {
			a.events = append(a.events, e)
			continue
		}
		var got answer
		if err := json.Unmarshal(line, &got); err != nil || string(got.ID) != strconv.Itoa(id) {
			a.t.Fatalf("waiting for answer %d: %s", id, line)
		}
		return got
	}
}

func (a *agentProcess) call(c command) answer {
	a.t.Helper()
	return a.await(a.send(c))
}

func (a *agentProcess) ok(got answer) {
	a.t.Helper()
	if !got.OK {
		a.t.Fatalf("%+v", got)
	}
}

// allocateWhenSeen allocates as soon as the agent has seen addresses that were added to a full pool.
func (a *agentProcess) allocateWhenSeen(owner string) {
	a.t.Helper()
	err := wait.PollUntilContextTimeout(a.t.Context(), 20*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		return a.call(command{Cmd: "allocate", Owner: owner}).OK, nil
	})
	if err != nil {
		a.t.Fatalf("new addresses were not seen: %v", err)
	}
}

// held is what the agent says it has allocated: owner by address.
func (a *agentProcess) held() map[string]string {
	a.t.Helper()
	dump := a.call(command{Cmd: "dump"})
	a.ok(dump)
	held := map[string]string{}
	for _, h := range dump.Allocations {
		held[h.IPv4+h.IPv6] = h.Owner
	}
	if len(held) != len(dump.Allocations) {
		a.t.Errorf("an address is listed twice: %+v", dump.Allocations)
	}
	return held
}
