package gossip

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
)

// The quickest frame of the last two periods counts; what came before is forgotten, so that a clock that was set shows.
func TestTransitIsTheLeastOfLate(t *testing.T) {
	const period = 2 * time.Second
	var tr transit
	if _, ok := tr.of(1000*ms, period); ok {
		t.Error("it knows something before any frame came")
	}
	for _, step := range []struct {
		at, took int64 // ms
		want     int64
	}{
		{10_000, 80, 80}, {10_500, 90, 80}, {11_000, 70, 70}, {11_999, 200, 70},
		{12_000, 300, 70},  // the first of the next period
		{13_999, 250, 70},  //
		{14_000, 400, 250}, // the period of 70 is over
		{14_100, -900, -900},
		{16_500, 60, -900}, {18_500, 61, 60},
		{30_000, 500, 500}, // after a silence
		{20_000, 600, 600}, // the own clock was set back
	} {
		tr.note(step.took*ms, step.at*ms, period)
		if got, ok := tr.of(step.at*ms, period); !ok || got != step.want*ms {
			t.Errorf("at %d ms: %d ms (known: %v), want %d", step.at, got/ms, ok, step.want)
		}
	}
	if _, ok := tr.of(24_001*ms, period); ok {
		t.Error("it knows something after a silence")
	}
	if _, ok := tr.of(19_000*ms, period); ok {
		t.Error("it knows something of a time to come")
	}
}

// clockPair are two replicas whose clocks differ, and the ways between them.
type clockPair struct {
	t        *testing.T
	now      int64
	skew     [2]int64 // of their clocks
	delay    [2]int64 // of what each sends
	replicas [2]*Replica
	tables   [2]*counters.Table
	limit    *counters.Limit
	left     [2]int // frames that each sent
	swallow  func(from int, f *frame) bool
}

func newClockPair(t *testing.T, window time.Duration) *clockPair {
	t.Helper()
	p := &clockPair{
		t:       t,
		now:     frameTime,
		delay:   [2]int64{20 * ms, 20 * ms},
		swallow: func(int, *frame) bool { return false },
	}
	var err error
	if p.limit, err = counters.NewLimit(counters.NewMeter("r", counters.SlidingWindow, window), 1000); err != nil {
		t.Fatal(err)
	}
	for i := range p.replicas {
		o := counters.Origin(i + 1)
		p.tables[i] = counters.NewTable(counters.Config{Origin: o, Memory: counters.MinMemory})
		p.replicas[i] = NewReplica(o, 100*time.Millisecond, p.tables[i])
	}
	for i, r := range p.replicas {
		r.Join(counters.Origin(2-i), p.now+p.skew[i])
	}
	return p
}

// tick ends an interval of one of them, and delivers what it sends.
func (p *clockPair) tick(i int) {
	p.t.Helper()
	at := p.now + p.skew[i]
	for _, m := range p.replicas[i].Tick(p.tables[i].DrainDirty(at), at) {
		f, err := decodeFrame(m.Data)
		if err != nil {
			p.t.Fatal(err)
		}
		p.left[i]++
		if !p.swallow(i, f) {
			if err := p.replicas[1-i].Receive(m.Data, p.now+p.delay[i]+p.skew[1-i]); err != nil {
				p.t.Fatal(err)
			}
		}
	}
}

// run lets intervals pass in which each is asked once for each of its keys.
func (p *clockPair) run(intervals int, keys ...int) {
	p.t.Helper()
	for range intervals {
		for i := range p.replicas {
			p.now += 50 * ms
			for k := 0; i < len(keys) && k < keys[i]; k++ {
				p.tables[i].Take(p.limit, counters.Key(k), 1, p.now+p.skew[i])
			}
			p.tick(i)
		}
	}
}

// ahead is by how much the clock of the other one is ahead, as one of them says.
func (p *clockPair) ahead(i int) (time.Duration, bool) {
	p.t.Helper()
	peers := p.replicas[i].Peers(p.now + 50*ms + p.skew[i]) // all that was sent has come
	if len(peers) != 1 {
		p.t.Fatalf("%d peers", len(peers))
	}
	return peers[0].Ahead, peers[0].Timed
}

