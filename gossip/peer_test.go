package gossip

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// sender is a replica whose intervals a test ends by hand. It has one member, 7.
type sender struct {
	*Replica
	t     *testing.T
	meter *counters.Meter
	now   int64
	count uint64
}

func newSender(t *testing.T) *sender {
	m := counters.NewMeter("r", counters.SlidingWindow, time.Minute)
	s := &sender{
		NewReplica(1, 100*time.Millisecond, counters.NewTable(counters.Config{Origin: 1, Memory: counters.MinMemory})),
		t, &m, frameTime, 0,
	}
	s.Join(7, s.now)
	return s
}

// tick ends an interval in which so many slots rose, and returns the frames for member 7.
func (s *sender) tick(slots int) []*frame {
	s.t.Helper()
	var d counters.Drained
	for i := range slots {
		s.count++
		d.Slots = append(d.Slots,
			counters.Slot{Meter: s.meter, Key: counters.Key(i), Index: s.meter.Index(s.now), Origin: 1, Count: s.count})
	}
	return s.tickWith(d)
}

func (s *sender) tickWith(d counters.Drained) []*frame {
	s.t.Helper()
	s.now += 100 * ms
	var frames []*frame
	for _, m := range s.Tick(d, s.now) {
		f, err := decodeFrame(m.Data)
		if err != nil {
			s.t.Fatal(err)
		}
		if m.Reliable != (f.kind == snapshot) || f.origin != 1 {
			s.t.Errorf("a frame of kind %d from %x, reliable: %v", f.kind, uint64(f.origin), m.Reliable)
		}
		if m.To == 7 {
			frames = append(frames, f)
		}
	}
	return frames
}

// receive makes the sender receive a beacon of origin from, with an ack.
func (s *sender) receive(from counters.Origin, a ack) {
	s.t.Helper()
	f := frame{kind: beacon, origin: from, sent: s.now, ack: a}
	b := f.encode(nil, emptyBody)
	if err := s.Receive(b, s.now); err != nil {
		s.t.Fatal(err)
	}
	for i := range b {
		b[i] ^= 0xff // the packet's buffer is used again
	}
}

func ticksOf(frames []*frame) (ticks []uint64) {
	for _, f := range frames {
		if f.kind == data || f.kind == dataMore {
			ticks = append(ticks, f.tick)
		}
	}
	return ticks
}

func kindsOf(frames []*frame) (ks []kind) {
	for _, f := range frames {
		ks = append(ks, f.kind)
	}
	return ks
}

func (s *sender) wantTicks(frames []*frame, want ...uint64) {
	s.t.Helper()
	if got := ticksOf(frames); !slices.Equal(got, want) {
		s.t.Errorf("frames of ticks %v, want %v", got, want)
	}
}

func TestUnacknowledgedIsSentAgain(t *testing.T) {
	s := newSender(t)
	s.wantTicks(s.tick(1), 1)
	s.wantTicks(s.tick(1), 2)
	s.wantTicks(s.tick(1), 3)
	s.receive(7, ack{origin: 1, cumulative: 1, bitmap: []byte{1}}) // 1 and 3
	var again []uint64
	for range 40 {
		s.receive(7, ack{origin: 1, cumulative: 1, bitmap: []byte{1}})
		again = append(again, ticksOf(s.tick(0))...)
	}
	if len(again) < 2 || slices.ContainsFunc(again, func(tick uint64) bool { return tick != 2 }) {
		t.Errorf("sent again: %v, want only tick 2, now and then", again)
	}
	s.receive(7, ack{origin: 1, cumulative: 3})
	for range 40 {
		s.receive(7, ack{})
		s.wantTicks(s.tick(0))
	}
	if n := len(s.peers[7].resent); n != 0 {
		t.Errorf("%d ticks are still remembered as sent again", n)
	}
}

