// The BGP daemon: GoBGP's server, which everybody on the loopback network may connect to.

package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"

	api "github.com/osrg/gobgp/v3/api"
	"github.com/osrg/gobgp/v3/pkg/apiutil"
	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
	"github.com/osrg/gobgp/v3/pkg/server"
)

// families are those of pod addresses.
var families = []*api.Family{
	{Afi: api.Family_AFI_IP, Safi: api.Family_SAFI_UNICAST},
	{Afi: api.Family_AFI_IP6, Safi: api.Family_SAFI_UNICAST},
}

const (
	nodes = "nodes"
	// loopback is where nodes connect from.
	loopback = "127.0.0.0/8"
)

type daemon struct {
	server *server.BgpServer
}

// startDaemon listens on the address. Nodes connect to it and it to none of them, so none has to be known before.
func startDaemon(ctx context.Context, listen netip.AddrPort, asn, nodeASN uint32) (*daemon, error) {
	d := &daemon{server: server.NewBgpServer()}
	go d.server.Serve()
	err := d.server.StartBgp(ctx, &api.StartBgpRequest{Global: &api.Global{
		Asn:             asn,
		RouterId:        listen.Addr().String(),
		ListenAddresses: []string{listen.Addr().String()},
		ListenPort:      int32(listen.Port()),
	}})
	if err != nil {
		return nil, err
	}
	group := &api.PeerGroup{
		Conf: &api.PeerGroupConf{PeerGroupName: nodes, PeerAsn: nodeASN},
		// Where a node asks for graceful restart, its routes are kept while it restarts.
		GracefulRestart: &api.GracefulRestart{Enabled: true, HelperOnly: true, RestartTime: 120},
	}
	for _, family := range families {
		group.AfiSafis = append(group.AfiSafis, &api.AfiSafi{
			Config:            &api.AfiSafiConfig{Family: family, Enabled: true},
			MpGracefulRestart: &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: true}},
		})
	}
	if err := d.server.AddPeerGroup(ctx, &api.AddPeerGroupRequest{PeerGroup: group}); err != nil {
		return nil, err
	}
	anybody := &api.DynamicNeighbor{Prefix: loopback, PeerGroup: nodes}
	return d, d.server.AddDynamicNeighbor(ctx, &api.AddDynamicNeighborRequest{DynamicNeighbor: anybody})
}

// watch reports sessions and best routes. GoBGP calls report from several goroutines.
func (d *daemon) watch(ctx context.Context, report func(event)) error {
	request := &api.WatchEventRequest{
		Peer: &api.WatchEventRequest_Peer{},
		Table: &api.WatchEventRequest_Table{Filters: []*api.WatchEventRequest_Table_Filter{
			{Type: api.WatchEventRequest_Table_Filter_BEST},
		}},
	}
	return d.server.WatchEvent(ctx, request, func(news *api.WatchEventResponse) {
		if peer := news.GetPeer(); peer != nil && peer.Type == api.WatchEventResponse_PeerEvent_STATE {
			state := peer.Peer.State
			report(event{Event: "session", Node: state.NeighborAddress, State: state.SessionState.String()})
		}
		for _, path := range news.GetTable().GetPaths() {
			r, err := routeOf(path)
			if err != nil {
				report(event{Event: "fatal", State: err.Error()})
				continue
			}
			if path.IsWithdraw {
				r = route{Prefix: r.Prefix}
			}
			report(event{Event: "best", Route: &r})
		}
	})
}

// table is all that the daemon knows.
func (d *daemon) table(ctx context.Context) (sessions []string, routes []route, err error) {
	sessions, routes = []string{}, []route{}
	err = d.server.ListPeer(ctx, &api.ListPeerRequest{}, func(peer *api.Peer) {
		if peer.State.SessionState == api.PeerState_ESTABLISHED {
			sessions = append(sessions, peer.State.NeighborAddress)
		}
	})
	if err != nil {
		return nil, nil, err
	}
	slices.Sort(sessions)
	for _, family := range families {
		request := &api.ListPathRequest{TableType: api.TableType_GLOBAL, Family: family}
		var bad error
		err := d.server.ListPath(ctx, request, func(destination *api.Destination) {
			for _, path := range destination.Paths {
				r, err := routeOf(path)
				bad = cmp.Or(bad, err)
				routes = append(routes, r)
			}
		})
		if err := cmp.Or(err, bad); err != nil {
			return nil, nil, err
		}
	}
	slices.SortFunc(routes, func(a, b route) int {
		return cmp.Or(cmp.Compare(a.Prefix, b.Prefix), cmp.Compare(a.Node, b.Node))
	})
	return sessions, routes, nil
}

func routeOf(path *api.Path) (route, error) {
	nlri, err := apiutil.GetNativeNlri(path)
	if err != nil {
		return route{}, fmt.Errorf("a path without a prefix: %w", err)
	}
	r := route{Prefix: nlri.String(), Node: path.NeighborIp}
	attributes, err := apiutil.GetNativePathAttributes(path)
	if err != nil {
		return route{}, fmt.Errorf("attributes of %s: %w", r.Prefix, err)
	}
	for _, attribute := range attributes {
		switch a := attribute.(type) {
		case *bgp.PathAttributeNextHop:
			r.NextHop = hop(a.Value)
		case *bgp.PathAttributeMpReachNLRI:
			r.NextHop = hop(a.Nexthop)
		}
	}
	return r, nil
}

// hop is the address as it was sent: net.IP would write an IPv4 address in IPv6 form as an IPv4 address.
func hop(ip net.IP) string {
	addr, _ := netip.AddrFromSlice(ip)
	return addr.String()
}
