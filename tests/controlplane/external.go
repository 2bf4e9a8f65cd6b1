//go:build external_servers

// A build without the servers, for use with KUBEBUILDER_ASSETS only.

package main

import (
	"fmt"
	"os"
)

const serversLinked = false

func etcdMain() { notLinked("etcd") }

func apiserverMain() { notLinked("kube-apiserver") }

func schedulerMain() { notLinked("kube-scheduler") }

func notLinked(name string) {
	fmt.Fprintf(os.Stderr, "%s is not part of this build; set KUBEBUILDER_ASSETS or build without -tags external_servers\n", name)
	os.Exit(2)
}