// A frame that is sent again is the same frame: its tick, time and slots, with the latest ack.
func TestSentAgainAsItWas(t *testing.T) {
	s := newSender(t)
	first := s.tick(3)
	want := first[len(first)-1]
	for range 30 {
		s.receive(7, ack{})
		for _, f := range s.tick(0) {
			if f.kind != data {
				continue
			}
			if f.tick != want.tick || f.sent != want.sent || f.since != want.since ||
				!sameSlots(f.groups[0].unpack(f.sent), want.groups[0].unpack(want.sent)) {
				t.Errorf("sent again as %+v, was %+v", f, want)
			}
			return
		}
	}
	t.Error("never sent again")
}

func TestAcksThatAreIgnored(t *testing.T) {
	for name, receive := range map[string]func(s *sender){
		"of an older boot of this node":  func(s *sender) { s.receive(7, ack{origin: 2, cumulative: 3}) },
		"of more than was ever sent":     func(s *sender) { s.receive(7, ack{origin: 1, cumulative: 4}) },
		"far beyond what was ever sent":  func(s *sender) { s.receive(7, ack{origin: 1, cumulative: 1 << 62}) },
		"by an older boot of the peer":   func(s *sender) { s.receive(8, ack{origin: 1, cumulative: 3}) },
		"by nobody":                      func(s *sender) { s.receive(7, ack{}) },
		"that came late":                 func(s *sender) { s.receive(7, ack{origin: 1}) },
		"that came late, with a bit set": func(s *sender) { s.receive(7, ack{origin: 1, bitmap: []byte{1}}) },
		"that came late, with less in its bitmap": func(s *sender) {
			s.receive(7, ack{origin: 1, cumulative: 1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSender(t)
			for range 3 {
				s.tick(1)
			}
			s.receive(7, ack{origin: 1, cumulative: 1, bitmap: []byte{1}})
			receive(s)
			if p := s.peers[7]; p.acked.cumulative != 1 || p.acked.has(2) || !p.acked.has(3) {
				t.Errorf("acknowledged %d and %b", p.acked.cumulative, p.acked.bitmap)
			}
		})
	}
}

func TestUnion(t *testing.T) {
	for _, test := range []struct{ a, b, want []byte }{
		{nil, nil, nil},
		{nil, []byte{1, 2}, []byte{1, 2}},
		{[]byte{4}, nil, []byte{4}},
		{[]byte{4}, []byte{1, 2}, []byte{5, 2}},
		{[]byte{4, 8}, []byte{4}, []byte{4, 8}},
	} {
		b := bytes.Clone(test.b)
		if got := union(bytes.Clone(test.a), b); !bytes.Equal(got, test.want) || !bytes.Equal(b, test.b) {
			t.Errorf("union of %v and %v is %v, want %v", test.a, test.b, got, test.want)
		}
	}
}

// RFC 6298: SRTT = R, RTTVAR = R/2 at first; then RTTVAR = 3/4 RTTVAR + 1/4 |SRTT - R|, SRTT = 7/8 SRTT + 1/8 R;
// RTO = SRTT + max(G, 4 RTTVAR), here within two intervals and three seconds.
func TestRTO(t *testing.T) {
	const interval = 100 * time.Millisecond
	p := &peer{}
	for _, step := range []struct{ measured, srtt, rttvar, rto time.Duration }{
		{0, 0, 0, time.Second},
		{400e6, 400e6, 200e6, 1200e6},
		{200e6, 375e6, 200e6, 1175e6}, // 3/4*200 + 1/4*200; 7/8*400 + 1/8*200
		{375e6, 375e6, 150e6, 975e6},
		{1175e6, 475e6, 312.5e6, 1725e6},
		{20e9, 2915.625e6, 5115.625e6, 3 * time.Second},
	} {
		if step.measured > 0 {
			p.measure(step.measured)
		}
		if p.srtt != step.srtt || p.rttvar != step.rttvar || p.rto(interval) != step.rto {
			t.Errorf("after %v: SRTT %v, RTTVAR %v, RTO %v, want %v, %v, %v",
				step.measured, p.srtt, p.rttvar, p.rto(interval), step.srtt, step.rttvar, step.rto)
		}
	}
	for _, test := range []struct{ srtt, rttvar, interval, want time.Duration }{
		{1e6, 0, 100e6, 200e6},          // acks wait for the peer's interval
		{190e6, 1e6, 100e6, 215e6},      // G = a quarter of the interval
		{1e6, 0, 5 * time.Second, 10e9}, // two long intervals exceed the most
		{10e9, 1e9, 5 * time.Second, 10e9},
	} {
		if got := (&peer{srtt: test.srtt, rttvar: test.rttvar}).rto(test.interval); got != test.want {
			t.Errorf("SRTT %v, RTTVAR %v, T %v: RTO %v, want %v", test.srtt, test.rttvar, test.interval, got, test.want)
		}
	}
	if got := (&peer{}).rto(5 * time.Second); got != 10*time.Second {
		t.Errorf("not measured, T 5s: RTO %v, want 10s", got)
	}
}

// Karn's rule: an acknowledgement of what was sent twice does not show of which.
func TestKarn(t *testing.T) {
	s := newSender(t)
	s.tick(1)
	s.now += 30 * ms
	s.receive(7, ack{origin: 1, cumulative: 1})
	if got := s.peers[7].srtt; got != 0 {
		t.Errorf("SRTT %v: the acknowledgement may be of the frame or of the snapshot that covers it", got)
	}
	s.tick(1)
	s.now += 30 * ms
	s.receive(7, ack{origin: 1, cumulative: 2})
	if got := s.peers[7].srtt; got != 30*time.Millisecond {
		t.Fatalf("SRTT %v, want 30ms", got)
	}
	s.tick(1)
	for s.Stats().Resent == 0 {
		s.receive(7, ack{})
		s.tick(0)
	}
	s.now += 50 * ms
	s.receive(7, ack{origin: 1, cumulative: 3})
	if p := s.peers[7]; p.srtt != 30*time.Millisecond || p.acked.cumulative != 3 {
		t.Errorf("SRTT %v after an ambiguous acknowledgement", p.srtt)
	}
	// Tick 5 is acknowledged beyond a gap at 4, and cumulatively only much later.
	s.tick(1)
	s.tick(1)
	s.receive(7, ack{origin: 1, cumulative: 3, bitmap: []byte{1}})
	s.now += 3000 * ms
	s.receive(7, ack{origin: 1, cumulative: 5})
	if p := s.peers[7]; p.srtt != 30*time.Millisecond {
		t.Errorf("SRTT %v: how long a gap lasted is no round trip", p.srtt)
	}
}

// While nothing comes from a peer it is sent what is new, and nothing again. What it missed it gets when it sends
// again.
func TestSilence(t *testing.T) {
	s := newSender(t)
	s.tick(1)
	for range 15 { // the time since it joined
		s.tick(0)
	}
	before := s.Stats().Resent
	for i := range 30 {
		frames := s.tick(1)
		s.wantTicks(frames, uint64(i+2))
	}
	if after := s.Stats(); after.Resent != before || after.Snapshots != 1 {
		t.Errorf("%d frames sent again to a silent peer, %d snapshots", after.Resent-before, after.Snapshots)
	}
	s.receive(7, ack{origin: 1, cumulative: 1, bitmap: []byte{0b10}})
	if got := ticksOf(s.tick(0)); len(got) < 20 || got[0] != 2 || !slices.IsSorted(got) || slices.Contains(got, 4) {
		t.Errorf("it is reachable and has ticks 1 and 4 of 31, and is sent %v", got)
	}
}

// What is sent again in one interval is bounded, the oldest first, and nothing waits for ever behind it.
func TestResendsAreBounded(t *testing.T) {
	s := newSender(t)
	for range 300 {
		s.tick(1)
	}
	s.receive(7, ack{})
	s.now += int64(10 * time.Second)
	seen := make(map[uint64]int)
	for range 18 { // the first ten wait for the snapshot, which is not acknowledged either
		s.receive(7, ack{origin: 1})
		frames := s.tick(0)
		if got := ticksOf(frames); len(got) > maxResend {
			t.Errorf("%d frames sent again in one interval", len(got))
		}
		for _, tick := range ticksOf(frames) {
			seen[tick]++
		}
	}
	for tick := uint64(1); tick <= 300; tick++ {
		if seen[tick] != 1 {
			t.Errorf("tick %d was sent again %d times within the RTO, want once", tick, seen[tick])
		}
	}
}
