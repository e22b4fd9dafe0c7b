package judge

import (
	"fmt"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/record"
)

// A script is a record written by hand: two nodes in two regions under a limit of 10 in 10 s, counted in sub-windows of
// 1 s. Times are milliseconds after the start, which is the beginning of a sub-window.
type script struct {
	t       *testing.T
	header  record.Header
	entries []record.Entry
}

func newScript(t *testing.T) *script {
	return &script{t: t, header: record.Header{
		Started: int64(1_000_000 * time.Second),
		Rule: record.Rule{
			Name: "r", Limit: 10, Window: 10 * time.Second, Sub: time.Second, Algorithm: "sliding_window",
		},
		Nodes: []record.Node{{ID: "a", Region: "east"}, {ID: "b", Region: "west"}},
	}}
}

func (s *script) at(ms int) int64 { return s.header.Started + int64(ms)*int64(time.Millisecond) }

// ask notes a request to a node that was answered after a time, in milliseconds.
func (s *script) ask(node string, ms, took int, cost uint64, admitted bool) *record.Decision {
	region := map[string]string{"a": "east", "b": "west"}[node]
	d := &record.Decision{
		Sent: s.at(ms), Done: s.at(ms + took), Node: node, Region: region, Identity: "x", Cost: cost, Allowed: admitted,
	}
	s.entries = append(s.entries, record.Entry{Decision: d})
	return d
}

// fail notes a request that was not answered.
func (s *script) fail(node string, ms, took int, cost uint64) {
	s.ask(node, ms, took, cost, false).Error = "refused"
}

// see notes what a node was observed to count of x, and its bound.
func (s *script) see(node string, ms int, count uint64, bound float64) *record.Observation {
	o := &record.Observation{
		Sent:    s.at(ms),
		Done:    s.at(ms),
		Node:    node,
		Boot:    "1",
		Bound:   bound,
		Members: 1,
		Counts:  map[string]uint64{"x": count},
	}
	s.entries = append(s.entries, record.Entry{Observation: o})
	return o
}

// settled notes that both nodes count so much in the end, with a bound that nothing exceeds.
func (s *script) settled(ms int, count uint64) {
	s.see("a", ms, count, 1)
	s.see("b", ms, count, 1)
}

func (s *script) event(ms int, began bool, name, target string) {
	s.entries = append(s.entries,
		record.Entry{Event: &record.Event{At: s.at(ms), Began: began, Name: name, Target: target}})
}

