// Stand-ins for what Cilium's parts require and a process without endpoints, datapath and kvstore has not. All ours.
// None of them decides anything about addresses or about what is written to the API server.

package main

import (
	"errors"
	"log/slog"
	"time"

	"github.com/cilium/hive/cell"
	"github.com/cilium/statedb"

	"github.com/cilium/cilium/daemon/cmd/cni"
	cnifake "github.com/cilium/cilium/daemon/cmd/cni/fake"
	cgroup "github.com/cilium/cilium/pkg/cgroups/manager"
	"github.com/cilium/cilium/pkg/datapath/iptables"
	ipsec "github.com/cilium/cilium/pkg/datapath/linux/ipsec/types"
	"github.com/cilium/cilium/pkg/datapath/tables"
	"github.com/cilium/cilium/pkg/datapath/tunnel"
	endpointcreator "github.com/cilium/cilium/pkg/endpoint/creator"
	"github.com/cilium/cilium/pkg/endpoint/regeneration"
	"github.com/cilium/cilium/pkg/endpointmanager"
	"github.com/cilium/cilium/pkg/endpointstate"
	"github.com/cilium/cilium/pkg/ipam"
	"github.com/cilium/cilium/pkg/ipam/metadata"
	"github.com/cilium/cilium/pkg/ipcache"
	"github.com/cilium/cilium/pkg/k8s/watchers"
	"github.com/cilium/cilium/pkg/loadbalancer"
	"github.com/cilium/cilium/pkg/mtu"
	nodemanager "github.com/cilium/cilium/pkg/node/manager"
	nodeTypes "github.com/cilium/cilium/pkg/node/types"
	"github.com/cilium/cilium/pkg/option"
	"github.com/cilium/cilium/pkg/policy"
	"github.com/cilium/cilium/pkg/promise"
	wgTypes "github.com/cilium/cilium/pkg/wireguard/types"
)

var standins = cell.Group(
	cell.Provide(
		// Tables that stay empty.
		tables.NewDeviceTable, statedb.RWTable[*tables.Device].ToTable,
		tables.NewRouteTable, statedb.RWTable[*tables.Route].ToTable,
		tables.NewNodeAddressTable, statedb.RWTable[tables.NodeAddress].ToTable,

		// Features that are off.
		func() ipsec.Config { return ipsecOff{} },
		func() wgTypes.Config { return wireguardOff{} },
		func() tunnel.Config { return tunnel.NewTestConfig(tunnel.Disabled) },
		func() loadbalancer.Config { return loadbalancer.Config{} },

		// The parts that take care of other nodes and of devices.
		func() nodemanager.NodeManager { return otherNodes{} },
		func() mtu.MTU { return ethernetMTU{} },
		func() cni.CNIConfigManager { return &cnifake.FakeCNIConfigManager{} },
		regeneration.NewFence,

		// Only the CiliumNode watcher is started (resourceGroups). The pod and endpoint watchers beside it are
		// constructed and never called, so what they need may be nil.
		func() watchers.ResourceGroupFunc { return resourceGroups },
		func() endpointmanager.EndpointManager { return nil },
		func() *policy.Updater { return nil },
		func() *ipcache.IPCache { return nil },
		func() cgroup.CGroupManager { return nil },
		func() iptables.Manager { return nil },

		// The host and ingress endpoints are made when this promise is kept, which it never is.
		func() endpointcreator.EndpointCreator { return nil },
		func() promise.Promise[endpointstate.Restorer] {
			_, never := promise.New[endpointstate.Restorer]()
			return never
		},
	),
)

func resourceGroups(*slog.Logger, watchers.WatcherConfiguration) (resourceGroups, waitForCachesOnly []string) {
	return []string{"cilium/v2::CiliumNode"}, nil
}

type ipsecOff struct{ ipsec.Config }

func (ipsecOff) Enabled() bool { return false }

type wireguardOff struct{}

func (wireguardOff) Enabled() bool { return false }

type ethernetMTU struct{ mtu.MTU }

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
