// What the oracle says: rules, findings, allowances, and the report.

package oracle

import (
	"fmt"
	"net/netip"
	"slices"
)

// Rule is the stable name of a rule.
type Rule string

// The rules.
const (
	// OverlappingPodCIDRs: podCIDRs of two CiliumNodes overlap.
	OverlappingPodCIDRs Rule = "overlapping-podcidrs"
	// AddressInTwoPools: one address is in the pools of two CiliumNodes.
	AddressInTwoPools Rule = "address-in-two-pools"
	// AddressOutsidePodCIDRs: an address of a pool lies in no podCIDR of that CiliumNode.
	AddressOutsidePodCIDRs Rule = "address-outside-podcidrs"
	// CIDRWithoutClaim: a podCIDR is on a CiliumNode and there is no claim for exactly it and that node, or the claim
	// is Cooling.
	CIDRWithoutClaim Rule = "cidr-without-claim"
	// ClaimDeletedWhileCarried: a claim went away while its CiliumNode carried its CIDR.
	ClaimDeletedWhileCarried Rule = "claim-deleted-while-carried"
	// UsedTwice: the statuses of two CiliumNodes say that they use one address.
	UsedTwice Rule = "used-twice"
	// AgentAddressTwice: the agents of two nodes hold one address.
	AgentAddressTwice Rule = "agent-address-twice"
	// HeldAddressWithdrawn: an address left the pool of a CiliumNode while the agent of that node held it.
	HeldAddressWithdrawn Rule = "held-address-withdrawn"
	// WithdrawnWithoutConsent: an address left the pool of a CiliumNode that continues to exist, and its agent had not
	// let it go, or used it.
	WithdrawnWithoutConsent Rule = "withdrawn-without-consent"
	// PodCIDRsChanged: an object changed its podCIDRs, in a mode in which agents read them once.
	PodCIDRsChanged Rule = "podcidrs-changed"
	// ReleasingTooLong: a claim was Releasing for longer than the test allows.
	ReleasingTooLong Rule = "releasing-too-long"
	// Compacted: the store forgot events before they were judged.
	Compacted Rule = "compacted"
	// Undecodable: an object, a CIDR or an address is not of the form that Cilium reads.
	Undecodable Rule = "undecodable"
)

// Rules lists every rule.
var Rules = []Rule{
	OverlappingPodCIDRs, AddressInTwoPools, AddressOutsidePodCIDRs, CIDRWithoutClaim, ClaimDeletedWhileCarried,
	UsedTwice, AgentAddressTwice, HeldAddressWithdrawn, WithdrawnWithoutConsent, PodCIDRsChanged, ReleasingTooLong,
	Compacted, Undecodable,
}

// Finding is one breach of a rule, reported once, when it begins.
type Finding struct {
	Rule     Rule     `json:"rule"`
	Revision int64    `json:"revision"`
	Detail   string   `json:"detail"`
	Nodes    []string `json:"nodes,omitempty"`
	// CIDR is what the finding is about; an address is written as a CIDR of one.
	CIDR string `json:"cidr,omitempty"`
	// Planted says that the test had announced it.
	Planted bool `json:"planted,omitempty"`
}

// Report is the state of the oracle.
type Report struct {
	Events int64 `json:"events"`
	Claims int   `json:"claims"`
	Nodes  int   `json:"nodes"`
	// The lists end at a thousand; the totals do not.
	Violations      []Finding `json:"violations"`
	ViolationsTotal int       `json:"violationsTotal"`
	Planted         []Finding `json:"planted"`
	PlantedTotal    int       `json:"plantedTotal"`
}

// Allowance announces findings that a test causes on purpose.
type Allowance struct {
	rule Rule
	node string       // Empty: any node.
	cidr netip.Prefix // Invalid: anything; else the finding's CIDR must lie in it.
}

// NewAllowance reads an allowance; node and cidr may be empty, which means any. A single address is a CIDR too.
func NewAllowance(rule, node, cidr string) (Allowance, error) {
	a := Allowance{rule: Rule(rule), node: node}
	if !slices.Contains(Rules, a.rule) {
		return a, fmt.Errorf("no rule is called %q", rule)
	}
	if cidr == "" {
		return a, nil
	}
	if addr, err := netip.ParseAddr(cidr); err == nil {
		a.cidr = netip.PrefixFrom(addr, addr.BitLen())
		return a, nil
	}
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		return a, err
	}
	a.cidr = prefix.Masked()
	return a, nil
}

func (a Allowance) matches(f Finding, cidr netip.Prefix) bool {
	if a.rule != f.Rule {
		return false
	}
	if a.node != "" && !slices.Contains(f.Nodes, a.node) {
		return false
	}
	return !a.cidr.IsValid() ||
		cidr.IsValid() && a.cidr.Bits() <= cidr.Bits() && a.cidr.Contains(cidr.Addr())
}
