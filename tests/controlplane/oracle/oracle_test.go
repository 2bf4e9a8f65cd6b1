package oracle

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// history writes objects as the API server stores them and feeds them in order.
type history struct {
	t        *testing.T
	oracle   *Oracle
	revision int64
}

func newHistory(t *testing.T) *history { return &history{t: t, oracle: New()} }

func (h *history) apply(kind Kind, name string, value []byte) []Finding {
	h.revision++
	return h.oracle.Apply(Event{Revision: h.revision, Kind: kind, Name: name, Value: value})
}

// node writes a CiliumNode; each list is separated by spaces.
func (h *history) node(name, cidrs, pool, used string) []Finding {
	return h.marked(name, cidrs, pool, used, "")
}

// marked writes a CiliumNode with marks; each is an address, a slash, and the state of its release.
func (h *history) marked(name, cidrs, pool, used, marks string) []Finding {
	var release []string
	for _, mark := range strings.Fields(marks) {
		address, state, _ := strings.Cut(mark, "/")
		release = append(release, fmt.Sprintf("%q:%q", address, state))
	}
	quote := func(text, format string) string {
		var parts []string
		for _, word := range strings.Fields(text) {
			parts = append(parts, fmt.Sprintf(format, word))
		}
		return strings.Join(parts, ",")
	}
	return h.apply(CiliumNode, name, fmt.Appendf(nil,
		`{"metadata":{"name":%q},"spec":{"ipam":{"podCIDRs":[%s],"pool":{%s}}},"status":{"ipam":{"used":{%s},"release-ips":{%s}}}}`,
		name, quote(cidrs, `"%s"`), quote(pool, `"%s":{"owner":"x"}`), quote(used, `"%s":{"owner":"default/p"}`),
		strings.Join(release, ",")))
}

func (h *history) claim(cidr, node, state string) []Finding {
	return h.apply(NodeIPBlock, strings.ReplaceAll(cidr, "/", "-"), fmt.Appendf(nil,
		`{"spec":{"cidr":%q,"pool":"p","node":%q,"nodeUID":"u","state":%q}}`, cidr, node, state))
}

func (h *history) noClaim(cidr string) []Finding {
	return h.apply(NodeIPBlock, strings.ReplaceAll(cidr, "/", "-"), nil)
}

func (h *history) noNode(name string) []Finding { return h.apply(CiliumNode, name, nil) }

func (h *history) hold(node, add, remove string) []Finding {
	h.t.Helper()
	found, err := h.oracle.Hold(node, strings.Fields(add), strings.Fields(remove))
	if err != nil {
		h.t.Fatal(err)
	}
	return found
}

func (h *history) report(now time.Time) Report {
	report, _ := h.oracle.Report(now)
	return report
}

// want fails unless exactly these rules were broken, in any order.
func want(t *testing.T, found []Finding, rules ...Rule) {
	t.Helper()
	var got []Rule
	for _, f := range found {
		got = append(got, f.Rule)
	}
	slices.Sort(got)
	slices.Sort(rules)
	if !slices.Equal(got, rules) {
		t.Fatalf("found %v, want %v: %v", got, rules, found)
	}
}

func TestCleanLifeOfABlockBreaksNothing(t *testing.T) {
	h := newHistory(t)
	want(t, h.node("a", "", "", ""))
	want(t, h.node("b", "", "", ""))
	want(t, h.claim("10.0.0.0/30", "a", "Held"))
	want(t, h.node("a", "10.0.0.0/30", "10.0.0.1 10.0.0.2", ""))
	want(t, h.node("a", "10.0.0.0/30", "10.0.0.1 10.0.0.2", "10.0.0.1"))
	want(t, h.hold("a", "10.0.0.1", ""))
	want(t, h.hold("a", "", "10.0.0.1"))
	want(t, h.node("a", "10.0.0.0/30", "10.0.0.1 10.0.0.2", ""))
	want(t, h.claim("10.0.0.0/30", "a", "Draining"))
	want(t, h.claim("10.0.0.0/30", "a", "Releasing"))
	want(t, h.marked("a", "10.0.0.0/30", "10.0.0.1 10.0.0.2", "", "10.0.0.1/released 10.0.0.2/ready-for-release"))
	want(t, h.marked("a", "", "", "", "10.0.0.1/released 10.0.0.2/ready-for-release"))
	want(t, h.claim("10.0.0.0/30", "a", "Cooling"))
	want(t, h.noClaim("10.0.0.0/30"))
	want(t, h.claim("10.0.0.0/30", "b", "Held"))
	want(t, h.node("b", "10.0.0.0/30", "10.0.0.1 10.0.0.2", "10.0.0.1"))
	want(t, h.hold("b", "10.0.0.1", ""))
	report := h.report(time.Time{})
	if report.ViolationsTotal != 0 || report.Nodes != 2 || report.Claims != 1 || report.Events != 14 {
		t.Fatalf("%+v", report)
	}
}

