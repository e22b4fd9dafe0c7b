package gossip

import (
	"cmp"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// What one peer with the key can do to a replica: each of these was an attack that worked.

// snapshotOf is a snapshot of a sender, in which each slot is of its own origin.
func snapshotOf(sender counters.Origin, slots []counters.Slot, now int64) []byte {
	f := frame{kind: snapshot, origin: sender, tick: 1, sent: now}
	return f.encode(nil, pack(new(arranger).arrange(slots, nil, sender), sender, now, maxSnapshot)[0])
}

// A snapshot of more made-up origins than there are numbers does not keep members' counts apart.
func TestMadeUpOriginsDoNotKeepMembersApart(t *testing.T) {
	l := newAuditor(t, time.Hour, 100)
	table := l.counts.(unshown)
	table.Know([]*counters.Limit{l.limit})
	l.Join(666, frameTime)
	var made []counters.Slot
	for i := range counters.Origin(70000) {
		made = append(made, counters.Slot{Meter: l.meter, Key: counters.Key(i % 500), Origin: 1000 + i, Count: 1,
			Index: l.meter.Index(frameTime)})
	}
	if err := l.Receive(snapshotOf(666, made, frameTime), frameTime); err != nil {
		t.Fatal(err)
	}
	l.Join(7, frameTime)
	now := frameTime + 100*ms
	f := frame{kind: data, origin: 7, tick: 1, sent: now}
	g := group{origin: 7, meter: l.meter, slots: []counters.Slot{
		{Meter: l.meter, Key: 1 << 40, Index: l.meter.Index(now), Origin: 7, Count: 100}}}
	if err := l.Receive(f.encode(nil, pack([]group{g}, 7, now, maxBody)[0]), now); err != nil {
		t.Fatal(err)
	}
	passed := 0
	for range 100 {
		if table.Take(l.limit, 1<<40, 1, now).Allowed {
			passed++
		}
	}
	if passed > 0 {
		t.Errorf("%d requests pass a limit that another member used up: %+v", passed, table.Stats())
	}
}

// Whoever sends one snapshot after the other is heard no more of, and others are.
func TestAFloodOfSnapshots(t *testing.T) {
	m := counters.NewMeter("r", counters.SlidingWindow, time.Hour)
	l := auditor{NewReplica(1, 100*time.Millisecond, archive{meter: &m}), &m, nil} // what it merges does not matter
	l.Join(666, frameTime)
	l.Join(7, frameTime)
	var slots []counters.Slot
	for key := range counters.Key(40000) {
		slots = append(slots,
			counters.Slot{Meter: l.meter, Key: key, Index: l.meter.Index(frameTime), Origin: 666, Count: 1})
	}
	flood, other := snapshotOf(666, slots, frameTime), snapshotOf(7, slots, frameTime)
	taken := 0
	for i := range 1000 {
		err := l.Receive(flood, frameTime+int64(i)*ms)
		if from, _ := senderOf(flood); err != nil && (!errors.Is(err, errFlood) || from != 666) {
			t.Fatalf("a flood of %d: %v", from, err)
		}
		if err == nil {
			taken++
		}
	}
	if largest := (memberBurst + maxSnapshot) / len(flood); taken > largest {
		t.Errorf("%d of 1000 snapshots are taken, want at most %d", taken, largest)
	}
	if got := l.Stats().SnapshotsRefused; got != uint64(1000-taken) {
		t.Errorf("%d snapshots are refused, want %d", got, 1000-taken)
	}
	if err := l.Receive(other, frameTime+1000*ms); err != nil {
		t.Errorf("the snapshot of another member: %v", err)
	}
	// An honest peer's, as large as can be and as often as can be, are never refused.
	for i := range 100 {
		if err := l.admit(other[:min(len(other), maxSnapshot)], frameTime+int64(2+2*i)*int64(time.Second)); err != nil {
			t.Fatalf("snapshot %d: %v", i, err)
		}
	}
}

// Rules that a peer makes up take a bounded memory: of a member that may know them earlier some, of one that is none
// nothing.
func TestMadeUpRulesAreBounded(t *testing.T) {
	for _, member := range []bool{true, false} {
		l := newAuditor(t, time.Minute, 100)
		l.Audit(map[string]*counters.Limit{"r": l.limit}, frameTime)
		if member {
			l.Join(7, frameTime)
		}
		for i := range 2000 {
			m := counters.NewMeter(fmt.Sprint("made up ", i), counters.SlidingWindow, time.Minute)
			made := auditor{l.Replica, &m, l.limit}
			made.frame(data, uint64(i+1), 0, group{demand: 1}, frameTime+int64(i), frameTime+int64(i))
		}
		l.frame(data, 3000, 0, group{demand: 1}, frameTime+3000, frameTime+3000)
		h := l.inbound[7]
		if (h != nil) != member {
			t.Errorf("member %v: something of it is remembered: %v", member, h != nil)
		}
		if !member {
			continue
		}
		if got := len(h.demand); got > maxUnknownDemands+1 {
			t.Errorf("%d rules are remembered, want at most %d", got, maxUnknownDemands+1)
		}
		if _, known := h.demand["r"]; !known {
			t.Error("the demand of a rule in force is not remembered")
		}
	}
}

// What was evicted is in the bound for as long as it would count.
func TestTheBoundHoldsWhatWasEvicted(t *testing.T) {
	l := newAuditor(t, 10*time.Second, 100)
	at := func(after time.Duration) int64 { return frameTime + int64(after) }
	l.audit(t, at(0), 0)
	admits := func(now int64, forgotten ...counters.Forgotten) {
		l.Tick(counters.Drained{Demand: []counters.Demand{{Meter: l.meter, Rate: 10}}, Forgotten: forgotten}, now)
	}
	admits(at(100 * time.Millisecond))
	l.audit(t, at(100*time.Millisecond), 0)
	admits(at(200*time.Millisecond), counters.Forgotten{Meter: l.meter, Count: 80})
	l.audit(t, at(200*time.Millisecond), 55) // at 75 of 100, 80 that are forgotten
	admits(at(9*time.Second), counters.Forgotten{Meter: l.meter, Count: 1000})
	l.audit(t, at(9*time.Second), 75)
	admits(at(18 * time.Second))
	l.audit(t, at(18*time.Second), 75)
	admits(at(21 * time.Second))
	l.audit(t, at(21*time.Second), 0)
}

// Who says in a member's name, however often, that its frames have not come as far changes nothing while it speaks.
func TestForgedLowTicks(t *testing.T) {
	r := NewReplica(1, 100*time.Millisecond, counters.NewTable(counters.Config{Origin: 1, Memory: 4 << 20}))
	r.Join(10, frameTime)
	now, h := frameTime, r.inboundOf(10, frameTime)
	h.cumulative = 10 * ackWindow
	for tick := h.cumulative + 1; tick < 11*ackWindow; tick++ {
		for _, f := range []frame{{kind: data, tick: tick}, {kind: beacon}, {kind: data, tick: 1}, {kind: beacon}} {
			f.origin, f.sent = 10, now
			if err := r.Receive(f.encode(nil, emptyBody), now); err != nil {
				t.Fatal(err)
			}
			now += 20 * ms
		}
		if h.cumulative != tick {
			t.Fatalf("%d frames have come, its newest is %d", h.cumulative, tick)
		}
	}
}

// What somebody else says in a member's name is taken back when the member speaks: that it leaves, or that its frames
// have come further than they have.
func TestForgedGoodbyesAndTicksDoNotLast(t *testing.T) {
	r := NewReplica(1, 100*time.Millisecond, counters.NewTable(counters.Config{Origin: 1, Memory: 4 << 20}))
	r.Join(10, frameTime)
	now := frameTime
	receive := func(f frame) {
		f.origin, f.sent = 10, cmp.Or(f.sent, now)
		if err := r.Receive(f.encode(nil, emptyBody), now); err != nil {
			t.Fatal(err)
		}
		now += 100 * ms
	}
	receive(frame{kind: data, tick: 1})
	old := frame{kind: data, tick: 2, sent: now}
	receive(old)
	receive(frame{kind: goodbye, tick: 2})
	receive(frame{kind: snapshot, tick: maxTick})
	h := r.inbound[10]
	if !r.Left(10) || h.cumulative != maxTick {
		t.Fatalf("left: %t, frames to %d", r.Left(10), h.cumulative)
	}
	receive(frame{kind: data, tick: 3})
	if !r.Left(10) {
		t.Error("a frame that was under way at the time of the goodbye takes it back")
	}
	now += int64(lastWords)
	receive(old)
	if !r.Left(10) {
		t.Error("a replay takes the goodbye back")
	}
	for _, forged := range []frame{{kind: goodbye, tick: 3}, {kind: snapshot, tick: maxTick}} {
		forged.sent = now + int64(1000*time.Hour)
		receive(forged)
	}
	now += int64(lastWords)
	for range 1 + sendsWithin/(100*time.Millisecond) {
		receive(frame{kind: beacon, tick: 3})
	}
	receive(frame{kind: data, tick: 4})
	receive(frame{kind: beacon, tick: 4})
	if r.Left(10) || h.cumulative != 4 || h.watermark != h.latestSent {
		t.Errorf("left: %t, frames to %d, complete through %d of %d", r.Left(10), h.cumulative, h.watermark,
			h.latestSent)
	}
}

// A forged snapshot of a tick far ahead does not hide from the bound what the member admits until it is taken back.
func TestForgedHighTicksHideNothing(t *testing.T) {
	for _, ahead := range []time.Duration{0, time.Minute - time.Second} {
		t.Run(ahead.String(), func(t *testing.T) { checkForgedHighTick(t, ahead) })
	}
}

// checkForgedHighTick forges a frame with the highest tick, which was sent so far ahead of this node's time.
func checkForgedHighTick(t *testing.T, ahead time.Duration) {
	l := newAuditor(t, 10*time.Second, 1000)
	at := func(msec int64) int64 { return frameTime + msec*ms }
	l.Join(7, at(0))
	l.audit(t, at(0), 0)
	l.Tick(counters.Drained{}, at(0))
	l.frame(data, 1, 100*time.Millisecond, group{demand: 200, rise: 20}, at(100), at(130))
	forged := frame{kind: snapshot, origin: 7, tick: maxTick, sent: at(131) + int64(ahead)}
	if err := l.Receive(forged.encode(nil, emptyBody), at(131)); err != nil {
		t.Fatal(err)
	}
	l.frame(data, 2, 100*time.Millisecond, group{demand: 2000, rise: 200}, at(200), at(230))
	l.admits(1000, at(250))
	if got := l.Audit(map[string]*counters.Limit{l.meter.Rule: l.limit}, at(250))[l.meter.Rule]; got < 200 {
		t.Errorf("a member admitted 220 unseen, and the bound is %v", got)
	}
	h := l.inbound[7]
	l.frame(data, 2, 100*time.Millisecond, group{demand: 2000, rise: 200}, at(200), at(260)) // a replay
	if h.lowSince == 0 || h.newest != at(200) {
		t.Errorf("low since %d, newest of %d", h.lowSince, h.newest)
	}
}
