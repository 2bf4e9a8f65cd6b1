// How the local node store is filled from the Node and the CiliumNode: Cilium's daemon/cmd/local_node_sync.go, which is
// private to the daemon, without addresses from flags, WireGuard and IPsec.

package main

import (
	"context"
	"maps"
	"net"

	agentK8s "github.com/cilium/cilium/daemon/k8s"
	"github.com/cilium/cilium/pkg/identity"
	"github.com/cilium/cilium/pkg/k8s"
	"github.com/cilium/cilium/pkg/k8s/resource"
	slim_corev1 "github.com/cilium/cilium/pkg/k8s/slim/k8s/api/core/v1"
	"github.com/cilium/cilium/pkg/node"
	"github.com/cilium/cilium/pkg/node/addressing"
	"github.com/cilium/cilium/pkg/option"
	"github.com/cilium/cilium/pkg/source"
)

type localNodeSynchronizer struct {
	config     *option.DaemonConfig
	node       agentK8s.LocalNodeResource
	ciliumNode agentK8s.LocalCiliumNodeResource
	old        node.LocalNode
}

func newLocalNodeSynchronizer(
	c *option.DaemonConfig, n agentK8s.LocalNodeResource, cn agentK8s.LocalCiliumNodeResource,
) node.LocalNodeSynchronizer {
	return &localNodeSynchronizer{config: c, node: n, ciliumNode: cn}
}

func (s *localNodeSynchronizer) InitLocalNode(ctx context.Context, n *node.LocalNode) error {
	n.Source = source.Local
	n.NodeIdentity = uint32(identity.ReservedIdentityHost)
	n.Cluster = s.config.ClusterName
	n.ClusterID = s.config.ClusterID
	n.BootID = node.GetBootID()

	k8sNode, err := first(ctx, s.node)
	if err != nil {
		return err
	}
	parsed := parseNode(k8sNode)
	n.Name = parsed.Name
	for _, addr := range parsed.IPAddresses {
		switch addr.Type {
		case addressing.NodeInternalIP:
			n.SetNodeInternalIP(addr.IP)
		case addressing.NodeExternalIP:
			n.SetNodeExternalIP(addr.IP)
		}
	}
	s.syncFromK8s(n, parsed)
	s.restore(ctx, n)
	return nil
}

// restore takes over the router and health addresses that the CiliumNode has kept, if there is one.
func (s *localNodeSynchronizer) restore(ctx context.Context, n *node.LocalNode) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	event := <-s.ciliumNode.Events(ctx)
	event.Done(nil)
	if event.Kind != resource.Upsert {
		return
	}
	for _, addr := range event.Object.Spec.Addresses {
		if addr.Type == addressing.NodeCiliumInternalIP {
			n.SetCiliumInternalIP(net.ParseIP(addr.IP))
		}
	}
	if !s.config.EnableHealthChecking || !s.config.EnableEndpointHealthChecking {
		return
	}
	if s.config.EnableIPv4 {
		n.IPv4HealthIP = net.ParseIP(event.Object.Spec.HealthAddressing.IPv4)
	}
	if s.config.EnableIPv6 {
		n.IPv6HealthIP = net.ParseIP(event.Object.Spec.HealthAddressing.IPv6)
	}
}

func (s *localNodeSynchronizer) SyncLocalNode(ctx context.Context, store *node.LocalNodeStore) {
	for event := range s.node.Events(ctx) {
		switch event.Kind {
		case resource.Upsert:
			if event.Object.DeletionTimestamp != nil {
				store.Update(func(n *node.LocalNode) { n.IsBeingDeleted = true })
			}
			parsed := parseNode(event.Object)
			if !s.mutableFieldsEqual(parsed) {
				store.Update(func(n *node.LocalNode) { s.syncFromK8s(n, parsed) })
			}
		case resource.Delete:
			store.Update(func(n *node.LocalNode) { n.IsBeingDeleted = true })
		}
		event.Done(nil)
	}
}

func (s *localNodeSynchronizer) mutableFieldsEqual(parsed *node.LocalNode) bool {
	return maps.Equal(s.old.Labels, parsed.Labels) && maps.Equal(s.old.Annotations, parsed.Annotations) &&
		s.old.UID == parsed.UID && s.old.ProviderID == parsed.ProviderID
}

// syncFromK8s takes over what can change while the agent runs.
func (s *localNodeSynchronizer) syncFromK8s(n, parsed *node.LocalNode) {
	n.Labels = merged(n.Labels, s.old.Labels, parsed.Labels)
	n.Annotations = merged(n.Annotations, s.old.Annotations, parsed.Annotations)
	n.UID, n.ProviderID = parsed.UID, parsed.ProviderID
	s.old.Labels, s.old.Annotations = parsed.Labels, parsed.Annotations
	s.old.UID, s.old.ProviderID = parsed.UID, parsed.ProviderID
}

// merged is a copy of present, because observers of the store share what it holds.
func merged(present, before, now map[string]string) map[string]string {
	result := maps.Clone(present)
	maps.DeleteFunc(result, func(key, _ string) bool {
		_, was := before[key]
		_, is := now[key]
		return was && !is
	})
	maps.Copy(result, now)
	return result
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

func parseNode(n *slim_corev1.Node) *node.LocalNode {
	return &node.LocalNode{Node: *k8s.ParseNode(n, source.Kubernetes), UID: n.GetUID(), ProviderID: n.Spec.ProviderID}
}
