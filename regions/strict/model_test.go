package strict

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/oracle"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// Every script against a naive model: random requests, reports and clocks under random limits.

var ops = flag.Int("ops", 20_000, "random operations of each algorithm in TestModel and TestLayersAgainstTable, "+
	"a tenth of them with the race detector")

// setClock is a clock that the test sets, in place of the server's.
const setClock = "local now = tonumber(redis.call('GET', 'clock'))\n"

// clocked is a store whose script has the clock of the test.
type clocked struct {
	*testing.T
	*Store
	server *regionstest.Server
	now    int64 // microseconds
}

func newClocked(t *testing.T) *clocked {
	t.Helper()
	server := regionstest.StartRedis(t)
	s := open(t, single(server))
	// The server's own clock, by which keys expire, is another one.
	s.script = newScript(strings.NewReplacer("'PX', floor((lasts + cell.back) / 1000) + 1", "'PX', 1e12",
		"redis.call('PEXPIRE', ", "redis.call('TOUCH', ").Replace(assemble(setClock)))
	return &clocked{t, s, server, 0}
}

func (c *clocked) setClock() {
	c.Helper()
	testkit.Must(c, c.link.Load().Set(context.Background(), "clock", strconv.FormatInt(c.now, 10), 0).Err())
}

func (c *clocked) takeAll(asks []Ask) []counters.Decision {
	c.Helper()
	c.setClock()
	ds, _, err := c.Take(c.Context(), asks, nil)
	testkit.Must(c, err)
	return ds
}

// model is one limit by the definition of its algorithm, with the clock of the script: it decides no earlier than the
// latest charge of a key, or in counters of sub-windows, the start of its sub-window. A charge further ahead than a
// window moves to the clock's time.
type model struct {
	limit *counters.Limit
	keys  map[counters.Key]*modelKey
}

type modelKey struct {
	*oracle.Model
	last    int64 // nanoseconds, of the latest charge; 0: none
	charges []charge
}

type charge struct {
	at   int64
	cost uint64
}

func (m *model) key(key counters.Key) *modelKey {
	k := m.keys[key]
	if k == nil {
		k = &modelKey{Model: oracle.NewModel(m.limit)}
		m.keys[key] = k
	}
	return k
}

// at returns the key, and the time at which a request at the time now is decided.
func (m *model) at(key counters.Key, now int64) (k *modelKey, at int64) {
	k = m.key(key)
	meter := m.limit.Meter()
	last := k.last
	behind := last - now
	if !isBucket(meter.Algorithm) && meter.Algorithm != counters.SlidingLog {
		last -= last % int64(meter.Sub)
		behind = last - (now - now%int64(meter.Sub))
	}
	at = now
	switch {
	case last == 0 || behind <= 0 || last <= now:
	case behind <= int64(meter.Window):
		at = last
	default:
		k = m.moved(k, key, last, now, behind)
	}
	if meter.Algorithm == counters.SlidingLog {
		m.clean(k, key, at)
	}
	return k, at
}

// moved is the key with all that it counts moved to the time now. It is stored with the next charge.
func (m *model) moved(k *modelKey, key counters.Key, last, now, behind int64) *modelKey {
	moved := &modelKey{Model: oracle.NewModel(m.limit)}
	if isBucket(m.limit.Meter().Algorithm) {
		for _, c := range k.charges {
			moved.charge(key, c.cost, c.at-behind)
		}
	} else if counted := k.counted(key, last); counted > 0 {
		moved.charge(key, counted, now)
	}
	return moved
}

// counted is all that a key counts at a time; of a sliding window, with the whole sub-window that begins to leave then.
func (k *modelKey) counted(key counters.Key, at int64) (sum uint64) {
	m := k.Limit().Meter()
	if m.Algorithm != counters.SlidingWindow {
		return k.View(key, at)
	}
	for _, c := range k.charges {
		if c.at >= at-int64(m.Window) {
			sum += c.cost
		}
	}
	return sum
}

// clean drops what has left a log. It does not come back when the clock steps back.
func (m *model) clean(k *modelKey, key counters.Key, at int64) {
	m.keys[key] = k
	if len(k.charges) > 0 && k.charges[0].at <= at-int64(m.limit.Meter().Window) {
		for len(k.charges) > 0 && k.charges[0].at <= at-int64(m.limit.Meter().Window) {
			k.charges = k.charges[1:]
		}
		k.Forget(at)
		if k.last = at; len(k.charges) == 0 {
			k.last = 0
		}
	}
}

