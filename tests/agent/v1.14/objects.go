// The Node and the CiliumNode as the daemon and node discovery read them.

package main

import (
	"context"
	"errors"
	"maps"
	"net"

	k8sErrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	agentK8s "github.com/cilium/cilium/daemon/k8s"
	"github.com/cilium/cilium/pkg/k8s"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	k8sClient "github.com/cilium/cilium/pkg/k8s/client"
	"github.com/cilium/cilium/pkg/k8s/informer"
	"github.com/cilium/cilium/pkg/k8s/resource"
	slim_corev1 "github.com/cilium/cilium/pkg/k8s/slim/k8s/api/core/v1"
	"github.com/cilium/cilium/pkg/k8s/utils"
	"github.com/cilium/cilium/pkg/node"
	"github.com/cilium/cilium/pkg/node/addressing"
	"github.com/cilium/cilium/pkg/nodediscovery"
	"github.com/cilium/cilium/pkg/source"
)

// localNodeInitializer fills the local node store: Cilium's daemon/cmd/local_node_init.go, which is private to the
// daemon, without addresses from flags and from devices.
type localNodeInitializer struct {
	node       agentK8s.LocalNodeResource
	ciliumNode agentK8s.LocalCiliumNodeResource
}

func newLocalNodeInitializer(n agentK8s.LocalNodeResource, cn agentK8s.LocalCiliumNodeResource) node.LocalNodeInitializer {
	return &localNodeInitializer{node: n, ciliumNode: cn}
}

func (i *localNodeInitializer) InitLocalNode(ctx context.Context, n *node.LocalNode) error {
	n.Source = source.Local
	k8sNode, err := first(ctx, i.node)
	if err != nil {
		return err
	}
	parsed := k8s.ParseNode(k8sNode, source.Kubernetes)
	n.Name = parsed.Name
	n.Labels = parsed.Labels
	n.Annotations = parsed.Annotations
	n.Cluster = parsed.Cluster
	for _, addr := range parsed.IPAddresses {
		switch addr.Type {
		case addressing.NodeInternalIP:
			n.SetNodeInternalIP(addr.IP)
		case addressing.NodeExternalIP:
			n.SetNodeExternalIP(addr.IP)
		}
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	event := <-i.ciliumNode.Events(ctx)
	event.Done(nil)
	if event.Kind != resource.Upsert {
		return nil
	}
	for _, addr := range event.Object.Spec.Addresses {
		if addr.Type == addressing.NodeCiliumInternalIP {
			n.SetCiliumInternalIP(net.ParseIP(addr.IP))
		}
	}
	return nil
}

func first(ctx context.Context, nodes agentK8s.LocalNodeResource) (*slim_corev1.Node, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for event := range nodes.Events(ctx) {
		event.Done(nil)
		if event.Kind == resource.Upsert {
			return event.Object, nil
		}
	}
	return nil, ctx.Err()
}

// objects answers as Cilium's K8sWatcher (pkg/k8s/watchers), which can't be had without the watchers of services, pods
// and endpoints: the Node from a cache, the CiliumNode from a cache once there is one.
type objects struct {
	clientset   k8sClient.Clientset
	nodes       agentK8s.LocalNodeResource
	ciliumNodes cache.Store
}

func newObjects(p parts) *objects {
	return &objects{clientset: p.Clientset, nodes: p.LocalNode}
}

// watchCiliumNodes fills the cache, as ciliumNodeInit of pkg/k8s/watchers does.
func (o *objects) watchCiliumNodes(ctx context.Context) error {
	store, controller := informer.NewInformer(
		utils.ListerWatcherFromTyped[*ciliumv2.CiliumNodeList](o.clientset.CiliumV2().CiliumNodes()),
		&ciliumv2.CiliumNode{},
		0,
		cache.ResourceEventHandlerFuncs{},
		k8s.TransformToCiliumNode,
	)
	go controller.Run(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), controller.HasSynced) {
		return errors.New("the cache of CiliumNodes was not filled")
	}
	o.ciliumNodes = store
	return nil
}

func (o *objects) GetK8sNode(ctx context.Context, name string) (*slim_corev1.Node, error) {
	store, err := o.nodes.Store(ctx)
	if err != nil {
		return nil, err
	}
	found, exists, err := store.GetByKey(resource.Key{Name: name})
	if err != nil {
		return nil, err
	}
	if !exists {
		return nil, k8sErrors.NewNotFound(schema.GroupResource{Group: "core", Resource: "Node"}, name)
	}
	return found.DeepCopy(), nil
}

func (o *objects) GetCiliumNode(ctx context.Context, name string) (*ciliumv2.CiliumNode, error) {
	if o.ciliumNodes != nil {
		if found, exists, err := o.ciliumNodes.GetByKey(name); exists {
			return found.(*ciliumv2.CiliumNode).DeepCopy(), err
		}
	}
	return o.clientset.CiliumV2().CiliumNodes().Get(ctx, name, metav1.GetOptions{})
}

// followLabels updates the CiliumNode when the labels of the Node change, as nodeEventLoop of pkg/k8s/watchers does.
func followLabels(nodes agentK8s.LocalNodeResource, discovery *nodediscovery.NodeDiscovery) {
	var before *slim_corev1.Node
	for event := range nodes.Events(context.Background()) {
		if event.Kind == resource.Upsert {
			if before != nil && !maps.Equal(before.GetLabels(), event.Object.GetLabels()) {
				discovery.UpdateLocalNode()
			}
			before = event.Object
		}
		event.Done(nil)
	}
}
