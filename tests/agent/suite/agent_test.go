// The agent as a process.

package suite

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"nodeipam.io/tests/agent/rig"
)

type (
	command    = rig.Command
	answer     = rig.Answer
	allocation = rig.Allocation
	addresses  = rig.Addresses
)

// promptly is an update rate that lets tests of releases that obey it go fast.
const promptly = 200 * time.Millisecond

// agentProcess is an agent under test; each of its lines is read once, by whoever waits for it.
type agentProcess struct {
	t       *testing.T
	process *exec.Cmd
	stdin   io.WriteCloser
	lines   chan line
	lastID  int
	events  []event
}

// line is one line of the agent's output, and when it was read.
type line struct {
	text []byte
	at   time.Time
}

// event is an event, and when it was read.
type event struct {
	rig.Event
	at time.Time
}

// agent starts an agent of the node that publishes its use promptly. Flags that are given last win.
func (n testNode) agent(flags ...string) *agentProcess {
	n.t.Helper()
	return n.agentWith(kubeconfig, flags...)
}

// agentWith starts an agent that reaches the API server in its own way.
func (n testNode) agentWith(kubeconfig string, flags ...string) *agentProcess {
	n.t.Helper()
	a := &agentProcess{t: n.t, lines: make(chan line, 4096)}
	flags = append([]string{"--kubeconfig", kubeconfig, "--node", n.name, "--update-rate", promptly.String()}, flags...)
	a.process = exec.Command(agentBinary, flags...)
	if testing.Verbose() {
		a.process.Stderr = os.Stderr
	}
	var err error
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
		scanner.Buffer(nil, rig.MaxLine)
		for scanner.Scan() {
			a.lines <- line{text: append([]byte(nil), scanner.Bytes()...), at: time.Now()}
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

// next is the next line; ok is false when the process has ended.
func (a *agentProcess) next(waitingFor string) (line, bool) {
	a.t.Helper()
	select {
	case l, open := <-a.lines:
		return l, open
	case <-time.After(patience):
		a.t.Fatalf("no %s after %s; events: %+v", waitingFor, patience, a.events)
	}
	return line{}, false
}

// remember keeps the line if it is an event.
func (a *agentProcess) remember(l line) bool {
	e := event{at: l.at}
	if err := json.Unmarshal(l.text, &e.Event); err != nil || e.Event.Event == "" {
		return false
	}
	a.events = append(a.events, e)
	return true
}

// expectEvent waits for an event, or takes the first of those that have come already.
func (a *agentProcess) expectEvent(name string) event {
	a.t.Helper()
	return a.expectEventWith(name, func(event) bool { return true })
}

func (a *agentProcess) expectEventWith(name string, wanted func(event) bool) event {
	a.t.Helper()
	for {
		for i, e := range a.events {
			if e.Event.Event == name && wanted(e) {
				a.events = slices.Delete(a.events, i, i+1)
				return e
			}
		}
		l, open := a.next("event " + name)
		if !open {
			a.t.Fatalf("the agent ended before event %s; events: %+v", name, a.events)
		}
		if !a.remember(l) {
			a.t.Fatalf("waiting for event %s: %s", name, l.text)
		}
	}
}

func (a *agentProcess) send(c command) int {
	a.t.Helper()
	a.lastID++
	c.ID = json.RawMessage(strconv.Itoa(a.lastID))
	text, err := json.Marshal(c)
	if err == nil {
		_, err = a.stdin.Write(append(text, '\n'))
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return a.lastID
}

func (a *agentProcess) await(id int) answer {
	a.t.Helper()
	for {
		l, open := a.next(fmt.Sprintf("answer %d", id))
		if !open {
			a.t.Fatalf("the agent ended before answer %d; events: %+v", id, a.events)
		}
		if a.remember(l) {
			continue
		}
		var got answer
		if err := json.Unmarshal(l.text, &got); err != nil || string(got.ID) != strconv.Itoa(id) {
			a.t.Fatalf("waiting for answer %d: %s", id, l.text)
		}
		return got
	}
}

func (a *agentProcess) call(c command) answer {
	a.t.Helper()
	return a.await(a.send(c))
}

// do calls and wants success.
func (a *agentProcess) do(c command) answer {
	a.t.Helper()
	got := a.call(c)
	if !got.OK {
		a.t.Fatalf("%s: %+v", c.Cmd, got)
	}
	return got
}

// awaitEnd collects events until the process has ended.
func (a *agentProcess) awaitEnd() []event {
	a.t.Helper()
	for {
		l, open := a.next("end of the process")
		if !open {
			return a.events
		}
		a.remember(l)
	}
}

// startOn starts a fresh agent's work and publishes its first addresses.
func (a *agentProcess) startOn(n testNode, blocks ...pool) answer {
	a.t.Helper()
	id := a.send(command{Cmd: "start"})
	a.expectEvent("created-ciliumnode")
	n.publish(blocks...)
	got := a.await(id)
	if !got.OK {
		a.t.Fatalf("start: %+v", got)
	}
	return got
}

func (a *agentProcess) allocate(owner string) addresses {
	a.t.Helper()
	return a.do(command{Cmd: "allocate", Owner: owner}).Addresses
}

func (a *agentProcess) allocateMany(prefix string, count int) []allocation {
	a.t.Helper()
	return a.do(command{Cmd: "allocate-many", Prefix: prefix, Count: count}).Allocations
}

func (a *agentProcess) release(owner string) {
	a.t.Helper()
	a.do(command{Cmd: "release", Owner: owner})
}

// allocateWhenSeen allocates as soon as the agent has seen that it has an address to give.
func (a *agentProcess) allocateWhenSeen(owner string) addresses {
	a.t.Helper()
	var got answer
	a.awaitState("new addresses to be seen", func() bool {
		got = a.call(command{Cmd: "allocate", Owner: owner})
		return got.OK
	})
	return got.Addresses
}

func (a *agentProcess) awaitState(what string, reached func() bool) {
	a.t.Helper()
	err := wait.PollUntilContextTimeout(a.t.Context(), 20*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		return reached(), nil
	})
	if err != nil {
		a.t.Fatalf("waiting for %s: %v", what, err)
	}
}

// held is what the agent says it has allocated: owner by address.
func (a *agentProcess) held() map[string]string {
	a.t.Helper()
	dump := a.do(command{Cmd: "dump"})
	held := map[string]string{}
	for _, h := range dump.Allocations {
		held[h.IPv4+h.IPv6] = h.Owner
	}
	if len(held) != len(dump.Allocations) {
		a.t.Errorf("an address is listed twice: %+v", dump.Allocations)
	}
	return held
}

// restart is the start of the next run on the same machine: what it restores, and what the machine has kept.
func restart(before answer, pods ...allocation) command {
	c := command{Cmd: "start", Restore: pods}
	if before.Router != nil {
		c.Router = *before.Router
	}
	if before.Ingress != nil {
		c.Ingress = *before.Ingress
	}
	return c
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}