func TestANodeThatIsDeletedHoldsNothing(t *testing.T) {
	h := newHistory(t)
	h.claim("10.0.0.0/30", "a", "Held")
	want(t, h.node("a", "10.0.0.0/30", "10.0.0.1", "10.0.0.1"))
	want(t, h.noNode("a"))
	want(t, h.claim("10.0.0.0/30", "a", "Releasing"))
	want(t, h.claim("10.0.0.0/30", "a", "Cooling"))
	want(t, h.noClaim("10.0.0.0/30"))
	h.claim("10.0.0.0/30", "b", "Held")
	want(t, h.node("b", "10.0.0.0/30", "10.0.0.1", "10.0.0.1"))
}

func TestOverlappingPodCIDRs(t *testing.T) {
	for _, pair := range [][2]string{
		{"10.0.0.0/28", "10.0.0.0/28"},
		{"10.0.0.0/24", "10.0.0.16/28"},
		{"10.0.0.240/28", "10.0.0.0/24"},
		{"fd00::/112", "fd00::40/122"},
		{"fd00::40/122", "fd00::/112"},
	} {
		h := newHistory(t)
		// Both are claimed by their nodes, so that nothing but the overlap is wrong; equal CIDRs can't both be.
		h.claim(pair[0], "a", "Held")
		rules := []Rule{OverlappingPodCIDRs}
		if pair[0] == pair[1] {
			rules = append(rules, CIDRWithoutClaim)
		} else {
			h.claim(pair[1], "b", "Held")
		}
		want(t, h.node("a", pair[0], "", ""))
		want(t, h.node("b", pair[1], "", ""), rules...)
		// It is reported when it begins, not for as long as it lasts.
		want(t, h.node("b", pair[1], "", ""))
		want(t, h.node("b", "", "", ""))
		want(t, h.node("b", pair[1], "", ""), rules...)
	}
}

func TestNeighbouringPodCIDRsDoNotOverlap(t *testing.T) {
	h := newHistory(t)
	for n, cidr := range []string{"10.0.0.0/28", "10.0.0.16/28", "10.0.0.32/27", "10.0.1.0/24", "fd00::/122", "fd00::40/122"} {
		name := fmt.Sprint("node-", n)
		h.claim(cidr, name, "Held")
		want(t, h.node(name, cidr, "", ""))
	}
}

func TestAddressInTwoPools(t *testing.T) {
	h := newHistory(t)
	h.claim("10.0.0.0/30", "a", "Held")
	h.node("a", "10.0.0.0/30", "10.0.0.1", "")
	want(t, h.node("b", "", "10.0.0.1", ""), AddressInTwoPools, AddressOutsidePodCIDRs)
	want(t, h.node("b", "", "10.0.0.1 10.0.0.3", ""), AddressOutsidePodCIDRs)
	// The first holder goes; the second one is still known.
	want(t, h.node("a", "10.0.0.0/30", "", ""), WithdrawnWithoutConsent)
	want(t, h.node("a", "10.0.0.0/30", "10.0.0.1", ""), AddressInTwoPools)
}

func TestAddressOutsidePodCIDRs(t *testing.T) {
	h := newHistory(t)
	h.claim("10.0.0.0/30", "a", "Held")
	h.claim("10.0.0.4/30", "a", "Held")
	want(t, h.node("a", "10.0.0.0/30 10.0.0.4/30", "10.0.0.1 10.0.0.5", ""))
	want(t, h.node("a", "10.0.0.0/30 10.0.0.4/30", "10.0.0.1 10.0.0.5 10.0.0.8", ""), AddressOutsidePodCIDRs)
	// The CIDR goes and leaves its address behind; the old finding is not reported again.
	want(t, h.node("a", "10.0.0.0/30", "10.0.0.1 10.0.0.5 10.0.0.8", ""), AddressOutsidePodCIDRs)
}

