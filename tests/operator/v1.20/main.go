//go:build ipam_provider_operator

// Command operator-1.20 is the allocators of cilium-operator, release 1.20.2, as a process for tests.
//
// Cilium's own code, unmodified, from the module that go.mod pins: the allocators of the modes multi-pool and
// cluster-pool (operator/pkg/ipam), the resources that they watch (operator/k8s), and the Kubernetes client
// (pkg/k8s/client). Ours: which parts are put together. As in cilium-operator, the flag ipam says which allocator runs;
// with kubernetes none does. They are compiled in with the build tag alone, as in Cilium's own build.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/cilium/hive"
	"github.com/cilium/hive/cell"
	"github.com/spf13/pflag"

	operatorK8s "github.com/cilium/cilium/operator/k8s"
	operatorIPAM "github.com/cilium/cilium/operator/pkg/ipam"
	"github.com/cilium/cilium/pkg/defaults"
	ciliumHive "github.com/cilium/cilium/pkg/hive"
	k8sClient "github.com/cilium/cilium/pkg/k8s/client"
	"github.com/cilium/cilium/pkg/logging"
	"github.com/cilium/cilium/pkg/option"
)

func main() {
	config := option.Config
	// The operator reads it from its configuration, whose default this is.
	config.IPAMDefaultIPPool = defaults.IPAMDefaultIPPool
	h := ciliumHive.New(
		k8sClient.Cell,
		operatorK8s.ResourcesCell,
		cell.Provide(func() *option.DaemonConfig { return config }),
		operatorIPAM.Cell(),
		// The last, so that it starts when all others have.
		cell.Invoke(tell),
	)
	flags := pflag.NewFlagSet("operator-1.20", pflag.ExitOnError)
	h.RegisterFlags(flags)
	flags.StringVar(&config.IPAM, "ipam", "", "ipam: what the operator allocates for")
	flags.BoolVar(&config.EnableIPv4, "enable-ipv4", true, "enable-ipv4")
	flags.BoolVar(&config.EnableIPv6, "enable-ipv6", false, "enable-ipv6")
	// It exits on an error.
	_ = flags.Parse(os.Args[1:])
	// The API server derives the field manager from the user agent, and Cilium derives that from the program's name.
	os.Args[0] = "cilium-operator-generic"
	if err := h.Run(logging.DefaultSlogLogger); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// tell says when everything runs, and ends the process with its standard input.
func tell(lifecycle cell.Lifecycle, shutdowner hive.Shutdowner) {
	lifecycle.Append(cell.Hook{
		OnStart: func(cell.HookContext) error {
			fmt.Println(`{"event":"started"}`)
			go func() {
				_, _ = io.Copy(io.Discard, os.Stdin)
				shutdowner.Shutdown()
			}()
			return nil
		},
	})
}
