// What the allocator of mode multi-pool holds in memory. Cilium has no way to ask for it, so it is read from the
// allocator's private fields, under Cilium's own locks; nothing is changed.

package main

import (
	"cmp"
	"reflect"
	"slices"
	"unsafe"

	"github.com/cilium/cilium/pkg/ipam"
	"github.com/cilium/cilium/pkg/ipam/service/ipallocator"
	ipamTypes "github.com/cilium/cilium/pkg/ipam/types"
	"github.com/cilium/cilium/pkg/lock"
	"nodeipam.io/tests/agent/rig"
)

//go:linkname neededIPsLocked github.com/cilium/cilium/pkg/ipam.(*multiPoolManager).computeNeededIPsPerPoolLocked
func neededIPsLocked(manager unsafe.Pointer) map[ipam.Pool]ipamTypes.IPAMPoolDemand

func (a *agent) Pools() []rig.PoolState {
	if a.config.IPAM != rig.MultiPool {
		return nil
	}
	// Both families have the same manager, whichever is enabled.
	allocator := reflect.ValueOf(a.parts.IPAM).Elem().FieldByName("IPv4Allocator")
	if allocator.IsNil() {
		allocator = reflect.ValueOf(a.parts.IPAM).Elem().FieldByName("IPv6Allocator")
	}
	manager := allocator.Elem().Elem().FieldByName("manager")
	mutex := *private[*lock.Mutex](manager.Elem(), "mutex")
	mutex.Lock()
	defer mutex.Unlock()

	states := map[string]rig.PoolState{}
	for pool, needed := range neededIPsLocked(manager.UnsafePointer()) {
		states[pool.String()] = rig.PoolState{
			Pool:   pool.String(),
			Needed: rig.Demand{IPv4: needed.IPv4Addrs, IPv6: needed.IPv6Addrs},
		}
	}
	for pools := manager.Elem().FieldByName("pools").MapRange(); pools.Next(); {
		state := states[pools.Key().String()]
		for _, family := range []string{"v4", "v6"} {
			if pool := pools.Value().Elem().FieldByName(family); !pool.IsNil() {
				addCIDRs(&state, pool.Elem())
			}
		}
		states[state.Pool] = state
	}
	var sorted []rig.PoolState
	for _, state := range states {
		sorted = append(sorted, state)
	}
	slices.SortFunc(sorted, func(x, y rig.PoolState) int { return cmp.Compare(x.Pool, y.Pool) })
	return sorted
}

// addCIDRs adds those of one family. They are in the order in which the agent allocates from them.
func addCIDRs(state *rig.PoolState, pool reflect.Value) {
	mutex := private[lock.Mutex](pool, "mutex")
	mutex.Lock()
	defer mutex.Unlock()

	removed := *private[map[string]struct{}](pool, "removed")
	for _, r := range *private[[]*ipallocator.Range](pool, "ipAllocators") {
		cidr := r.CIDR()
		_, gone := removed[cidr.String()]
		state.CIDRs = append(state.CIDRs, rig.CIDRState{CIDR: cidr.String(), InUse: r.Used(), Free: r.Free(), Removed: gone})
	}
	for cidr := range *private[map[string]struct{}](pool, "released") {
		state.Released = append(state.Released, cidr)
	}
	slices.Sort(state.Released)
}

// private is a field of Cilium's, whose type must be T.
func private[T any](of reflect.Value, field string) *T {
	found := of.FieldByName(field)
	if want := reflect.TypeFor[T](); found.Type() != want {
		panic("Cilium's field " + field + " is of type " + found.Type().String() + ", not " + want.String())
	}
	return (*T)(found.Addr().UnsafePointer())
}