// judge checks the record as Check does, and wants just these violations, each as "invariant@second".
func (s *script) judge(want ...string) *Report {
	s.t.Helper()
	r, err := Recorded(s.t, s.header, s.entries)
	if err != nil {
		s.t.Fatal(err)
	}
	got := []string{}
	for _, v := range r.Violations {
		got = append(got, fmt.Sprintf("%s@%d", v.Invariant, v.Second))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || r.OK != (len(want) == 0) {
		s.t.Errorf("broken %v, want %v:\n%s", got, want, Text(s.t, r))
	}
	return r
}

// Twelve of ten: the oracle would have admitted ten, and the nodes' bound of 20 % is just enough.
func TestFiguresByHand(t *testing.T) {
	s := newScript(t)
	s.ask("a", 0, 4, 7, true)
	s.ask("b", 100, 2, 5, true)
	s.ask("b", 200, 6, 1, false)
	s.ask("a", 1500, 8, 1, false)
	s.fail("b", 1600, 999, 1)
	s.settled(2700, 10)
	for _, e := range s.entries[len(s.entries)-2:] {
		e.Observation.Bound = 0.2
	}
	r := s.judge()
	// The oracle admits 7, not 5, and then 1 twice: 9 in cost, of which the nodes admitted 12.
	want := Figures{
		NetPct: 33.33, OverLimitPct: 20, OverOraclePct: 20, ExcessPct: 20, BoundPct: 20, Failed: 1, LatencyP50Ms: 6,
		LatencyP99Ms: 8,
	}
	want.Offered, want.Admitted, want.Denied, want.OracleAdmitted = 4, 2, 2, 3
	if r.Total != want {
		t.Errorf("got  %+v\nwant %+v", r.Total, want)
	}
	if len(r.PerSecond) != 3 || r.PerSecond[0].Offered != 3 || r.PerSecond[1].Denied != 1 ||
		r.PerSecond[1].Failed != 1 {
		t.Errorf("%+v", r.PerSecond)
	}
	if r.PerSecond[0].ExcessPct != 20 || r.PerSecond[1].ExcessPct != 0 || r.PerSecond[1].OverLimitPct != 20 {
		t.Errorf("what is admitted over the limit is of its second, but the window still holds it in the next: %+v",
			r.PerSecond)
	}
	if r.Clients != 1 || r.Nodes != 2 || r.AgreeMs != 101 {
		t.Errorf("%d clients, %d nodes, agreed after %v ms, want 1, 2 and 101", r.Clients, r.Nodes, r.AgreeMs)
	}
}

func TestBoundHolds(t *testing.T) {
	for _, c := range []struct {
		name  string
		seen  int
		bound float64
		want  []string
	}{
		{"a bound that is just enough", 1000, 0.2, nil},
		{"a bound that is too small", 1000, 0.19, []string{"I5@0"}},
		{"seen just in time", 2900, 0.2, nil},
		{"seen too late", 3200, 0.2, []string{"I5@0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t)
			s.ask("a", 0, 1, 7, true)
			s.ask("b", 0, 1, 5, true)
			s.see("a", c.seen, 10, c.bound)
			s.see("b", c.seen, 10, 0)
			s.judge(c.want...)
		})
	}
}

// Where nothing was admitted over the limit no bound is asked for, but that nodes agree has to be seen.
func TestNothingSeenIsNothingShown(t *testing.T) {
	s := newScript(t)
	s.ask("a", 0, 1, 10, true)
	if r := s.judge("I1@0"); r.AgreeMs != -1 || r.Violations[0].Got != "not observed" {
		t.Errorf("%+v", r.Violations)
	}
}

// A denial is false only of who cannot have been counted above 95 % at any time, whatever became of what was asked for.
func TestFalseRejections(t *testing.T) {
	for _, c := range []struct {
		name string
		play func(s *script)
		end  int    // ms, when both nodes are observed
		left uint64 // what they count then
		want []string
	}{
		{"up to 95 %", func(s *script) { s.ask("a", 0, 1, 8, true); s.ask("b", 10, 1, 1, false) }, 99, 8,
			[]string{"I4@0"}},
		{"beyond, though there was room", func(s *script) { s.ask("a", 0, 1, 9, true); s.ask("b", 10, 1, 1, false) },
			99, 9, nil},
		{"more than any window holds", func(s *script) { s.ask("a", 0, 1, 1, true); s.ask("b", 10, 1, 11, false) },
			99, 1, nil},
		{"beyond with what came later", func(s *script) { s.ask("b", 10, 11, 1, false); s.ask("a", 30, 50, 9, true) },
			99, 9, nil},
		{"beyond with what failed", func(s *script) { s.fail("a", 0, 1, 9); s.ask("b", 10, 1, 1, false) }, 99, 0, nil},
		{"when the rest had left the window",
			func(s *script) { s.ask("a", 0, 1, 9, true); s.ask("b", 11_025, 1, 9, false) }, 13_000, 0,
			[]string{"I4@11"}},
		{"when the rest was about to leave it",
			func(s *script) { s.ask("a", 0, 1, 9, true); s.ask("b", 10_999, 1, 9, false) }, 13_000, 0, nil},
		{"when the rest may have come as late as its answer",
			func(s *script) { s.ask("a", 999, 2, 9, true); s.ask("b", 11_500, 1, 6, false) }, 13_000, 0, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t)
			c.play(s)
			s.settled(c.end, c.left)
			s.judge(c.want...)
		})
	}
}

// Who asks for 95 % in any window is never denied. One who does so in the shortest time may be, by the algorithm alone:
// of the sub-window that overlaps, all beyond an even share counts.
func TestCompliantClients(t *testing.T) {
	t.Run("keeps to it", func(t *testing.T) {
		s := newScript(t)
		s.ask("a", 0, 1, 9, true)
		s.ask("a", 11_100, 1, 9, false)
		s.settled(11_200, 0)
		if r := s.judge("I4@11"); r.Total.FalseRejections != 1 || r.Total.BurstDenied != 0 {
			t.Errorf("%+v", r.Total)
		}
	})
	t.Run("asks for more", func(t *testing.T) {
		s := newScript(t)
		s.ask("a", 0, 1, 10, true)
		s.ask("a", 11_100, 1, 9, false)
		s.settled(11_200, 0)
		s.judge()
	})
	t.Run("denied by the algorithm alone", func(t *testing.T) {
		s := newScript(t)
		s.ask("a", 0, 1, 9, true)
		s.ask("a", 10_010, 1, 9, false)
		s.settled(10_100, 8)
		if r := s.judge(); r.Total.BurstDenied != 1 || r.Total.FalseRejections != 0 {
			t.Errorf("%+v", r.Total)
		}
	})
}

