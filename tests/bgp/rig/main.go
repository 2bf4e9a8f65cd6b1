// Package rig is what the BGP agents of all releases of Cilium have in common: their flags, and how they end. It
// depends on no release of Cilium, because those of the releases exclude each other.
package rig

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// modes are those of the option ipam that Cilium's BGP control plane is run with here.
var modes = []string{"crd", "multi-pool", "cluster-pool", "kubernetes"}

// Config is what the command line says.
type Config struct {
	Kubeconfig string
	Node       string
	IPAM       string
	IPv4       bool
	IPv6       bool
}

// Main runs the BGP control plane of one release, named as "1.17", and does not return. run returns when Cilium's code
// ends by itself.
func Main(release string, run func(Config) error) {
	name := "bgp-" + release
	var c Config
	// Cilium's dependencies put flags of their own into the default set.
	flags := flag.NewFlagSet(name, flag.ExitOnError)
	flags.StringVar(&c.Kubeconfig, "kubeconfig", "", "kubeconfig of the API server")
	flags.StringVar(&c.Node, "node", "", "name of the Node, and so of the CiliumNode and the CiliumBGPNodeConfig")
	flags.StringVar(&c.IPAM, "ipam", "", "ipam: one of "+strings.Join(modes, ", "))
	flags.BoolVar(&c.IPv4, "ipv4", true, "enable-ipv4")
	flags.BoolVar(&c.IPv6, "ipv6", true, "enable-ipv6")
	// It exits on an error.
	_ = flags.Parse(os.Args[1:])

	if err := c.check(flags.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(2)
	}
	// The API server derives the field manager from the user agent, and Cilium derives that from the program's name.
	// Cilium's code must not see our flags either.
	os.Args = []string{"cilium-agent"}

	go endWithStdin()
	if err := run(c); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (c Config) check(rest []string) error {
	switch {
	case !slices.Contains(modes, c.IPAM):
		return fmt.Errorf("--ipam must be one of %s, not %q", strings.Join(modes, ", "), c.IPAM)
	case c.Kubeconfig == "" || c.Node == "":
		return fmt.Errorf("--kubeconfig and --node are required")
	case !c.IPv4 && !c.IPv6:
		return fmt.Errorf("at least one of --ipv4 and --ipv6 is required")
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q", rest[0])
	}
	return nil
}

// endWithStdin ends the process when whoever started it has ended, however that happened.
func endWithStdin() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}
