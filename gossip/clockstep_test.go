package gossip

import (
	"testing"
	"time"
)

// A clock that is set by an hour, either way, stops no replication: quiet nodes go on sending beacons, counts
// arrive, and the watermarks advance.
func TestAClockThatIsSetByAnHour(t *testing.T) {
	for _, set := range []time.Duration{time.Hour, -time.Hour} {
		for _, keys := range [][]int{{0, 0}, {2, 2}} {
			p := newClockPair(t, time.Minute)
			p.run(30, keys...)
			p.skew[1] += int64(set)
			p.run(1, keys...)
			sent := p.left
			p.run(50, keys...)
			for i := range p.replicas {
				if n := p.left[i] - sent[i]; n < 4 || n > 120 {
					t.Errorf("set by %v, keys %v: %d sends %d frames in five seconds", set, keys, i, n)
				}
				status := p.replicas[i].Peers(p.now + 50*ms + p.skew[i])[0]
				if ago := time.Duration(p.now + p.skew[1-i] - status.CompleteThrough); ago < 0 ||
					ago > 1200*time.Millisecond {
					t.Errorf("set by %v, keys %v: %d knows the other as of %v ago, by its clock", set, keys, i, ago)
				}
				if h := p.replicas[i].inbound[p.replicas[1-i].self]; h.cumulative != p.replicas[1-i].log.last() {
					t.Errorf("set by %v, keys %v: %d has %d of %d ticks", set, keys, i, h.cumulative,
						p.replicas[1-i].log.last())
				}
			}
		}
	}
}

// A member that is far behind gets its snapshot, whatever the clock was when it got the last one.
func TestSnapshotAfterTheClockWasSetBack(t *testing.T) {
	s := newSender(t)
	s.tick(1)
	s.Join(8, s.now)
	s.tick(1)
	s.now -= int64(time.Hour)
	if at := s.snapshots(8, 30, func() { s.receive(8, ack{}) }); len(at) == 0 {
		t.Error("it gets none within three seconds")
	}
}

// What came after a gap before the sender's clock was set back closes the gap by its clock as it is then.
func TestAGapWhileTheClockWasSetBack(t *testing.T) {
	h := newInbound(frameTime, 100*time.Millisecond)
	back := frameTime - int64(time.Hour)
	for i, step := range []struct {
		tick uint64
		sent int64
	}{{1, frameTime}, {3, frameTime + 200*ms}, {4, back + 300*ms}, {2, frameTime + 100*ms}, {5, back + 400*ms}} {
		f := frame{kind: data, origin: 7, tick: step.tick, sent: step.sent}
		now := frameTime + int64(i)*100*ms
		h.follow(&f, now)
		h.note(&f, now)
	}
	if h.cumulative != 5 || h.watermark != back+400*ms {
		t.Errorf("%d ticks have come, known as of %v before the last was sent", h.cumulative,
			time.Duration(back+400*ms-h.watermark))
	}
}

// A frame that was lost while the sender's clock was set back comes again.
func TestLostWhileTheClockWasSetBack(t *testing.T) {
	p := newClockPair(t, time.Minute)
	p.run(30, 1, 1)
	p.swallow = func(from int, _ *frame) bool { return from == 1 }
	p.run(1, 1, 1)
	p.swallow = func(int, *frame) bool { return false }
	p.skew[1] -= int64(time.Hour)
	p.run(30, 1, 1)
	if h := p.replicas[0].inbound[2]; h.cumulative != p.replicas[1].log.last() {
		t.Errorf("%d of %d ticks have come", h.cumulative, p.replicas[1].log.last())
	}
}

// What an origin is asked for is taken in by its clock as it is after it was set back.
func TestDemandOfAClockThatWasSetBack(t *testing.T) {
	h := newInbound(frameTime, 100*time.Millisecond)
	m := meter("r", 10*time.Second, time.Second)
	send := func(tick uint64, sent, now int64, demand float64) {
		f := frame{
			kind:   data,
			origin: 7,
			tick:   tick,
			sent:   sent,
			groups: []group{{origin: 7, meter: m, demand: demand}},
		}
		h.follow(&f, now)
		h.noteDemand(&f.groups[0], sent, now)
		h.note(&f, now)
	}
	send(1, frameTime, frameTime+20*ms, 100)
	back := frameTime - int64(time.Hour)
	for i := range int64(20) {
		send(uint64(2+i), back+(i+1)*100*ms, frameTime+20*ms+(i+1)*100*ms, 5)
	}
	if r := h.demand["r"]; r.rate != 5 || h.watermark != back+2000*ms {
		t.Errorf("%+v, known as of %v before it was set", r, time.Duration(frameTime-h.watermark))
	}
	// A frame that is late by less is late, as ever.
	old := h.latestSent
	f := frame{kind: data, origin: 7, tick: 5, sent: h.latestSent - int64(setBackBy)}
	if h.follow(&f, frameTime); h.latestSent != old {
		t.Errorf("a frame a minute late set the clock by %v", time.Duration(h.latestSent-old))
	}
	for _, replayed := range []frame{{kind: data, tick: 21}, {kind: data, tick: 3}, {kind: beacon, tick: 20},
		{kind: goodbye, tick: 1}} {
		replayed.sent = h.latestSent - int64(24*time.Hour)
		if h.follow(&replayed, frameTime); h.latestSent != old {
			t.Errorf("a frame that was replayed set the clock by %v", time.Duration(h.latestSent-old))
		}
	}
}

// What an owner's sums were complete through lies in the past, also after this node's clock was set back: else what
// they rise by would count as unseen for too short a time.
func TestSumsAfterTheClockWasSetBack(t *testing.T) {
	h := newInbound(frameTime, 100*time.Millisecond)
	old := &ages{here: 300 * time.Millisecond, there: 400 * time.Millisecond}
	h.advanceWatermark(frameTime, old, frameTime)
	now := frameTime - int64(time.Hour) // of this node; the owner's goes on
	h.advanceWatermark(frameTime+100*ms, old, now)
	check := func(when string) {
		t.Helper()
		here, there := time.Duration(now-h.hereAt), time.Duration(now-h.thereAt)
		if here != old.here || there != old.there {
			t.Errorf("%s its sums are complete through %v and %v ago, want %v and %v", when, here, there, old.here,
				old.there)
		}
	}
	check("at once")
	for i := range int64(10) {
		h.advanceWatermark(frameTime+(200+100*i)*ms, old, now+100*ms*i)
	}
	now += 900 * ms
	check("a second later")
}
