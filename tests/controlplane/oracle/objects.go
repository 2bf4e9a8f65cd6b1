// The two kinds of objects: what is read of them, and what a new version of each may break.

package oracle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"time"
)

// node is what is known of a CiliumNode.
type node struct {
	// cidrs are its podCIDRs, and in mode multi-pool those that are allocated.
	cidrs []netip.Prefix
	// allocated are those of them that its agent may use whole.
	allocated []netip.Prefix
	// asked says that a usage query waits for the answer of the agent, in mode multi-pool.
	asked bool
	// off are the CIDRs that left `allocated` with the usage query that still waits.
	off   []netip.Prefix
	pool  []address // Sorted.
	used  []address // Sorted.
	freed []address // Sorted: what the agent has let go, which is ready to be released, or released.
	// bad are the texts that could not be read; a text is reported when it first appears.
	bad []string
}

// queryPrefix is the prefix of the name of the pool that stands for a usage query.
const queryPrefix = "nodeipam.io-asked-as-of-"

// claim is what is known of a NodeIPBlock.
type claim struct {
	cidr  netip.Prefix
	node  string
	state string
	since time.Time // When the state began, by the clock of its writer; zero if it does not say.
	// late says that the claim was found to be Releasing for too long.
	late bool
}

// covers says whether the claim entitles its CiliumNode to carry the CIDR. A Releasing claim does: the CIDR
// is being taken off, and a writer that decided before may still be heard. A Cooling one does not.
func (c *claim) covers(cidr netip.Prefix, name string) bool {
	return c != nil && c.cidr == cidr && c.node == name && c.state != "Cooling"
}

type ciliumNodeJSON struct {
	Spec struct {
		IPAM struct {
			PodCIDRs []string            `json:"podCIDRs"`
			Pool     map[string]struct{} `json:"pool"`
			Pools    struct {
				Requested []struct {
					Pool string `json:"pool"`
				} `json:"requested"`
				Allocated []struct {
					CIDRs []string `json:"cidrs"`
				} `json:"allocated"`
			} `json:"pools"`
		} `json:"ipam"`
	} `json:"spec"`
	Status struct {
		IPAM struct {
			Used    map[string]struct{} `json:"used"`
			Release map[string]string   `json:"release-ips"`
		} `json:"ipam"`
	} `json:"status"`
}

type nodeIPBlockJSON struct {
	Spec struct {
		CIDR  string `json:"cidr"`
		Node  string `json:"node"`
		State string `json:"state"`
		Since string `json:"since"`
	} `json:"spec"`
}

// applyNode takes over a version of a CiliumNode; value nil is its deletion.
func (o *Oracle) applyNode(name string, value []byte) {
	id := o.id(name)
	old := o.nodes[id]
	if old == nil {
		old = &node{}
	}
	next := &node{}
	if value != nil {
		var err error
		if next, err = decodeNode(value); err != nil {
			// The version is not judged; the last readable one stays in force.
			o.find(Undecodable, netip.Prefix{}, []nodeID{id}, "the CiliumNode %s can't be read: %v", name, err)
			return
		}
	}
	for _, text := range next.bad {
		if !slices.Contains(old.bad, text) {
			o.find(Undecodable, netip.Prefix{}, []nodeID{id}, "the CiliumNode %s: %s", name, text)
		}
	}
	if o.fixed && value != nil && len(old.cidrs) > 0 && !slices.Equal(old.cidrs, next.cidrs) {
		o.find(PodCIDRsChanged, netip.Prefix{}, []nodeID{id}, "the podCIDRs of %s were %v, and are %v", name, old.cidrs, next.cidrs)
	}
	o.changeCIDRs(name, id, old, next)
	o.changePool(name, id, old, next)
	if value != nil {
		o.judgeWithdrawn(name, id, old, next)
	}
	o.changeUsed(name, id, old, next)
	if value == nil {
		delete(o.nodes, id)
	} else {
		o.nodes[id] = next
	}
}

func (o *Oracle) changeCIDRs(name string, id nodeID, old, next *node) {
	for _, cidr := range old.cidrs {
		if !slices.Contains(next.cidrs, cidr) {
			o.cidrs.remove(cidr, id)
		}
	}
	for _, cidr := range next.cidrs {
		if slices.Contains(old.cidrs, cidr) {
			continue
		}
		o.cidrs.overlapping(cidr, id, func(other netip.Prefix, otherID nodeID) {
			o.find(OverlappingPodCIDRs, cidr, []nodeID{id, otherID},
				"%s of %s overlaps %s of %s", cidr, name, other, o.names[otherID])
		})
		o.cidrs.add(cidr, id)
		if !o.covered(cidr, name) {
			o.find(CIDRWithoutClaim, cidr, []nodeID{id}, "%s appears on %s: %s", cidr, name, o.whyUncovered(cidr))
		}
	}
}

