// However its starter or the supervisor itself ends, nothing of a control plane stays behind.

package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// starterEnv makes this test binary play the starter that is killed.
const starterEnv = "CONTROLPLANE_TEST_STARTER_DATA"

func TestMain(m *testing.M) {
	if data := os.Getenv(starterEnv); data != "" {
		beStarter(data)
	}
	os.Exit(m.Run())
}

// beStarter starts a control plane, tells its pid and what it says, and waits to be killed.
func beStarter(data string) {
	command := exec.Command(os.Getenv("CONTROLPLANE_BIN"), "run", "--data", data)
	if _, err := command.StdinPipe(); err != nil {
		panic(err)
	}
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	if err := command.Start(); err != nil {
		panic(err)
	}
	fmt.Printf("{\"starterOf\":%d}\n", command.Process.Pid)
	_ = command.Wait()
	os.Exit(1)
}

func TestHarnessKilled(t *testing.T) {
	binary(t)
	starter := exec.Command(os.Args[0])
	starter.Env = append(os.Environ(), starterEnv+"="+t.TempDir())
	starter.Stderr = os.Stderr
	stdout, err := starter.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := starter.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = starter.Process.Kill() })
	alarm := time.AfterFunc(patience, func() { _ = starter.Process.Kill() })
	defer alarm.Stop()

	var said struct {
		StarterOf             int
		Event                 string
		EtcdPID, ApiserverPID int
	}
	for lines := bufio.NewScanner(stdout); said.Event != "ready"; {
		if !lines.Scan() {
			t.Fatal("the control plane did not get ready")
		}
		if err := json.Unmarshal(lines.Bytes(), &said); err != nil {
			t.Fatal(err)
		}
	}
	pids := map[string]int{"supervisor": said.StarterOf, "etcd": said.EtcdPID, "apiserver": said.ApiserverPID}
	for name, pid := range pids {
		if pid == 0 || gone(pid) {
			t.Fatalf("%s (%d) does not run", name, pid)
		}
	}
	if err := starter.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = starter.Wait()
	for name, pid := range pids {
		eventually(t, name+" ends", func() bool { return gone(pid) })
	}
}

func TestServersDieWithTheSupervisor(t *testing.T) {
	h := start(t, t.TempDir())
	if err := h.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = h.command.Wait()
	for _, pid := range []int{h.ready.EtcdPID, h.ready.ApiserverPID} {
		eventually(t, "the servers end", func() bool { return gone(pid) })
	}
}

// A starter that gives up early must not leave a half-started control plane either.
func TestInputClosedDuringTheStartEndsEverything(t *testing.T) {
	command := exec.Command(binary(t), "run", "--data", t.TempDir())
	stdin, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill() })
	lines := bufio.NewScanner(stdout)
	for lines.Scan() && !strings.Contains(lines.Text(), "starting etcd") {
	}
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		if strings.Contains(lines.Text(), `"ready"`) {
			t.Fatal("it got ready without input")
		}
	}
	if err := command.Wait(); err != nil {
		t.Fatal(err)
	}
}

func TestClosedInputEndsEverything(t *testing.T) {
	h := start(t, t.TempDir())
	h.end()
	for _, pid := range []int{h.ready.EtcdPID, h.ready.ApiserverPID} {
		if !gone(pid) {
			t.Fatalf("process %d still runs", pid)
		}
	}
}
