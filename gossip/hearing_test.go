package gossip

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"pgregory.net/rapid"
)

const ms = int64(time.Millisecond)

// tell makes the hearing note a frame without groups.
func (h *hearing) tell(k kind, tick uint64, sent, now int64) {
	h.note(&frame{kind: k, origin: 7, tick: tick, sent: sent}, now)
}

func TestAckNamesWhatCame(t *testing.T) {
	h := newHearing(0, 100*time.Millisecond)
	if a := h.ack(7); a.origin != 7 || a.cumulative != 0 || len(a.bitmap) != 0 {
		t.Errorf("before anything came: %+v", a)
	}
	for _, tick := range []uint64{2, 1, 4, 7, 12, 4} {
		h.tell(data, tick, 1, 1)
	}
	// Ticks 4, 7 and 12 lie 0, 3 and 8 beyond cumulative+2.
	a := h.ack(7)
	if a.cumulative != 2 || !slices.Equal(a.bitmap, []byte{0b0000_1001, 0b1}) {
		t.Errorf("ack %d and %08b", a.cumulative, a.bitmap)
	}
	for tick := range uint64(100) {
		if want := slices.Contains([]uint64{0, 1, 2, 4, 7, 12}, tick); a.has(tick) != want {
			t.Errorf("ack has tick %d: %v", tick, !want)
		}
	}
	h.tell(data, 3, 1, 1)
	if a = h.ack(7); a.cumulative != 4 || a.has(5) || a.has(6) || !a.has(7) || !a.has(12) {
		t.Errorf("the gap at 3 is closed: %d and %08b", a.cumulative, a.bitmap)
	}
	for _, tick := range []uint64{5, 6, 8, 9, 10, 11} {
		h.tell(dataMore, tick, 1, 1)
	}
	if a = h.ack(7); a.cumulative != 12 || len(a.bitmap) != 0 || len(h.beyond) != 0 {
		t.Errorf("all gaps are closed: %d and %08b", a.cumulative, a.bitmap)
	}
}

// Whatever comes, in whatever order and however often: an ack claims no tick that did not come, and forgets none within reach.
func TestAckIsTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHearing(0, 100*time.Millisecond)
		came := make(map[uint64]bool)
		highest := rapid.SampledFrom([]uint64{10, 100, 3 * ackWindow}).Draw(t, "highest")
		for _, tick := range rapid.SliceOf(rapid.Uint64Range(1, highest)).Draw(t, "ticks") {
			if tick <= h.cumulative+ackWindow {
				came[tick] = true
			}
			h.tell(data, tick, 1, 1)
		}
		a, err := decodeFrame((&frame{origin: 1, sent: 1, ack: h.ack(7)}).encode(nil, emptyBody))
		if err != nil {
			t.Fatal(err)
		}
		for tick := uint64(1); tick <= highest+ackWindow; tick++ {
			if a.ack.has(tick) != came[tick] {
				t.Fatalf("tick %d came: %v, acknowledged: %v", tick, came[tick], a.ack.has(tick))
			}
		}
	})
}

// What lies too far beyond a gap is not remembered, so that nobody can make a replica remember much.
func TestAckWindow(t *testing.T) {
	h := newHearing(0, 100*time.Millisecond)
	h.tell(data, ackWindow, 1, 1)
	h.tell(data, ackWindow+1, 1, 1)
	h.tell(data, 1<<40, 1, 1)
	if a := h.ack(7); len(a.bitmap) != maxBitmap || !a.has(ackWindow) || a.has(ackWindow+1) || len(h.beyond) != 1 {
		t.Errorf("ack %d and %d bytes, %d ticks remembered", a.cumulative, len(a.bitmap), len(h.beyond))
	}
}

func TestSnapshotCoversTicks(t *testing.T) {
	h := newHearing(0, 100*time.Millisecond)
	for _, tick := range []uint64{1, 5, 9, 10, 12} {
		h.tell(data, tick, 1, 1)
	}
	h.tell(snapshot, 8, 100, 200)
	if a := h.ack(7); a.cumulative != 10 || !a.has(12) || a.has(11) || len(h.beyond) != 1 {
		t.Errorf("after a snapshot up to 8: ack %d, %v", a.cumulative, h.beyond)
	}
	h.tell(snapshot, 3, 150, 250)
	if a := h.ack(7); a.cumulative != 10 || h.asOf != 100 {
		t.Errorf("after a late snapshot up to 3: ack %d, as of %d", a.cumulative, h.asOf)
	}
}