func (p *clockPair) wantAhead(what string, want, off time.Duration) {
	p.t.Helper()
	for i, want := range []time.Duration{want, -want} {
		got, ok := p.ahead(i)
		if !ok || (got-want).Abs() > off {
			p.t.Errorf("%s: to %d the other's clock is %v ahead (known: %v), want %v", what, i, got, ok, want)
		}
	}
}

// Two replicas tell how far apart their clocks are, whether there are requests or not, to half of what their ways
// differ in.
func TestSkewOfTwo(t *testing.T) {
	for _, ahead := range []time.Duration{0, 30 * time.Millisecond, -time.Second, 2 * time.Second, -time.Hour} {
		for _, keys := range [][]int{{0, 0}, {3, 0}, {3, 3}} {
			p := newClockPair(t, time.Minute)
			p.skew[1] = int64(ahead)
			p.run(50, keys...)
			p.wantAhead("ways alike", ahead, 2*time.Millisecond)
			p.delay[0], p.delay[1] = 45*ms, 5*ms
			p.run(60, keys...)
			p.wantAhead("ways of 45 and 5 ms", ahead, 22*time.Millisecond)
			if got, _ := p.ahead(0); (got - ahead).Abs() < 18*time.Millisecond {
				t.Errorf("ways that differ by 40 ms show in %v of %v", got, ahead)
			}
		}
	}
}

// Within some seconds of a clock that was set, the skew is known again; in between it is not wrong, but unknown.
func TestSkewOfAClockThatIsSet(t *testing.T) {
	for _, set := range []time.Duration{time.Second, -time.Second, time.Hour, -time.Hour} {
		p := newClockPair(t, time.Minute)
		p.run(50, 2, 2)
		p.wantAhead("before", 0, 2*time.Millisecond)
		p.skew[1] += int64(set)
		known := 0
		for range 70 {
			p.run(1, 2, 2)
			got, ok := p.ahead(0)
			if !ok {
				continue
			}
			if known++; got.Abs() > 2*time.Millisecond && (got-set).Abs() > 2*time.Millisecond {
				t.Fatalf("set by %v: %v in between", set, got)
			}
		}
		if known == 0 {
			t.Errorf("set by %v: it is never known", set)
		}
		p.wantAhead("seven seconds after it was set", set, 2*time.Millisecond)
	}
}

// A peer that becomes unreachable has no vote after a while, nor has one that does not report transit times.
func TestSkewOfOneThatSaysNothing(t *testing.T) {
	p := newClockPair(t, time.Minute)
	p.run(50, 1, 1)
	p.swallow = func(from int, _ *frame) bool { return from == 1 }
	p.run(100, 1, 1)
	if got, ok := p.ahead(0); ok {
		t.Errorf("ten seconds after its last frame the other's clock is %v ahead", got)
	}
	r := NewReplica(1, 100*time.Millisecond, counters.NewTable(counters.Config{Origin: 1, Memory: counters.MinMemory}))
	r.Join(2, frameTime)
	f := frame{kind: beacon, origin: 2, sent: frameTime, ack: ack{origin: 1}}
	if err := r.Receive(f.encode(nil, emptyBody), frameTime); err != nil {
		t.Fatal(err)
	}
	if st := r.Peers(frameTime)[0]; st.Timed {
		t.Errorf("nothing was told, and the skew is %v", st.Ahead)
	}
}

// Whatever a peer says of times, nothing breaks, and what it says is in bounds.
func TestSkewOfForgedTimes(t *testing.T) {
	p := newClockPair(t, time.Minute)
	for _, sent := range []int64{1, math.MaxInt64, math.MaxInt64 - 1, frameTime} {
		for _, back := range []time.Duration{0, math.MaxInt64, math.MinInt64, time.Hour} {
			f := frame{kind: beacon, origin: 2, sent: sent, ack: ack{origin: 1, transit: back, timed: true}}
			if err := p.replicas[0].Receive(f.encode(nil, emptyBody), p.now); err != nil {
				t.Fatal(err)
			}
			if got, _ := p.ahead(0); got.Abs() > counters.MaxWindow+time.Second {
				t.Errorf("sent at %d, %v back: %v ahead", sent, back, got)
			}
		}
	}
	if got := subtract(math.MinInt64, 1); got != math.MaxInt64 {
		t.Errorf("it goes over the end of the numbers: %d", got)
	}
}

