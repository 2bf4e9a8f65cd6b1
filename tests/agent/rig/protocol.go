package rig

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
)

// MaxLine bounds one command or answer. A start that restores 4096 endpoints of both families takes about 500 kB.
const MaxLine = 4 << 20

// Addresses is one address of each family; a family that is absent is empty.
type Addresses struct {
	IPv4 string `json:"ipv4,omitempty"`
	IPv6 string `json:"ipv6,omitempty"`
}

// Allocation is what an owner holds.
type Allocation struct {
	Owner string `json:"owner"`
	// Pool is empty in modes without named pools, and where Cilium chooses the pool.
	Pool string `json:"pool,omitempty"`
	Addresses
}

// PoolState is what an agent in mode multi-pool knows of a pool. The demand that it has published may be older.
type PoolState struct {
	Pool  string      `json:"pool"`
	CIDRs []CIDRState `json:"cidrs,omitempty"`
	// Released are CIDRs that the agent has given back and still finds among those of its CiliumNode, or that are too
	// small for it.
	Released []string `json:"released,omitempty"`
	Needed   Demand   `json:"needed"`
}

// CIDRState is a CIDR from which an agent serves pods.
type CIDRState struct {
	CIDR  string `json:"cidr"`
	InUse int    `json:"inUse"`
	Free  int    `json:"free"`
	// Removed says that somebody has taken the CIDR away while it was in use: nothing more is allocated from it.
	Removed bool `json:"removed,omitempty"`
}

// Demand is a number of addresses of each family.
type Demand struct {
	IPv4 int `json:"ipv4,omitempty"`
	IPv6 int `json:"ipv6,omitempty"`
}

// Loss is an endpoint that could not be restored.
type Loss struct {
	Owner string `json:"owner"`
	Error string `json:"error"`
}

// Kept is what outlives an agent process on its machine, beside the pods.
type Kept struct {
	Router  Addresses `json:"router"`
	Health  Addresses `json:"health"`
	Ingress Addresses `json:"ingress"`
}

// Command is any command; a field that the named command does not use is ignored.
type Command struct {
	ID  json.RawMessage `json:"id"`
	Cmd string          `json:"cmd"`

	Owner  string `json:"owner"`
	Pool   string `json:"pool"`
	Prefix string `json:"prefix"`
	Count  int    `json:"count"`
	Addresses

	Restore []Allocation `json:"restore"`
	Hold    bool         `json:"hold"`
	Kept

	err error
}

// Answer is the answer to one command.
type Answer struct {
	ID    json.RawMessage `json:"id"`
	OK    bool            `json:"ok"`
	Error string          `json:"error,omitempty"`

	Addresses
	Pool        string       `json:"pool,omitempty"`
	Allocations []Allocation `json:"allocations,omitempty"`
	Status      string       `json:"status,omitempty"`
	Pools       []PoolState  `json:"pools,omitempty"`

	Router   *Addresses   `json:"router,omitempty"`
	Health   *Addresses   `json:"health,omitempty"`
	Ingress  *Addresses   `json:"ingress,omitempty"`
	Restored []Allocation `json:"restored,omitempty"`
	Lost     []Loss       `json:"lost,omitempty"`
}

// Event is something that happened without being asked for.
type Event struct {
	Event   string            `json:"event"`
	Message string            `json:"message"`
	Details map[string]string `json:"details,omitempty"`
}

// output writes lines, each whole, from any goroutine.
type output struct {
	mu  sync.Mutex
	enc *json.Encoder
}

func newOutput(w io.Writer) *output {
	return &output{enc: json.NewEncoder(w)}
}

func (o *output) write(line any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.enc.Encode(line); err != nil {
		// Nobody reads the answers any more, as if standard input had been closed.
		os.Exit(0)
	}
}

// maxQueued bounds the commands that wait for their turn. Reading stops when they are this many, and the end of input
// is not seen until one is carried out; a client that waits for answers has one or two.
const maxQueued = 1024

// readCommands yields the commands of r in order. The end of r ends the process at once, as a kill would: a command
// under way, a start that waits for addresses above all, is not waited for.
func readCommands(r io.Reader) <-chan Command {
	commands := make(chan Command, maxQueued)
	go func() {
		scanner := bufio.NewScanner(r)
		scanner.Buffer(make([]byte, 0, 64<<10), MaxLine)
		for scanner.Scan() {
			var c Command
			if err := json.Unmarshal(scanner.Bytes(), &c); err != nil {
				c.err = fmt.Errorf("not a command: %w", err)
			}
			commands <- c
		}
		if err := scanner.Err(); err != nil {
			fmt.Fprintln(os.Stderr, "agent: standard input:", err)
			os.Exit(2)
		}
		os.Exit(0)
	}()
	return commands
}
