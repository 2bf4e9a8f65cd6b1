// Stand-ins for what Cilium's parts require and a process without endpoints, datapath and kvstore has not. All ours.
// None of them decides anything about addresses or about what is written to the API server.

package main

import (
	"errors"
	"time"

	"github.com/cilium/hive/cell"
	"github.com/cilium/statedb"

	"github.com/cilium/cilium/daemon/cmd/cni"
	cnifake "github.com/cilium/cilium/daemon/cmd/cni/fake"
	"github.com/cilium/cilium/pkg/datapath/tables"
	"github.com/cilium/cilium/pkg/ipam"
	"github.com/cilium/cilium/pkg/ipam/metadata"
	nodemanager "github.com/cilium/cilium/pkg/node/manager"
	nodeTypes "github.com/cilium/cilium/pkg/node/types"
	"github.com/cilium/cilium/pkg/option"
)

var standins = cell.Group(
	cell.Provide(
		// A table that stays empty.
		tables.NewDeviceTable, statedb.RWTable[*tables.Device].ToTable,

		// The parts that take care of other nodes and of devices.
		func() nodemanager.NodeManager { return otherNodes{} },
		func() cni.CNIConfigManager { return &cnifake.FakeCNIConfigManager{} },
	),
)

type ethernetMTU struct{}

func (ethernetMTU) GetDeviceMTU() int { return 1500 }

// otherNodes is told of every node of the cluster and programs no route to any.
type otherNodes struct{ nodemanager.NodeManager }

func (otherNodes) NodeUpdated(nodeTypes.Node) {}
func (otherNodes) NodeDeleted(nodeTypes.Node) {}
func (otherNodes) NodeSync()                  {}
func (otherNodes) MeshNodeSync()              {}
func (otherNodes) ClusterSizeDependantInterval(base time.Duration) time.Duration {
	return base
}

// podless lets an owner stand for a pod that the API server does not have: it gets the default pool. For a Pod that is
// there Cilium's manager decides.
type podless struct{ metadata.Manager }

func (p podless) GetIPPoolForPod(owner string, family ipam.Family) (string, error) {
	pool, err := p.Manager.GetIPPoolForPod(owner, family)
	if errors.Is(err, &metadata.ResourceNotFound{Resource: "Pod"}) {
		return option.Config.IPAMDefaultIPPool, nil
	}
	return pool, err
}
