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
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

var (
	firstSeed = flag.Uint64("seed", 1, "the first seed")
	seeds     = flag.Int("seeds", 3, "how many seeds")
	steps     = flag.Int("steps", testkit.Tenth(20_000), "steps of each seed")
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
	debts  *debts // nil: none
	keys   []uint64
	known  []*counters.Limit         // by the old table
	sent   map[sent]uint64           // the greatest counts of others
	asked  *request                  // waits for what is decided elsewhere
	marks  map[counters.Origin]int64 // watermarks of origins that sent something
	steady bool                      // the clock does not step back
	shares bool                      // limits with peers
	owned  bool                      // by owners: some slots are sums
}

// limits is a limit of both.
type limits struct {
	old   *counters.Limit
	meter *counters.Meter
	new   *rowtable.Limit
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
	p.sent, p.marks = make(map[sent]uint64), make(map[counters.Origin]int64)
	p.steady = p.IntN(2) == 0
	p.shares = p.IntN(4) > 0
	if p.owned = !p.shares && p.IntN(2) == 0; p.owned {
		p.old.SetOwners(&counters.Owners{})
		p.new.SetOwners(&rowtable.Owners{})
	}
	for i := range 3 {
		p.addMeter(fmt.Sprint("rule", i))
	}
	p.addManualBans()
	for range 1 + p.IntN(12) {
		p.keys = append(p.keys, p.Uint64())
	}
	if p.steady && p.IntN(2) == 0 { // else this table ignores credits for longer, once it has removed a head
		p.addDebts()
	}
	return p
}

func (p *pair) addMeter(rule string) {
	m := p.meter(rule)
	isBucket := m.Algorithm >= counters.TokenBucket
	id := p.Uint64() | 1
	lasts, scope := p.banLength(), counters.Global
	if p.shares && p.IntN(8) == 0 {
		scope = counters.Alone
	}
	var shared *bans
	largest := uint64(0)
	for i := range 1 + p.IntN(2) { // two limits may share a meter, and the bans
		c := counters.LimitConfig{Meter: m, Max: p.maximum(), Ban: lasts, Scope: scope}
		p.shareLimit(&c)
		switch {
		case m.Algorithm == counters.SlidingLog:
			c.Max = min(c.Max, counters.MaxLog)
		case isBucket:
			c.Max = max(1, c.Max)
			c.Refill = max(1, []uint64{c.Max, c.Max / 7, 2 * c.Max}[p.IntN(3)])
		case m.Algorithm == counters.FixedWindow && p.IntN(2) == 0:
			c.Tally = true
		case p.IntN(3) == 0:
			c.CountRejected = true
		}
		c.BanSpent = lasts > 0 && p.IntN(2) == 0
		l, ok := p.newLimits(id, &m, c)
		if !ok {
			p.addMeter(rule) // a bucket that takes too long to fill
			return
		}
		if i == 0 && (lasts > 0 || p.IntN(2) == 0) {
			p.knowAtOnce(&l)
			largest = l.new.MaxSlot
		}
		l.new.MaxSlot = largest // of all limits of the meter
		if lasts > 0 && shared == nil {
			old, err := counters.NewBans(*l.old.BanMeter())
			if err != nil {
				p.Fatal(err)
			}
			shared = p.addBans(old, l.new)
		}
		l.bans = shared
		p.limits = append(p.limits, l)
		if isBucket {
			return
		}
	}
}

func (p *pair) meter(rule string) counters.Meter {
	n := []int{1, 2, 3, 9, 10, 10, 10, 11, 60}[p.IntN(9)]
	m := counters.Meter{Rule: rule, Algorithm: counters.SlidingWindow,
		Sub: []time.Duration{time.Millisecond, 999_999_937, 6 * time.Second, 86400 * time.Second}[p.IntN(4)]}
	switch {
	case p.IntN(3) == 0:
		m.Algorithm = []counters.Algorithm{counters.TokenBucket, counters.LeakyBucket, counters.LeakyQueue}[p.IntN(3)]
		n = []int{1, 1, 1, 5}[p.IntN(4)]
	case p.IntN(4) == 0:
		m.Algorithm, n = counters.FixedWindow, 1
	case p.IntN(3) == 0:
		m.Algorithm = counters.SlidingLog
	}
	m.Window = time.Duration(n) * m.Sub
	return m
}

// newLimits returns a limit of both, unless its configuration is invalid.
func (p *pair) newLimits(id uint64, m *counters.Meter, c counters.LimitConfig) (l limits, ok bool) {
	old, err := c.New()
	if err != nil {
		return l, false
	}
	meter := rowtable.Meter{ID: id, Sub: int64(m.Sub), N: m.SubWindows(), Algorithm: rowtable.Algorithm(m.Algorithm),
		Scope: rowtable.Scope(c.Scope)}
	named := old.Meter()
	return limits{old: old, meter: &named, new: rowtable.LimitConfig{Meter: meter, Max: c.Max, Refill: c.Refill,
		Among: c.Among, Local: c.OnPartition == counters.Local, MaxUnsent: c.MaxUnsent,
		CountRejected: c.CountRejected, Tally: c.Tally, BanSpent: c.BanSpent}.New()}, true
}

