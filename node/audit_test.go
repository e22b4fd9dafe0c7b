package node

import (
	"math"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/bubble"
)

// at is a moment so many milliseconds into a window of ten seconds.
func at(ms int) time.Time {
	return time.Unix(1_700_000_000, 0).Add(time.Duration(ms) * time.Millisecond)
}

// A window of 10 s is kept in steps of 1 s.
func TestPeak(t *testing.T) {
	const window = 10 * time.Second
	type reading struct {
		ms    int
		value float64
		want  float64 // the peak after it
	}
	for _, test := range []struct {
		name     string
		readings []reading
	}{
		{"the largest counts", []reading{{0, 0.1, 0.1}, {100, 0.3, 0.3}, {200, 0.2, 0.3}, {1500, 0.25, 0.3}, {2500, 0.4, 0.4}}},
		{"it is held for a window and forgotten a step later", []reading{
			{500, 0.5, 0.5}, {5500, 0, 0.5}, {10_000, 0, 0.5}, {10_500, 0, 0.5}, {10_999, 0, 0.5}, {11_000, 0, 0}}},
		{"what comes later is held for longer", []reading{
			{0, 0.5, 0.5}, {3000, 0.2, 0.5}, {10_999, 0, 0.5}, {11_000, 0, 0.2}, {13_999, 0, 0.2}, {14_000, 0, 0}}},
		{"a pause of a window and more forgets everything", []reading{{0, 0.5, 0.5}, {4000, 0.3, 0.5}, {60_000, 0.1, 0.1}}},
		{"a pause of half a window forgets what is older", []reading{{0, 0.5, 0.5}, {6000, 0.2, 0.5}, {12_000, 0.1, 0.2}}},
		{"a clock that steps back keeps the peak", []reading{{5000, 0.5, 0.5}, {2000, 0.1, 0.5}, {2100, 0.6, 0.6}, {15_999, 0, 0.6}, {16_000, 0, 0}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var p peak
			if p.value() != 0 {
				t.Error("the zero value is not zero")
			}
			for _, r := range test.readings {
				if p.raise(r.value, window, at(r.ms)); p.value() != r.want {
					t.Errorf("after %v at %d ms the peak is %v, want %v", r.value, r.ms, p.value(), r.want)
				}
			}
		})
	}
}

// Whatever the length of the window, a value is held for all of it and for no more than a tenth beyond.
func TestPeakHoldsAnyWindow(t *testing.T) {
	for _, window := range []time.Duration{10 * time.Millisecond, time.Second, 1500 * time.Millisecond, time.Minute, 366 * 24 * time.Hour} {
		for _, offset := range []time.Duration{0, window / 7, window / 3, window - 1} {
			var p peak
			began := at(0).Add(offset)
			p.raise(1, window, began)
			if p.raise(0, window, began.Add(window)); p.value() != 1 {
				t.Errorf("window %v: forgotten after it, offset %v", window, offset)
			}
			if p.raise(0, window, began.Add(window+window/10+1)); p.value() != 0 {
				t.Errorf("window %v: still held a tenth after it, offset %v", window, offset)
			}
		}
	}
}

// A node alone can exceed nothing: there is nobody whose counts it does not see.
func TestBoundOfANodeAloneIsZero(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := launch(t, quiet(perClient)).ready(t)
		for range 30 {
			takeSome(t, n.Node, "per_client", "x", 50)
			time.Sleep(100 * time.Millisecond)
		}
		if b := n.Bound("test/client"); b != 0 {
			t.Errorf("bound %v", b)
		}
		if b := n.Bound("no such rule"); b != 0 || math.IsNaN(b) {
			t.Errorf("bound of a rule that is not: %v", b)
		}
		if n.Staleness() != 0 || len(n.Members()) != 0 || n.degraded.Load() {
			t.Errorf("alone, but staleness %v, members %v, degraded %v", n.Staleness(), n.Members(), n.degraded.Load())
		}
	})
}

// Bounds of rules that are not in force any more are dropped.
func TestAuditForgetsRules(t *testing.T) {
	n := idle(t, layered)
	n.audit.peaks["gone"] = &peak{}
	n.audit.peaks["gone"].raise(1, time.Minute, at(0))
	n.audit.peaks["test/client"] = &peak{}
	n.audit.peaks["test/client"].raise(0.5, time.Minute, at(0))
	n.audit.read(n.policy.Load().limits, at(100))
	if n.Bound("gone") != 0 || n.Bound("test/client") != 0.5 {
		t.Errorf("bounds %v and %v, want 0 and 0.5", n.Bound("gone"), n.Bound("test/client"))
	}
}
