package rowtable_test

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/counters/internal/rowtable"
)

var (
	firstSeed = flag.Uint64("seed", 1, "the first seed")
	seeds     = flag.Int("seeds", 3, "how many seeds")
	steps     = flag.Int("steps", 20_000, "steps of each seed")
)

// The new table decides and drains as counters.Table does, to the nanosecond, whatever both are asked and sent, under
// any clock. A longer run: go test ./counters/internal/rowtable -run Differential -seed 1000 -seeds 1000.
func TestDifferential(t *testing.T) {
	for seed := *firstSeed; seed < *firstSeed+uint64(*seeds); seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			p := newPair(t, seed)
			for p.n = 0; p.n < *steps; p.n++ {
				p.step()
			}
			if st := p.old.Stats(); st.Refused != st.Implausible || st.Evicted != 0 {
				t.Errorf("seed %d: %+v, want no slot refused and no key evicted, or else this is no test", seed, st)
			}
		})
	}
}

// pair is both tables, and what they are asked for.
type pair struct {
	*testing.T
	*rand.Rand
	seed uint64
	n    int
	now  int64

	old    *counters.Table
	new    *rowtable.Table
	limits []limits
	bans   []*bans
	keys   []uint64
	sent   map[sent]uint64 // the greatest counts of others
	known  []*counters.Limit
	steady bool // the clock does not step back
}

// limits is a limit of both.
type limits struct {
	old   *counters.Limit
	meter *counters.Meter
	new   *rowtable.Limit
	name  string
	bans  *bans // nil: none
}

type sent struct {
	limit  int
	key    uint64
	index  int64
	origin uint16
	birth  uint32
}

func newPair(t *testing.T, seed uint64) *pair {
	p := &pair{T: t, Rand: rand.New(rand.NewPCG(seed, 11)), seed: seed, now: 1_700_000_000_000_000_000}
	p.old = counters.NewTable(counters.Config{Origin: 1, Seed: seed, Memory: counters.MinMemory})
	p.new = rowtable.New(counters.MinMemory, seed)
	p.sent = make(map[sent]uint64)
	p.steady = p.IntN(2) == 0
	for i := range 3 {
		p.addMeter(fmt.Sprint("rule", i))
	}
	p.addManualBans()
	for range 1 + p.IntN(12) {
		p.keys = append(p.keys, p.Uint64())
	}
	return p
}

func (p *pair) addMeter(rule string) {
	n := []int{1, 2, 3, 9, 10, 10, 10, 11, 60}[p.IntN(9)]
	m := counters.Meter{Rule: rule, Algorithm: counters.SlidingWindow,
		Sub: []time.Duration{time.Millisecond, 999_999_937, 6 * time.Second, 86400 * time.Second}[p.IntN(4)]}
	kind := p.IntN(4)
	switch {
	case kind == 0:
		m.Algorithm = counters.TokenBucket
		n = []int{1, 1, 1, 5}[p.IntN(4)]
	case kind == 1 && n == 1:
		m.Algorithm = counters.FixedWindow
	}
	m.Window = time.Duration(n) * m.Sub
	meter := rowtable.Meter{ID: p.Uint64() | 1, Sub: int64(m.Sub), N: n, Fixed: m.Algorithm == counters.FixedWindow}
	if kind == 0 {
		p.addBucket(m, meter)
		return
	}
	lasts := p.banLength()
	var shared *bans
	for range 1 + p.IntN(2) { // two limits may share a meter, and the bans
		l := limits{meter: &m, name: nameOf(&m), bans: shared}
		var err error
		if l.old, err = (counters.LimitConfig{Meter: m, Max: p.maximum(), Ban: lasts}).New(); err != nil {
			p.Fatal(err)
		}
		l.new = rowtable.NewLimit(meter, l.old.Max())
		if lasts > 0 && shared == nil {
			old, err := counters.NewBans(*l.old.BanMeter())
			if err != nil {
				p.Fatal(err)
			}
			shared = p.addBans(old, l.new)
			l.bans = shared
		}
		p.limits = append(p.limits, l)
	}
}

func (p *pair) maximum() uint64 {
	return []uint64{0, 1, 2, 7, 10, 100, 1000, 100_000, 1 << 32, counters.MaxLimit}[p.IntN(10)]
}

// addBucket adds a bucket, which both know.
func (p *pair) addBucket(m counters.Meter, meter rowtable.Meter) {
	capacity := max(1, p.maximum())
	refill := max(1, []uint64{capacity, capacity / 7, 2 * capacity}[p.IntN(3)])
	old, err := counters.LimitConfig{Meter: m, Max: capacity, Refill: refill}.New()
	if err != nil {
		p.addMeter(m.Rule) // it takes too long to fill
		return
	}
	p.known = append(p.known, old)
	p.old.Know(p.known)
	meter.SetBucket(capacity, refill)
	p.limits = append(p.limits, limits{old: old, meter: &m, new: rowtable.NewLimit(meter, capacity), name: nameOf(&m)})
}

func (p *pair) step() {
	switch k := p.IntN(100); {
	case k < 55:
		p.take()
	case k < 60:
		p.ban()
	case k < 75:
		p.merge()
	case k < 78:
		if p.drain(); p.IntN(5) == 0 {
			p.scan()
		}
	case k < 98:
		p.tick()
	case !p.steady:
		p.now -= p.Int64N(2 * p.length()) // the clock steps back
	}
}

// length is a time in which something happens: a sub-window, a window, or little.
func (p *pair) length() int64 {
	m := p.limits[p.IntN(len(p.limits))].meter
	return []int64{1000, int64(m.Sub) / 10, int64(m.Sub), int64(m.Sub), int64(m.Window), 3 * int64(m.Window)}[p.IntN(6)]
}

