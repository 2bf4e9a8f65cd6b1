//go:build !external_servers

// The servers themselves, linked into this binary.
//
// With KUBEBUILDER_ASSETS set they are not used; building with `-tags external_servers` then leaves them out,
// and a build of minutes becomes one of seconds.

package main

import (
	"os"
	_ "time/tzdata" // As in kube-apiserver's own main.

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // As in kube-apiserver's own main.
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // As in kube-apiserver's own main.
	_ "k8s.io/component-base/metrics/prometheus/version"  // As in kube-apiserver's own main.
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

const serversLinked = true

// etcdMain is etcd's own main function; it takes the same flags as the etcd binary.
func etcdMain() {
	etcdmain.Main(os.Args)
}

// apiserverMain is kube-apiserver's own main function.
func apiserverMain() {
	os.Exit(cli.Run(app.NewAPIServerCommand()))
}

// schedulerMain is kube-scheduler's own main function. A test runs one of it, so there is no election. It serves no
// port, so that it needs no certificate.
func schedulerMain() {
	os.Args = append(os.Args, "--leader-elect=false", "--secure-port=0")
	os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
}