func (m *model) charge(k *modelKey, key counters.Key, cost uint64, at int64) {
	m.keys[key] = k
	k.charge(key, cost, at)
}

func (k *modelKey) charge(key counters.Key, cost uint64, at int64) {
	k.Charge(key, cost, at)
	k.last = at
	k.charges = append(k.charges, charge{at, cost})
}

func (m *model) ask(key counters.Key, cost uint64, now int64) counters.Decision {
	k, at := m.at(key, now)
	d := k.peek(key, cost, at)
	back := time.Duration(at - now)
	for _, wait := range []*time.Duration{&d.RetryAfter, &d.ResetAfter, &d.Delay} {
		if *wait > 0 {
			*wait = roundUp(*wait + back)
		}
	}
	return d
}

func roundUp(d time.Duration) time.Duration {
	return (d + time.Microsecond - 1).Truncate(time.Microsecond)
}

// report charges a cost with room or not, up to twice the limit.
func (m *model) report(key counters.Key, cost uint64, now int64) {
	k, at := m.at(key, now)
	if cost = min(cost, 2*m.limit.Max()-min(2*m.limit.Max(), k.View(key, at))); cost > 0 {
		m.charge(k, key, cost, at)
	}
}

func (m *model) take(key counters.Key, cost uint64, overdraw bool, now int64) counters.Decision {
	d := m.ask(key, cost, now)
	k, at := m.at(key, now)
	switch {
	case cost == 0:
	case d.Allowed:
		m.charge(k, key, cost, at)
		delay := d.Delay
		d = m.ask(key, 0, now)
		d.Allowed, d.RetryAfter, d.Delay = true, 0, delay
	case overdraw || m.limit.CountsRejected():
		m.report(key, cost, now)
		d = m.ask(key, cost, now)
	}
	return d
}

// peek is what the limit answers about a cost, which a model charges if it admits it: so a copy is asked.
func (k *modelKey) peek(key counters.Key, cost uint64, at int64) counters.Decision {
	if cost == 0 {
		return k.Take(key, 0, at)
	}
	l := k.Limit()
	d := k.Take(key, 0, at) // of a cost of 1
	switch used := k.View(key, at); {
	case cost > l.Max():
		d.Allowed, d.RetryAfter, d.Delay = false, counters.Never, 0
	case used+cost > l.Max():
		copied := oracle.NewModel(l)
		for _, c := range k.charges {
			copied.Charge(key, c.cost, c.at)
		}
		wait := copied.Take(key, cost, at)
		d.Allowed, d.RetryAfter, d.Delay = false, wait.RetryAfter, 0
	}
	return d
}

func TestModel(t *testing.T) {
	for _, a := range algorithms {
		t.Run(a.String(), func(t *testing.T) {
			t.Parallel()
			c := newClocked(t)
			for seed, done := uint64(0), 0; done < testkit.Tenth(*ops); seed++ {
				n := min(500, testkit.Tenth(*ops)-done)
				runTrial(c, a, seed, n)
				done += n
			}
		})
	}
}

const start = 1_700_000_000_000_000 // microseconds

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// randomLimit returns a limit that the store takes.
func randomLimit(t *testing.T, r *rand.Rand, a counters.Algorithm) *counters.Limit {
	for {
		n := pick[int64](r, 1, 1, 2, 3, 10, 10, 60, 1+r.Int64N(60))
		sub := pick[int64](r, 1e6, 1e6+1000, 1e9, 1e9, 6e9, 60e9, 3600e9, 86400e9, 1e6+1000*r.Int64N(1e7))
		if a == counters.FixedWindow {
			n = 1
		}
		m := counters.Meter{Rule: "r", Algorithm: a, Window: time.Duration(n * sub), Sub: time.Duration(sub)}
		largest := pick(r, 1, 1+r.Uint64N(20), 1+r.Uint64N(1000), counters.MaxLimit, 1+r.Uint64N(counters.MaxLimit))
		var l *counters.Limit
		var err error
		switch {
		case a == counters.SlidingLog:
			l, err = counters.NewLimit(m, pick(r, 1, 1+r.Uint64N(20), 1+r.Uint64N(60), min(largest, counters.MaxLog)))
		case isBucket(a):
			refill := pick(r, 1, 2, 3, 5, 10, 60, 1000, 1e6, 1+r.Uint64N(1000))
			l, err = counters.LimitConfig{Meter: m, Max: min(largest, 100*refill), Refill: refill}.New()
		default:
			l, err = counters.NewLimit(m, largest)
		}
		if err != nil || Check(l) != nil {
			continue
		}
		if !isBucket(a) && r.IntN(3) == 0 {
			if l, err = l.With(func(c *counters.LimitConfig) { c.CountRejected = true }); err != nil {
				t.Fatal(err)
			}
		}
		return l
	}
}