// The age counts from the moment at which everything was known, in the sender's time: from the last frame of an interval of which no
// frame is missing, or from a beacon after it.
func TestAge(t *testing.T) {
	h := newHearing(1000*ms, 100*time.Millisecond)
	for _, step := range []struct {
		name string
		kind kind
		tick uint64
		sent int64
		now  int64
		want int64
	}{
		{"the second of two frames of an interval, the first is missing", data, 2, 1100, 1110, 110},
		{"the first of the two: everything of 1100 is known", dataMore, 1, 1100, 1130, 30},
		{"one of more frames of the next", dataMore, 3, 1200, 1210, 110},
		{"a beacon that knows of a frame that did not come", beacon, 5, 1300, 1310, 210},
		{"the rest of the interval", data, 4, 1200, 1320, 120},
		{"the beacon again, which still knows more", beacon, 5, 1300, 1330, 130},
		{"the missing frame", data, 5, 1250, 1340, 90},
		{"a beacon with nothing missing", beacon, 5, 1400, 1410, 10},
		{"an old frame again", data, 2, 1100, 1420, 20},
		{"an old beacon again", beacon, 5, 1300, 1430, 30},
		{"a clock that is ahead", beacon, 5, 1500, 1440, 0},
	} {
		h.tell(step.kind, step.tick, step.sent*ms, step.now*ms)
		if got := h.age(step.now * ms); got != time.Duration(step.want*ms) {
			t.Errorf("%s: age %v, want %v", step.name, got, time.Duration(step.want*ms))
		}
	}
}

// Peers reports the worst age of an interval, not the one that happens to be at its end.
func TestPeakAge(t *testing.T) {
	h := newHearing(0, 100*time.Millisecond)
	h.tell(data, 1, 1000*ms, 1010*ms)
	h.tick(1100 * ms) // closes an interval that began without knowledge: 1010 ms since the start
	if h.peakAge != time.Duration(1010*ms) {
		t.Errorf("first interval: %v", h.peakAge)
	}
	h.tell(data, 2, 1180*ms, 1190*ms) // until it came the knowledge was of 1000
	h.tick(1200 * ms)
	if h.peakAge != time.Duration(190*ms) {
		t.Errorf("second interval: %v", h.peakAge)
	}
	h.tick(1300 * ms) // nothing came
	if h.peakAge != time.Duration(120*ms) {
		t.Errorf("third interval: %v", h.peakAge)
	}
}

// listener is a replica that hears one peer, 7, and what it would say of limits.
type listener struct {
	*Replica
	meter *counters.Meter
	limit *counters.Limit
}

func newListener(t *testing.T, window time.Duration, limit uint64) listener {
	m := counters.NewMeter("r", counters.SlidingWindow, window)
	l, err := counters.NewLimit(m, limit)
	if err != nil {
		t.Fatal(err)
	}
	table := counters.NewTable(counters.Config{Origin: 1})
	return listener{NewReplica(1, 100*time.Millisecond, table), &m, l}
}

// frame makes the listener hear the peer.
func (l listener) frame(k kind, tick uint64, active time.Duration, demand float64, sent, now int64) {
	f := frame{kind: k, origin: 7, tick: tick, sent: sent, active: active}
	g := group{origin: 7, meter: l.meter, demand: demand}
	if k != beacon {
		g.slots = []counters.Slot{{Meter: l.meter, Key: 1, Index: l.meter.Index(sent), Origin: 7, Count: 1}}
	}
	if err := l.Receive(f.encode(nil, pack([]group{g}, 7, sent, maxBody)[0]), now); err != nil {
		panic(err)
	}
}

func (l listener) audit(t *testing.T, now int64, want float64) {
	t.Helper()
	got := l.Audit(map[string]*counters.Limit{"r": l.limit}, now)
	if diff := got["r"] - want; diff > 1e-6 || diff < -1e-6 {
		t.Errorf("unseen %v, want %v", got, want)
	}
	for rule := range maps.Keys(got) {
		if rule != "r" {
			t.Errorf("a bound of %q, which has no limit", rule)
		}
	}
}

