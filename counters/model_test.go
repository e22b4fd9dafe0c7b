package counters_test

import (
	"flag"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/oracle"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// Every algorithm against its naive model: random requests, remote counts and clocks under random limits.

var ops = flag.Int("ops", 100_000,
	"random operations of each algorithm in TestModel and TestOddRefills, a tenth of them with the race detector")

var algorithms = []counters.Algorithm{
	counters.SlidingWindow, counters.FixedWindow, counters.SlidingLog, counters.TokenBucket, counters.LeakyBucket,
	counters.LeakyQueue,
}

func isBucket(a counters.Algorithm) bool { return a >= counters.TokenBucket }

func TestModel(t *testing.T) {
	for _, a := range algorithms {
		t.Run(a.String(), func(t *testing.T) {
			for seed, done := uint64(0), 0; done < testkit.Tenth(*ops); seed++ {
				r := rand.New(rand.NewPCG(seed, uint64(a)))
				done += newTrial(t, r, seed,
					randomBan(t, r, randomLimit(t, r, a))).run(min(2000, testkit.Tenth(*ops)-done))
			}
		})
	}
}

// trial is a table beside the model of what it should say.
type trial struct {
	*testing.T
	r      *rand.Rand
	seed   uint64
	limit  *counters.Limit
	table  *counters.Table
	model  *oracle.Cells
	known  map[slotID]uint64 // by peers
	now    int64
	back   bool          // the clock goes back now and then
	wait   time.Duration // what the last denial told
	common uint64        // a cost that fits often
}

func newTrial(t *testing.T, r *rand.Rand, seed uint64, l *counters.Limit) *trial {
	p := &trial{T: t, r: r, seed: seed, limit: l,
		table: small(1), model: oracle.NewCells(l, 1),
		known: make(map[slotID]uint64), now: start + r.Int64N(int64(l.Meter().Window)), back: r.IntN(3) > 0, common: 1,
	}
	if isBucket(l.Meter().Algorithm) { // the others get counts that nobody would believe who knew the limit
		p.table.Know([]*counters.Limit{l})
	}
	if r.IntN(8) == 0 {
		p.now = r.Int64N(int64(l.Meter().Window)) // a clock without a battery begins at the epoch
	}
	if r.IntN(2) == 0 {
		p.common = max(1, l.Max()/uint64(2+r.IntN(8)))
	}
	return p
}

// apart returns the key of a number, in a shard of its own, as is its ban: where a cell of the same shard went, a table
// is right to believe less of another than the model does.
func apart(l *counters.Limit, number int) (key counters.Key) {
	taken := make(map[int]bool)
	for ; ; key++ {
		shard, ban := counters.ShardOf(l, key), counters.BanShardOf(l, key)
		if taken[shard] || taken[ban] || shard == ban && l.BanMeter() != nil {
			continue
		}
		if number == 0 {
			return key
		}
		number--
		taken[shard], taken[ban] = true, true
	}
}

// pick returns one of the values.
func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// randomLimit returns a limit with few or many sub-windows, small or large. A bucket gets a token in a whole number of
// nanoseconds.
func randomLimit(t *testing.T, r *rand.Rand, a counters.Algorithm) *counters.Limit {
	n := pick[int64](r, 1, 1, 2, 3, 10, 10, 60, 1+r.Int64N(60))
	sub := pick[int64](r, 1e6, 1e6+1, 999_999_937, 1e9, 1e9, 6e9, 60e9, 3600e9, 1e6+r.Int64N(1e10))
	if a == counters.FixedWindow {
		n = 1
	}
	m := counters.Meter{Rule: "r", Algorithm: a, Window: time.Duration(n * sub), Sub: time.Duration(sub)}
	largest := pick(r, 1, 1+r.Uint64N(20), 1+r.Uint64N(1000), counters.MaxLimit, 1+r.Uint64N(counters.MaxLimit))
	switch {
	case a == counters.SlidingLog:
		return newLimit(t, m, pick(r, 1, 1+r.Uint64N(20), 1+r.Uint64N(60), min(largest, counters.MaxLog)))
	case isBucket(a):
		refill := wholeRefill(r, n*sub)
		return newBucket(t, m, min(largest, 100*uint64(refill)), uint64(refill))
	}
	return newLimit(t, m, largest)
}

// randomBan has every other limit ban whom it denies, and count whom.
func randomBan(t *testing.T, r *rand.Rand, l *counters.Limit) *counters.Limit {
	window := l.Meter().Window
	lasts := pick(r, time.Millisecond, l.Meter().Sub, window, window/2, 3*window,
		time.Duration(1+r.Int64N(int64(window))), time.Minute)
	return penalized(t, l, r.IntN(2) == 0, r.IntN(2) == 0, lasts)
}

// penalized returns the limit with a ban of about that long, and counting what it denies if it can.
func penalized(t testing.TB, l *counters.Limit, ban, count bool, lasts time.Duration) *counters.Limit {
	t.Helper()
	var err error
	if ban {
		lasts = min(max(lasts.Truncate(time.Millisecond), time.Millisecond), counters.MaxWindow)
		if l, err = l.With(func(c *counters.LimitConfig) { c.Ban = lasts }); err != nil {
			t.Fatal(err)
		}
	}
	if count && !isBucket(l.Meter().Algorithm) {
		if l, err = l.With(func(c *counters.LimitConfig) { c.CountRejected = true }); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// wholeRefill returns a number of tokens for which a window is a whole number of nanoseconds each.
func wholeRefill(r *rand.Rand, window int64) int64 {
	for {
		refill := pick(r, 1, 2, 3, 5, 10, 60, 1000, 1e6, window, 1+r.Int64N(1000))
		if window%refill == 0 && refill <= counters.MaxLimit {
			return refill
		}
	}
}

// run plays so many operations, and returns how many.
func (p *trial) run(n int) int {
	for i := range n {
		p.tick()
		key := apart(p.limit, p.r.IntN(3))
		switch p.r.IntN(10) {
		case 0:
			p.merge(key)
		case 1:
			if p.limit.BanMeter() == nil || p.r.IntN(3) == 0 {
				p.merge(key)
			} else {
				p.mergeBan(key)
			}
		case 2:
			if !p.back {
				p.table.DrainDirty(p.now)
			}
		case 3:
			if !p.back {
				p.table.Snapshot(p.now, 10)
			}
		case 4:
			p.report(key, i)
		default:
			p.take(key, i)
		}
		if got, want := p.table.View(p.limit, key, p.now), p.model.View(key, p.now); got != want {
			p.fatalf(i, "view of key %d: %d, the model says %d", key, got, want)
		}
		if i%100 == 0 {
			p.model.Forget(p.now)
		}
	}
	if st := p.table.Stats(); st.Evicted != 0 {
		p.fatalf(n, "%+v, want room for all keys", st)
	}
	return n
}

func (p *trial) fatalf(op int, format string, args ...any) {
	p.Helper()
	m := p.limit.Meter()
	p.Logf("seed %d, operation %d, %v after the start", p.seed, op, time.Duration(p.now-start))
	p.Logf("%v of %d, window %v, sub-window %v, refill %d", m.Algorithm, p.limit.Max(), m.Window, m.Sub,
		p.limit.Refill())
	if ban := p.limit.BanMeter(); ban != nil || p.limit.CountsRejected() {
		p.Logf("ban %v, counts what it denies: %v", ban, p.limit.CountsRejected())
	}
	p.Fatalf(format, args...)
}

// tick moves the clock: mostly on, and often to a moment at which something changes.
func (p *trial) tick() {
	r, sub, window := p.r, int64(p.limit.Meter().Sub), int64(p.limit.Meter().Window)
	switch r.IntN(20) {
	case 0, 1, 2:
		p.now += r.Int64N(sub)
	case 3:
		p.now += r.Int64N(window)
	case 4:
		p.now += pick(r, r.Int64N(4*window), window, window+sub, window+2*sub, 100*window)
	case 5, 6:
		// about what a single cost takes
		p.now += r.Int64N(2*window/int64(min(max(p.limit.Refill(), p.limit.Max()), uint64(window))) + 1)
	case 7:
		p.now += sub - p.now%sub - r.Int64N(2) // the end of a sub-window, or the beginning of the next
	case 8, 9:
		if p.wait > 0 && p.wait < time.Duration(2*window) {
			p.now += int64(p.wait) - r.Int64N(2)
		}
	case 10, 11:
		p.now++
	case 12:
		if p.back {
			p.now -= pick(r, 1, 1000, r.Int64N(sub), r.Int64N(window), window)
		}
	case 13:
		if p.back && r.IntN(10) == 0 {
			p.now -= pick(r, window+1, window+sub, 1+window+r.Int64N(2*window), 1000*window)
		}
	}
	p.now = max(0, p.now)
}

// take decides on a request.
func (p *trial) take(key counters.Key, op int) {
	largest := p.limit.Max()
	cost := pick(p.r, 0, 1, 1, 2, p.common, p.common, 1+p.r.Uint64N(p.common), largest, largest-1, largest+1,
		1+p.r.Uint64N(largest), counters.MaxLimit, math.MaxUint64)
	var got, want counters.Decision
	overdraw := p.r.IntN(6) == 0
	if overdraw {
		layer := []counters.Charge{{Limit: p.limit, Key: key, Cost: cost, Overdraw: true}}
		got, want = p.table.TakeAll(layer, p.now, nil)[0], p.model.Overdraw(key, cost, p.now)
	} else {
		got, want = p.table.Take(p.limit, key, cost, p.now), p.model.Take(key, cost, p.now)
	}
	if got != want {
		p.fatalf(op, "cost %d of key %d, may overdraw: %v:\n got %+v\nwant %+v", cost, key, overdraw, got, want)
	}
	if !got.Allowed {
		p.wait = got.RetryAfter
	}
}

// report charges what a request cost, and asks what is left.
func (p *trial) report(key counters.Key, op int) {
	largest := p.limit.Max()
	cost := pick(p.r, 0, 1, 1, 2, p.common, 1+p.r.Uint64N(largest), largest, largest+1, 2*largest,
		1+p.r.Uint64N(3*largest), counters.MaxLimit, math.MaxUint64)
	p.table.Report([]counters.Charge{{Limit: p.limit, Key: key, Cost: cost}}, p.now)
	p.model.Report(key, cost, p.now)
	got, want := p.table.Take(p.limit, key, 0, p.now), p.model.Take(key, 0, p.now)
	if got != want {
		p.fatalf(op, "after a report of %d of key %d:\n got %+v\nwant %+v", cost, key, got, want)
	}
	if !got.Allowed {
		p.wait = got.RetryAfter
	}
}

// merge tells the table of counts of others, some of which it knows, or cannot take.
func (p *trial) merge(key counters.Key) {
	m := p.limit.Meter()
	if owed := p.model.View(key, p.now); isBucket(m.Algorithm) && owed > 500*p.limit.Refill() {
		return // a bucket does not tell waits of a thousand windows
	}
	var slots []counters.Slot
	want := 0
	for range 1 + p.r.IntN(3) {
		n := int64(m.SubWindows())
		s := counters.Slot{Meter: &m, Key: key, Origin: counters.Origin(p.r.IntN(6)), Birth: uint32(p.r.IntN(2))}
		s.Index = max(0, m.Index(p.now)+pick(p.r, 0, 0, 0, 1, 2, -1, -n, -n-1, p.r.Int64N(n+3)-n-1))
		if p.r.IntN(2) == 0 {
			s.CompleteThrough = s.Index*int64(m.Sub) + p.r.Int64N(2*int64(m.Sub)) - int64(m.Sub)/2
		}
		known := p.known[idOf(s)]
		s.Count = pick(p.r, known, known/2, known+1, known+1+p.r.Uint64N(p.common), known+1+p.r.Uint64N(p.common),
			p.huge(), 0)
		if isBucket(m.Algorithm) {
			s.Count = min(s.Count, counters.Believed(p.limit))
		}
		p.known[idOf(s)] = max(known, s.Count)
		slots = append(slots, s)
		if p.model.Merge(s, p.now) {
			want++
		}
	}
	if got := p.table.Merge(slots, p.now); got != want {
		p.fatalf(0, "%+v: %d are novel, the model says %d", slots, got, want)
	}
}

// mergeBan tells the table of a ban of another's, which may be one that has ended, or that began in a time to come.
func (p *trial) mergeBan(key counters.Key) {
	m := p.limit.BanMeter()
	s := counters.Slot{Meter: m, Key: key, Origin: counters.Origin(p.r.IntN(6)), Birth: uint32(p.r.IntN(2))}
	s.Index = max(0, m.Index(p.now)+pick[int64](p.r, -2, -1, 0, 0, 0, 1, 2))
	lasts := int64(m.Window / time.Millisecond)
	s.Count = uint64((s.Index+1)*lasts + pick(p.r, 0, lasts, p.r.Int64N(lasts+1)))
	want := 0
	if p.model.Merge(s, p.now) {
		want = 1
	}
	if got := p.table.Merge([]counters.Slot{s}, p.now); got != want {
		p.fatalf(0, "%+v of %v: %d are novel, the model says %d", s, m.Window, got, want)
	}
}

// huge is a count now and then that is as large as a count can be; of a bucket, one that takes a hundred windows to
// refill.
func (p *trial) huge() uint64 {
	if p.r.IntN(20) > 0 {
		return 1
	}
	if m := p.limit.Meter(); isBucket(m.Algorithm) {
		return min(counters.Believed(p.limit), 100*p.limit.Refill())
	}
	return pick[uint64](p.r, counters.MaxCount-1, counters.MaxCount, counters.MaxCount+1, math.MaxUint64)
}