// lastTime is the first time whose milliseconds have no number of 42 bits: in 2109. Bans end before it.
const lastTime = int64(time.Millisecond) << 42

func (p *pair) tick() {
	p.now = min(p.now+p.Int64N(1+p.length()), lastTime-3*int64(slices.Max(lengths)))
}

func (p *pair) take() {
	i, key, cost := p.IntN(len(p.limits)), p.keys[p.IntN(len(p.keys))], uint64(1)
	l := p.limits[i]
	switch p.IntN(8) {
	case 0:
		cost = 0
	case 1:
		cost = p.Uint64N(1 + l.old.Max()/4)
	case 2:
		cost = l.old.Max()/10 + 1
	case 3:
		if p.IntN(10) == 0 {
			cost = p.Uint64()
		}
	}
	want := p.old.Take(l.old, counters.Key(key), cost, p.now)
	var got rowtable.Decision
	var banned bool
	if l.bans != nil {
		got, banned = p.new.TakeOrBan(l.new, key, cost, rowtable.BanKey{Bans: l.bans.new, Key: key}, p.now)
	} else {
		got = p.new.Take(l.new, key, cost, p.now)
	}
	if banned != want.Banned || got != (rowtable.Decision{Allowed: want.Allowed, Remaining: want.Remaining,
		RetryAfter: int64(want.RetryAfter), ResetAfter: int64(want.ResetAfter)}) {
		p.Fatalf("seed %d, step %d: cost %d of %+v (max %d) at %d:\n%+v, want\n%+v", p.seed, p.n, cost, l.meter,
			l.old.Max(), p.now, got, want)
	}
}

// merge sends slots of one origin to both, some of them late, repeated, lower than before, or ahead of the clock.
func (p *pair) merge() {
	i, origin := p.IntN(len(p.limits)), uint16(2+p.IntN([]int{2, 6, 40}[p.IntN(3)]))
	l := p.limits[i]
	var old []counters.Slot
	var now []rowtable.Slot
	for range 1 + p.IntN(20) {
		index := l.meter.Index(p.now) + 1 - p.Int64N([]int64{3, int64(l.meter.SubWindows()) + 4}[p.IntN(2)])
		x := sent{i, p.keys[p.IntN(len(p.keys))], index, origin, uint32(max(0, p.IntN(12)-9))}
		count := p.sent[x]
		switch p.IntN(8) {
		case 0:
			count = p.Uint64N(count + 1)
		case 1:
		case 2:
			count += p.Uint64N(1 + l.old.Max()/8)
		case 3:
			count += p.Uint64N(1 << p.IntN(36))
		default:
			count += p.Uint64N(4)
		}
		if index < 0 || index >= 1<<42 {
			continue
		}
		if l.new.Bucket != nil { // more is implausible
			count = min(count, l.old.Max())
		}
		p.sent[x] = max(p.sent[x], count)
		through := int64(0)
		if p.steady && p.IntN(2) == 0 {
			through = p.now - p.Int64N(2*int64(l.meter.Window))
		}
		old = append(old, counters.Slot{Meter: l.meter, Key: counters.Key(x.key), Index: index,
			Origin: counters.Origin(origin), Birth: x.birth, Count: count,
			CompleteThrough: through})
		now = append(now, rowtable.Slot{Key: x.key, Index: index, Origin: origin, Birth: x.birth, Count: count,
			CompleteThrough: through})
	}
	if want, got := p.old.Merge(old, p.now), p.new.Merge(&l.new.Meter, now, p.now); got != want {
		p.Fatalf("seed %d, step %d: %d slots rose, want %d: %+v", p.seed, p.n, got, want, now)
	}
}

// drain compares what both have to send, in any order.
func (p *pair) drain() {
	type own struct {
		key   uint64
		index int64
		count uint64
	}
	order := func(a, b own) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.index, b.index), cmp.Compare(a.count, b.count))
	}
	want, got := make(map[string][]own), make(map[string][]own)
	for range 5 { // each expires 16 shards, and the next one drains what those had not sent
		for _, s := range p.old.DrainDirty(p.now).Slots {
			rule := nameOf(s.Meter)
			want[rule] = append(want[rule], own{uint64(s.Key), s.Index, s.Count})
		}
	}
	drained := p.new.Drain(nil, p.now)
	p.new.Expire(p.now)
	for _, s := range p.new.Drain(drained, p.now) {
		rule := p.ruleOf(s)
		got[rule] = append(got[rule], own{s.Key, s.Index, s.Count})
	}
	for rule := range want {
		slices.SortFunc(want[rule], order)
		slices.SortFunc(got[rule], order)
		if !slices.Equal(want[rule], got[rule]) {
			p.Fatalf("seed %d, step %d, %s: drained\n%v, want\n%v", p.seed, p.n, rule, got[rule], want[rule])
		}
	}
	if len(got) != len(want) {
		p.Fatalf("seed %d, step %d: drained %v, want %v", p.seed, p.n, got, want)
	}
}

// nameOf is the name of a meter among all.
func nameOf(m *counters.Meter) string { return fmt.Sprint(m.Rule, " ", m.Algorithm) }

func (p *pair) ruleOf(s rowtable.Slot) string {
	id := p.new.MeterID(s.Meter)
	for _, l := range p.limits {
		if l.new.ID == id {
			return l.name
		}
	}
	for _, b := range p.bans {
		switch m := b.old.Meter(); id {
		case b.new.ID:
			return nameOf(&m)
		case b.new.LiftMeter().ID:
			m.Algorithm = counters.Lift
			return nameOf(&m)
		}
	}
	return ""
}