func TestCIDRWithoutClaim(t *testing.T) {
	h := newHistory(t)
	want(t, h.node("a", "10.0.0.0/30", "", ""), CIDRWithoutClaim)
	want(t, h.claim("10.0.0.0/30", "a", "Held")) // Too late, but no second breach.

	h = newHistory(t)
	h.claim("10.0.0.0/30", "b", "Held")
	want(t, h.node("a", "10.0.0.0/30", "", ""), CIDRWithoutClaim)

	h = newHistory(t)
	h.claim("10.0.0.0/29", "a", "Held")
	want(t, h.node("a", "10.0.0.0/30", "", ""), CIDRWithoutClaim)

	h = newHistory(t)
	h.claim("10.0.0.0/30", "a", "Cooling")
	want(t, h.node("a", "10.0.0.0/30", "", ""), CIDRWithoutClaim)

	h = newHistory(t)
	h.claim("10.0.0.0/30", "a", "Held")
	h.node("a", "10.0.0.0/30", "", "")
	want(t, h.claim("10.0.0.0/30", "a", "Releasing"))
	want(t, h.claim("10.0.0.0/30", "a", "Cooling"), CIDRWithoutClaim)
	want(t, h.claim("10.0.0.0/30", "a", "Held"))
	want(t, h.claim("10.0.0.0/30", "b", "Held"), CIDRWithoutClaim)
}

func TestClaimDeletedWhileCarried(t *testing.T) {
	for _, state := range []string{"Held", "Draining", "Releasing"} {
		h := newHistory(t)
		h.claim("10.0.0.0/30", "a", state)
		h.node("a", "10.0.0.0/30", "", "")
		want(t, h.noClaim("10.0.0.0/30"), ClaimDeletedWhileCarried)
	}
	h := newHistory(t)
	h.claim("10.0.0.0/30", "a", "Held")
	h.node("a", "10.0.0.0/30", "", "")
	want(t, h.claim("10.0.0.0/30", "a", "Cooling"), CIDRWithoutClaim)
	want(t, h.noClaim("10.0.0.0/30"), ClaimDeletedWhileCarried)
	// A claim that never was published may go at any time.
	h.claim("10.0.1.0/30", "a", "Releasing")
	want(t, h.noClaim("10.0.1.0/30"))
}

func TestUsedTwice(t *testing.T) {
	h := newHistory(t)
	h.node("a", "", "", "10.0.0.1")
	want(t, h.node("b", "", "", "10.0.0.1 10.0.0.2"), UsedTwice)
	want(t, h.node("c", "", "", "10.0.0.1"), UsedTwice, UsedTwice) // With each of the two.
	h.node("a", "", "", "")
	h.node("b", "", "", "")
	h.node("c", "", "", "")
	want(t, h.node("a", "", "", "10.0.0.1"))
}

func TestAgentAddressTwice(t *testing.T) {
	h := newHistory(t)
	want(t, h.hold("a", "10.0.0.1 fd00::1", ""))
	want(t, h.hold("a", "10.0.0.1", ""))
	want(t, h.hold("b", "fd00::1", ""), AgentAddressTwice)
	want(t, h.hold("a", "", "10.0.0.1"))
	want(t, h.hold("b", "10.0.0.1", ""))
	if _, err := h.oracle.Hold("a", []string{"10.0.0.01"}, nil); err == nil {
		t.Fatal("an address that is none was taken")
	}
}

func TestCompacted(t *testing.T) {
	h := newHistory(t)
	want(t, h.oracle.Compacted(3, 7), Compacted)
	h.claim("10.0.0.0/30", "a", "Held")
	h.node("a", "10.0.0.0/30", "10.0.0.1", "")
	h.oracle.Forget()
	// The snapshot that follows is judged afresh, and the finding stays.
	want(t, h.claim("10.0.0.0/30", "b", "Held"))
	want(t, h.node("b", "10.0.0.0/30", "10.0.0.1", ""))
	if got := h.report(time.Time{}).ViolationsTotal; got != 1 {
		t.Fatalf("%d violations", got)
	}
}

