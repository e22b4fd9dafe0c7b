package gossip

import (
	"bytes"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

func TestNewcomerGetsASnapshot(t *testing.T) {
	s := newSender(t)
	if got := kindsOf(s.tick(0)); !slices.Equal(got, []kind{snapshot, beacon}) {
		t.Errorf("the first interval of a member: %v, want a snapshot and a beacon", got)
	}
	for range 30 {
		if slices.Contains(kindsOf(s.tick(1)), snapshot) {
			t.Fatal("another snapshot, though nothing was missed before the first one")
		}
	}
	// One that joins when there is something to send gets a snapshot again until it has acknowledged one, but not
	// often.
	s.Join(8, s.now)
	at := s.snapshots(8, 100, func() { s.receive(8, ack{}) })
	for i, d := range at {
		if i > 0 && d-at[i-1] < snapshotRetry {
			t.Errorf("snapshots at %v", at)
		}
	}
	if len(at) < 3 || at[0] != 100*time.Millisecond {
		t.Errorf("snapshots at %v", at)
	}
	s.receive(8, ack{origin: 1, cumulative: s.log.last()})
	if at := s.snapshots(8, 100, func() { s.receive(8, ack{}) }); len(at) > 0 {
		t.Errorf("it has all, and gets snapshots at %v", at)
	}
}

// A peer that lacks a frame which is not kept any more gets a snapshot, once it sends.
func TestFarBehindGetsASnapshot(t *testing.T) {
	s := newSender(t)
	s.tick(1)
	s.receive(7, ack{origin: 1, cumulative: 1})
	for range ackWindow + 1 { // tick 2 has just gone from the log
		s.tick(1)
	}
	if s.log.first() != 3 || s.log.get(2) != nil || s.log.get(3) == nil {
		t.Fatalf("the log begins at %d", s.log.first())
	}
	if at := s.snapshots(7, 50, func() {}); len(at) > 0 {
		t.Errorf("it is silent, and gets snapshots at %v", at)
	}
	s.receive(7, ack{})
	if at := s.snapshots(7, 1, func() {}); len(at) != 1 {
		t.Error("it is reachable, and gets no snapshot")
	}
	s.receive(7, ack{origin: 1, cumulative: s.log.last()})
	if at := s.snapshots(7, 100, func() { s.receive(7, ack{}) }); len(at) > 0 {
		t.Errorf("it has all, and gets snapshots at %v", at)
	}
}

// snapshots ends so many intervals and returns after which time the member was sent snapshots.
func (s *sender) snapshots(to counters.Origin, intervals int, before func()) (at []time.Duration) {
	start := s.now
	for range intervals {
		before()
		s.now += 100 * ms
		for _, m := range s.Tick(counters.Drained{}, s.now) {
			if m.To == to && m.Reliable {
				at = append(at, time.Duration(s.now-start))
			}
		}
	}
	return at
}

func TestBeacons(t *testing.T) {
	s := newSender(t)
	s.tick(1)
	s.receive(7, ack{origin: 1, cumulative: 1})
	s.now += int64(10 * time.Second)
	s.receive(7, ack{})
	s.tick(0)
	var idle []int
	for i := range 40 {
		s.peers[7].lastSeen, s.peers[7].packetAt = s.now, s.now
		frames := s.tick(0)
		if len(frames) > 0 {
			idle = append(idle, i)
			if f := frames[0]; len(frames) != 1 || f.kind != beacon || f.tick != 1 || f.sent != s.now || f.since != 0 {
				t.Errorf("an idle node sends %+v", frames)
			}
		}
	}
	if !slices.Equal(idle, []int{9, 19, 29, 39}) {
		t.Errorf("idle beacons in intervals %v, want one a second", idle)
	}
	// Asked, though nothing is admitted: every interval, with the demand, and of what time.
	for range 5 {
		frames := s.tickWith(counters.Drained{Demand: []counters.Demand{{Meter: s.meter, Rate: 2.5}}})
		if len(frames) != 1 {
			t.Fatalf("%d frames while asked", len(frames))
		}
		if f := frames[0]; f.kind != beacon || f.tick != 1 || len(f.groups) != 1 || f.groups[0].demand != 2.5 ||
			f.since != 100*time.Millisecond {
			t.Errorf("while asked: %+v", f)
		}
	}
	// Something came that wants an acknowledgement: one beacon with it, at once.
	for i, k := range []kind{data, dataMore, snapshot, snapshot} {
		s.tick(0)
		f := frame{kind: k, origin: 7, tick: uint64(i + 1), sent: s.now}
		if err := s.Receive(f.encode(nil, emptyBody), s.now); err != nil {
			t.Fatal(err)
		}
		frames := s.tick(0)
		if len(frames) != 1 || frames[0].ack.origin != 7 || frames[0].ack.cumulative != f.tick {
			t.Errorf("to be acknowledged: %+v", frames)
		}
		if frames := s.tick(0); len(frames) != 0 {
			t.Errorf("acknowledged already: %+v", frames)
		}
	}
}

// A node that always has something to send acknowledges in one data frame of each interval.
func TestAckRidesOnData(t *testing.T) {
	s := newSender(t)
	s.tick(0)
	for tick := range uint64(5) {
		f := frame{kind: data, origin: 7, tick: tick + 1, sent: s.now}
		if err := s.Receive(f.encode(nil, emptyBody), s.now); err != nil {
			t.Fatal(err)
		}
		frames := s.tick(300)
		var acks []ack
		for _, f := range frames {
			if f.ack.origin != 0 {
				acks = append(acks, f.ack)
			}
		}
		if len(acks) != 1 || acks[0].origin != 7 || acks[0].cumulative != tick+1 ||
			slices.Contains(kindsOf(frames), beacon) {
			t.Errorf("frames of kinds %v with acks %+v, want one, up to %d", kindsOf(frames), acks, tick+1)
		}
	}
}

// An ack that has no room in any frame of an interval goes in a beacon of its own. It is said once, whatever there is
// to say.
func TestAckThatDoesNotFit(t *testing.T) {
	for _, beyond := range []uint64{2, ackWindow} { // what came after tick 1, and after a gap
		alone := 0
		for slots := range 300 {
			s := newSender(t)
			s.tick(0)
			for _, tick := range []uint64{1, beyond} {
				f := frame{kind: data, origin: 7, tick: tick, sent: s.now}
				if err := s.Receive(f.encode(nil, emptyBody), s.now); err != nil {
					t.Fatal(err)
				}
			}
			acks := 0
			frames := s.tick(slots + 1)
			for i, f := range frames {
				if f.ack.origin != 0 {
					acks++
					if !f.ack.has(1) || !f.ack.has(beyond) || f.ack.has(beyond+1) {
						t.Errorf("ack %+v of 1 and %d", f.ack, beyond)
					}
				}
				if f.kind == beacon {
					alone++
					if i != len(frames)-1 || i == 0 || f.tick != s.log.last() || f.sent != s.now || f.ack.origin != 7 {
						t.Errorf("frame %d of %d: %+v", i, len(frames), f)
					}
				}
			}
			if acks != 1 {
				t.Errorf("%d slots: %d acks in %d frames, want one", slots+1, acks, len(frames))
			}
		}
		// numbers are small here: a small ack always has room
		if large := beyond == ackWindow; large != (alone > 0) || alone > 100 {
			t.Errorf("an ack of %d goes alone %d times of 300", beyond, alone)
		}
	}
}

// An interval of more frames than are kept sends each of them once. What is lost of the oldest, a snapshot repairs.
func TestIntervalOfMoreFramesThanAreKept(t *testing.T) {
	s := newSender(t)
	s.tick(0)
	seen := make(map[counters.Key]int)
	frames := s.tick(ackWindow * 200)
	for _, f := range frames {
		for _, g := range f.groups {
			for _, slot := range g.unpack(f.sent) {
				seen[slot.Key]++
			}
		}
	}
	if len(frames) <= ackWindow || len(seen) != ackWindow*200 {
		t.Errorf("%d slots in %d frames, want %d in more than %d", len(seen), len(frames), ackWindow*200, ackWindow)
	}
	for key, n := range seen {
		if n != 1 {
			t.Fatalf("key %d was sent %d times", key, n)
		}
	}
}

// A message to one peer shares its memory with that to another, but for the ack: who reads one reads what the other
// gets.
func TestFramesAreAlikeForAll(t *testing.T) {
	s := newSender(t)
	s.Join(8, s.now)
	s.tick(0)
	s.now += 100 * ms
	f := frame{kind: data, origin: 7, tick: 1, sent: s.now}
	if err := s.Receive(f.encode(nil, emptyBody), s.now); err != nil {
		t.Fatal(err)
	}
	s.now += 100 * ms
	to := make(map[counters.Origin][]*frame)
	for _, m := range s.Tick(counters.Drained{Slots: []counters.Slot{{Meter: s.meter, Key: 1,
		Index: s.meter.Index(s.now), Origin: 1, Count: 5}}}, s.now) {
		f, err := decodeFrame(m.Data)
		if err != nil {
			t.Fatal(err)
		}
		to[m.To] = append(to[m.To], f)
	}
	if len(to[7]) != 1 || len(to[8]) != 1 || to[7][0].ack.origin != 7 || to[8][0].ack.origin != 0 {
		t.Fatalf("frames %+v, want one each, with an ack for 7", to)
	}
	to[7][0].ack = ack{}
	if !reflect.DeepEqual(to[7][0], to[8][0]) {
		t.Errorf("they differ in more than the ack:\n%+v\n%+v", to[7][0], to[8][0])
	}
}

// Demands too many for one frame go in several beacons.
func TestManyDemands(t *testing.T) {
	s := newSender(t)
	s.tick(0)
	var d counters.Drained
	for i := range 100 {
		m := counters.NewMeter("a rule with a name of some length/"+string(binaryName(i)), counters.SlidingWindow,
			time.Minute)
		d.Demand = append(d.Demand, counters.Demand{Meter: &m, Rate: float64(i + 1)})
	}
	var sum float64
	frames := s.tickWith(d)
	for _, f := range frames {
		for _, g := range f.groups {
			sum += g.demand
		}
	}
	if len(frames) < 2 || sum != 5050 || slices.Contains(kindsOf(frames), data) {
		t.Errorf("%d frames with demands of %v", len(frames), sum)
	}
}

func TestIntervalOfManyFrames(t *testing.T) {
	s := newSender(t)
	s.tick(0)
	frames := s.tick(500)
	if len(frames) < 5 {
		t.Fatalf("500 slots in %d frames", len(frames))
	}
	slots := 0
	for i, f := range frames {
		if last := i == len(frames)-1; f.tick != uint64(i+1) || (f.kind == data) != last ||
			(f.kind == dataMore) == last {
			t.Errorf("frame %d of %d is of kind %d and tick %d", i, len(frames), f.kind, f.tick)
		}
		for _, g := range f.groups {
			slots += len(g.unpack(f.sent))
		}
	}
	if slots != 500 {
		t.Errorf("%d slots in the frames, want 500", slots)
	}
}

func TestMembersOnly(t *testing.T) {
	s := newSender(t)
	s.Join(1, s.now) // itself
	s.Join(0, s.now) // nobody
	s.Join(5, s.now)
	s.Join(9, s.now)
	s.Join(5, s.now) // again
	var to []counters.Origin
	for _, m := range s.Tick(counters.Drained{}, s.now) {
		if len(to) == 0 || to[len(to)-1] != m.To {
			to = append(to, m.To)
		}
	}
	if !slices.Equal(to, []counters.Origin{5, 7, 9}) {
		t.Errorf("messages to %v, want 5, 7 and 9 in a row each", to)
	}
	s.Leave(5, true)
	s.Leave(5, true)
	s.Leave(1234, false)
	for _, m := range s.Tick(counters.Drained{}, s.now) {
		if m.To == 5 {
			t.Error("a message to one that left")
		}
	}
}

// Own frames that a peer sends back, changes nothing.
func TestOwnFramesComeBack(t *testing.T) {
	s := newSender(t)
	before := s.Snapshot(s.now)
	f := frame{kind: snapshot, origin: 1, tick: 99, sent: s.now, ack: ack{origin: 1, cumulative: 5}}
	g := group{
		origin: 1,
		meter:  s.meter,
		slots:  []counters.Slot{{Meter: s.meter, Key: 1, Index: s.meter.Index(s.now), Origin: 1, Count: 1 << 40}},
	}
	for range 2 {
		if err := s.Receive(f.encode(nil, pack([]group{g}, f.origin, s.now, maxBody)[0]), s.now); err != nil {
			t.Fatal(err)
		}
		f.origin = 7 // nor when somebody else says it of this node
	}
	if !bytes.Equal(before, s.Snapshot(s.now)) || s.inbound[1] != nil {
		t.Error("a replica believes what others say of itself")
	}
}

func TestLeaveAndJoin(t *testing.T) {
	s := newSender(t)
	s.Join(8, s.now)
	known := func() (origins []counters.Origin) {
		for _, p := range s.Peers(s.now) {
			origins = append(origins, p.Origin)
		}
		return origins
	}
	s.Leave(8, true) // before anything came from it
	s.tick(0)
	s.receive(8, ack{}) // late
	if got := known(); !slices.Equal(got, []counters.Origin{7}) || !s.Left(8) || s.Left(7) || s.Left(9) {
		t.Errorf("8 left, and %v are known", got)
	}
	s.Join(8, s.now)
	if got := known(); !slices.Equal(got, []counters.Origin{7, 8}) || s.Left(8) {
		t.Errorf("8 is back, and %v are known", got)
	}
}