// An acknowledgement with and without a transit goes through a frame; one that is longer still is read.
func TestAckCarriesTransit(t *testing.T) {
	for _, a := range []ack{
		{origin: 3, cumulative: 5},
		{origin: 3, cumulative: 5, transit: 0, timed: true},
		{origin: 3, cumulative: 5, transit: -90 * time.Second, timed: true},
		{origin: math.MaxUint64, cumulative: math.MaxUint64 / 2, bitmap: make([]byte, maxBitmap),
			transit: -counters.MaxWindow, timed: true},
	} {
		f := frame{
			kind: data, origin: math.MaxUint64, tick: math.MaxUint64 / 2, sent: math.MaxInt64,
			since: counters.MaxWindow, ack: a,
		}
		if encoded := a.encode(); len(encoded) > 255 {
			t.Errorf("an ack of %d bytes", len(encoded))
		}
		got, err := decodeFrame(f.encode(nil, emptyBody))
		if err != nil {
			t.Fatal(err)
		}
		if got.ack.timed != a.timed || got.ack.transit != a.transit || got.ack.cumulative != a.cumulative {
			t.Errorf("%+v became %+v", a, got.ack)
		}
	}
}

// early says when the table takes all slots of a group: not a nanosecond before.
func TestEarlyIsWhenTheTableTakesIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window := rapid.SampledFrom([]time.Duration{10 * time.Millisecond, time.Second, 10 * time.Second, time.Hour}).
			Draw(t, "window")
		m := counters.NewMeter("r", counters.SlidingWindow, window)
		now := frameTime + rapid.Int64Range(0, int64(window)).Draw(t, "now")
		g := group{origin: 2, meter: &m}
		var slots []counters.Slot
		for i := range rapid.IntRange(1, 4).Draw(t, "slots") {
			slots = append(slots, counters.Slot{Meter: &m, Key: counters.Key(i), Origin: 2, Count: 1,
				Index: m.Index(now) + rapid.Int64Range(-1, 30).Draw(t, "ahead")})
		}
		g.entries, _ = packEntries(nil, slots, m.Index(now), maxSnapshot)
		refused := func(at int64) uint64 {
			table := counters.NewTable(counters.Config{Origin: 1, Memory: counters.MinMemory})
			table.Merge(slots, at)
			return table.Stats().Refused
		}
		switch early := g.early(now, now); {
		case early == 0:
			if n := refused(now); n != 0 {
				t.Fatalf("%d slots are refused", n)
			}
		case early > maxEarly:
			if refused(now+int64(maxEarly)) == 0 {
				t.Fatal("all are taken in time")
			}
		default:
			if refused(now+int64(early)-1) == 0 || refused(now+int64(early)) != 0 {
				t.Fatalf("%v ahead: not then, or before", early)
			}
		}
	})
}

// A node whose clock is ahead by several sub-windows tells each count twice: at once, and when time has come to it.
func TestEarlyFramesComeAgain(t *testing.T) {
	for _, ahead := range []time.Duration{450 * time.Millisecond, time.Second, 1900 * time.Millisecond} {
		p := newClockPair(t, time.Second)
		p.skew[0] = int64(ahead)
		p.run(50) // they come to know how far apart they are
		sent := p.left[0]
		p.run(1, 3) // three keys are asked for once, and then never again
		p.run(40)
		early := p.replicas[1].Stats().Early
		if early == 0 || early > 3 {
			t.Errorf("%v ahead: %d frames were early", ahead, early)
		}
		if again := p.replicas[0].Stats().Resent; again == 0 || again > 4 {
			t.Errorf("%v ahead: %d frames were sent again, %d in all", ahead, again, p.left[0]-sent)
		}
		if cum := p.replicas[1].inbound[1].cumulative; cum != p.replicas[0].log.last() {
			t.Errorf("%v ahead: %d of %d ticks are acknowledged at last", ahead, cum, p.replicas[0].log.last())
		}
	}
}

// What was refused because it was of a time to come is there once time has come, though nobody asks again.
func TestWhatIsEarlyArrives(t *testing.T) {
	p := newClockPair(t, 5*time.Second)
	p.skew[0] = int64(1800 * time.Millisecond) // sub-windows of half a second
	p.run(50)
	at := p.now + p.skew[0]
	for range 7 {
		if !p.tables[0].Take(p.limit, 99, 1, at).Allowed {
			t.Fatal("denied")
		}
	}
	seen := time.Duration(-1)
	for i := range 60 {
		p.run(1)
		if p.tables[1].View(p.limit, 99, p.now) == 7 {
			seen = time.Duration(i+1) * 100 * time.Millisecond
			break
		}
	}
	if seen < time.Second || seen > 2500*time.Millisecond {
		t.Errorf("it is seen after %v, want soon after the 1.8 s that it is ahead", seen)
	}
}

