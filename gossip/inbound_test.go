package gossip

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
)

const ms = int64(time.Millisecond)

// arrive notes a frame without groups.
func (h *inbound) arrive(k kind, tick uint64, sent, now int64) {
	h.note(&frame{kind: k, origin: 7, tick: tick, sent: sent}, now)
}

func TestAckNamesWhatCame(t *testing.T) {
	h := newInbound(0, 100*time.Millisecond)
	if a := h.ack(7, 0); a.origin != 7 || a.cumulative != 0 || len(a.bitmap) != 0 {
		t.Errorf("before anything came: %+v", a)
	}
	for _, tick := range []uint64{2, 1, 4, 7, 12, 4} {
		h.arrive(data, tick, 1, 1)
	}
	// Ticks 4, 7 and 12 lie 0, 3 and 8 beyond cumulative+2.
	a := h.ack(7, 0)
	if a.cumulative != 2 || !slices.Equal(a.bitmap, []byte{0b0000_1001, 0b1}) {
		t.Errorf("ack %d and %08b", a.cumulative, a.bitmap)
	}
	for tick := range uint64(100) {
		if want := slices.Contains([]uint64{0, 1, 2, 4, 7, 12}, tick); a.has(tick) != want {
			t.Errorf("ack has tick %d: %v", tick, !want)
		}
	}
	h.arrive(data, 3, 1, 1)
	if a = h.ack(7, 0); a.cumulative != 4 || a.has(5) || a.has(6) || !a.has(7) || !a.has(12) {
		t.Errorf("the gap at 3 is closed: %d and %08b", a.cumulative, a.bitmap)
	}
	for _, tick := range []uint64{5, 6, 8, 9, 10, 11} {
		h.arrive(dataMore, tick, 1, 1)
	}
	if a = h.ack(7, 0); a.cumulative != 12 || len(a.bitmap) != 0 || len(h.beyond) != 0 {
		t.Errorf("all gaps are closed: %d and %08b", a.cumulative, a.bitmap)
	}
}

// Whatever comes, in whatever order and however often: an ack claims no tick that did not come, and forgets none within
// reach.
func TestAckIsTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newInbound(0, 100*time.Millisecond)
		came := make(map[uint64]bool)
		highest := rapid.SampledFrom([]uint64{10, 100, 3 * ackWindow}).Draw(t, "highest")
		for _, tick := range rapid.SliceOf(rapid.Uint64Range(1, highest)).Draw(t, "ticks") {
			if tick <= h.cumulative+ackWindow {
				came[tick] = true
			}
			h.arrive(data, tick, 1, 1)
		}
		a, err := decodeFrame((&frame{origin: 1, sent: 1, ack: h.ack(7, 0)}).encode(nil, emptyBody))
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
	h := newInbound(0, 100*time.Millisecond)
	h.arrive(data, ackWindow, 1, 1)
	h.arrive(data, ackWindow+1, 1, 1)
	h.arrive(data, 1<<40, 1, 1)
	if a := h.ack(7, 0); len(a.bitmap) != maxBitmap || !a.has(ackWindow) || a.has(ackWindow+1) || len(h.beyond) != 1 {
		t.Errorf("ack %d and %d bytes, %d ticks remembered", a.cumulative, len(a.bitmap), len(h.beyond))
	}
}

func TestSnapshotCoversTicks(t *testing.T) {
	h := newInbound(0, 100*time.Millisecond)
	for _, tick := range []uint64{1, 5, 9, 10, 12} {
		h.arrive(data, tick, 1, 1)
	}
	h.arrive(snapshot, 8, 100, 200)
	if a := h.ack(7, 0); a.cumulative != 10 || !a.has(12) || a.has(11) || len(h.beyond) != 1 {
		t.Errorf("after a snapshot up to 8: ack %d, %v", a.cumulative, h.beyond)
	}
	h.arrive(snapshot, 3, 150, 250)
	if a := h.ack(7, 0); a.cumulative != 10 || h.watermark != 100 {
		t.Errorf("after a late snapshot up to 3: ack %d, as of %d", a.cumulative, h.watermark)
	}
}

// The age counts from the moment at which everything was known, in the sender's time: from the last frame of an
// interval of which no frame is missing, or from a beacon after it.
func TestAge(t *testing.T) {
	h := newInbound(1000*ms, 100*time.Millisecond)
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
		{"the missing frame, which the beacon spoke of", data, 5, 1250, 1340, 40},
		{"a beacon with nothing missing", beacon, 5, 1400, 1410, 10},
		{"an old frame again", data, 2, 1100, 1420, 20},
		{"an old beacon again", beacon, 5, 1300, 1430, 30},
		{"a clock that is ahead", beacon, 5, 1500, 1440, 0},
	} {
		h.arrive(step.kind, step.tick, step.sent*ms, step.now*ms)
		if got := h.age(step.now * ms); got != time.Duration(step.want*ms) {
			t.Errorf("%s: age %v, want %v", step.name, got, time.Duration(step.want*ms))
		}
	}
}

// Peers reports the worst age of an interval, not the one that happens to be at its end.
func TestPeakAge(t *testing.T) {
	h := newInbound(0, 100*time.Millisecond)
	h.arrive(data, 1, 1000*ms, 1010*ms)
	h.tick(1100 * ms) // closes an interval that began without knowledge: 1010 ms since the start
	if h.peakAge != time.Duration(1010*ms) {
		t.Errorf("first interval: %v", h.peakAge)
	}
	h.arrive(data, 2, 1180*ms, 1190*ms) // until it came the knowledge was of 1000
	h.tick(1200 * ms)
	if h.peakAge != time.Duration(190*ms) {
		t.Errorf("second interval: %v", h.peakAge)
	}
	h.tick(1300 * ms) // nothing came
	if h.peakAge != time.Duration(120*ms) {
		t.Errorf("third interval: %v", h.peakAge)
	}
}

// No peer can make a replica remember any number of rules or origins.
func TestReportsAreBounded(t *testing.T) {
	h := newInbound(0, 100*time.Millisecond)
	for i := range maxDemands + 10 {
		m := counters.NewMeter(string(binaryName(i)), counters.SlidingWindow, time.Second)
		h.noteDemand(&group{origin: 7, meter: &m, demand: 1}, 1, 1)
	}
	if len(h.demand) != maxDemands {
		t.Errorf("%d rules are remembered, want %d", len(h.demand), maxDemands)
	}
	l := newAuditor(t, time.Second, 1)
	l.Join(7, frameTime)
	for o := range counters.Origin(100) {
		f := frame{origin: o + 100, sent: frameTime}
		if err := l.Receive(f.encode(nil, emptyBody), frameTime); err != nil {
			t.Fatal(err)
		}
	}
	if len(l.inbound) != 1 || l.inbound[7] == nil {
		t.Errorf("%d origins are remembered, want the member alone", len(l.inbound))
	}
}

func binaryName(i int) []byte { return []byte{byte(i>>14) | 0x40, byte(i>>7) & 0x7f, byte(i) & 0x7f} }