func TestUndecodable(t *testing.T) {
	h := newHistory(t)
	want(t, h.apply(CiliumNode, "a", []byte(`{"spec":{"ipam":{"pool":[]}}}`)), Undecodable)
	want(t, h.apply(CiliumNode, "a", []byte(`{`)), Undecodable)
	want(t, h.apply(NodeIPBlock, "x", []byte(`{"spec":{"cidr":"10.0.0.1/30","node":"a","state":"Held"}}`)), Undecodable)
	want(t, h.apply(NodeIPBlock, "x", []byte(`{"spec":{"cidr":"10.0.0.0/30","node":"a","state":"held"}}`)), Undecodable)
	want(t, h.apply(NodeIPBlock, "x", []byte(`{"spec":{"cidr":"10.0.0.0/30","state":"Held"}}`)), Undecodable)
	want(t, h.node("a", "10.0.0.1/30", "", ""), Undecodable)
	want(t, h.node("a", "10.0.0.1/30", "", "")) // Not again.
	want(t, h.node("a", "", "fd00::01", ""), Undecodable)
	want(t, h.node("a", "", "", "::ffff:10.0.0.1"), Undecodable)
}

func TestAllowedFindingsArePlanted(t *testing.T) {
	h := newHistory(t)
	allow := func(rule Rule, node, cidr string) {
		t.Helper()
		a, err := NewAllowance(string(rule), node, cidr)
		if err != nil {
			t.Fatal(err)
		}
		h.oracle.Allow(a)
	}
	allow(CIDRWithoutClaim, "a", "10.0.0.0/30")
	allow(AddressOutsidePodCIDRs, "", "10.1.0.0/16")
	h.node("a", "10.0.0.0/30 10.0.0.4/30", "10.1.0.7 10.2.0.7", "")
	h.node("b", "10.0.8.0/30", "10.1.0.8", "")
	report := h.report(time.Time{})
	if report.PlantedTotal != 3 || report.ViolationsTotal != 3 {
		t.Fatalf("%+v", report)
	}
	for _, f := range report.Planted {
		if !f.Planted {
			t.Fatalf("%+v", f)
		}
	}
	if _, err := NewAllowance("no-such-rule", "", ""); err == nil {
		t.Fatal("an unknown rule was allowed")
	}
	if _, err := NewAllowance(string(UsedTwice), "", "10.0.0/8"); err == nil {
		t.Fatal("a CIDR that is none was allowed")
	}
}

func TestListsEndAndTotalsGoOn(t *testing.T) {
	h := newHistory(t)
	for n := range 2 * maxListed {
		address := fmt.Sprintf("10.0.%d.%d", n/256, n%256)
		h.marked("a", "", address, "", address+"/released")
	}
	report := h.report(time.Time{})
	if len(report.Violations) != maxListed || report.ViolationsTotal != 2*maxListed {
		t.Fatalf("%d listed of %d", len(report.Violations), report.ViolationsTotal)
	}
}

// A cluster of the largest size that is tested: each event must cost what changed, whatever the size.
func TestEventsOfALargeClusterAreCheap(t *testing.T) {
	const nNodes = 5000
	h := newHistory(t)
	pools := make([]string, nNodes)
	start := time.Now()
	for n := range nNodes {
		cidr := fmt.Sprintf("10.%d.%d.0/24", n/256, n%256)
		var pool strings.Builder
		for host := 1; host < 256; host++ {
			fmt.Fprintf(&pool, "10.%d.%d.%d ", n/256, n%256, host)
		}
		pools[n] = pool.String()
		name := fmt.Sprint("node-", n)
		h.claim(cidr, name, "Held")
		want(t, h.node(name, cidr, pools[n], ""))
	}
	filled := time.Since(start)
	start = time.Now()
	for n := range 1000 {
		cidr := fmt.Sprintf("10.%d.%d.0/24", n/256, n%256)
		want(t, h.node(fmt.Sprint("node-", n), cidr, pools[n], fmt.Sprintf("10.%d.%d.9", n/256, n%256)))
	}
	perEvent := time.Since(start) / 1000
	t.Logf("filled in %v; then %v per event", filled, perEvent)
	// About 0.2 ms is usual, nearly all of it for building and reading the JSON; a scan of the cluster takes a hundred
	// times as long.
	if perEvent > 10*time.Millisecond {
		t.Fatalf("an event costs %v", perEvent)
	}
}

