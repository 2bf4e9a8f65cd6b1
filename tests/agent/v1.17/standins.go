// Stand-ins for what Cilium's parts require and a process without endpoints, datapath and kvstore has not. All ours.
// None of them decides anything about addresses or about what is written to the API server.

package main

import (
	"time"

	"github.com/cilium/hive/cell"
	"github.com/cilium/statedb"

	"github.com/cilium/cilium/daemon/cmd/cni"
	cnifake "github.com/cilium/cilium/daemon/cmd/cni/fake"
	"github.com/cilium/cilium/pkg/datapath/tables"
	"github.com/cilium/cilium/pkg/ipam"
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

// defaultPool answers as Cilium's own metadata manager does in every mode but multi-pool.
type defaultPool struct{}

func (defaultPool) GetIPPoolForPod(string, ipam.Family) (string, error) {
	return option.Config.IPAMDefaultIPPool, nil
}
