// The Node and the CiliumNode as the daemon and node discovery read them.

package main

import (
	"context"
	"errors"
	"maps"

	corev1 "k8s.io/api/core/v1"
	k8sErrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/cilium/cilium/pkg/k8s"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/cilium/cilium/pkg/k8s/informer"
	nodeTypes "github.com/cilium/cilium/pkg/node/types"
	"github.com/cilium/cilium/pkg/nodediscovery"
)

// objects answers as Cilium's K8sWatcher (pkg/k8s/watchers), which can't be had without the watchers of services, pods
// and endpoints: the Node from a cache, the CiliumNode from a cache once there is one.
type objects struct {
	nodes       cache.Store
	ciliumNodes cache.Store
}

// watchNode fills the cache of the Node and updates the CiliumNode when the labels of the Node change, as NodesInit of
// pkg/k8s/watchers does.
func (o *objects) watchNode(ctx context.Context, discovery *nodediscovery.NodeDiscovery) error {
	store, controller := informer.NewInformer(
		cache.NewListWatchFromClient(k8s.Client().CoreV1().RESTClient(), "nodes", corev1.NamespaceAll,
			fields.ParseSelectorOrDie("metadata.name="+nodeTypes.GetName())),
		&corev1.Node{},
		0,
		cache.ResourceEventHandlerFuncs{
			UpdateFunc: func(before, now any) {
				if !maps.Equal(before.(*corev1.Node).Labels, now.(*corev1.Node).Labels) {
					discovery.UpdateLocalNode()
				}
			},
		},
		nil,
	)
	o.nodes = store
	return run(ctx, controller)
}

// watchCiliumNodes fills the cache of CiliumNodes, as ciliumNodeInit of pkg/k8s/watchers does.
func (o *objects) watchCiliumNodes(ctx context.Context) error {
	store, controller := informer.NewInformer(
		cache.NewListWatchFromClient(k8s.CiliumClient().CiliumV2().RESTClient(), ciliumv2.CNPluralName,
			corev1.NamespaceAll, fields.Everything()),
		&ciliumv2.CiliumNode{},
		0,
		cache.ResourceEventHandlerFuncs{},
		k8s.ConvertToCiliumNode,
	)
	if err := run(ctx, controller); err != nil {
		return err
	}
	o.ciliumNodes = store
	return nil
}

func run(ctx context.Context, controller cache.Controller) error {
	go controller.Run(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), controller.HasSynced) {
		return errors.New("a cache was not filled")
	}
	return nil
}

func (o *objects) GetK8sNode(_ context.Context, name string) (*corev1.Node, error) {
	found, exists, err := o.nodes.GetByKey(name)
	if err != nil {
		return nil, err
	}
	if !exists {
		return nil, k8sErrors.NewNotFound(schema.GroupResource{Group: "core", Resource: "Node"}, name)
	}
	return found.(*corev1.Node).DeepCopy(), nil
}

func (o *objects) GetCiliumNode(ctx context.Context, name string) (*ciliumv2.CiliumNode, error) {
	if o.ciliumNodes != nil {
		if found, exists, err := o.ciliumNodes.GetByKey(name); exists {
			return found.(*ciliumv2.CiliumNode).DeepCopy(), err
		}
	}
	return k8s.CiliumClient().CiliumV2().CiliumNodes().Get(ctx, name, metav1.GetOptions{})
}