func TestAHeldAddressIsWithdrawn(t *testing.T) {
	h := newHistory(t)
	h.claim("10.0.0.0/30", "a", "Held")
	want(t, h.node("a", "10.0.0.0/30", "10.0.0.1 10.0.0.2", ""))
	want(t, h.hold("a", "10.0.0.1", ""))
	// What another agent holds is found by other rules.
	want(t, h.hold("b", "10.0.0.2", ""))
	let := "10.0.0.1/ready-for-release 10.0.0.2/released"
	want(t, h.marked("a", "10.0.0.0/30", "10.0.0.1 10.0.0.2", "", let))
	want(t, h.marked("a", "10.0.0.0/30", "10.0.0.1", "", let))
	want(t, h.marked("a", "10.0.0.0/30", "10.0.0.2", "", let), HeldAddressWithdrawn)
	want(t, h.marked("a", "10.0.0.0/30", "10.0.0.1 10.0.0.2", "", let))
	want(t, h.hold("a", "", "10.0.0.1"))
	want(t, h.marked("a", "10.0.0.0/30", "10.0.0.2", "", let))
}

func TestCIDRsThatAreAllocatedAreJudgedAsPodCIDRsAre(t *testing.T) {
	h := newHistory(t)
	allocated := func(name string, entries ...string) []Finding {
		return h.apply(CiliumNode, name, fmt.Appendf(nil,
			`{"metadata":{"name":%q},"spec":{"ipam":{"pools":{"allocated":[%s]}}}}`, name, strings.Join(entries, ",")))
	}
	h.claim("10.0.0.0/28", "a", "Held")
	h.claim("10.0.0.16/28", "a", "Held")
	mine := `{"pool":"default","cidrs":["10.0.0.0/28","10.0.0.16/28"]}`
	want(t, allocated("a", mine))
	want(t, allocated("b", `{"pool":"mars","cidrs":["10.0.0.16/29"]}`), OverlappingPodCIDRs, CIDRWithoutClaim)
	want(t, allocated("b"))
	want(t, h.hold("a", "10.0.0.17", ""))
	want(t, h.hold("b", "10.0.0.1", "") /* another agent's, which other rules find */)
	want(t, allocated("a", `{"pool":"default","cidrs":["10.0.0.16/28"]}`))
	want(t, allocated("a"), HeldAddressWithdrawn)
	want(t, allocated("a", `{"pool":"default","cidrs":["10.0.0.1/28"]}`), Undecodable)
}

func TestACIDRThatLeavesWithAUsageQueryIsJudgedAtTheAnswer(t *testing.T) {
	version := func(h *history, asked bool, cidrs string) []Finding {
		requested := `{"pool":"default","needed":{"ipv4-addrs":16}}`
		if asked {
			requested += `,{"pool":"nodeipam.io-asked-as-of-7"}`
		}
		return h.apply(CiliumNode, "a", fmt.Appendf(nil, `{"metadata":{"name":"a"},"spec":{"ipam":{"pools":{`+
			`"requested":[%s],"allocated":[{"pool":"default","cidrs":[%s]}]}}}}`, requested, cidrs))
	}
	const both, rest = `"10.0.0.0/28","10.0.0.16/28"`, `"10.0.0.0/28"`
	for _, c := range []struct {
		atAnswers     bool
		answer        string
		gone, settled []Rule
	}{
		{false, both, []Rule{HeldAddressWithdrawn}, nil},
		{true, both, nil, nil},
		{true, rest, nil, []Rule{HeldAddressWithdrawn}},
	} {
		h := newHistory(t)
		if c.atAnswers {
			h.oracle.JudgeAtAnswers()
		}
		h.claim("10.0.0.0/28", "a", "Held")
		h.claim("10.0.0.16/28", "a", "Held")
		want(t, version(h, false, both))
		want(t, h.hold("a", "10.0.0.17", ""))
		want(t, version(h, true, rest), c.gone...)
		want(t, version(h, true, rest) /* nobody has answered */)
		want(t, version(h, false, c.answer), c.settled...)
		want(t, version(h, false, c.answer) /* it is reported once */)
	}
	// Without a query no agent can refuse.
	h := newHistory(t)
	h.oracle.JudgeAtAnswers()
	h.claim("10.0.0.0/28", "a", "Held")
	h.claim("10.0.0.16/28", "a", "Held")
	want(t, version(h, false, both))
	want(t, h.hold("a", "10.0.0.17", ""))
	want(t, version(h, false, rest), HeldAddressWithdrawn)
}

