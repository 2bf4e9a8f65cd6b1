package rig

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// WithRouterState calls read while a directory says of router what an earlier run of the agent would have left in
// Cilium's state directory. The directory is there for no longer, so that a killed agent leaves nothing behind.
//
// The format is Cilium's, the same in all releases: comments in globals/node_config.h, which pkg/datapath/linux/config
// writes.
func WithRouterState(router Addresses, read func(stateDir string) error) error {
	dir, err := os.MkdirTemp("", "agent-state-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := writeRouterState(filepath.Join(dir, "globals", "node_config.h"), router); err != nil {
		return err
	}
	return read(dir)
}

// writeRouterState writes nothing where there is no earlier router address.
func writeRouterState(path string, router Addresses) error {
	var header strings.Builder
	for _, raw := range []struct{ tag, text string }{
		{"cilium.v6.internal.raw ", router.IPv6},
		{"cilium.v4.internal.raw ", router.IPv4},
	} {
		if raw.text == "" {
			continue
		}
		ip := net.ParseIP(raw.text)
		if ip == nil {
			return fmt.Errorf("router address %q is no IP address", raw.text)
		}
		digits := make([]string, 0, net.IPv6len)
		for _, octet := range ip.To16() {
			digits = append(digits, fmt.Sprintf("%#x", octet))
		}
		fmt.Fprintf(&header, "%s%s\n", raw.tag, strings.Join(digits, ", "))
	}
	if header.Len() == 0 {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(header.String()), 0o600)
}