func (o *Oracle) changePool(name string, id nodeID, old, next *node) {
	added, removed := difference(old.pool, next.pool)
	for _, a := range removed {
		o.pooled.remove(a, id)
	}
	for _, a := range added {
		for _, other := range o.pooled.add(a, id) {
			o.find(AddressInTwoPools, a.prefix(), []nodeID{id, other},
				"%s is in the pools of %s and %s", a, name, o.names[other])
		}
	}
	lost := slices.ContainsFunc(old.cidrs, func(c netip.Prefix) bool { return !slices.Contains(next.cidrs, c) })
	look := added
	if lost {
		look = next.pool
	}
	for _, a := range look {
		if contains(next.cidrs, a) {
			continue
		}
		// An address that was outside before is an old finding.
		if includes(old.pool, a) && !contains(old.cidrs, a) {
			continue
		}
		o.find(AddressOutsidePodCIDRs, a.prefix(), []nodeID{id}, "%s is in the pool of %s and in none of its podCIDRs", a, name)
	}
}

// judgeWithdrawn looks at what a CiliumNode that continues to exist offers no more. An agent that restarts takes the
// network of a pod whose address is not offered, so nothing leaves without its consent. One that is deleted is another
// matter: its agent keeps what it had.
func (o *Oracle) judgeWithdrawn(name string, id nodeID, old, next *node) {
	_, removed := difference(old.pool, next.pool)
	for _, a := range removed {
		if o.held.has(a, id) {
			o.find(HeldAddressWithdrawn, a.prefix(), []nodeID{id},
				"%s is taken out of the pool of %s, whose agent holds it", a, name)
		}
		if !includes(old.freed, a) {
			o.find(WithdrawnWithoutConsent, a.prefix(), []nodeID{id},
				"%s is taken out of the pool of %s, whose agent has not let it go", a, name)
		} else if includes(old.used, a) || includes(next.used, a) {
			o.find(WithdrawnWithoutConsent, a.prefix(), []nodeID{id},
				"%s is taken out of the pool of %s, which says that it is used", a, name)
		}
	}
	left := slices.DeleteFunc(slices.Concat(old.off, old.allocated), func(cidr netip.Prefix) bool {
		return slices.Contains(next.allocated, cidr)
	})
	if o.atAnswers && next.asked {
		next.off = left
		return
	}
	for _, cidr := range left {
		for a := range o.held.first {
			if cidr.Contains(a.addr()) && o.held.has(a, id) {
				o.find(HeldAddressWithdrawn, a.prefix(), []nodeID{id}, "%s is taken off %s, whose agent holds %s", cidr, name, a)
			}
		}
	}
}

func (o *Oracle) changeUsed(name string, id nodeID, old, next *node) {
	added, removed := difference(old.used, next.used)
	for _, a := range removed {
		o.used.remove(a, id)
	}
	for _, a := range added {
		for _, other := range o.used.add(a, id) {
			o.find(UsedTwice, a.prefix(), []nodeID{id, other}, "%s and %s both say that they use %s", name, o.names[other], a)
		}
	}
}

// applyClaim takes over a version of a NodeIPBlock; value nil is its deletion.
func (o *Oracle) applyClaim(name string, value []byte) {
	old := o.claims[name]
	var next *claim
	if value != nil {
		var err error
		if next, err = decodeClaim(value); err != nil {
			// As with a node, the last readable version stays in force.
			o.find(Undecodable, netip.Prefix{}, nil, "the NodeIPBlock %s can't be read: %v", name, err)
			return
		}
	}
	if old != nil {
		left := slices.DeleteFunc(o.claimed[old.cidr], func(c *claim) bool { return c == old })
		if len(left) == 0 {
			delete(o.claimed, old.cidr)
		} else {
			o.claimed[old.cidr] = left
		}
		delete(o.claims, name)
	}
	if next != nil {
		// Another version of one state is no other breach.
		next.late = old != nil && old.late && next.state == old.state && next.since.Equal(old.since)
		o.claims[name] = next
		o.claimed[next.cidr] = append(o.claimed[next.cidr], next)
	}
	if old == nil {
		return
	}
	o.judgeReleasing(name, old, next)
	id := o.id(old.node)
	if carrier := o.nodes[id]; carrier == nil || !slices.Contains(carrier.cidrs, old.cidr) || o.covered(old.cidr, old.node) {
		return
	}
	switch {
	case next == nil:
		o.find(ClaimDeletedWhileCarried, old.cidr, []nodeID{id},
			"the claim %s (%s) is gone and %s is on %s", name, old.state, old.cidr, old.node)
	case old.covers(old.cidr, old.node):
		o.find(CIDRWithoutClaim, old.cidr, []nodeID{id},
			"%s is on %s: %s", old.cidr, old.node, o.whyUncovered(old.cidr))
	}
}

// judgeReleasing looks how long a claim was Releasing when it moves on. Both times are its writers'; a deletion has
// none.
func (o *Oracle) judgeReleasing(name string, old, next *claim) {
	if next == nil || next.state == "Releasing" || next.since.IsZero() {
		return
	}
	o.judgeDuration(name, old, next.since)
}

// judgeStillReleasing looks how long claims have been Releasing that nobody has moved on.
func (o *Oracle) judgeStillReleasing(now time.Time) {
	for _, name := range slices.Sorted(maps.Keys(o.claims)) {
		o.judgeDuration(name, o.claims[name], now)
	}
}

