// Command bgp-peer is a BGP daemon for tests: GoBGP's server, unmodified, in the role of a network's router. It says
// which nodes have a session with it, and which routes it has learned from them.
//
// It listens on a free port of the loopback network, and serves commands on standard input until that is closed.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
)

func main() {
	listen := flag.String("listen", "127.0.0.1", "the address to listen on; the port is a free one")
	asn := flag.Uint("asn", 64513, "the daemon's own AS")
	nodeASN := flag.Uint("node-asn", 64512, "the AS of all nodes")
	flag.Parse()
	if err := serve(context.Background(), *listen, uint32(*asn), uint32(*nodeASN)); err != nil {
		fmt.Fprintln(os.Stderr, "bgp-peer:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, listen string, asn, nodeASN uint32) error {
	free, err := freePort(listen)
	if err != nil {
		return err
	}
	d, err := startDaemon(ctx, free, asn, nodeASN)
	if err != nil {
		return err
	}
	out := &output{encoder: json.NewEncoder(os.Stdout)}
	if err := d.watch(ctx, func(e event) { out.write(e) }); err != nil {
		return err
	}
	out.write(event{Event: "ready", Address: free.Addr().String(), Port: free.Port()})

	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		out.write(d.obey(ctx, lines.Bytes()))
	}
	return lines.Err()
}

// freePort finds a port that nobody listens on. GoBGP takes the number, so somebody may be quicker; then the start
// fails with a message that says so.
func freePort(address string) (netip.AddrPort, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return netip.AddrPort{}, err
	}
	defer l.Close()
	return netip.ParseAddrPort(l.Addr().String())
}

func (d *daemon) obey(ctx context.Context, line []byte) answer {
	var c command
	if err := json.Unmarshal(line, &c); err != nil {
		return answer{Error: fmt.Sprintf("not a command: %v", err)}
	}
	a := answer{ID: c.ID}
	if c.Cmd != "table" {
		a.Error = fmt.Sprintf("no such command: %q", c.Cmd)
		return a
	}
	var err error
	if a.Sessions, a.Routes, err = d.table(ctx); err != nil {
		a.Error = err.Error()
	}
	return a
}

// output writes whole lines, whoever writes them.
type output struct {
	lock    sync.Mutex
	encoder *json.Encoder
}

func (o *output) write(line any) {
	o.lock.Lock()
	defer o.lock.Unlock()
	if err := o.encoder.Encode(line); err != nil {
		os.Exit(1) // Nobody reads any more.
	}
}
