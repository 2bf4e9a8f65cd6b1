// Stand-ins for what Cilium's parts require and a process without endpoints, datapath and kvstore has not. All ours.
// None of them decides anything about addresses or about what is written to the API server.

package main

import (
	"net"

	"github.com/cilium/cilium/pkg/datapath"
	"github.com/cilium/cilium/pkg/ipcache"
	"github.com/cilium/cilium/pkg/k8s/watchers/subscriber"
	"github.com/cilium/cilium/pkg/labels"
	nodeTypes "github.com/cilium/cilium/pkg/node/types"
	"github.com/cilium/cilium/pkg/source"
)

type ethernetMTU struct{}

func (ethernetMTU) GetDeviceMTU() int { return 1500 }

// noEvents counts nothing.
type noEvents struct{}

func (noEvents) K8sEventReceived(string, string, string, bool, bool) {}
func (noEvents) K8sEventProcessed(string, string, bool)              {}
func (noEvents) RegisterCiliumNodeSubscriber(subscriber.CiliumNode)  {}

// noDatapath is told of every node and programs no route to any.
type noDatapath struct{}

func (noDatapath) NodeAdd(nodeTypes.Node) error                                   { return nil }
func (noDatapath) NodeUpdate(_, _ nodeTypes.Node) error                           { return nil }
func (noDatapath) NodeDelete(nodeTypes.Node) error                                { return nil }
func (noDatapath) AllNodeValidateImplementation()                                 {}
func (noDatapath) NodeValidateImplementation(nodeTypes.Node) error                { return nil }
func (noDatapath) NodeConfigurationChanged(datapath.LocalNodeConfiguration) error { return nil }

// noIPCache knows no identities.
type noIPCache struct{}

func (noIPCache) Upsert(string, net.IP, uint8, *ipcache.K8sMetadata, ipcache.Identity) (bool, error) {
	return false, nil
}
func (noIPCache) Delete(string, source.Source) bool                   { return false }
func (noIPCache) TriggerLabelInjection(source.Source)                 {}
func (noIPCache) UpsertMetadata(string, labels.Labels)                {}
func (noIPCache) RemoveMetadata(string, labels.Labels, source.Source) {}