// knowAtOnce has both know a limit, and so what is implausible.
func (p *pair) knowAtOnce(l *limits) {
	p.known = append(p.known, l.old)
	p.old.Know(p.known)
	if l.meter.Algorithm != counters.LeakyQueue { // what a floor admits to a queue now inherits freed time
		l.new.MaxSlot = l.largestSlot()
	}
	p.new.Know([]*rowtable.Limit{l.new})
}

// largestSlot is the largest plausible slot, by the known limit of a meter.
func (l *limits) largestSlot() uint64 {
	if l.old.Config().Tally {
		return counters.MaxTally
	}
	return 8 * (l.old.Largest() + l.old.Refill())
}

// know has both know the limit of a bucket. Until then, what is merged is not debited.
func (p *pair) know() {
	if l := p.limit(); l.isBucket() {
		p.known = append(p.known, l.old)
		p.old.Know(p.known)
		p.new.Know([]*rowtable.Limit{l.new})
	}
}

func (l limits) isBucket() bool { return l.old.Refill() > 0 }

func (p *pair) limit() limits { return p.limits[p.IntN(len(p.limits))] }

func (p *pair) maximum() uint64 {
	return []uint64{0, 1, 2, 7, 10, 100, 1000, 100_000, 1 << 32, counters.MaxLimit}[p.IntN(10)]
}

