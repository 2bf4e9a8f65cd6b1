// Command frr-lab is a small network for tests: a BIRD router, FRR routers of racks, and nodes that run FRR as frr-k8s runs
// it. Each node has the unmodified daemon and reloader of frr-k8s, beside zebra and bgpd in a network namespace of its own.
//
// It runs as root in mount and PID namespaces of its own (`unshare --mount --pid --fork --kill-child --mount-proc`): it lays
// a /run and an /etc of its own over those of the machine, so every program finds its files at the usual paths, and all
// processes end with it. It serves commands on standard input until that is closed.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

func main() {
	options := options{}
	flag.StringVar(&options.daemon, "daemon", "", "the program of frr-k8s's daemon")
	flag.StringVar(&options.reloader, "reloader", "", "the script of frr-k8s's reloader")
	flag.StringVar(&options.kubeconfig, "kubeconfig", "", "of the API server that the daemons follow")
	flag.StringVar(&options.namespace, "namespace", "frr-k8s-system", "the namespace of the FRRConfigurations")
	flag.StringVar(&options.logs, "logs", "", "the directory for logs")
	flag.StringVar(&options.ipv4, "ipv4", "", "the router's address with its prefix length, in the network of the nodes")
	flag.StringVar(&options.ipv6, "ipv6", "", "the same for IPv6")
	flag.BoolVar(&options.helps, "helps", false, "whether the router helps nodes to restart gracefully")
	flag.Parse()
	// Under nohup SIGHUP is ignored, also by every child, and then the shell of the reloader can't catch it. A child does not
	// inherit that a signal is caught.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	err := useSystem()
	if err == nil {
		err = serve(options)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "frr-lab:", err)
		os.Exit(1)
	}
}

// useSystem makes FRR's reloader start the python3 of the system, in a folder that exists behind the /tmp of each node. A
// python3 before it in PATH may be another program, for example that of a version manager.
func useSystem() error {
	if err := os.Setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"); err != nil {
		return err
	}
	return os.Chdir("/")
}

// command is a line of standard input.
type command struct {
	ID        int      `json:"id"`
	Cmd       string   `json:"cmd"`
	Node      string   `json:"node"`
	Addresses []string `json:"addresses"`
	Address   string   `json:"address"`
	Up        bool     `json:"up"`
	// Router is the router of a rack; none means the BIRD.
	Router string `json:"router"`
	// Configuration is that of an FRR.
	Configuration string `json:"configuration"`
}

// answer is a line of standard output.
type answer struct {
	ID      int     `json:"id"`
	OK      bool    `json:"ok"`
	Error   string  `json:"error,omitempty"`
	Routes  []route `json:"routes,omitempty"`
	Changes []event `json:"changes,omitempty"`
	// Answered says that a machine has the address that was asked for.
	Answered bool `json:"answered"`
}

func serve(options options) error {
	lab, err := newLab(options)
	if err != nil {
		return err
	}
	var mutex sync.Mutex
	encoder := json.NewEncoder(os.Stdout)
	write := func(line any) {
		mutex.Lock()
		defer mutex.Unlock()
		// Who does not read any more has closed standard input too.
		_ = encoder.Encode(line)
	}
	write(map[string]string{"event": "ready"})
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var c command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return err
		}
		go func() {
			a := answer{ID: c.ID}
			if err := lab.obey(c, &a); err != nil {
				a.Error = err.Error()
			}
			a.OK = a.Error == ""
			write(a)
		}()
	}
	return lines.Err()
}

func (l *lab) obey(c command, a *answer) (err error) {
	switch c.Cmd {
	case "start":
		return l.start(c.Node, c.Router, c.Addresses)
	case "start-router":
		return l.startRack(c.Router, c.Address, c.Configuration)
	case "stop":
		return l.withNode(c.Node, (*node).stop)
	case "kill-frr":
		return l.withNode(c.Node, (*node).killFRR)
	case "start-frr":
		return l.withNode(c.Node, (*node).startFRR)
	case "kill-daemon":
		return l.withNode(c.Node, (*node).killDaemon)
	case "start-daemon":
		return l.withNode(c.Node, (*node).startDaemon)
	case "link":
		return l.withNode(c.Node, func(n *node) error { return n.link(c.Up) })
	case "address":
		return l.withNode(c.Node, func(n *node) error { return n.add(c.Address) })
	case "table":
		if c.Router == "" {
			a.Routes, err = l.table()
		} else {
			a.Routes, err = l.tableOfRack(c.Router)
		}
		return err
	case "changes":
		a.Changes, err = l.changes()
		return err
	case "answers":
		a.Answered = l.answers(c.Router, c.Address)
		return nil
	}
	return fmt.Errorf("no such command: %q", c.Cmd)
}