// Slots of a time too far ahead are lost, and block nobody: the frame is acknowledged.
func TestTooEarlyIsAcknowledged(t *testing.T) {
	p := newClockPair(t, time.Second)
	p.skew[0] = int64(3 * time.Second)
	p.run(50, 1)
	if n := p.replicas[1].Stats().Early; n != 0 {
		t.Errorf("%d frames were to come again", n)
	}
	if h := p.replicas[1].inbound[1]; h.cumulative == 0 || h.cumulative != p.replicas[0].log.last() {
		t.Errorf("%d of %d ticks are acknowledged", h.cumulative, p.replicas[0].log.last())
	}
}

// A peer that lies about the time keeps its own ticks from being acknowledged: nothing is held for it, and nobody else
// suffers.
func TestForgedTimesHarmTheirSenderOnly(t *testing.T) {
	p := newClockPair(t, time.Second)
	p.run(5, 1, 1)
	m := p.limit.Meter()
	r := p.replicas[1]
	r.Join(66, p.now)
	for i := range uint64(3 * ackWindow) {
		p.now += 10 * ms
		slot := counters.Slot{Meter: &m, Key: counters.Key(i), Origin: 66, Index: m.Index(p.now) + 9, Count: 1}
		g := group{origin: 66, meter: &m, slots: []counters.Slot{slot}}
		body := pack([]group{g}, 66, p.now, maxBody)[0]
		f := frame{kind: data, origin: 66, tick: i + 1, sent: p.now}
		if err := r.Receive(f.encode(nil, body), p.now); err != nil {
			t.Fatal(err)
		}
		if h := r.inbound[66]; len(h.beyond) > ackWindow {
			t.Fatalf("%d ticks are remembered", len(h.beyond))
		}
	}
	if n := r.Stats().Early; n != earlyTicks {
		t.Errorf("%d frames are to come again, want %d and no more", n, earlyTicks)
	}
	if keys := p.tables[1].Stats().Keys; keys > 1 {
		t.Errorf("%d keys are held for it", keys)
	}
	before := r.inbound[1].cumulative
	p.run(20, 1, 1)
	if after := r.inbound[1].cumulative; after < before+15 {
		t.Errorf("of another peer only %d ticks have come since", after-before)
	}
}

// A peer that is known to be behind is not sent again what it cannot take yet.
func TestWaitsForAPeerThatIsBehind(t *testing.T) {
	for _, test := range []struct {
		behind time.Duration
		want   time.Duration // until the first repetition
	}{{0, firstRTO}, {500 * time.Millisecond, firstRTO}, {1500 * time.Millisecond, 1500 * time.Millisecond},
		{time.Hour, maxEarly}} {
		s := newSender(t)
		transit := time.Duration(-test.behind)
		for range 30 {
			s.now += 100 * ms
			f := frame{
				kind:   beacon,
				origin: 7,
				sent:   s.now - int64(test.behind),
				ack:    ack{origin: 1, transit: transit, timed: true},
			}
			if err := s.Receive(f.encode(nil, emptyBody), s.now); err != nil {
				t.Fatal(err)
			}
			s.Tick(counters.Drained{}, s.now)
		}
		s.wantTicks(s.tick(1), 1)
		sent := s.now
		var again time.Duration
		for range 40 {
			f := frame{
				kind:   beacon,
				origin: 7,
				sent:   s.now - int64(test.behind),
				ack:    ack{origin: 1, transit: transit, timed: true},
			}
			if err := s.Receive(f.encode(nil, emptyBody), s.now); err != nil {
				t.Fatal(err)
			}
			if slices.Contains(ticksOf(s.tick(0)), 1) {
				again = time.Duration(s.now - sent)
				break
			}
		}
		if again != test.want {
			t.Errorf("%v behind: sent again after %v, want %v", test.behind, again, test.want)
		}
		s.ResendEveryTick()
		if !slices.Contains(ticksOf(s.tick(0)), 1) {
			t.Errorf("%v behind: in a hurry it waits all the same", test.behind)
		}
	}
}