// No node counts more than was admitted, whether it says so in an answer or when it is observed.
func TestTruth(t *testing.T) {
	for name, c := range map[string]struct {
		remaining, seen uint64
		want            []string
	}{
		"both right":      {7, 3, nil},
		"answer too high": {6, 3, []string{"I3@0"}},
		"seen too high":   {7, 4, []string{"I3@1", "I1@2", "I3@2"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			d := s.ask("a", 0, 1, 3, true)
			d.Limit, d.Remaining = 10, c.remaining
			s.settled(1000, c.seen)
			s.see("b", 2000, c.seen, 0)
			s.judge(c.want...)
		})
	}
	t.Run("of somebody who never asked", func(t *testing.T) {
		s := newScript(t)
		s.ask("a", 0, 1, 3, true)
		s.settled(500, 3)
		s.see("a", 1000, 3, 0).Counts["stranger"] = 1
		s.judge("I1@1", "I3@1")
	})
}

// A count falls as the window moves on, and else only with a restart.
func TestGrowth(t *testing.T) {
	for name, c := range map[string]struct {
		second int // ms
		count  uint64
		boot   string
		want   []string
	}{
		"stays":                 {5000, 8, "1", nil},
		"less":                  {5000, 5, "1", []string{"I2@5"}},
		"less, after a restart": {5000, 5, "2", nil},
		"begins to leave":       {10_500, 7, "1", nil},
		"leaves early":          {10_500, 1, "1", []string{"I2@10"}},
		"all has left":          {11_000, 0, "1", nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.ask("a", 100, 1, 8, true)
			s.settled(200, 8)
			s.see("a", c.second, c.count, 0).Boot = c.boot
			got := Invariants(s.anyReport())
			if n := got[Growth]; n != len(c.want) {
				t.Errorf("%d times, want %v", n, c.want)
			}
		})
	}
}

// A request that was under way when a sub-window ended may lie in either, and leave the window with either.
func TestGrowthAcrossSubWindows(t *testing.T) {
	for name, counts := range map[string][3]uint64{"in the earlier": {5, 0, 0}, "in the later": {10, 10, 5}} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.ask("a", 999, 2, 10, true)
			for i, count := range counts {
				s.see("a", 10_500+500*i, count, 0)
			}
			if got := Invariants(s.anyReport()); got[Growth]+got[Truth] > 0 {
				t.Errorf("%v", got)
			}
		})
	}
}

// A node's clock may be a little behind: what has just left the window by the recorder's clock may not have by the
// node's.
func TestClockLag(t *testing.T) {
	for name, c := range map[string]struct {
		second int // ms, when the client asks again
		want   int
	}{"has just left": {11_020, 0}, "left a while ago": {11_030, 1}} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.ask("a", 500, 1, 9, true)
			d := s.ask("a", c.second, 1, 1, true)
			d.Limit, d.Remaining = 10, 8 // one of the nine is still counted
			if got := Invariants(s.anyReport()); got[Truth] != c.want {
				t.Errorf("%v, want it broken %d times", got, c.want)
			}
		})
	}
}

// anyReport checks the record, whatever it breaks.
func (s *script) anyReport() *Report {
	s.t.Helper()
	return Judged(s.t, s.header, s.entries)
}

