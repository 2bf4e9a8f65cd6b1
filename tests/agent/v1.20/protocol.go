// The protocol: one JSON object per line, commands on standard input, answers and events on standard output. All ours.

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
)

// maxLine bounds one command. A start that restores 4096 endpoints of both families takes about 500 kB.
const maxLine = 4 << 20

// addresses is one address of each family; a family that is absent is empty.
type addresses struct {
	IPv4 string `json:"ipv4,omitempty"`
	IPv6 string `json:"ipv6,omitempty"`
}

// allocation is what an owner holds.
type allocation struct {
	Owner string `json:"owner"`
	addresses
}

// loss is an endpoint that could not be restored.
type loss struct {
	Owner string `json:"owner"`
	Error string `json:"error"`
}

// command is any command; a field that the named command does not use is ignored.
type command struct {
	ID  json.RawMessage `json:"id"`
	Cmd string          `json:"cmd"`

	Owner  string `json:"owner"`
	Prefix string `json:"prefix"`
	Count  int    `json:"count"`
	addresses

	Restore []allocation `json:"restore"`
	Router  addresses    `json:"router"`
	Health  addresses    `json:"health"`
	Ingress addresses    `json:"ingress"`

	err error
}

// answer is the answer to one command.
type answer struct {
	ID    json.RawMessage `json:"id"`
	OK    bool            `json:"ok"`
	Error string          `json:"error,omitempty"`

	addresses
	Allocations []allocation `json:"allocations,omitempty"`
	Status      string       `json:"status,omitempty"`

	Router   *addresses   `json:"router,omitempty"`
	Health   *addresses   `json:"health,omitempty"`
	Ingress  *addresses   `json:"ingress,omitempty"`
	Restored []allocation `json:"restored,omitempty"`
	Lost     []loss       `json:"lost,omitempty"`
}

// event is something that happened without being asked for.
type event struct {
	Event   string         `json:"event"`
	Message string         `json:"message"`
	Details map[string]any `json:"details,omitempty"`
}

// answers writes lines, each whole, from any goroutine.
type answers struct {
	mu  sync.Mutex
	enc *json.Encoder
}

func newAnswers(w io.Writer) *answers {
	return &answers{enc: json.NewEncoder(w)}
}

func (a *answers) write(line any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.enc.Encode(line); err != nil {
		// Nobody reads the answers any more, as if standard input had been closed.
		os.Exit(0)
	}
}

// maxQueued bounds the commands that wait for their turn. Reading stops when they are this many, and the end of input
// is not seen until one is carried out; a client that waits for answers has one or two.
const maxQueued = 1024

// readCommands yields the commands of r in order. The end of r ends the process at once, as a kill would: a command
// under way, a start that waits for addresses above all, is not waited for.
func readCommands(r io.Reader) <-chan command {
	commands := make(chan command, maxQueued)
	go func() {
		scanner := bufio.NewScanner(r)
		scanner.Buffer(make([]byte, 0, 64<<10), maxLine)
		for scanner.Scan() {
			var c command
			if err := json.Unmarshal(scanner.Bytes(), &c); err != nil {
				c.err = fmt.Errorf("not a command: %w", err)
			}
			commands <- c
		}
		if err := scanner.Err(); err != nil {
			fmt.Fprintln(os.Stderr, "agent-1.20: standard input:", err)
			os.Exit(2)
		}
		os.Exit(0)
	}()
	return commands
}
