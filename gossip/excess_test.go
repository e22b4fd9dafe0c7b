package gossip

import (
	"math"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// auditor is a replica that receives from one peer, 7, and audits a limit.
type auditor struct {
	*Replica
	meter *counters.Meter
	limit *counters.Limit
}

// newSeer is an auditor whose counts show what reports raise, and which admits a cost of 1 of the keys 1 to 4.
func newSeer(t *testing.T, now int64) auditor {
	l := newAuditor(t, 10*time.Second, 1000)
	table := counters.NewTable(counters.Config{Origin: 1, Memory: counters.MinMemory})
	l.Replica = NewReplica(1, 100*time.Millisecond, table)
	table.Know([]*counters.Limit{l.limit})
	for key := range counters.Key(4) {
		table.Take(l.limit, 1+key, 1, now)
	}
	l.audit(t, now, 0)
	return l
}

// raises has the auditor receive a frame of an origin, the first or a later one, that counts so much of a key.
func (l auditor) raises(o counters.Origin, tick uint64, key counters.Key, count uint64, sent int64) {
	f := frame{kind: data, origin: o, tick: tick, sent: sent, since: 100 * time.Millisecond}
	slot := counters.Slot{Meter: l.meter, Key: key, Index: l.meter.Index(sent), Origin: o, Count: count}
	g := group{origin: o, meter: l.meter, demand: 10, rise: count, slots: []counters.Slot{slot}}
	if err := l.Receive(f.encode(nil, pack([]group{g}, o, sent, maxBody)[0]), sent+30*ms); err != nil {
		panic(err)
	}
}

// What peers report of several keys adds up for none of them.
func TestReportsOfOtherKeysDoNotAddUp(t *testing.T) {
	now := int64(frameTime)
	l := newSeer(t, now)
	for o := range counters.Origin(3) {
		l.Join(7+o, now)
		l.raises(7+o, 1, counters.Key(2+o), 600, now+100*ms)
	}
	l.admits(900, now+150*ms)
	l.audit(t, now+150*ms, 0)
	l.raises(7, 2, 3, 700, now+200*ms) // key 3: 600 + 700 + 1
	l.audit(t, now+250*ms, 301)
}

func auditorOf(m counters.Meter, l *counters.Limit) auditor {
	table := counters.NewTable(counters.Config{Origin: 1, Memory: counters.MinMemory})
	return auditor{NewReplica(1, 100*time.Millisecond, unshown{table}), &m, l}
}

// unshown are counts that show nothing of the keys that reports raise: the bound goes by what these say of themselves.
type unshown struct{ *counters.Table }

func (u unshown) MergeRises(slots []counters.Slot, now int64, rises *counters.Rises) int {
	if rises != nil && len(slots) > 0 {
		rises.Cost, rises.Used = 1, math.MaxUint64
	}
	return u.Merge(slots, now)
}

func newAuditor(t *testing.T, window time.Duration, limit uint64) auditor {
	m := counters.NewMeter("r", counters.SlidingWindow, window)
	l, err := counters.NewLimit(m, limit)
	if err != nil {
		t.Fatal(err)
	}
	return auditorOf(m, l)
}

// frame makes the auditor receive a frame of the peer with the group g of the meter.
func (l auditor) frame(k kind, tick uint64, since time.Duration, g group, sent, now int64) {
	l.frameOf(7, k, tick, since, g, sent, now)
}

func (l auditor) frameOf(o counters.Origin, k kind, tick uint64, since time.Duration, g group, sent, now int64) {
	f := frame{kind: k, origin: o, tick: tick, sent: sent, since: since}
	g.origin, g.meter = o, l.meter
	if k != beacon {
		g.slots = []counters.Slot{{Meter: l.meter, Key: 1, Index: l.meter.Index(sent), Origin: o, Count: 1}}
	}
	if err := l.Receive(f.encode(nil, pack([]group{g}, o, sent, maxBody)[0]), now); err != nil {
		panic(err)
	}
}

// admits ends an interval of the auditor, in which an admission of its own found so much used.
func (l auditor) admits(used uint64, now int64) {
	l.Tick(counters.Drained{Demand: []counters.Demand{{Meter: l.meter, Rate: 10, Used: used}}}, now)
}

func (l auditor) audit(t *testing.T, now int64, want float64) {
	t.Helper()
	got := l.Audit(map[string]*counters.Limit{"r": l.limit}, now)
	if got["r"] != want {
		t.Errorf("%v over the limit, want %v", got["r"], want)
	}
	if delete(got, "r"); len(got) > 0 {
		t.Errorf("bounds of %v, which have no limit", got)
	}
}

func TestAuditInNumbers(t *testing.T) {
	at := func(msec int64) int64 { return frameTime + msec*ms }
	rise := func(cost uint64) group { return group{demand: 200, rise: cost} }
	const tick = 100 * time.Millisecond
	// fresh has a limit of 1000, and has just sent to its peers.
	fresh := func(t *testing.T) auditor {
		l := newAuditor(t, 10*time.Second, 1000)
		l.Join(7, at(0))
		l.audit(t, at(0), 0)
		l.Tick(counters.Drained{}, at(0))
		return l
	}
	// seen knows of 20 that were admitted until 100 and unseen until 130, while its own admissions used up so much
	// of the limit.
	seen := func(t *testing.T, used uint64) auditor {
		l := fresh(t)
		l.frame(data, 1, tick, rise(20), at(100), at(130))
		l.admits(used, at(150))
		return l
	}
	t.Run("nothing was left", func(t *testing.T) { seen(t, 1000).audit(t, at(150), 20) })
	t.Run("something was left", func(t *testing.T) { seen(t, 985).audit(t, at(150), 5) })
	t.Run("enough was left", func(t *testing.T) { seen(t, 980).audit(t, at(150), 0) })
	t.Run("more is used than there is", func(t *testing.T) { seen(t, 1050).audit(t, at(150), 70) })
	t.Run("no more than three quarters were used", func(t *testing.T) {
		l := seen(t, 0)
		l.audit(t, at(150), 0)
		l.frame(data, 2, tick, rise(240), at(200), at(230))
		l.admits(0, at(250))
		// and the 20, which came before 240 were admitted, but not before that frame's time began
		l.audit(t, at(250), 10)
	})
	t.Run("nothing was admitted here", func(t *testing.T) {
		l := fresh(t)
		l.frame(data, 1, tick, rise(20), at(100), at(130))
		l.Tick(counters.Drained{}, at(150))
		l.audit(t, at(150), 0)
	})
	t.Run("others admitted it, and it is denied here", func(t *testing.T) {
		l := seen(t, 0)
		l.Found(map[string]uint64{"r": 1430}, at(150))
		l.audit(t, at(150), 430)
		l.frame(data, 2, tick, rise(30), at(200), at(230)) // of which 1430 may lack 30
		l.audit(t, at(250), 460)
	})
	t.Run("it was known before anything was admitted here", func(t *testing.T) {
		l := seen(t, 0)
		l.admits(1000, at(250))
		l.audit(t, at(250), 0)
	})
	t.Run("it is kept for two seconds", func(t *testing.T) {
		l := seen(t, 1000)
		l.frame(beacon, 1, 0, group{}, at(1000), at(1001))
		l.audit(t, at(1900), 20)
		l.frame(beacon, 1, 0, group{}, at(2000), at(2001))
		l.audit(t, at(2300), 0)
	})
	t.Run("what was unseen at the same time adds up", func(t *testing.T) {
		l := seen(t, 1000)
		l.frame(data, 2, tick, rise(30), at(200), at(230)) // from 100 on
		l.audit(t, at(250), 50)
		l.frame(data, 3, tick, rise(5), at(300), at(330)) // the first was known by then
		l.admits(1000, at(350))
		l.audit(t, at(350), 50)
	})
	t.Run("one peer admits no more than the limit", func(t *testing.T) {
		l := seen(t, 1000)
		for i := range int64(4) { // that come at once
			l.frame(data, uint64(2+i), tick, rise(400), at(200+100*i), at(600))
		}
		l.admits(1000, at(650))
		l.audit(t, at(650), 1000)
		l.admits(1000, at(1800))
		l.audit(t, at(1800), 1000) // nor do these and what it was asked for since
		l.admits(1000, at(2700))
		l.audit(t, at(2700), 441) // 200 a second since 500, rounded up: the others are known by now
	})
	t.Run("a frame that is late", func(t *testing.T) {
		l := seen(t, 0)
		l.frame(data, 3, tick, rise(30), at(300), at(330))
		l.admits(1000, at(500))
		l.audit(t, at(500), 30)
		l.frame(data, 2, tick, rise(40), at(200), at(630)) // unseen until now
		l.audit(t, at(630), 70)
		l.frame(data, 2, tick, rise(40), at(200), at(640)) // that is no news
		l.frame(data, 3, tick, rise(30), at(300), at(640))
		l.audit(t, at(640), 70)
	})
	t.Run("an interval in several frames", func(t *testing.T) {
		l := fresh(t)
		l.frame(dataMore, 1, tick, rise(20), at(100), at(130))
		l.frame(data, 2, tick, rise(20), at(100), at(190)) // the hottest key may be in this one
		l.admits(0, at(150))
		l.admits(1000, at(250)) // as of 150
		l.audit(t, at(250), 20)
	})
	t.Run("at most the limit", func(t *testing.T) {
		l := fresh(t)
		l.frame(data, 1, tick, rise(1<<62), at(100), at(130))
		l.admits(1000, at(150))
		l.audit(t, at(150), 1000)
	})
	t.Run("a clock that is ahead", func(t *testing.T) {
		l := fresh(t)
		l.frame(data, 1, tick, rise(20), at(9100), at(130))
		l.admits(1000, at(150))
		l.audit(t, at(150), 20)
	})
	t.Run("a peer that is silent", func(t *testing.T) {
		l := seen(t, 1000)
		l.admits(1000, at(1050))
		l.audit(t, at(1050), 20) // it will report
		l.admits(1000, at(3100))
		l.audit(t, at(3100), 200*3)
		l.admits(1000, at(100_000))
		l.audit(t, at(100_000), 1000)
		l.Leave(7, false)
		l.audit(t, at(100_001), 1000)
	})
	t.Run("a peer that lacks a frame", func(t *testing.T) {
		l := seen(t, 0)
		for i := range int64(18) { // 2 is missing
			l.frame(data, uint64(3+i), tick, group{demand: 200}, at(300+i*100), at(300+i*100))
		}
		l.admits(1000, at(2000))
		l.audit(t, at(2000), 200*.1) // by what it was asked for in the time that is missing
		l.frame(snapshot, 20, 0, group{}, at(2050), at(2050))
		l.audit(t, at(2060), 200*.15) // the frame never comes: as much as then
	})
	t.Run("it is quiet", func(t *testing.T) {
		l := seen(t, 0)
		l.frame(beacon, 1, 0, group{}, at(300), at(330))
		l.admits(1000, at(340))
		l.admits(1000, at(2300))
		l.audit(t, at(2300), 0)
	})
	t.Run("it left", func(t *testing.T) {
		l := seen(t, 0)
		l.frame(goodbye, 1, 0, group{}, at(131), at(131))
		l.Leave(7, true)
		l.admits(1000, at(3000))
		l.audit(t, at(3000), 0)
	})
	t.Run("it is gone without a word", func(t *testing.T) {
		l := seen(t, 0)
		l.admits(1000, at(500))
		l.Leave(7, true)
		l.audit(t, at(600), 200*.5) // until now, an interval after the last one
	})
}

// A member that is known through others and never sent a frame, as when only some of the ways to it are cut, may admit
// a limit.
func TestAuditOfAMemberNeverSeen(t *testing.T) {
	l := newAuditor(t, time.Minute, 100)
	start := int64(time.Hour)
	l.Join(2, start)
	l.audit(t, start, 0)
	l.admits(100, start+int64(time.Second))
	l.audit(t, start+int64(time.Second), 0) // it has just come
	l.admits(100, start+int64(10*time.Second))
	l.audit(t, start+int64(10*time.Second), 100)
	l.Leave(2, true)
	l.audit(t, start+int64(10*time.Second), 0)
}

// What was taken from a bucket counts until it has come back, which may take many windows: a peer that was silent for
// all of them may have taken as much as it was asked for, but no more than the bucket holds.
func TestAuditOfABucket(t *testing.T) {
	m := counters.NewMeter("r", counters.TokenBucket, time.Minute)
	for _, test := range []struct {
		capacity, refill uint64
		lasts            time.Duration
		silent           time.Duration
		unseen           float64 // at 2 a second
	}{
		{1000, 1000, time.Minute, 10 * time.Second, 20},
		{1000, 1000, time.Minute, time.Hour, 120},
		{1000, 100, 10 * time.Minute, 5 * time.Minute, 600},
		{1000, 100, 10 * time.Minute, time.Hour, 1000},
		{1000, 10_000, 6 * time.Second, time.Minute, 12},
	} {
		l, err := counters.LimitConfig{Meter: m, Max: test.capacity, Refill: test.refill}.New()
		if err != nil {
			t.Fatal(err)
		}
		if got := l.Lasts(); got != test.lasts {
			t.Errorf("a bucket of %d with %d a minute comes back in %v, want %v", test.capacity, test.refill, got,
				test.lasts)
		}
		r := auditorOf(m, l)
		r.Join(7, frameTime)
		r.frame(data, 1, 0, group{demand: 2}, frameTime, frameTime)
		r.audit(t, frameTime, 0)
		now := frameTime + int64(test.silent)
		r.admits(test.capacity, now)
		r.audit(t, now, test.unseen)
	}
}

// Rules that have no limit take no memory, nor do those of which nothing has been received of late.
func TestExcessWindowsAreBounded(t *testing.T) {
	l := newAuditor(t, time.Minute, 100)
	l.Join(7, frameTime)
	l.audit(t, frameTime, 0)
	for i := range uint64(100) {
		m := counters.NewMeter(string(binaryName(int(i))), counters.SlidingWindow, time.Second)
		auditor{l.Replica, &m, nil}.frame(data, 1+i, time.Millisecond, group{rise: 1}, frameTime, frameTime)
	}
	l.frame(data, 101, time.Millisecond, group{rise: 1}, frameTime, frameTime)
	if len(l.excess) != 1 || l.excess["r"] == nil {
		t.Errorf("%d ledgers, of one limit", len(l.excess))
	}
	l.audit(t, frameTime+int64(2100*time.Millisecond), 0)
	if len(l.excess) != 0 {
		t.Error("a ledger is kept in which nothing is left")
	}
}

// Reports that come at once and are of times that overlap take bounded memory, and none is lost. Those of nodes that
// are no members any more may all be one node's: they take none, and add up.
func TestSpansAreBounded(t *testing.T) {
	const reports = 10 * maxSpans
	for _, test := range []struct {
		name            string
		limit           uint64
		member, several bool
		want            float64
	}{
		{"a member", 1 << 20, true, false, 10 * reports},
		{"a member and its limit", 100, true, false, 100},
		{"one that was a member", 1 << 20, false, false, 10 * reports},
		{"many that were", 100, false, true, 10 * reports},
	} {
		l := newAuditor(t, time.Minute, test.limit)
		l.audit(t, frameTime, 0)
		for i := range int64(reports) {
			o := counters.Origin(7)
			if test.several {
				o += counters.Origin(i)
			}
			if l.Join(o, frameTime); !test.member {
				l.Leave(o, false)
			}
			l.frameOf(o, data, uint64(1+i), time.Second, group{rise: 10}, frameTime+(i-reports)*ms, frameTime)
		}
		kept := 0
		for _, spans := range l.excess["r"].spans {
			kept += len(spans)
		}
		if kept > maxSpans || !test.member && kept > 0 {
			t.Errorf("%s: %d spans are kept", test.name, kept)
		}
		l.admits(test.limit, frameTime)
		l.audit(t, frameTime, test.want)
		if l.Audit(map[string]*counters.Limit{"r": l.limit}, frameTime+int64(3*time.Second)); len(l.excess) > 0 {
			t.Errorf("%s: spans stay", test.name)
		}
	}
}

// A member that left leaves nothing behind under a rule that stays busy.
func TestSpansEnd(t *testing.T) {
	l := newAuditor(t, time.Minute, 100)
	l.audit(t, frameTime, 0)
	l.Join(7, frameTime)
	l.frame(data, 1, 50*time.Millisecond, group{rise: 9}, frameTime, frameTime)
	l.admits(100, frameTime)
	l.audit(t, frameTime, 9)
	l.Leave(7, true)
	l.admits(100, frameTime+int64(3*time.Second))
	l.audit(t, frameTime+int64(3*time.Second), 0)
	if w := l.excess["r"]; w == nil || len(w.spans) > 0 {
		t.Errorf("the window is %+v, want one without spans", w)
	}
}

// A bucket gets back what a peer takes while its reports are late, so that these may come to more than it holds, but
// not to any amount.
func TestAuditOfABucketWithLateReports(t *testing.T) {
	m := counters.NewMeter("r", counters.TokenBucket, time.Second)
	limit, err := counters.LimitConfig{Meter: m, Max: 10, Refill: 100}.New()
	if err != nil {
		t.Fatal(err)
	}
	at := func(i int64) int64 { return frameTime + 100*i*ms }
	for rise, most := range map[uint64]float64{10: 40, 500: 10 + 100*(2+0.45)} {
		l := auditorOf(m, limit)
		l.Join(7, frameTime)
		l.audit(t, frameTime, 0)
		l.Tick(counters.Drained{}, frameTime)
		for i := range int64(4) {
			l.frame(data, uint64(1+i), 100*time.Millisecond, group{rise: rise}, at(1+i), at(4))
		}
		l.admits(10, at(4))
		got := l.Audit(map[string]*counters.Limit{"r": l.limit}, at(4))["r"]
		if least := min(40, float64(4*rise)); got < least || got > most {
			t.Errorf("reports of %d each: %v over the limit, want %v to %v", rise, got, least, most)
		}
	}
}

// A clock that is set forgets what was, and goes on.
func TestExcessWindowOfAClockThatIsSet(t *testing.T) {
	for _, by := range []time.Duration{-time.Hour, -time.Second, time.Second, time.Hour} {
		l := newAuditor(t, time.Minute, 100)
		l.audit(t, frameTime, 0)
		l.Join(7, frameTime)
		l.frame(data, 1, 50*time.Millisecond, group{rise: 9}, frameTime, frameTime)
		now := frameTime + int64(by)
		l.Tick(counters.Drained{}, now)
		l.frame(data, 2, 50*time.Millisecond, group{rise: 7}, now+50*ms, now+50*ms)
		l.admits(100, now+100*ms)
		l.audit(t, now+100*ms, 7)
	}
}

// A snapshot in place of the frames of a partition tells what was admitted meanwhile, also where nothing had been asked
// for before.
func TestSnapshotsAreReckoned(t *testing.T) {
	at := func(msec int64) int64 { return frameTime + msec*ms }
	l := newAuditor(t, time.Minute, 1000) // in sub-windows of 6 s
	l.Join(7, at(0))
	l.audit(t, at(0), 0)
	l.frame(data, 1, 100*time.Millisecond, group{rise: 1}, at(10_000), at(10_000))
	ban := counters.Meter{Rule: "r", Algorithm: counters.Ban, Window: time.Minute, Sub: time.Minute}
	slot := func(m *counters.Meter, key counters.Key, sent, count int64) counters.Slot {
		return counters.Slot{Meter: m, Key: key, Index: m.Index(at(sent)), Origin: 7, Count: uint64(count)}
	}
	groups := []group{
		{origin: 7, meter: l.meter, slots: []counters.Slot{
			slot(l.meter, 1, 1000, 800), slot(l.meter, 1, 20_000, 30), // of which 800 were known
			slot(l.meter, 2, 20_000, 25), slot(l.meter, 2, 26_000, 15),
		}},
		{origin: 8, meter: l.meter, slots: []counters.Slot{slot(l.meter, 3, 20_000, 500)}}, // reports for itself
		{origin: 7, meter: &ban, slots: []counters.Slot{slot(&ban, 1, 20_000, at(60_000)/ms)}},
	}
	l.admits(1000, at(29_900))
	f := frame{kind: snapshot, origin: 7, tick: 200, sent: at(30_000)}
	if err := l.Receive(f.encode(nil, pack(groups, 7, f.sent, maxSnapshot)[0]), f.sent); err != nil {
		t.Fatal(err)
	}
	l.audit(t, at(30_000), 40)
}
