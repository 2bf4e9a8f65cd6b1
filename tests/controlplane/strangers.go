// Who is connected to a server of ours: read from the tables of the kernel, which forget no connection.

package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// connection is a line of /proc/net/tcp.
type connection struct {
	localPort, remotePort int
	state                 string
	socket                string
}

// The states in which the end of a connection that belongs to the server has not been closed by it.
var open = map[string]bool{"01": true, "03": true, "08": true}

// strangers counts the connections to the port on this machine whose other end is neither this process nor one of
// these.
func strangers(port int, processes ...int) (int, error) {
	ours := map[string]bool{}
	for _, process := range append(processes, os.Getpid()) {
		// An end that is closed between two looks belongs to nobody any more.
		descriptors, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", process))
		for _, descriptor := range descriptors {
			if target, err := os.Readlink(descriptor); err == nil && strings.HasPrefix(target, "socket:[") {
				ours[strings.Trim(target, "socket:[]")] = true
			}
		}
	}
	connections, err := connections()
	if err != nil {
		return 0, err
	}
	ourEnds := map[int]bool{}
	for _, c := range connections {
		if c.remotePort == port && ours[c.socket] {
			ourEnds[c.localPort] = true
		}
	}
	n := 0
	for _, c := range connections {
		if c.localPort == port && open[c.state] && !ourEnds[c.remotePort] {
			n++
		}
	}
	return n, nil
}

func connections() ([]connection, error) {
	file, err := os.Open("/proc/net/tcp")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var all []connection
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 || fields[0] == "sl" {
			continue
		}
		c := connection{state: fields[3], socket: fields[9]}
		var address string
		if _, err := fmt.Sscanf(fields[1], "%8s:%X", &address, &c.localPort); err != nil {
			return nil, fmt.Errorf("%s: %w", lines.Text(), err)
		}
		if _, err := fmt.Sscanf(fields[2], "%8s:%X", &address, &c.remotePort); err != nil {
			return nil, fmt.Errorf("%s: %w", lines.Text(), err)
		}
		all = append(all, c)
	}
	return all, lines.Err()
}
