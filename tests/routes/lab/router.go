// The router: a BIRD with a session to each node, which writes its routes into the table of its kernel.

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// route is a route of the router's table, best or not.
type route struct {
	Prefix string `json:"prefix"`
	Node   string `json:"node"`
	Via    string `json:"via"`
}

// event is a change of the router's table, with the time of its clock in seconds.
type event struct {
	At   float64 `json:"at"`
	Node string  `json:"node"`
	// Session is the router's name of the session.
	Session string `json:"session"`
	What    string `json:"what"`
	Prefix  string `json:"prefix,omitempty"`
}

const birdHead = `
log "%s" all;
timeformat log "%%s %%f";
router id %s;
protocol device {}
protocol kernel { ipv4 { export all; }; }
protocol kernel { ipv6 { export all; }; }
template bgp session { local as 64513; passive on; debug { states, routes };%s }
`

func (l *lab) birdLog() string { return filepath.Join(l.logs, "router-events.log") }

func (l *lab) startRouter() error {
	if err := l.writeRouterConfiguration(); err != nil {
		return err
	}
	_, err := l.spawn("router.log", nil, l.inRouter("bird", "-f", "-c", home+"/bird.conf", "-s", home+"/bird.ctl")...)
	return err
}

func (l *lab) inRouter(command ...string) []string {
	return append([]string{"ip", "netns", "exec", "router"}, command...)
}

// writeRouterConfiguration has a session of each family with every node. Sessions that were there before are untouched.
func (l *lab) writeRouterConfiguration() error {
	id, _, _ := strings.Cut(l.ipv4, "/")
	var text strings.Builder
	// By default BIRD helps a neighbor to restart gracefully: it keeps the routes of one that is gone for two minutes.
	helps := " graceful restart off;"
	if l.helps {
		helps = ""
	}
	fmt.Fprintf(&text, birdHead, l.birdLog(), id, helps)
	for _, name := range l.order {
		if l.nodes[name].router != "" {
			continue
		}
		for _, address := range l.nodes[name].addresses {
			address, _, _ := strings.Cut(address, "/")
			family := "ipv4"
			if strings.Contains(address, ":") {
				family = "ipv6"
			}
			fmt.Fprintf(&text, "protocol bgp node_%s_%s from session { neighbor %s as 64512; %s { import all; export none; }; }\n",
				name, family, address, family)
		}
	}
	return os.WriteFile(home+"/bird.conf", []byte(text.String()), 0o644)
}

func (l *lab) configureRouter() error {
	if err := l.writeRouterConfiguration(); err != nil {
		return err
	}
	_, err := l.birdc("configure")
	return err
}

func (l *lab) birdc(command ...string) (string, error) {
	return output(append([]string{"birdc", "-s", home + "/bird.ctl"}, command...)...)
}

// nodeOf is the node of a session by its name in the router: node_NAME_FAMILY.
func nodeOf(session string) string {
	name := strings.TrimPrefix(session, "node_")
	name, _, _ = strings.Cut(name, ".")
	return strings.TrimSuffix(strings.TrimSuffix(name, "_ipv4"), "_ipv6")
}

// table has every route that the router has learned.
func (l *lab) table() ([]route, error) {
	said, err := l.birdc("show", "route")
	if err != nil {
		return nil, err
	}
	routes := []route{}
	prefix, node := "", ""
	for line := range strings.Lines(said) {
		if fields := strings.Fields(line); line[0] != ' ' && line[0] != '\t' && len(fields) > 0 {
			prefix = fields[0]
		}
		if _, rest, ok := strings.Cut(line, "unicast ["); ok {
			session, _, _ := strings.Cut(rest, " ")
			node = nodeOf(session)
		}
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "via" {
			routes = append(routes, route{Prefix: prefix, Node: node, Via: fields[1]})
		}
	}
	return routes, nil
}

// changes are all routes that came and went, and all sessions that did, in order.
func (l *lab) changes() ([]event, error) {
	text, err := os.ReadFile(l.birdLog())
	if err != nil {
		return nil, err
	}
	events := []event{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 5 || !strings.HasPrefix(fields[3], "node_") {
			continue
		}
		seconds, err := strconv.ParseFloat(fields[0]+"."+fields[1], 64)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		session, _, _ := strings.Cut(strings.TrimSuffix(fields[3], ":"), ".")
		e := event{At: seconds, Node: nodeOf(session), Session: session}
		switch {
		case fields[4] == ">" && len(fields) > 6:
			// `> added [best] 10.1.0.0/28 0L 3G unicast`, and with some words no brackets.
			e.What, e.Prefix = fields[5], fields[6]
			if strings.HasPrefix(e.Prefix, "[") {
				e.Prefix = fields[7]
			}
		case strings.Contains(line, "State changed to"):
			e.What = fields[len(fields)-1]
		default:
			continue
		}
		events = append(events, e)
	}
	return events, nil
}

// answers says whether a machine has this address, by the routes of the router: it refuses a connection to a port without a listener.
func (l *lab) answers(router, address string) bool {
	if router == "" {
		router = "router"
	}
	dial := []string{"ip", "netns", "exec", router, "timeout", "2", "bash", "-c", ": < /dev/tcp/" + address + "/9"}
	said, _ := exec.Command(dial[0], dial[1:]...).CombinedOutput()
	return strings.Contains(string(said), "Connection refused")
}
