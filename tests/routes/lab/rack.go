// The router of a rack: an FRR with the configuration that the test gives it, which writes its routes into the table of its
// kernel.

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

const makeRack = newMachine + `
ip -n "$2" link add nodes type bridge
ip -n "$2" address add "$3" dev nodes
ip -n "$2" link set nodes up
`

// startRack starts a router with this address, with its prefix length, in the network of the nodes of its rack.
func (l *lab) startRack(name, address, configuration string) error {
	router := &node{lab: l, name: name}
	if err := run("sh", "-ec", makeRack, "sh", router.folder(""), name, address); err != nil {
		return err
	}
	if err := os.WriteFile(router.folder("conf/frr.conf"), []byte(configuration), 0o644); err != nil {
		return err
	}
	l.mutex.Lock()
	l.racks[name] = router
	l.mutex.Unlock()
	return router.startDaemons()
}

// tableOfRack has every route that the router of a rack has accepted.
func (l *lab) tableOfRack(name string) ([]route, error) {
	l.mutex.Lock()
	router, ok := l.racks[name]
	of := map[string]string{}
	for _, n := range l.nodes {
		for _, address := range n.addresses {
			address, _, _ := strings.Cut(address, "/")
			of[address] = n.name
		}
	}
	l.mutex.Unlock()
	if !ok {
		return nil, fmt.Errorf("router %s was never started", name)
	}
	said, err := output(router.inside("vtysh", "-c", "show bgp ipv4 unicast json")...)
	if err != nil {
		return nil, err
	}
	var table struct {
		Routes map[string][]struct {
			PeerID   string `json:"peerId"`
			Nexthops []struct {
				IP string `json:"ip"`
			} `json:"nexthops"`
		} `json:"routes"`
	}
	if err := json.Unmarshal([]byte(said), &table); err != nil {
		return nil, fmt.Errorf("%q: %w", said, err)
	}
	routes := []route{}
	for prefix, paths := range table.Routes {
		for _, path := range paths {
			for _, hop := range path.Nexthops {
				routes = append(routes, route{Prefix: prefix, Node: of[path.PeerID], Via: hop.IP})
			}
		}
	}
	return routes, nil
}
