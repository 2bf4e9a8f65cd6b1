// Command controlplane is the control plane of the tests and the demo: a real etcd and a real kube-apiserver.
//
// One binary plays all parts. `controlplane run` supervises; it starts `controlplane etcd` and
// `controlplane apiserver` as children, so that each can be stopped, killed and restarted by itself.
// `controlplane scheduler` is the real kube-scheduler, for the tests that need one.
// README.md describes the protocol that `run` speaks on its standard input and output.
package main

import (
	"fmt"
	"os"
)

const usage = `usage:
  controlplane run --data DIR [flags]   run the control plane until standard input closes
  controlplane etcd FLAGS               be etcd (used by run)
  controlplane apiserver FLAGS          be kube-apiserver (used by run)
  controlplane scheduler FLAGS          be kube-scheduler until standard input closes; --kubeconfig FILE names the server
`

func main() {
	if len(os.Args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	// The servers parse os.Args themselves, so the subcommand becomes part of the program's name.
	subcommand := os.Args[1]
	os.Args = append([]string{os.Args[0] + " " + subcommand}, os.Args[2:]...)
	switch subcommand {
	case "run":
		os.Exit(run(os.Args[1:]))
	case "etcd":
		exitWhenStdinCloses()
		etcdMain()
	case "apiserver":
		exitWhenStdinCloses()
		apiserverMain()
	case "scheduler":
		exitWhenStdinCloses()
		schedulerMain()
	default:
		fmt.Fprintf(os.Stderr, "unknown subcommand %q\n%s", subcommand, usage)
		os.Exit(2)
	}
}
