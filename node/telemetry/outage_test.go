package telemetry

import (
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// A node that reaches half of the nodes or fewer is cut off, and stays so while those that it reached before are
// forgotten. It ends once it reaches more than half of as many.
func TestOutages(t *testing.T) {
	var o outages
	for i, step := range []struct {
		company
		want rules.Outage
		line string
	}{
		{company{reached: 1, known: 1}, rules.Whole, ""},
		{company{reached: 1, known: 1, alone: true, partial: true}, rules.CutOff, "is cut off"},
		{company{reached: 1, known: 1}, rules.Whole, "is no longer cut off"},
		{company{reached: 1, known: 1, storeAway: true}, rules.CutOff, "store_away=true"},
		{company{reached: 1, known: 1}, rules.Whole, "is no longer cut off"},
		{company{reached: 6, known: 6, storeAway: true}, rules.Whole, ""}, // it counts with the others
		{company{reached: 6, known: 6}, rules.Whole, ""},
		{company{reached: 6, known: 6, partial: true}, rules.Partitioned, ""},
		{company{reached: 4, known: 6}, rules.Partitioned, ""},
		{company{reached: 3, known: 6}, rules.CutOff, "reached=3 nodes=6"},
		{company{reached: 3, known: 4}, rules.CutOff, ""}, // two are not waited for any more
		{company{reached: 1, known: 1}, rules.CutOff, ""},
		{company{reached: 4, known: 4}, rules.Partitioned, "is no longer cut off"}, // of six that there were
		{company{reached: 4, known: 4}, rules.Whole, ""},
		{company{reached: 1, known: 1}, rules.Whole, ""}, // the others have left in order
		{company{reached: 2, known: 2}, rules.Whole, ""},
		{company{reached: 1, known: 2, ended: 1}, rules.Whole, ""}, // the other one has crashed
		{company{reached: 2, known: 2}, rules.Whole, ""},
		{company{reached: 1, known: 2}, rules.CutOff, "is cut off"}, // nobody knows
		{company{reached: 1, known: 2, ended: 1}, rules.Whole, "is no longer cut off"},
		{company{reached: 5, known: 5}, rules.Whole, ""},
		{company{reached: 2, known: 5, ended: 2}, rules.Partitioned, ""}, // of three that live
	} {
		var log testkit.Log
		o.log = log.Logger()
		o.look(counters.Global, step.company, at(1000*i))
		if got := o.in(counters.Global); got != step.want || (log.String() == "") != (step.line == "") ||
			!log.HasLine(step.line) && step.line != "" {
			t.Errorf("step %d: %d, want %d; the log says %q", i, got, step.want, log.String())
		}
	}
	if o.in(counters.Alone) != rules.Whole || o.in(counters.Region) != rules.Whole {
		t.Error("other scopes have an outage")
	}
}

// Nodes that crash and are replaced under other names are waited for, but a node that reaches as many as there ever
// were at a time is not cut off for ever.
func TestReplacedNodesAreForgotten(t *testing.T) {
	o := outages{log: new(testkit.Log).Logger()}
	for i, step := range []struct {
		company
		want rules.Outage
	}{
		{company{reached: 3, known: 3}, rules.Whole},
		{company{reached: 1, known: 3}, rules.CutOff},
		{company{reached: 3, known: 5}, rules.Partitioned}, // two have replaced two
		{company{reached: 3, known: 7}, rules.CutOff},      // and again
		{company{reached: 2, known: 2}, rules.Partitioned},
		{company{reached: 3, known: 3}, rules.Whole},
	} {
		o.look(counters.Global, step.company, at(1000*i))
		if got := o.in(counters.Global); got != step.want {
			t.Errorf("step %d: %d, want %d", i, got, step.want)
		}
	}
}

// Whoever is cut off says so for as long as it lasts, also when nobody is left who could be unreachable.
func TestCutOffIsAReason(t *testing.T) {
	m := NewMonitor(new(testkit.Log).Logger(), "", time.Second)
	for i, step := range []struct {
		company
		wants string
	}{
		{company{reached: 3, known: 3}, ""},
		{company{reached: 1, known: 3}, "of scope region: rules follow their on_failure"},
		{company{reached: 1, known: 1}, "of scope region: rules follow their on_failure"},
		{company{reached: 3, known: 3}, ""},
	} {
		m.outages.look(counters.Region, step.company, at(1000*i))
		reasons := strings.Join(m.reasons(&reachable{}, nil, false, false), "; ")
		if !strings.HasSuffix(reasons, step.wants) || (reasons == "") != (step.wants == "") {
			t.Errorf("step %d: %q, want %q", i, reasons, step.wants)
		}
	}
}

// Without limits of a scope nothing depends on whether the node is cut off, and it says nothing of it.
func TestCutOffWithoutLimits(t *testing.T) {
	var log testkit.Log
	m := NewMonitor(log.Logger(), "", time.Second)
	m.outages.shared.Store(&[counters.Alone + 1]bool{counters.Region: true})
	m.outages.look(counters.Global, company{reached: 1, known: 3}, at(0))
	if m.Outage(counters.Global) != rules.CutOff || m.CutOff() != "" || log.String() != "" {
		t.Errorf("outage %d, %q, log %s", m.Outage(counters.Global), m.CutOff(), &log)
	}
	m.outages.look(counters.Global, company{reached: 3, known: 3}, at(1000))
	m.outages.look(counters.Region, company{reached: 1, known: 3}, at(2000))
	if m.CutOff() == "" || strings.Count(log.String(), "WARN") != 1 {
		t.Errorf("%q, log %s", m.CutOff(), &log)
	}
}

// Each node counts once, whatever boots of it are known, and one of another identity key is not reached.
func TestCompanies(t *testing.T) {
	peer := func(region, id string, age time.Duration, identity uint64) gossip.MemberStatus {
		return gossip.MemberStatus{
			Member: gossip.Member{NodeID: id, Region: region, Identity: identity}, Pool: "wan",
			PeerStatus: gossip.PeerStatus{Age: age, OtherRegion: region != "eu"},
		}
	}
	all, near := companies([]gossip.MemberStatus{
		peer("", "", time.Minute, 1), peer("", "", time.Minute, 1), // two that never said who they are
		peer("eu", "b", time.Second, 1), peer("eu", "b", time.Minute, 1),
		peer("eu", "c", time.Minute, 1),
		peer("us", "b", time.Second, 2),
		peer("us", "d", time.Second, 1),
	}, minSilence, func(m *gossip.Member) bool { return m.Identity == 2 })
	if want := (company{reached: 3, known: 7}); all != want {
		t.Errorf("all are %+v, want %+v", all, want)
	}
	if want := (company{reached: 2, known: 3}); near != want {
		t.Errorf("those of the region are %+v, want %+v", near, want)
	}
}
