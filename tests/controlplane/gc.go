// Garbage collection of CiliumNodes by owner reference.
//
// There is no kube-controller-manager here, so the harness does the one piece of its work that Cilium relies on: a
// CiliumNode whose owners are all gone is deleted. As in Kubernetes' own collector, a cached absence is only a
// suspicion; the owners are read from the server before anything is deleted, and the deletion carries what was judged.

package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

var (
	nodesResource       = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	ciliumNodesResource = schema.GroupVersionResource{Group: "cilium.io", Version: "v2", Resource: "ciliumnodes"}
)

// ownerIndex finds the CiliumNodes that name a Node as an owner.
const ownerIndex = "owner"

// collector deletes ownerless CiliumNodes until its context ends.
type collector struct {
	client  metadata.Interface
	enabled atomic.Bool

	mu     sync.Mutex
	cancel context.CancelFunc // Guarded by mu; ends the present watches.
	// again looks at every CiliumNode that the present watches know. Guarded by mu.
	again func()
}

func newCollector(client metadata.Interface) *collector {
	c := &collector{client: client}
	c.enabled.Store(true)
	return c
}

// setEnabled turns collection on or off; what became ownerless meanwhile is found when it is turned on.
func (c *collector) setEnabled(enabled bool) {
	c.enabled.Store(enabled)
	c.mu.Lock()
	defer c.mu.Unlock()
	if enabled && c.again != nil {
		c.again()
	}
}

// stop ends the watches, and collects again from the next restart on.
func (c *collector) stop() {
	c.enabled.Store(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel != nil {
		c.cancel()
	}
	c.cancel, c.again = nil, nil
}

// restart begins new watches. Watches survive a restart of the API server too, but after a back-off of up to 30 s.
func (c *collector) restart(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	queue := workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](20*time.Millisecond, 2*time.Second))

	// The factory's resync stays off: every look has a cause.
	informers := metadatainformer.NewSharedInformerFactory(c.client, 0)
	nodes := informers.ForResource(nodesResource).Informer()
	ciliumNodes := informers.ForResource(ciliumNodesResource).Informer()
	// The index function can't fail, so adding it to a new informer can't either.
	_ = ciliumNodes.AddIndexers(cache.Indexers{ownerIndex: func(object any) ([]string, error) {
		var owners []string
		for _, owner := range object.(*metav1.PartialObjectMetadata).OwnerReferences {
			owners = append(owners, owner.Name)
		}
		return owners, nil
	}})
	look := func(object any) { queue.Add(object.(*metav1.PartialObjectMetadata).Name) }
	_, _ = ciliumNodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    look,
		UpdateFunc: func(_, object any) { look(object) },
	})
	lookAtOwned := func(name string) {
		owned, _ := ciliumNodes.GetIndexer().ByIndex(ownerIndex, name)
		for _, object := range owned {
			look(object)
		}
	}
	_, _ = nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		// A deletion and a creation under the same name may arrive as one update.
		UpdateFunc: func(old, object any) {
			if old.(*metav1.PartialObjectMetadata).UID != object.(*metav1.PartialObjectMetadata).UID {
				lookAtOwned(object.(*metav1.PartialObjectMetadata).Name)
			}
		},
		DeleteFunc: func(object any) {
			if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
				lookAtOwned(name)
			}
		},
	})

	c.mu.Lock()
	if c.cancel != nil {
		c.cancel()
	}
	c.cancel = cancel
	c.again = func() {
		for _, object := range ciliumNodes.GetStore().List() {
			look(object)
		}
	}
	c.mu.Unlock()

	informers.Start(ctx.Done())
	go func() {
		<-ctx.Done()
		queue.ShutDown()
	}()
	go func() {
		// Before both lists are there every owner would look absent.
		if !cache.WaitForCacheSync(ctx.Done(), nodes.HasSynced, ciliumNodes.HasSynced) {
			return
		}
		for {
			name, ended := queue.Get()
			if ended {
				return
			}
			if c.enabled.Load() && c.collect(ctx, name, nodes.GetStore(), ciliumNodes.GetStore()) != nil {
				queue.AddRateLimited(name)
			} else {
				queue.Forget(name)
			}
			queue.Done(name)
		}
	}()
}

// collect deletes the CiliumNode if all its owners are gone.
func (c *collector) collect(ctx context.Context, name string, nodes, ciliumNodes cache.Store) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cached, known, _ := ciliumNodes.GetByKey(name)
	if !known {
		return nil
	}
	object := cached.(*metav1.PartialObjectMetadata)
	if len(object.OwnerReferences) == 0 || object.DeletionTimestamp != nil {
		return nil
	}
	for _, owner := range object.OwnerReferences {
		if owner.APIVersion != "v1" || owner.Kind != "Node" {
			return nil // Nobody here knows whether such an owner exists.
		}
		if node, known, _ := nodes.GetByKey(owner.Name); known && node.(*metav1.PartialObjectMetadata).UID == owner.UID {
			return nil
		}
	}
	for _, owner := range object.OwnerReferences {
		node, err := c.client.Resource(nodesResource).Get(ctx, owner.Name, metav1.GetOptions{})
		if err == nil && node.UID == owner.UID {
			return nil
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	err := c.client.Resource(ciliumNodesResource).Delete(ctx, name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &object.UID, ResourceVersion: &object.ResourceVersion},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // It is gone, or its next version is on its way to be looked at.
	}
	return err
}