func (p *pair) step() {
	switch k := p.IntN(100); {
	case k < 30:
		p.take()
	case k < 45:
		p.takeAll()
	case k < 49:
		p.report()
	case k < 51:
		p.owe()
	case k < 52:
		p.withdraw()
	case k < 53:
		p.know()
		p.share()
	case k < 55:
		p.view()
	case k < 60:
		p.ban()
	case k < 75:
		p.merge()
	case k < 76:
		p.drainEarly()
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
	l, key := p.limit(), p.key()
	cost := p.cost(l)
	var want counters.Decision
	var got rowtable.Decision
	if l.bans != nil {
		charges := []counters.Charge{{Limit: l.old, Key: counters.Key(key), Cost: cost}}
		want = p.old.TakeAll(charges, p.now, nil)[0]
		got = p.new.TakeOrBan(l.new, key, cost, l.banOf(key), p.now)
	} else {
		want = p.old.Take(l.old, counters.Key(key), cost, p.now)
		got = p.new.Take(l.new, key, cost, p.now)
	}
	if !p.agree(l.new, got, p.decision(want)) {
		p.Fatalf("seed %d, step %d: cost %d of %+v (max %d) at %d:\n%+v, want\n%+v", p.seed, p.n, cost, l.meter,
			l.old.Max(), p.now, got, p.decision(want))
	}
}

// agree reports whether decisions under a limit are the same. What counters.Table says of the limit does not have what
// a floor admits in it.
func (p *pair) agree(l *rowtable.Limit, got, want rowtable.Decision) bool {
	if got.Allowed && p.new.Implausible() > 0 && l != nil && l.MaxSlot > 0 {
		got.Left, got.ResetAfter = min(got.Left, want.Left), want.ResetAfter
		want.Left = got.Left
	}
	return got == want
}

// banOf is whom a limit bans, nobody if it has no bans.
func (l limits) banOf(key uint64) rowtable.BanKey {
	if l.bans == nil {
		return rowtable.BanKey{}
	}
	return rowtable.BanKey{Bans: l.bans.new, Key: key}
}

func (p *pair) key() uint64 { return p.keys[p.IntN(len(p.keys))] }

func (p *pair) cost(l limits) (cost uint64) {
	cost = 1
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
	if l.old.Tallies() { // all of them together stay below what the new table counts at most
		cost = min(cost, rowtable.MaxTally/uint64(*steps)/8)
	}
	return cost
}

// decision is an old decision in the new form.
func (p *pair) decision(d counters.Decision) rowtable.Decision {
	got := rowtable.Decision{Left: int64(d.Remaining), Wait: int64(d.RetryAfter), ResetAfter: int64(d.ResetAfter)}
	got.Verdict = rowtable.Verdict{Allowed: d.Allowed, Waived: d.Waived, Banned: d.Banned,
		Mode: rowtable.Mode(d.Mode)}
	switch {
	case d.Remaining > 0 && d.Excess > 0, d.Allowed && d.RetryAfter != 0, !d.Allowed && d.Delay != 0:
		p.Fatalf("seed %d, step %d: %+v has no new form", p.seed, p.n, d)
	case d.Excess > 0:
		got.Left = -int64(d.Excess)
	case d.Allowed:
		got.Wait = int64(d.Delay)
	}
	return got
}

// merge sends slots of one origin to both, some of them late, repeated, lower than before, or ahead of the clock.
func (p *pair) merge() {
	all := slices.Concat(p.limits, p.debts.limits())
	i, origin := p.IntN(len(all)), uint16(2+p.IntN([]int{2, 6, 40}[p.IntN(3)]))
	l, place := all[i], counters.Unplaced
	if p.owned {
		origin, place = p.placed()
	}
	var old []counters.Slot
	var now []rowtable.Slot
	for range 1 + p.IntN(20) {
		index := l.meter.Index(p.now) + 1 - p.Int64N([]int64{3, int64(l.meter.SubWindows()) + 4}[p.IntN(2)])
		x := sent{i, p.keys[p.IntN(len(p.keys))], index, origin, uint32(max(0, p.IntN(12)-9))}
		if p.owned { // few origins, or else this table knows less of what came before the first sum
			x.birth = 0
		}
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
		if largest := l.new.MaxSlot; largest > 0 && (p.shares || p.IntN(300) > 0) { // more is implausible
			count = min(count, largest)
		} else if l.isBucket() && largest == 0 { // it may be known later
			count = min(count, l.largestSlot())
		}
		p.sent[x] = max(p.sent[x], count)
		demand, sentAt := p.demand(l)
		through := int64(0)
		if p.steady && p.IntN(2) == 0 {
			through = p.now - p.Int64N(2*int64(l.meter.Window))
		}
		old = append(old, counters.Slot{Meter: l.meter, Key: counters.Key(x.key), Index: index,
			Origin: originOf(origin, place, x.key), Birth: x.birth, Count: count, Place: place,
			CompleteThrough: through, Demand: demand, SentAt: sentAt})
		now = append(now, rowtable.Slot{Key: x.key, Index: index, Origin: origin, Birth: x.birth, Count: count,
			Place: rowtable.Place(place), CompleteThrough: through, Demand: demand, SentAt: sentAt})
	}
	var rises counters.Rises
	var rose rowtable.Rises
	want := p.old.MergeRises(old, p.now, &rises)
	if got := p.new.MergeRises(&l.new.Meter, now, p.now, &rose); got != want {
		p.Fatalf("seed %d, step %d: %d slots rose, want %d: %+v", p.seed, p.n, got, want, now)
	}
	p.keepWatermark(counters.Origin(origin))
	p.merged(rises, rose)
}

// merged compares what both say of the slots that they merged.
func (p *pair) merged(rises counters.Rises, rose rowtable.Rises) {
	for i, r := range rises {
		if rose[i] != rowtable.Rise(r) {
			p.Fatalf("seed %d, step %d: keys rose by %v, want %v", p.seed, p.n, rose, rises)
		}
	}
	if want, got := p.old.LastImplausible(), p.new.LastImplausible(); got.Origin != numberOf(want.Origin) {
		p.Fatalf("seed %d, step %d: the last implausible slot is %+v, want %+v", p.seed, p.n, got, want)
	}
	if all, got := p.old.Stats().DeniedByOne, p.new.DeniedByOne(); got > all { // it looks at keys of few peers alone
		p.Fatalf("seed %d, step %d: %d keys denied by one, want %d at most", p.seed, p.n, got, all)
	}
}

// drain compares what both have to send, in any order.
func (p *pair) drain() {
	type own struct {
		key    uint64
		index  int64
		count  uint64
		demand float32
	}
	order := func(a, b own) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.index, b.index), cmp.Compare(a.count, b.count),
			cmp.Compare(a.demand, b.demand))
	}
	want, got := make(map[string][]own), make(map[string][]own)
	wanted, found := make(meterDemands), make(meterDemands)
	for range 5 { // each expires 16 shards, and the next one drains what those had not sent
		d := p.old.DrainDirty(p.now)
		for _, s := range d.Slots {
			rule := nameOf(s.Meter)
			want[rule] = append(want[rule], own{uint64(s.Key), s.Index, s.Count, s.Demand})
		}
		wanted.add(p, d.Demand)
	}
	drained := p.new.Drain(nil, p.now)
	found.addNew(p, p.new.Demands())
	p.new.Expire(p.now)
	for _, s := range p.new.Drain(drained, p.now) {
		rule := p.ruleOf(s)
		got[rule] = append(got[rule], own{s.Key, s.Index, s.Count, s.Demand})
	}
	found.addNew(p, p.new.Demands())
	wanted.compare(p, found)
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
	for _, l := range slices.Concat(p.limits, p.debts.limits()) {
		if l.new.ID == id {
			return nameOf(l.meter)
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
