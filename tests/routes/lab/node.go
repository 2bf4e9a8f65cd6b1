// One node: its link to the router, FRR, and the daemon and reloader of frr-k8s.

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// startsWithin is how long FRR may take to listen for commands.
const startsWithin = 30 * time.Second

type node struct {
	*lab
	name      string
	addresses []string
	// router is the router of its rack; none means the BIRD.
	router string

	mutex                          sync.Mutex
	zebra, bgpd, reloader, program *exec.Cmd
}

func (n *node) folder(name string) string { return filepath.Join(home, "nodes", n.name, name) }

// newMachine makes empty folders, and a network without links.
const newMachine = `
rm -rf "$1"
mkdir -p "$1/run" "$1/conf" "$1/reload" "$1/tmp" "$1/var/frr"
echo 'service integrated-vtysh-config' > "$1/conf/vtysh.conf"
touch "$1/conf/frr.conf" "$1/conf/zebra.conf" "$1/conf/bgpd.conf"
chown -R frr:frr "$1/run" "$1/conf" "$1/var"
ip netns del "$2" 2>/dev/null || true
ip netns add "$2"
ip -n "$2" link set lo up
`

const joinNetwork = newMachine + `
ip -n "$2" link add eth0 type veth peer name "to-$2"
ip -n "$2" link set "to-$2" netns "$3"
ip -n "$3" link set "to-$2" master nodes up
shift
node=$1; shift 2
for address in "$@"; do
  case $address in *:*) nodad=nodad ;; *) nodad= ;; esac
  ip -n "$node" address add "$address" dev eth0 $nodad
done
ip -n "$node" link set eth0 up
`

// join gives the node its link and empty folders.
func (n *node) join() error {
	arguments := append([]string{"sh", "-ec", joinNetwork, "sh", n.folder(""), n.name, n.routerNetwork()}, n.addresses...)
	return run(arguments...)
}

// inside is a command that sees the files of this node at the usual paths, in the network of the machine.
func (n *node) inside(command ...string) []string {
	const binds = `mount --bind "$1/run" /run/frr && mount --bind "$1/conf" /etc/frr &&
mount --bind "$1/reload" /etc/frr_reloader && mount --bind "$1/var" /var/tmp && shift && exec "$@"`
	return append([]string{"unshare", "--mount", "sh", "-ec", binds, "sh", n.folder("")}, command...)
}

// inNetwork is the same in the network of the node.
func (n *node) inNetwork(command ...string) []string {
	return append([]string{"ip", "netns", "exec", n.name}, n.inside(command...)...)
}

// routerNetwork is the network of its router.
func (n *node) routerNetwork() string {
	if n.router == "" {
		return "router"
	}
	return n.router
}

// startDaemons starts zebra and bgpd, and lets them load frr.conf.
func (n *node) startDaemons(ofBGP ...string) (err error) {
	log := n.name + "-frr.log"
	if n.zebra, err = n.spawn(log, nil, n.inNetwork("/usr/lib/frr/zebra", "-A", "127.0.0.1", "-P", "0")...); err != nil {
		return err
	}
	if err := n.listens("zebra"); err != nil {
		return err
	}
	bgpd := n.inNetwork(append([]string{"/usr/lib/frr/bgpd", "-A", "127.0.0.1", "-P", "0"}, ofBGP...)...)
	if n.bgpd, err = n.spawn(log, nil, bgpd...); err != nil {
		return err
	}
	if err := n.listens("bgpd"); err != nil {
		return err
	}
	return run(n.inside("vtysh", "-b")...)
}

// startFRR starts zebra and bgpd as frr-k8s does: bgpd does not listen, and starts with the configuration of the last
// reload. The reloader belongs to them.
func (n *node) startFRR() error {
	if err := n.startDaemons("-p", "0"); err != nil {
		return err
	}
	// It writes to /tmp/current.conf.
	script := `mount --bind "$1" /tmp && shift && exec "$@"`
	text, err := os.ReadFile(n.lab.reloader)
	if err != nil {
		return err
	}
	copied := n.folder("reloader.sh")
	if err := os.WriteFile(copied, text, 0o755); err != nil {
		return err
	}
	reloader := n.inside("sh", "-ec", script, "sh", n.folder("tmp"), "bash", copied)
	n.reloader, err = n.spawn(n.name+"-reloader.log", nil, reloader...)
	return err
}

// listens waits until a daemon of FRR takes commands.
func (n *node) listens(daemon string) error {
	for limit := time.Now().Add(startsWithin); time.Now().Before(limit); time.Sleep(20 * time.Millisecond) {
		if run(n.inside("vtysh", "-d", daemon, "-c", "show version")...) == nil {
			return nil
		}
	}
	return errors.New(daemon + " of node " + n.name + " does not listen")
}

func (n *node) killFRR() error {
	kill(n.reloader)
	kill(n.bgpd)
	kill(n.zebra)
	n.reloader, n.bgpd, n.zebra = nil, nil, nil
	return nil
}

// startDaemon starts the daemon of frr-k8s. It talks to the API server in the network of the machine, and to FRR by files.
func (n *node) startDaemon() (err error) {
	arguments := n.inside(n.daemon, "--node-name", n.name, "--namespace", n.namespace, "--metrics-bind-address", "0")
	n.program, err = n.spawn(n.name+"-daemon.log", []string{"KUBECONFIG=" + n.kubeconfig}, arguments...)
	return err
}

func (n *node) killDaemon() error {
	kill(n.program)
	n.program = nil
	return nil
}

// stop cuts the power. The files of the node are lost.
func (n *node) stop() error {
	if err := n.link(false); err != nil {
		return err
	}
	return errors.Join(n.killDaemon(), n.killFRR())
}

// link plugs the cable of the node in or out. The router sees that at once only if it looks at the port.
func (n *node) link(up bool) error {
	state := "down"
	if up {
		state = "up"
	}
	return run("ip", "-n", n.routerNetwork(), "link", "set", "to-"+n.name, state)
}

// add gives the node an address, as a pod on it has.
func (n *node) add(address string) error {
	return run("ip", "-n", n.name, "address", "add", address, "dev", "lo")
}
