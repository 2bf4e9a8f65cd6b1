// Package oracle judges the history of CiliumNodes and NodeIPBlocks.
//
// It is fed every version of every object of the two kinds in the order in which the store took them, and says at
// which of them a rule was broken. It shares no code with the product, talks to no server and knows no clock but the
// times that are written in the objects, and the time that whoever asks for a report says it is.
// Each event costs time in proportion to what changed in that object, not to the size of the cluster, so that
// 5,000 nodes with 255 addresses each are no burden.
package oracle

import (
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// Kind is the kind of an object in the history.
type Kind int

// The two kinds of the history.
const (
	CiliumNode Kind = iota
	NodeIPBlock
)

// Event is one version of one object, or its end.
type Event struct {
	Revision int64
	Kind     Kind
	Name     string
	// Value is the stored JSON; nil means that the object was deleted.
	Value []byte
}

// defaultMaxReleasing allows for a restart of every server and of the controller, and for an agent that is slow to
// answer; a block that is Releasing for longer is one that nobody moves on.
const defaultMaxReleasing = time.Minute

// maxListed bounds what is kept of each list of findings: a broken product may break a rule a million times, and
// the first thousand tell as much. The counts go on.
const maxListed = 1000

// Oracle holds what the history has come to. Its methods may be called from several goroutines.
type Oracle struct {
	mu sync.Mutex

	names   []string          // The node names, by id; an id is never used again.
	ids     map[string]nodeID // The inverse of names.
	nodes   map[nodeID]*node
	claims  map[string]*claim
	claimed map[netip.Prefix][]*claim // The claims by their CIDR.

	cidrs  prefixIndex  // Who has which podCIDR.
	pooled addressIndex // Who has which address in its pool.
	used   addressIndex // Whose status says that it uses which address.
	held   addressIndex // Which agent has said that it holds which address.

	allowed []Allowance
	// fixed says that an object keeps its podCIDRs for its life.
	fixed bool
	// atAnswers says that a CIDR that leaves `allocated` with a usage query is judged at the answer.
	atAnswers bool
	// maxReleasing is how long a claim may be Releasing.
	maxReleasing time.Duration
	report       Report
	// now is the revision of the event that is being judged.
	now int64
	// fresh collects the findings of the call in progress.
	fresh []Finding
}

// New returns an oracle for an empty history.
func New() *Oracle {
	o := &Oracle{}
	o.Renew()
	return o
}

// Renew drops everything: the history, the findings, what agents hold, and what was said of the judging.
func (o *Oracle) Renew() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.names, o.ids = nil, map[string]nodeID{}
	o.nodes = map[nodeID]*node{}
	o.claims = map[string]*claim{}
	o.claimed = map[netip.Prefix][]*claim{}
	o.cidrs = newPrefixIndex()
	o.pooled = newAddressIndex()
	o.used = newAddressIndex()
	o.held = newAddressIndex()

	o.allowed, o.fixed, o.atAnswers, o.maxReleasing = nil, false, false, defaultMaxReleasing
	o.report, o.now, o.fresh = Report{}, 0, nil
}

// Apply judges the next event and returns what it newly broke, planted or not.
func (o *Oracle) Apply(e Event) []Finding {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.now = e.Revision
	o.report.Events++
	switch e.Kind {
	case CiliumNode:
		o.applyNode(e.Name, e.Value)
	case NodeIPBlock:
		o.applyClaim(e.Name, e.Value)
	}
	return o.takeFresh()
}

// Hold records that the agent of a node took or gave back addresses, and returns what that newly broke.
func (o *Oracle) Hold(name string, add, remove []string) ([]Finding, error) {
	added, err := parseAddresses(add)
	if err != nil {
		return nil, err
	}
	removed, err := parseAddresses(remove)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	id := o.id(name)
	for _, a := range removed {
		o.held.remove(a, id)
	}
	for _, a := range added {
		for _, other := range o.held.add(a, id) {
			o.find(AgentAddressTwice, a.prefix(), []nodeID{id, other},
				"the agents of %s and %s both hold %s", name, o.names[other], a)
		}
	}
	return o.takeFresh(), nil
}

// Compacted records that the store has forgotten events that were never judged.
func (o *Oracle) Compacted(position, compacted int64) []Finding {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.now = position
	o.find(Compacted, netip.Prefix{}, nil,
		"the store was compacted at revision %d while only revision %d was judged", compacted, position)
	return o.takeFresh()
}

// Forget drops the history's state but keeps the findings; the caller then feeds a snapshot. What agents hold is kept.
func (o *Oracle) Forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.nodes = map[nodeID]*node{}
	o.claims = map[string]*claim{}
	o.claimed = map[netip.Prefix][]*claim{}
	o.cidrs = newPrefixIndex()
	o.pooled = newAddressIndex()
	o.used = newAddressIndex()
}

// Allow says that findings which match are planted by the test. It acts on findings made afterwards.
func (o *Oracle) Allow(a Allowance) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.allowed = append(o.allowed, a)
}

// FixPodCIDRs says that an object that has podCIDRs keeps them as they are, as agents in the modes cluster-pool and
// kubernetes need it.
func (o *Oracle) FixPodCIDRs() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fixed = true
}

// JudgeAtAnswers says that pods start at any time in mode multi-pool. One may get an address of a CIDR while the CIDR
// is removed with a usage query, and the agent refuses that by its answer. So the answer is judged.
func (o *Oracle) JudgeAtAnswers() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.atAnswers = true
}

// LimitReleasing says how long a claim may be Releasing from now on.
func (o *Oracle) LimitReleasing(limit time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.maxReleasing = limit
}

// Report returns what was found so far. A claim that is Releasing is judged by how long it has been so at this time;
// what that newly broke is in the report, and returned beside it.
func (o *Oracle) Report(now time.Time) (Report, []Finding) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.judgeStillReleasing(now)
	report := o.report
	report.Nodes = len(o.nodes)
	report.Claims = len(o.claims)
	// The lists only grow, and a copy of the slice header is not changed by that; null would be awkward to read.
	if report.Violations == nil {
		report.Violations = []Finding{}
	}
	if report.Planted == nil {
		report.Planted = []Finding{}
	}
	return report, o.takeFresh()
}

// id returns the id of a node name.
func (o *Oracle) id(name string) nodeID {
	id, known := o.ids[name]
	if !known {
		id = nodeID(len(o.names))
		o.names = append(o.names, name)
		o.ids[name] = id
	}
	return id
}

// find records a finding about a CIDR (or an address as a CIDR of one) and nodes.
func (o *Oracle) find(rule Rule, cidr netip.Prefix, nodes []nodeID, format string, args ...any) {
	finding := Finding{Rule: rule, Revision: o.now, Detail: fmt.Sprintf(format, args...)}
	if cidr.IsValid() {
		finding.CIDR = cidr.String()
	}
	for _, id := range nodes {
		finding.Nodes = append(finding.Nodes, o.names[id])
	}
	list, count := &o.report.Violations, &o.report.ViolationsTotal
	for _, a := range o.allowed {
		if a.matches(finding, cidr) {
			finding.Planted = true
			list, count = &o.report.Planted, &o.report.PlantedTotal
			break
		}
	}
	*count++
	if len(*list) < maxListed {
		*list = append(*list, finding)
		o.fresh = append(o.fresh, finding)
	}
}

func (o *Oracle) takeFresh() []Finding {
	fresh := o.fresh
	o.fresh = nil
	return fresh
}