func TestAnAddressIsWithdrawnWithoutConsent(t *testing.T) {
	for _, c := range []struct {
		used, marks string
		expected    []Rule
	}{
		{"", "", []Rule{WithdrawnWithoutConsent}},
		{"", "10.0.0.1/marked-for-release", []Rule{WithdrawnWithoutConsent}},
		{"", "10.0.0.1/do-not-release", []Rule{WithdrawnWithoutConsent}},
		{"", "10.0.0.2/released", []Rule{WithdrawnWithoutConsent}},
		{"10.0.0.1", "10.0.0.1/released", []Rule{WithdrawnWithoutConsent}},
		{"10.0.0.2", "10.0.0.1/ready-for-release", nil},
		{"", "10.0.0.1/released", nil},
	} {
		h := newHistory(t)
		h.claim("10.0.0.0/30", "a", "Held")
		want(t, h.marked("a", "10.0.0.0/30", "10.0.0.1 10.0.0.2", c.used, c.marks))
		want(t, h.marked("a", "10.0.0.0/30", "10.0.0.2", c.used, c.marks), c.expected...)
	}
	// A consent that comes with the withdrawal, or after it, is none.
	h := newHistory(t)
	h.claim("10.0.0.0/30", "a", "Held")
	want(t, h.node("a", "10.0.0.0/30", "10.0.0.1", ""))
	want(t, h.marked("a", "10.0.0.0/30", "", "", "10.0.0.1/released"), WithdrawnWithoutConsent)
}

func TestACiliumNodeThatIsDeletedWithdrawsNothing(t *testing.T) {
	h := newHistory(t)
	h.claim("10.0.0.0/30", "a", "Held")
	want(t, h.node("a", "10.0.0.0/30", "10.0.0.1", ""))
	want(t, h.hold("a", "10.0.0.1", ""))
	want(t, h.noNode("a"))
	want(t, h.node("a", "", "", ""))
	want(t, h.node("a", "10.0.0.0/30", "10.0.0.1", ""))
}

func TestReleasingTooLong(t *testing.T) {
	for _, c := range []struct {
		limit    time.Duration
		seconds  int
		next     string
		expected []Rule
	}{
		{0, 60, "Cooling", nil},
		{0, 61, "Cooling", []Rule{ReleasingTooLong}},
		{0, 61, "Held", []Rule{ReleasingTooLong}},
		{0, 3600, "Releasing", nil},
		{time.Second, 2, "Cooling", []Rule{ReleasingTooLong}},
	} {
		h := newHistory(t)
		if c.limit > 0 {
			h.oracle.LimitReleasing(c.limit)
		}
		began := time.Date(2026, 1, 1, 0, 0, 0, 5e6, time.UTC)
		version := func(state string, since time.Time) []Finding {
			return h.apply(NodeIPBlock, "10.0.0.0-30", fmt.Appendf(nil,
				`{"spec":{"cidr":"10.0.0.0/30","node":"a","state":%q,"since":%q}}`, state, since.Format(time.RFC3339Nano)))
		}
		want(t, version("Held", began.Add(-time.Hour)))
		want(t, version("Releasing", began))
		want(t, version(c.next, began.Add(time.Duration(c.seconds)*time.Second)), c.expected...)
		want(t, h.noClaim("10.0.0.0/30"))
	}
}