// runTrial plays operations under a random limit, with a key of its own.
func runTrial(c *clocked, a counters.Algorithm, seed uint64, n int) {
	r := rand.New(rand.NewPCG(seed, uint64(a)))
	l := randomLimit(c.T, r, a)
	key := counters.Key(seed)
	m := &model{limit: l, keys: make(map[counters.Key]*modelKey)}
	c.now = start + r.Int64N(l.Meter().Window.Microseconds())
	common := max(1, l.Max()/uint64(2+r.IntN(8)))
	back := r.IntN(3) > 0
	var wait time.Duration
	for i := range n {
		c.tick(r, l, wait, back)
		now := c.now * 1000
		largest := l.Max()
		cost := pick(r, 0, 1, 1, 2, common, common, 1+r.Uint64N(common), largest, largest-1, largest+1,
			1+r.Uint64N(largest), counters.MaxLimit, math.MaxUint64)
		asks := ask(l, key, cost)
		var got, want counters.Decision
		what := "take"
		switch r.IntN(8) {
		case 0:
			what = "report"
			c.setClock()
			testkit.Must(c, c.Report(c.Context(), asks))
			m.report(key, cost, now)
			asks[0].Cost = 0
			got, want = c.takeAll(asks)[0], m.ask(key, 0, now)
		case 1:
			what = "overdraw"
			asks[0].Overdraw = true
			got, want = c.takeAll(asks)[0], m.take(key, cost, true, now)
		default:
			got, want = c.takeAll(asks)[0], m.take(key, cost, false, now)
		}
		if got != want {
			c.Fatalf("seed %d, operation %d, %v after the start: %s of %d under %s, window %v, refill %d, "+
				"rejected %v:\n got %+v\nwant %+v",
				seed, i, time.Duration(c.now-start)*time.Microsecond, what, cost, describe(l),
				l.Meter().Window, l.Refill(), l.CountsRejected(), got, want)
		}
		if !got.Allowed {
			wait = got.RetryAfter
		}
	}
}

func describe(l *counters.Limit) string {
	return fmt.Sprintf("%v of %d/%v, rejected %v", l.Meter().Algorithm, l.Max(), l.Meter().Sub, l.CountsRejected())
}

// tick moves the clock: mostly on, and often to a moment at which something changes.
func (c *clocked) tick(r *rand.Rand, l *counters.Limit, wait time.Duration, back bool) {
	sub, window := l.Meter().Sub.Microseconds(), l.Meter().Window.Microseconds()
	switch r.IntN(18) {
	case 0, 1, 2:
		c.now += r.Int64N(sub)
	case 3:
		c.now += r.Int64N(window)
	case 4:
		c.now += pick(r, r.Int64N(4*window), window, window+sub, window+2*sub)
	case 5, 6:
		c.now += r.Int64N(2*window/int64(min(max(l.Refill(), l.Max()), uint64(window))) + 1)
	case 7:
		c.now += sub - c.now%sub - r.Int64N(2) // the end of a sub-window, or the beginning of the next
	case 8, 9:
		if wait > 0 && wait < 2*l.Meter().Window {
			c.now += wait.Microseconds() - r.Int64N(2)
		}
	case 10, 11:
		c.now++
	case 12:
		if back {
			c.now -= pick(r, 1, 1000, r.Int64N(sub), r.Int64N(window), window)
		}
	case 13:
		if back && r.IntN(10) == 0 {
			c.now -= pick(r, window+1, window+sub, 1+window+r.Int64N(2*window))
		}
	}
	c.now = max(c.now, start/2)
}
