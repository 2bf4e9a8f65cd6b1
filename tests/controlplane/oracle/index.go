// The indexes that answer "who else has this?" without looking at every node.

package oracle

import (
	"fmt"
	"net/netip"
	"slices"
	"sort"
)

// nodeID is the number of a node name; millions of them are kept.
type nodeID int32

// address is an IP address without pointers, which spares the garbage collector millions of them. IPv4 is kept mapped.
type address [16]byte

func addressOf(a netip.Addr) address { return a.As16() }

func (a address) addr() netip.Addr { return netip.AddrFrom16(a).Unmap() }

func (a address) prefix() netip.Prefix {
	addr := a.addr()
	return netip.PrefixFrom(addr, addr.BitLen())
}

func (a address) String() string { return a.addr().String() }

// parseAddress reads the one spelling that Cilium uses. Cilium looks addresses up by their text, so another
// spelling of an address would be another address to it.
func parseAddress(text string) (address, error) {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return address{}, err
	}
	if addr.Zone() != "" || addr.Is4In6() || addr.String() != text {
		return address{}, fmt.Errorf("the address %q is not in canonical form", text)
	}
	return addressOf(addr), nil
}

func parseAddresses(texts []string) ([]address, error) {
	addresses := make([]address, 0, len(texts))
	for _, text := range texts {
		a, err := parseAddress(text)
		if err != nil {
			return nil, err
		}
		addresses = append(addresses, a)
	}
	return addresses, nil
}

// parseCIDR reads a canonical CIDR whose host bits are zero.
func parseCIDR(text string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, err
	}
	if prefix.Addr().Is4In6() || prefix.Masked() != prefix || prefix.String() != text {
		return netip.Prefix{}, fmt.Errorf("the CIDR %q is not in canonical form", text)
	}
	return prefix, nil
}

// addressIndex knows which nodes have an address. Almost always that is one node, so the others live apart.
type addressIndex struct {
	first map[address]nodeID
	more  map[address][]nodeID
}

func newAddressIndex() addressIndex {
	return addressIndex{first: map[address]nodeID{}, more: map[address][]nodeID{}}
}

// add returns the other nodes that have the address; adding twice is adding once.
func (x *addressIndex) add(a address, id nodeID) []nodeID {
	first, taken := x.first[a]
	if !taken {
		x.first[a] = id
		return nil
	}
	more := x.more[a]
	if first == id || slices.Contains(more, id) {
		return nil
	}
	others := append([]nodeID{first}, more...)
	x.more[a] = append(more, id)
	return others
}

func (x *addressIndex) has(a address, id nodeID) bool {
	first, taken := x.first[a]
	return taken && (first == id || slices.Contains(x.more[a], id))
}

func (x *addressIndex) remove(a address, id nodeID) {
	more := x.more[a]
	first, taken := x.first[a]
	switch {
	case !taken:
	case first != id:
		more = slices.DeleteFunc(slices.Clone(more), func(other nodeID) bool { return other == id })
	case len(more) == 0:
		delete(x.first, a)
	default:
		x.first[a], more = more[0], slices.Clone(more[1:])
	}
	if len(more) == 0 {
		delete(x.more, a)
	} else {
		x.more[a] = more
	}
}

// prefixIndex knows which nodes have which CIDR, and finds those that overlap a CIDR.
type prefixIndex struct {
	sorted []netip.Prefix // By first address, then the larger CIDR first.
	nodes  map[netip.Prefix][]nodeID
	// lengths counts the CIDRs of each prefix length; only those can contain another.
	lengths map[int]int
}

func newPrefixIndex() prefixIndex {
	return prefixIndex{nodes: map[netip.Prefix][]nodeID{}, lengths: map[int]int{}}
}

func before(a, b netip.Prefix) bool {
	if c := a.Addr().Compare(b.Addr()); c != 0 {
		return c < 0
	}
	return a.Bits() < b.Bits()
}

// position is where p is or would be in sorted.
func (x *prefixIndex) position(p netip.Prefix) int {
	return sort.Search(len(x.sorted), func(i int) bool { return !before(x.sorted[i], p) })
}

func (x *prefixIndex) add(p netip.Prefix, id nodeID) {
	if len(x.nodes[p]) == 0 {
		x.sorted = slices.Insert(x.sorted, x.position(p), p)
		x.lengths[p.Bits()]++
	}
	x.nodes[p] = append(x.nodes[p], id)
}

func (x *prefixIndex) remove(p netip.Prefix, id nodeID) {
	left := slices.DeleteFunc(slices.Clone(x.nodes[p]), func(other nodeID) bool { return other == id })
	if len(left) > 0 {
		x.nodes[p] = left
		return
	}
	delete(x.nodes, p)
	at := x.position(p)
	x.sorted = slices.Delete(x.sorted, at, at+1)
	if x.lengths[p.Bits()]--; x.lengths[p.Bits()] == 0 {
		delete(x.lengths, p.Bits())
	}
}

// overlapping calls seen for each CIDR of another node that overlaps p.
func (x *prefixIndex) overlapping(p netip.Prefix, self nodeID, seen func(netip.Prefix, nodeID)) {
	visit := func(q netip.Prefix) {
		for _, id := range x.nodes[q] {
			if id != self {
				seen(q, id)
			}
		}
	}
	for bits := range x.lengths {
		if bits < p.Bits() {
			visit(netip.PrefixFrom(p.Addr(), bits).Masked())
		}
	}
	for i := x.position(p); i < len(x.sorted) && p.Contains(x.sorted[i].Addr()); i++ {
		visit(x.sorted[i])
	}
}
