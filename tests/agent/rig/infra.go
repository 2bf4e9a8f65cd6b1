package rig

import (
	"fmt"
	"net/netip"
)

// Family is one of the two address families.
type Family int

// The families, in the order in which agents take their own addresses.
const (
	IPv4 Family = iota
	IPv6
)

func (f Family) String() string {
	if f == IPv6 {
		return "ipv6"
	}
	return "ipv4"
}

// of is the text of this family's address.
func (f Family) of(a *Addresses) *string {
	if f == IPv6 {
		return &a.IPv6
	}
	return &a.IPv4
}

// Allocator is what TakeOwn needs of Cilium's allocator. None of it writes to the API server.
type Allocator interface {
	// Take takes exactly this address.
	Take(ip netip.Addr, owner string) error
	// TakeNext takes any address of a family.
	TakeNext(f Family, owner string) (netip.Addr, error)
}

// TakeOwn takes the addresses of router, ingress and health, where Cilium's own code for it can't be called: up to 1.17
// it is private to the daemon. This is that code (allocateIPs, allocateDatapathIPs, allocateIngressIPs and
// allocateHealthIPs of daemon/cmd/ipam.go) without what it does for clouds and for devices. kept names what the release
// would take again; where it does not look for an earlier address, the caller leaves that out.
func TakeOwn(c Config, events *Events, a Allocator, kept Kept) (Kept, error) {
	var own Kept
	for _, f := range c.families() {
		ip, err := takeAgain(events, a, f, "router", *f.of(&kept.Router), "Unable to restore router IP from filesystem")
		if err != nil {
			return own, fmt.Errorf("Unable to allocate router IP for family %s: %w", f, err)
		}
		*f.of(&own.Router) = ip.String()
	}
	if c.Ingress {
		for _, f := range c.families() {
			ip, err := takeAgain(events, a, f, "ingress", *f.of(&kept.Ingress), "unable to re-allocate ingress "+f.title()+".")
			if err != nil {
				return own, fmt.Errorf("unable to allocate ingress IPs: %w, see https://cilium.link/ipam-range-full", err)
			}
			*f.of(&own.Ingress) = ip.String()
		}
	}
	if c.Health {
		for _, f := range c.families() {
			ip, err := takeAgain(events, a, f, "health", *f.of(&kept.Health),
				"unable to re-allocate health "+f.title()+", a new health "+f.title()+" will be allocated")
			if err != nil {
				return own, fmt.Errorf("unable to allocate health IPs: %w, see https://cilium.link/ipam-range-full", err)
			}
			*f.of(&own.Health) = ip.String()
		}
	}
	return own, nil
}

// takeAgain takes the address that was kept, or else any.
func takeAgain(events *Events, a Allocator, f Family, owner, kept, refused string) (netip.Addr, error) {
	if kept != "" {
		ip, err := netip.ParseAddr(kept)
		if err == nil {
			err = a.Take(ip, owner)
		}
		if err == nil {
			return ip, nil
		}
		events.Log(refused, map[string]string{"error": err.Error(), "ipAddr": kept})
	}
	return a.TakeNext(f, owner)
}

func (c Config) families() []Family {
	var families []Family
	if c.IPv4 {
		families = append(families, IPv4)
	}
	if c.IPv6 {
		families = append(families, IPv6)
	}
	return families
}

// title is the family as Cilium's log lines have it.
func (f Family) title() string {
	if f == IPv6 {
		return "IPv6"
	}
	return "IPv4"
}