// Nodes agree when they count what was admitted, and go on doing so.
func TestAgreement(t *testing.T) {
	for name, c := range map[string]struct {
		play  func(s *script)
		agree float64
		want  []string
	}{
		"at once": {func(s *script) { s.settled(301, 6) }, 300, nil},
		"after a while": {func(s *script) { s.see("a", 2, 6, 0); s.see("b", 2, 1, 0); s.see("b", 4001, 6, 0) }, 4000,
			nil},
		"too late": {func(s *script) { s.see("a", 2, 6, 0); s.see("b", 2, 1, 0); s.see("b", 5600, 6, 0) }, -1,
			[]string{"I1@5"}},
		"one never":    {func(s *script) { s.see("a", 2, 6, 0); s.see("b", 2, 1, 0) }, -1, []string{"I1@0"}},
		"not for good": {func(s *script) { s.settled(2, 6); s.see("b", 600, 5, 0) }, -1, []string{"I1@0"}},
		"wrong between": {func(s *script) { s.settled(2, 6); s.see("b", 600, 5, 0); s.see("b", 4001, 6, 0) }, 4000,
			nil},
		"one not seen":  {func(s *script) { s.see("a", 2, 6, 0) }, -1, []string{"I1@0"}},
		"one is dead":   {func(s *script) { s.event(0, true, record.Kill, "b"); s.see("a", 2, 6, 0) }, 1, nil},
		"its region is": {func(s *script) { s.event(0, true, record.Stop, "west"); s.see("a", 2, 6, 0) }, 1, nil},
		"still cut":     {func(s *script) { s.event(0, true, record.Partition, "west"); s.see("b", 2, 0, 0) }, -1, nil},
		"healed later": {func(s *script) {
			s.event(0, true, record.Partition, "west")
			s.event(900, false, record.Partition, "west")
			s.settled(950, 6)
		}, 50, nil},
		"counts unasked": {func(s *script) { s.settled(2, 6); s.see("b", 3, 6, 0).Counts = nil }, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.ask("a", 0, 1, 6, true)
			c.play(s)
			if r := s.judge(c.want...); r.AgreeMs != c.agree {
				t.Errorf("agreed after %v ms, want %v", r.AgreeMs, c.agree)
			}
		})
	}
}

// While traffic goes on, what was admitted five seconds ago is known to all, unless a fault has been in force since, or
// the node has just come back, or the only one that knew was killed.
func TestAgreementUnderTraffic(t *testing.T) {
	for name, c := range map[string]struct {
		play func(s *script)
		left uint64 // what the nodes count in the end
		want []string
	}{
		"known":         {func(s *script) { s.see("b", 8000, 6, 0) }, 7, nil},
		"not known":     {func(s *script) { s.see("b", 8000, 5, 0) }, 7, []string{"I1@8"}},
		"not known yet": {func(s *script) { s.see("b", 5900, 5, 0) }, 7, nil},
		"cut meanwhile": {func(s *script) {
			s.event(2000, true, record.Partition, "west")
			s.event(3500, false, record.Partition, "west")
			s.see("b", 8000, 5, 0)
		}, 7, nil},
		"cut before": {func(s *script) {
			s.event(1000, true, record.Partition, "west")
			s.event(2500, false, record.Partition, "west")
			s.see("b", 8000, 5, 0)
		}, 7, []string{"I1@8"}},
		"came back": {func(s *script) {
			s.see("b", 1, 0, 0)
			s.see("b", 7000, 0, 0).Boot = "2"
			s.see("b", 8000, 0, 0).Boot = "2"
		}, 7, nil},
		"died with its count": {func(s *script) {
			s.event(1500, true, record.Kill, "a")
			s.event(2000, false, record.Kill, "a")
			s.see("b", 8000, 0, 0)
		}, 1, nil},
		"its region died": {func(s *script) {
			s.event(1500, true, record.Kill, "east")
			s.event(2000, false, record.Kill, "east")
			s.see("b", 8000, 0, 0)
		}, 1, nil},
		"died too late": {func(s *script) {
			s.event(2500, true, record.Kill, "a")
			s.event(2900, false, record.Kill, "a")
			s.see("b", 8000, 0, 0)
		}, 7, []string{"I1@8"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.ask("a", 1000, 1, 6, true)
			c.play(s)
			s.ask("a", 9000, 1, 1, true)
			s.settled(9100, c.left)
			s.judge(c.want...)
		})
	}
}

// Two sides of a cut may admit a limit each, and the bound beside, as it was before the cut: the bound of nodes that
// cannot reach each other excuses everything.
func TestCeiling(t *testing.T) {
	for name, c := range map[string]struct {
		onB  uint64
		want []string
	}{"each its limit": {10, nil}, "just the ceiling": {12, nil},
		"more than the ceiling": {13, []string{"ceiling@21"}}} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.see("a", 1000, 0, 0.1) // the ceiling is 2 * 1.1 - 1 = 120 %
			s.event(20_000, true, record.Partition, "west")
			s.ask("a", 21_000, 1, 10, true)
			s.ask("b", 21_100, 1, c.onB, true)
			s.see("a", 21_500, 10, 5)
			r := s.judge(c.want...)
			if len(r.Phases) != 2 || r.Phases[0].CeilingPct != 0 || r.Phases[1].CeilingPct != 120 ||
				r.Phases[1].Sides != 2 {
				t.Errorf("%+v", r.Phases)
			}
		})
	}
}