// judgeDuration finds once that a claim was Releasing for too long at that time.
func (o *Oracle) judgeDuration(name string, c *claim, at time.Time) {
	if c.state != "Releasing" || c.since.IsZero() || c.late {
		return
	}
	if lasted := at.Sub(c.since); lasted > o.maxReleasing {
		c.late = true
		o.find(ReleasingTooLong, c.cidr, []nodeID{o.id(c.node)},
			"the claim %s was Releasing for %s, and %s is allowed", name, lasted, o.maxReleasing)
	}
}

// covered says whether a claim entitles the node to carry the CIDR.
func (o *Oracle) covered(cidr netip.Prefix, name string) bool {
	return slices.ContainsFunc(o.claimed[cidr], func(c *claim) bool { return c.covers(cidr, name) })
}

func (o *Oracle) whyUncovered(cidr netip.Prefix) string {
	claims := o.claimed[cidr]
	if len(claims) == 0 {
		return "there is no claim for it"
	}
	return fmt.Sprintf("its claim is of %s and %s", claims[0].node, claims[0].state)
}

func decodeNode(value []byte) (*node, error) {
	var object ciliumNodeJSON
	if err := json.Unmarshal(value, &object); err != nil {
		return nil, err
	}
	n := &node{}
	n.cidrs = n.parseCIDRs("podCIDRs", object.Spec.IPAM.PodCIDRs)
	for _, entry := range object.Spec.IPAM.Pools.Allocated {
		n.allocated = append(n.allocated, n.parseCIDRs("allocated", entry.CIDRs)...)
	}
	for _, entry := range object.Spec.IPAM.Pools.Requested {
		n.asked = n.asked || strings.HasPrefix(entry.Pool, queryPrefix)
	}
	for _, cidr := range n.allocated {
		if !slices.Contains(n.cidrs, cidr) {
			n.cidrs = append(n.cidrs, cidr)
		}
	}
	n.pool = n.sortedKeys("pool", object.Spec.IPAM.Pool)
	n.used = n.sortedKeys("used", object.Status.IPAM.Used)
	freed := map[string]struct{}{}
	for text, state := range object.Status.IPAM.Release {
		if state == "ready-for-release" || state == "released" {
			freed[text] = struct{}{}
		}
	}
	n.freed = n.sortedKeys("release-ips", freed)
	sort.Strings(n.bad)
	return n, nil
}

// parseCIDRs reads each CIDR once, whatever its text.
func (n *node) parseCIDRs(field string, texts []string) []netip.Prefix {
	var cidrs []netip.Prefix
	for _, text := range texts {
		cidr, err := parseCIDR(text)
		if err != nil {
			n.bad = append(n.bad, fmt.Sprintf("%s: %v", field, err))
		} else if !slices.Contains(cidrs, cidr) {
			cidrs = append(cidrs, cidr)
		}
	}
	return cidrs
}

func (n *node) sortedKeys(field string, keys map[string]struct{}) []address {
	addresses := make([]address, 0, len(keys))
	for text := range keys {
		a, err := parseAddress(text)
		if err != nil {
			n.bad = append(n.bad, fmt.Sprintf("%s: %v", field, err))
			continue
		}
		addresses = append(addresses, a)
	}
	slices.SortFunc(addresses, compareAddresses)
	return addresses
}

func decodeClaim(value []byte) (*claim, error) {
	var object nodeIPBlockJSON
	if err := json.Unmarshal(value, &object); err != nil {
		return nil, err
	}
	cidr, err := parseCIDR(object.Spec.CIDR)
	if err != nil {
		return nil, err
	}
	if object.Spec.Node == "" {
		return nil, fmt.Errorf("it names no node")
	}
	switch object.Spec.State {
	case "Held", "Draining", "Releasing", "Cooling":
	default:
		return nil, fmt.Errorf("no state is called %q", object.Spec.State)
	}
	c := &claim{cidr: cidr, node: object.Spec.Node, state: object.Spec.State}
	if object.Spec.Since != "" {
		if c.since, err = time.Parse(time.RFC3339Nano, object.Spec.Since); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func compareAddresses(a, b address) int { return bytes.Compare(a[:], b[:]) }

// includes says whether a sorted list has the address.
func includes(sorted []address, a address) bool {
	_, found := slices.BinarySearchFunc(sorted, a, compareAddresses)
	return found
}

func contains(cidrs []netip.Prefix, a address) bool {
	addr := a.addr()
	return slices.ContainsFunc(cidrs, func(c netip.Prefix) bool { return c.Contains(addr) })
}

// difference returns what next has and old has not, and the inverse, of two sorted lists.
func difference(old, next []address) (added, removed []address) {
	for len(old) > 0 || len(next) > 0 {
		switch {
		case len(old) == 0:
			return append(added, next...), removed
		case len(next) == 0:
			return added, append(removed, old...)
		}
		switch c := compareAddresses(old[0], next[0]); {
		case c == 0:
			old, next = old[1:], next[1:]
		case c < 0:
			removed, old = append(removed, old[0]), old[1:]
		default:
			added, next = append(added, next[0]), next[1:]
		}
	}
	return added, removed
}
