// Package integration tries the built binary, as a test of the product uses it: by its protocol and its kubeconfigs.
//
// CONTROLPLANE_BIN names the binary; without it these tests are skipped, since building it takes minutes.
package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// patience bounds every wait; on an idle machine the longest takes about 8 s.
const patience = 3 * time.Minute

// harness is a running control plane.
type harness struct {
	t       *testing.T
	command *exec.Cmd
	stdin   io.WriteCloser
	answers *bufio.Scanner
	ready   line
	nextID  int

	config  *rest.Config
	core    kubernetes.Interface
	dynamic dynamic.Interface
}

// line is any line that the binary says.
type line struct {
	Event   string
	Message string
	Target  string

	Server, Etcd, AdminKubeconfig, ControllerKubeconfig, Version string
	EtcdPID, ApiserverPID                                        int

	ID         int
	OK         bool
	Error      string
	Revision   int64
	Events     int64
	Claims     int
	Nodes      json.RawMessage
	Violations []finding
	Planted    []finding
}

type finding struct {
	Rule, Detail, CIDR string
	Nodes              []string
}

func binary(t *testing.T) string {
	t.Helper()
	path := os.Getenv("CONTROLPLANE_BIN")
	if path == "" {
		t.Fatal("CONTROLPLANE_BIN does not name a built controlplane binary: run `make tools`")
	}
	return path
}

// start starts a control plane on a folder and waits until it is ready.
func start(t *testing.T, data string, flags ...string) *harness {
	t.Helper()
	command := exec.Command(binary(t), append([]string{"run", "--data", data}, flags...)...)
	// Should this test die, its harness dies by its closed standard input; should the harness hang, by the clean-up.
	stdin, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	h := &harness{t: t, command: command, stdin: stdin, answers: bufio.NewScanner(stdout)}
	h.answers.Buffer(nil, 16<<20)
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	h.ready = h.await(func(l line) bool { return l.Event == "ready" })
	h.config = h.load(h.ready.AdminKubeconfig)
	h.core = kubernetes.NewForConfigOrDie(h.config)
	h.dynamic = dynamic.NewForConfigOrDie(h.config)
	return h
}

func (h *harness) load(kubeconfig string) *rest.Config {
	h.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		h.t.Fatal(err)
	}
	config.QPS = -1
	return config
}

// await reads lines until one is as wanted.
func (h *harness) await(wanted func(line) bool) line {
	h.t.Helper()
	alarm := time.AfterFunc(patience, func() { _ = h.command.Process.Kill() })
	defer alarm.Stop()
	for h.answers.Scan() {
		var l line
		if err := json.Unmarshal(h.answers.Bytes(), &l); err != nil {
			h.t.Fatalf("%v: %s", err, h.answers.Text())
		}
		if l.Event == "fatal" {
			h.t.Fatal(l.Message)
		}
		if wanted(l) {
			return l
		}
	}
	h.t.Fatalf("the control plane ended: %v", h.answers.Err())
	panic("unreachable")
}

// try sends a command and returns its answer.
func (h *harness) try(command map[string]any) line {
	h.t.Helper()
	h.nextID++
	id := h.nextID
	command["id"] = id
	text, err := json.Marshal(command)
	if err != nil {
		h.t.Fatal(err)
	}
	if _, err := h.stdin.Write(append(text, '\n')); err != nil {
		h.t.Fatal(err)
	}
	return h.await(func(l line) bool { return l.ID == id })
}

// do sends a command that must succeed.
func (h *harness) do(command map[string]any) line {
	h.t.Helper()
	answer := h.try(command)
	if !answer.OK {
		h.t.Fatalf("%v: %s", command, answer.Error)
	}
	return answer
}

func (h *harness) server(cmd, target string) {
	h.t.Helper()
	h.do(map[string]any{"cmd": cmd, "target": target})
}

// rules returns the rules that the oracle has found broken, sorted, each once.
func (h *harness) rules() []string {
	h.t.Helper()
	var rules []string
	for _, f := range h.do(map[string]any{"cmd": "oracle"}).Violations {
		rules = append(rules, f.Rule)
	}
	slices.Sort(rules)
	return slices.Compact(rules)
}

// end closes the harness's standard input and waits for its end.
func (h *harness) end() {
	h.t.Helper()
	if err := h.stdin.Close(); err != nil {
		h.t.Fatal(err)
	}
	for h.answers.Scan() { // It may still be saying something.
	}
	if err := h.command.Wait(); err != nil {
		h.t.Fatal(err)
	}
}

// eventually waits for a state.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !holds() {
		select {
		case <-ctx.Done():
			t.Fatalf("in vain: %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// gone says whether a process has ended; a zombie has, though nobody may be there to reap it.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) == syscall.ESRCH {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return os.IsNotExist(err)
	}
	_, afterName, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(afterName, "Z") || strings.HasPrefix(afterName, "X")
}
