// Stand-ins for what Cilium's parts require and a process without endpoints, datapath and kvstore has not. All ours.
// None of them decides anything about addresses or about what is written to the API server.

package main

import (
	"time"

	"github.com/cilium/cilium/pkg/k8s/watchers/subscriber"
	nodemanager "github.com/cilium/cilium/pkg/node/manager"
	nodeTypes "github.com/cilium/cilium/pkg/node/types"
)

type ethernetMTU struct{}

func (ethernetMTU) GetDeviceMTU() int { return 1500 }

// otherNodes is told of every node of the cluster and programs no route to any.
type otherNodes struct{ nodemanager.NodeManager }

func (otherNodes) NodeUpdated(nodeTypes.Node) {}
func (otherNodes) NodeDeleted(nodeTypes.Node) {}
func (otherNodes) ClusterSizeDependantInterval(base time.Duration) time.Duration {
	return base
}

// noEvents counts nothing.
type noEvents struct{}

func (noEvents) K8sEventReceived(string, string, string, bool, bool) {}
func (noEvents) K8sEventProcessed(string, string, bool)              {}
func (noEvents) RegisterCiliumNodeSubscriber(subscriber.CiliumNode)  {}
