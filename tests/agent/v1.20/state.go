// The router's address as Cilium finds it in its state directory at a restart. The format is Cilium's: a comment in
// globals/node_config.h that pkg/datapath/linux/config writes and daemon/infraendpoints reads. The code is ours.

package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/cilium/pkg/defaults"
	"github.com/cilium/cilium/pkg/option"
)

// withRouterState calls allocate while Cilium's state directory says of router what an earlier run of the agent would
// have left there. The directory is there for no longer, so that a killed agent leaves nothing behind.
func withRouterState(router addresses, allocate func() error) error {
	dir, err := os.MkdirTemp("", "agent-1.20-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	option.Config.StateDir = dir
	if err := writeRouterState(option.Config.GetNodeConfigPath(), router); err != nil {
		return err
	}
	return allocate()
}

// writeRouterState writes nothing where there is no earlier router address.
func writeRouterState(path string, router addresses) error {
	var header strings.Builder
	for _, raw := range []struct{ tag, text string }{
		{defaults.RestoreV6Addr, router.IPv6},
		{defaults.RestoreV4Addr, router.IPv4},
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
