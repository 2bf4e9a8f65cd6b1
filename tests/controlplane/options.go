// The flags of `controlplane run`.

package main

import (
	"errors"
	"flag"
	"fmt"
	"path/filepath"
)

// options are the flags of run.
type options struct {
	data          string
	fsync         bool
	families      families
	ciliumConfig  bool
	ipam          string
	ciliumVersion string
	ciliumCRDs    string
	manifests     []string
	remove        string
}

func parseOptions(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("controlplane run", flag.ContinueOnError)
	flags.StringVar(&o.data, "data", "", "the data `folder`; kept, and used again by a later run")
	flags.BoolVar(&o.fsync, "fsync", false, "let etcd sync its files, as it must to survive the loss of a machine")
	flags.BoolVar(&o.families.ipv4, "ipv4", true, "the agents run IPv4")
	flags.BoolVar(&o.families.ipv6, "ipv6", false, "the agents run IPv6")
	flags.BoolVar(&o.ciliumConfig, "cilium-config", true, "make the ConfigMap kube-system/cilium-config")
	flags.StringVar(&o.ipam, "ipam", "crd", "the `mode` that cilium-config names")
	flags.StringVar(&o.ciliumVersion, "cilium-version", ciliumVersion, "the Cilium release whose CRDs are installed")
	flags.StringVar(&o.ciliumCRDs, "cilium-crds", "", "take Cilium's CRDs from this `folder` instead of its Go module")
	flags.StringVar(&o.remove, "remove", "", "remove this `folder` at the end")
	more := func(path string) error {
		o.manifests = append(o.manifests, path)
		return nil
	}
	flags.Func("crds", "apply the *.yaml of this `folder` (or this file) and wait until CRDs in it are served; repeatable", more)
	flags.Func("manifests", "the same as --crds, for other objects; all are applied in the order given", more)
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.data == "" {
		return o, errors.New("--data is missing")
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	var err error
	o.data, err = filepath.Abs(o.data)
	return o, err
}
