package telemetry

import (
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/gossip"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestMedianSkew(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		aheads []time.Duration
		want   time.Duration
	}{
		{nil, 0},
		{[]time.Duration{30 * ms}, 30 * ms}, // who of the two is wrong, nobody can tell
		{[]time.Duration{0, -time.Second}, 0},
		{[]time.Duration{-time.Second, 0}, 0}, // in any order
		{[]time.Duration{time.Second, time.Second}, time.Second},
		{[]time.Duration{5 * ms, time.Hour, -3 * ms}, 5 * ms}, // one that is far off does not matter
		{[]time.Duration{time.Second, 0, 900 * ms, 0}, 0},
		{[]time.Duration{-time.Second, -900 * ms, -800 * ms, 0}, -800 * ms},
		{[]time.Duration{-50 * ms, -40 * ms, 40 * ms, 50 * ms}, 40 * ms},
	} {
		n := len(test.aheads)
		got := medianSkew(append([]time.Duration(nil), test.aheads...))
		if got != (Skew{Ahead: test.want, Clocks: n}) {
			t.Errorf("%v: %+v, want %v", test.aheads, got, test.want)
		}
	}
}

// The alarm is raised after two seconds beyond the budget, cleared after two below three quarters of it, and nothing
// between flaps.
func TestSkewAlarm(t *testing.T) {
	const unchanged, raised, cleared = "unchanged", "raised", "cleared"
	var a skewAlarm
	now := at(0).UnixNano()
	for i, step := range []struct {
		ahead   time.Duration // in ms
		seconds int
		want    string
	}{
		// never for two seconds
		{90, 10, unchanged}, {101, 2, unchanged}, {99, 1, unchanged}, {101, 2, unchanged}, {99, 1, unchanged},
		{-101, 3, raised}, {500, 10, unchanged}, {99, 10, unchanged}, {-76, 10, unchanged},
		{74, 1, unchanged}, {99, 5, unchanged}, {74, 3, cleared}, {99, 10, unchanged},
	} {
		got := unchanged
		for range step.seconds * 10 {
			now += int64(100 * time.Millisecond)
			if a.look(step.ahead*time.Millisecond, 100*time.Millisecond, now) {
				if got != unchanged {
					t.Errorf("step %d: it turned twice", i)
				}
				if got = cleared; a.on {
					got = raised
				}
			}
		}
		if got != step.want {
			t.Errorf("step %d, %d ms ahead: %v, want %v", i, step.ahead, got, step.want)
		}
	}
}

func member(name string, o uint64, ahead time.Duration) gossip.MemberStatus {
	var m gossip.MemberStatus
	m.NodeID, m.Region = name, "there"
	m.PeerStatus.Origin, m.Ahead, m.Timed = gossip.NewOrigin(name, o), ahead, true
	return m
}

// The log says whose clock is off, once, and that it is right again.
func TestSkewWatchNamesWhoIsOff(t *testing.T) {
	const second = time.Second
	for _, test := range []struct {
		name    string
		members []gossip.MemberStatus
		store   time.Duration // -1: none
		off     bool
		says    []string // words of one line; none: nothing is said
	}{
		{"all alike", []gossip.MemberStatus{member("b", 1, 5*time.Millisecond), member("c", 1, 0)}, -1, false, nil},
		{"this node", []gossip.MemberStatus{member("b", 1, -second), member("c", 1, -second), member("d", 1, -second)},
			-1, true,
			[]string{"level=WARN", "this node's clock is off", "ahead=1s", "of_the_median_of=3", "NTP"}},
		{"this node, by a peer and the store", []gossip.MemberStatus{member("b", 1, second)}, second, true,
			[]string{"this node's clock is off", "ahead=-1s"}},
		{"a peer", []gossip.MemberStatus{member("b", 1, 0), member("c", 1, -second)}, -1, false,
			[]string{"level=WARN", "a peer's clock is off", "peer=c", "peer_region=there", "ahead=-1s"}},
		{"a peer, and the store says which", []gossip.MemberStatus{member("b", 1, second)}, 0, false,
			[]string{"a peer's clock is off", "peer=b"}},
		{"one of two", []gossip.MemberStatus{member("b", 1, second)}, -1, true,
			[]string{"this node's clock is off", "of_the_median_of=1"}},
	} {
		log := &testkit.Log{}
		w := newSkewMonitor(log.Logger(), 100*time.Millisecond)
		now := at(0).UnixNano()
		look := func(members []gossip.MemberStatus, store time.Duration) {
			for range 50 {
				now += int64(100 * time.Millisecond)
				w.look(members, store, store >= 0, now)
			}
		}
		look(test.members, test.store)
		if w.own.on != test.off {
			t.Errorf("%s: this node's clock is off: %v", test.name, w.own.on)
		}
		if lines := strings.Count(log.String(), "\n"); lines != min(1, len(test.says)) ||
			lines == 1 && !log.HasLine(test.says...) {
			t.Errorf("%s: it says %q", test.name, log.String())
		}
		look([]gossip.MemberStatus{member("b", 1, 0), member("c", 1, 0), member("d", 1, 0)}, -1)
		if again := strings.Contains(log.String(), "is right again"); again != (test.says != nil) || w.own.on {
			t.Errorf("%s: then all are right, and it says %q", test.name, log.String())
		}
		look(nil, -1)
		if len(w.peers) != 0 || *w.latest.Load() != (Skew{}) {
			t.Errorf("%s: of nobody it knows %v, %+v", test.name, w.peers, *w.latest.Load())
		}
	}
}

// A peer that does not say what it takes has no voice.
func TestSkewWatchPassesOverTheUntimed(t *testing.T) {
	w := newSkewMonitor((&testkit.Log{}).Logger(), 100*time.Millisecond)
	silent := member("b", 1, time.Hour)
	silent.Timed = false
	w.look([]gossip.MemberStatus{silent, member("c", 1, time.Millisecond)}, 0, false, at(0).UnixNano())
	if got := *w.latest.Load(); got != (Skew{Ahead: -time.Millisecond, Clocks: 1}) {
		t.Errorf("%+v", got)
	}
}