func TestStillReleasing(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 5e6, time.UTC)
	version := func(h *history, state string, since time.Time) []Finding {
		return h.apply(NodeIPBlock, "10.0.0.0-30", fmt.Appendf(nil,
			`{"spec":{"cidr":"10.0.0.0/30","node":"a","state":%q,"since":%q}}`, state, since.Format(time.RFC3339Nano)))
	}
	violations := func(h *history, after time.Duration) []Finding { return h.report(began.Add(after)).Violations }

	for _, state := range []string{"Held", "Draining", "Cooling"} {
		h := newHistory(t)
		version(h, state, began)
		want(t, violations(h, time.Hour))
	}

	h := newHistory(t)
	want(t, version(h, "Releasing", began))
	want(t, violations(h, time.Minute))
	report, fresh := h.oracle.Report(began.Add(time.Minute + time.Second))
	want(t, fresh, ReleasingTooLong)
	want(t, report.Violations, ReleasingTooLong)
	// One breach is one finding, whoever looks how often, and however the state goes on and ends.
	want(t, violations(h, time.Hour), ReleasingTooLong)
	want(t, version(h, "Releasing", began))
	want(t, violations(h, time.Hour), ReleasingTooLong)
	want(t, version(h, "Cooling", began.Add(time.Hour)))
	want(t, violations(h, time.Hour), ReleasingTooLong)
	// The next time is another one.
	want(t, version(h, "Held", began.Add(time.Hour)))
	want(t, version(h, "Releasing", began.Add(time.Hour)))
	want(t, violations(h, time.Hour+time.Minute), ReleasingTooLong)
	want(t, violations(h, 2*time.Hour), ReleasingTooLong, ReleasingTooLong)

	// One that does not say since when is not judged.
	h = newHistory(t)
	want(t, h.claim("10.0.0.0/30", "a", "Releasing"))
	want(t, violations(h, time.Hour))
}

func TestFixedPodCIDRs(t *testing.T) {
	version := func(h *history, cidrs string) []Finding {
		return h.apply(CiliumNode, "a", fmt.Appendf(nil, `{"spec":{"ipam":{"podCIDRs":[%s]}}}`, cidrs))
	}
	for _, fixed := range []bool{false, true} {
		h := newHistory(t)
		changed := []Rule{}
		if fixed {
			h.oracle.FixPodCIDRs()
			changed = append(changed, PodCIDRsChanged)
		}
		want(t, h.claim("10.0.0.0/30", "a", "Held"))
		want(t, h.claim("fd00::/126", "a", "Held"))
		want(t, version(h, ""))
		want(t, version(h, `"10.0.0.0/30","fd00::/126"`))
		want(t, version(h, `"10.0.0.0/30","fd00::/126"`))
		want(t, version(h, `"fd00::/126","10.0.0.0/30"`), changed...)
		want(t, version(h, `"fd00::/126"`), changed...)
		// One that is recreated is another object.
		want(t, h.apply(CiliumNode, "a", nil))
		want(t, version(h, `"10.0.0.0/30"`))
	}
}

func TestANodeCarriesItsPodCIDRsOrElseItsAnnotations(t *testing.T) {
	const v4, v4Alias, v6 = "network.cilium.io/ipv4-pod-cidr", "io.cilium.network.ipv4-pod-cidr", "network.cilium.io/ipv6-pod-cidr"
	for _, c := range []struct {
		spec        string
		annotations map[string]string
		want        string
	}{
		{"", nil, ""},
		{"10.0.0.0/28", map[string]string{v4: "10.0.1.0/28", v6: "fd00::/124"}, "10.0.0.0/28 fd00::/124"},
		{"fd00::/124", map[string]string{v4: "10.0.1.0/28", v6: "fd00::10/124"}, "fd00::/124 10.0.1.0/28"},
		{"", map[string]string{v4: "10.0.1.0/28", v4Alias: "10.0.1.0/28"}, "10.0.1.0/28"},
		{"", map[string]string{v4: "10.0.1.0/28", v4Alias: "10.0.2.0/28"}, "10.0.1.0/28 10.0.2.0/28"},
	} {
		if got := strings.Join(PodCIDRs(strings.Fields(c.spec), c.annotations), " "); got != c.want {
			t.Errorf("%s and %v: %s, want %s", c.spec, c.annotations, got, c.want)
		}
	}
}
