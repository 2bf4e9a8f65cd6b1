// The cache of CiliumNodes that node discovery reads. Cilium's watcher is started by a method that is private to its
// package and starts beside the watchers of services, pods and endpoints, which this process has no use for.

package main

import (
	"context"
	"sync"
	_ "unsafe" // For go:linkname.

	"github.com/cilium/cilium/pkg/k8s/watchers"
)

// watchCiliumNodes returns when the watcher's cache is in use, as enableK8sWatchers of pkg/k8s/watchers does.
func watchCiliumNodes(ctx context.Context, w *watchers.K8sCiliumNodeWatcher) {
	var started sync.WaitGroup
	started.Add(1)
	go ciliumNodeInit(w, ctx, &started)
	started.Wait()
}

//go:linkname ciliumNodeInit github.com/cilium/cilium/pkg/k8s/watchers.(*K8sCiliumNodeWatcher).ciliumNodeInit
func ciliumNodeInit(w *watchers.K8sCiliumNodeWatcher, ctx context.Context, started *sync.WaitGroup)