func TestAuditInNumbers(t *testing.T) {
	start := frameTime
	at := func(msec int64) int64 { return start + msec*ms }
	steady := func(t *testing.T, limit uint64) listener {
		l := newListener(t, 10*time.Second, limit)
		l.Join(7, start)
		l.audit(t, at(50), 0) // nothing was reported yet
		l.frame(data, 1, 100*time.Millisecond, 200, at(100), at(130))
		l.audit(t, at(130), 200*0.130) // active for 100 ms, 30 ms on the way
		l.frame(data, 2, 200*time.Millisecond, 200, at(200), at(230))
		return l
	}
	t.Run("between two reports", func(t *testing.T) {
		steady(t, 1000).audit(t, at(280), 200*0.130) // at 230 what was known was of 100; at 280 it is of 200
	})
	t.Run("it grows while nothing comes", func(t *testing.T) {
		l := steady(t, 1000)
		l.audit(t, at(1200), 200*1.0)
		l.audit(t, at(3200), 200*3.0)
	})
	t.Run("at most the window", func(t *testing.T) {
		steady(t, 1e6).audit(t, at(60_200), 200*10)
	})
	t.Run("at most the limit", func(t *testing.T) {
		steady(t, 300).audit(t, at(60_200), 300)
	})
	t.Run("a lost frame counts until it comes", func(t *testing.T) {
		l := steady(t, 1000)
		l.audit(t, at(230), 200*0.130)
		l.frame(data, 4, 400*time.Millisecond, 200, at(400), at(430)) // 3 is missing: what is known is of 200
		l.audit(t, at(430), 200*0.230)
		l.audit(t, at(600), 200*0.400)
		l.frame(data, 3, 300*time.Millisecond, 200, at(300), at(630)) // all is known of 400, but was unknown until now
		l.audit(t, at(630), 200*0.430+200*0.1)                        // and what frame 3 says of its own interval
	})
	t.Run("a burst in a lost frame", func(t *testing.T) {
		l := steady(t, 1e6)
		l.audit(t, at(230), 200*0.130)
		l.frame(data, 4, 400*time.Millisecond, 200, at(400), at(430))
		l.frame(data, 3, 300*time.Millisecond, 5000, at(300), at(630)) // it comes late, but it was unseen all the time
		l.audit(t, at(630), 200*0.430+5000*0.1)
		l.frame(data, 3, 300*time.Millisecond, 5000, at(300), at(640)) // once more: that is no news
		l.audit(t, at(640), 200*0.240)
	})
	t.Run("a clock that is ahead", func(t *testing.T) {
		l := newListener(t, 10*time.Second, 1e6)
		l.Join(7, start)
		l.frame(data, 1, 100*time.Millisecond, 200, at(1100), at(130)) // by a second
		l.frame(data, 2, 200*time.Millisecond, 200, at(1200), at(230))
		l.audit(t, at(230), 200*0.100) // since frame 1 came; what it was under way cannot be told
		l.audit(t, at(700), 200*0.470)
	})
	t.Run("what is asked of it rises", func(t *testing.T) {
		l := steady(t, 1e6)
		l.audit(t, at(230), 200*0.130)
		l.frame(data, 3, 300*time.Millisecond, 5000, at(300), at(330)) // at the new rate for all that was unseen
		l.audit(t, at(330), 5000*0.130)
	})
	t.Run("what is asked of it falls", func(t *testing.T) {
		l := steady(t, 1e6)
		l.audit(t, at(230), 200*0.130)
		l.frame(data, 3, 300*time.Millisecond, 10, at(300), at(330)) // until it came it may have gone on at the old rate
		l.audit(t, at(330), 200*0.130)
	})
	t.Run("a burst after a pause", func(t *testing.T) {
		l := steady(t, 1e6)
		l.frame(beacon, 2, 0, 0, at(5000), at(5010))
		l.audit(t, at(5010), 200*0.130) // the reports before the pause
		l.frame(data, 3, 100*time.Millisecond, 5000, at(5900), at(5930))
		l.audit(t, at(5930), 5000*0.130) // not 920 ms: it was quiet until 5800
	})
	t.Run("a beacon after a lost frame", func(t *testing.T) {
		l := steady(t, 1e6)
		l.audit(t, at(230), 200*0.130)
		// Frame 3 of 300 is lost, then there was a pause, then all was denied: the beacon says how long, but not what was in frame 3.
		l.frame(beacon, 3, 100*time.Millisecond, 200, at(2000), at(2030))
		l.frame(data, 3, 100*time.Millisecond, 200, at(300), at(2040))
		l.frame(beacon, 3, 200*time.Millisecond, 200, at(2100), at(2130))
		l.audit(t, at(2130), 200*1.840+200*0.1) // when frame 3 came at last
	})
	t.Run("quiet", func(t *testing.T) {
		l := steady(t, 1000)
		l.frame(beacon, 2, 0, 0, at(300), at(330))
		l.Tick(counters.Drained{}, at(340))
		l.audit(t, at(350), 200*0.130)
		l.audit(t, at(10_000), 0) // it has not been asked for anything since
	})
	t.Run("it left", func(t *testing.T) {
		l := steady(t, 1000)
		l.Leave(7, true)
		l.audit(t, at(3000), 0)
	})
	t.Run("it failed", func(t *testing.T) {
		l := steady(t, 1000)
		l.Leave(7, false)
		l.audit(t, at(3200), 200*3.0)
	})
}

// No peer can make a replica remember any number of rules or origins.
func TestReportsAreBounded(t *testing.T) {
	h := newHearing(0, 100*time.Millisecond)
	for i := range maxDemands + 10 {
		m := counters.NewMeter(string(binaryName(i)), counters.SlidingWindow, time.Second)
		h.note(&frame{origin: 7, sent: 1, groups: []group{{origin: 7, meter: &m, demand: 1}}}, 1)
	}
	if len(h.demand) != maxDemands {
		t.Errorf("%d rules are remembered, want %d", len(h.demand), maxDemands)
	}
	l := newListener(t, time.Second, 1)
	l.Join(7, frameTime)
	for o := range counters.Origin(maxHeard + 10) {
		f := frame{origin: o + 100, sent: frameTime}
		if err := l.Receive(f.encode(nil, emptyBody), frameTime); err != nil {
			t.Fatal(err)
		}
	}
	if len(l.heard) != maxHeard {
		t.Errorf("%d origins are remembered, want %d", len(l.heard), maxHeard)
	}
	l.Join(99, frameTime) // members always find a place
	if l.heard[99] == nil || l.heard[7] == nil {
		t.Error("a member is not heard")
	}
}

func binaryName(i int) []byte { return []byte{byte(i>>14) | 0x40, byte(i>>7) & 0x7f, byte(i) & 0x7f} }
