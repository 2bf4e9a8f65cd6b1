// The machine that all nodes share: namespaces, the files under /run and /etc, and processes.

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// home has the files of the lab. It lies on a file system of the lab's own.
const home = "/run/lab"

type options struct {
	daemon, reloader, kubeconfig, namespace, logs, ipv4, ipv6 string
	helps                                                     bool
}

type lab struct {
	options
	mutex sync.Mutex
	nodes map[string]*node
	// of is the order in which the router got them.
	order []string
	// racks are the routers of racks.
	racks map[string]*node
}

// The usual paths show a process of a node the files of its node.
const setUp = `
mount --make-rprivate /
mount -t tmpfs none /run
mkdir -p /run/netns /run/frr /run/lab
cp --archive /etc /run/lab/etc
mount --bind /run/lab/etc /etc
mkdir -p /etc/frr_reloader /etc/frr
ip netns add router
ip -n router link set lo up
ip -n router link add nodes type bridge
ip -n router address add "$1" dev nodes
ip -n router address add "$2" dev nodes nodad
ip -n router link set nodes up
`

func newLab(options options) (*lab, error) {
	l := &lab{options: options, nodes: map[string]*node{}, racks: map[string]*node{}}
	if err := run("sh", "-ec", setUp, "sh", options.ipv4, options.ipv6); err != nil {
		return nil, err
	}
	return l, l.startRouter()
}

// start starts a node that is new, or was stopped: without its former files.
func (l *lab) start(name, router string, addresses []string) error {
	n := &node{lab: l, name: name, addresses: addresses, router: router}
	if err := n.join(); err != nil {
		return err
	}
	l.mutex.Lock()
	_, isKnown := l.nodes[name]
	l.nodes[name] = n
	if !isKnown {
		l.order = append(l.order, name)
	}
	var err error
	if router == "" {
		err = l.configureRouter()
	}
	l.mutex.Unlock()
	if err != nil {
		return err
	}
	if err := n.startFRR(); err != nil {
		return err
	}
	return n.startDaemon()
}

func (l *lab) withNode(name string, act func(*node) error) error {
	l.mutex.Lock()
	n, ok := l.nodes[name]
	l.mutex.Unlock()
	if !ok {
		return fmt.Errorf("node %s was never started", name)
	}
	n.mutex.Lock()
	defer n.mutex.Unlock()
	return act(n)
}

// spawn starts a program that runs until the lab kills it.
func (l *lab) spawn(log string, environment []string, program ...string) (*exec.Cmd, error) {
	file, err := os.OpenFile(filepath.Join(l.logs, log), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	command := exec.Command(program[0], program[1:]...)
	command.Stdout, command.Stderr = file, file
	command.Env = append(os.Environ(), environment...)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return command, command.Start()
}

// kill kills a program and all that it has started.
func kill(command *exec.Cmd) {
	if command == nil {
		return
	}
	_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
	_ = command.Wait()
}

func run(program ...string) error {
	_, err := output(program...)
	return err
}

func output(program ...string) (string, error) {
	said, err := exec.Command(program[0], program[1:]...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(program, " "), err, said)
	}
	return string(said), nil
}
