package counters_test

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/oracle"
)

// The keys of the tests: children of one lender.
const (
	ann, bob counters.Key = 1, 2
	shared   counters.Key = 9
)

// borrow are the layers of a request by one who borrows from the lender, and perhaps others.
func borrow(
	child *counters.Limit, who counters.Key, lender *counters.Limit, cost uint64, others ...counters.Charge,
) []counters.Charge {
	return append([]counters.Charge{
		{
			Limit: child, Key: who, Cost: cost, Mode: counters.Elastic, Lender: 2,
		}, {Limit: lender, Key: shared, Cost: cost},
	}, others...)
}

// From its own limit to the last request that is lent, and the first that is refused, by every algorithm on either
// side.
func TestElasticBorrowsUntilTheLenderIsFull(t *testing.T) {
	for _, a := range algorithms {
		for _, b := range algorithms {
			t.Run(a.String()+" of "+b.String(), func(t *testing.T) {
				child := newLimit(t, counters.NewMeter("child", a, time.Hour), 3)
				lender := newLimit(t, counters.NewMeter("lender", b, time.Hour), 5)
				table := least(1)
				for i := range uint64(7) {
					peek := said(table.TakeAll(borrow(child, ann, lender, 0), start, nil))
					ds := table.TakeAll(borrow(child, ann, lender, 1), start, nil)
					want := []string{"aa", "aa", "aa", "wa", "wa", "dw", "dw"}[i]
					if got := said(ds); got != want || peek != want {
						t.Fatalf("request %d: %s, and peeked %s, want %s", i+1, got, peek, want)
					}
					if d := ds[0]; d.Mode != counters.Elastic || d.Remaining != 3-min(i+1, 3) || d.Limit != 3 ||
						(d.RetryAfter > 0) == d.Allowed {
						t.Errorf("request %d: %+v", i+1, d)
					}
					if v, w := table.View(child, ann, start), table.View(lender, shared, start); v != min(i+1, 3) ||
						w != min(i+1, 5) {
						t.Errorf("after request %d: %d and %d are used", i+1, v, w)
					}
				}
			})
		}
	}
}

// What is promised passes also when the lender is full, which counts it: up to twice its limit.
func TestElasticKeepsItsPromise(t *testing.T) {
	for _, a := range algorithms {
		t.Run(a.String(), func(t *testing.T) {
			child := newLimit(t, counters.NewMeter("child", a, time.Hour), 8)
			lender := newLimit(t, counters.NewMeter("lender", a, time.Hour), 10)
			table := least(1)
			for range 10 {
				table.TakeAll(borrow(child, ann, lender, 1), start, nil)
			}
			for i := range uint64(9) {
				ds := table.TakeAll(borrow(child, bob, lender, 2), start, nil)
				want := map[bool]string{true: "aw", false: "dw"}[i < 4]
				if got := said(ds); got != want {
					t.Errorf("request %d of another: %s, want %s", i+1, got, want)
				}
				if got := table.View(lender, shared, start); got != 10+2*min(i+1, 4) {
					t.Errorf("after request %d the lender counts %d", i+1, got)
				}
				if d := ds[1]; d.Remaining != 0 || d.RetryAfter != 0 || d.ResetAfter <= 0 || d.Delay != 0 ||
					d.Mode != counters.Enforce {
					t.Errorf("request %d: of the lender %+v", i+1, d)
				}
				if i := counters.Governing(ds); i != 0 {
					t.Errorf("the full lender speaks: %+v", ds)
				}
			}
			for who := counters.Key(10); who < 14; who++ { // more than can be promised by a sensible rule
				table.TakeAll(borrow(child, who, lender, 5), start, nil)
			}
			if got := table.View(lender, shared, start); got != 20 {
				t.Errorf("the lender counts %d, want twice its limit", got)
			}
			if d := table.Take(lender, shared, 1, start); d.Allowed {
				t.Errorf("without a child: %+v", d)
			}
		})
	}
}

// Two that ask for all they can get come to what their lender has, each to what is its own at least, once what one
// borrowed while it was alone has left the window.
func TestElasticChildrenCompete(t *testing.T) {
	child := newLimit(t, counters.NewMeter("child", counters.SlidingWindow, 10*time.Second), 40)
	lender := newLimit(t, counters.NewMeter("lender", counters.SlidingWindow, 10*time.Second), 100)
	table := least(1)
	passed := map[counters.Key][]int{} // by window
	for tick := range 500 {            // of a tenth of a second each
		now, window := start+int64(tick)*1e8, tick/100
		for range 10 {
			for _, who := range []counters.Key{ann, bob} {
				if who == bob && window == 0 {
					continue
				}
				for len(passed[who]) <= window {
					passed[who] = append(passed[who], 0)
				}
				if allAllowed(table.TakeAll(borrow(child, who, lender, 1), now, nil)) {
					passed[who][window]++
				}
			}
		}
	}
	if got := passed[ann][0]; got != 100 {
		t.Errorf("alone: %d, want all", got)
	}
	if got := passed[bob][1]; got < 40 {
		t.Errorf("beside one who has borrowed all: %d, want what is promised", got)
	}
	for window := 2; window < 5; window++ {
		a, b := passed[ann][window], passed[bob][window]
		// A sliding window may hold an even share of a sub-window more than the limit, here 4 and 10; what a child
		// is sure of comes on top of its lender's.
		if a < 36 || b < 36 || a+b < 90 || a+b > 114 {
			t.Errorf("window %d: %d and %d, want 40 each at least, and 100 together", window, a, b)
		}
	}
}

// A request is charged in all its layers, or in none.
func TestElasticIsAllOrNothing(t *testing.T) {
	child, lender, third := limitNamed(t, "child", 1), limitNamed(t, "lender", 2), limitNamed(t, "third", 3)
	table := least(1)
	views := func() string {
		return fmt.Sprint(table.View(child, ann, start), table.View(lender, shared, start), table.View(third, 7, start))
	}
	with := func(cost uint64, mode counters.Mode) string {
		return said(
			table.TakeAll(borrow(child, ann, lender, 1, counters.Charge{Limit: third, Key: 7, Cost: cost, Mode: mode}),
				start, nil),
		)
	}
	for _, step := range []struct {
		cost  uint64 // of the third layer
		mode  counters.Mode
		want  string
		views string
	}{
		{4, counters.Enforce, "aad", "0 0 0"}, // both have room
		{4, counters.Shadow, "aaw", "1 1 0"},
		{4, counters.Enforce, "wad", "1 1 0"}, // the lender alone has
		{2, counters.Enforce, "waa", "1 2 2"},
		{1, counters.Enforce, "dwa", "1 2 2"}, // none
	} {
		if got := with(step.cost, step.mode); got != step.want || views() != step.views {
			t.Fatalf("%s and %s, want %s and %s", got, views(), step.want, step.views)
		}
	}
	if got := said(table.TakeAll(borrow(child, bob, lender, 1, counters.Charge{Limit: third, Key: 7, Cost: 4}), start,
		nil)); got != "awd" ||
		views() != "1 2 2" {
		t.Errorf("with a promise of a full lender: %s, and %s", got, views())
	}
	if d := table.Take(child, bob, 0, start); d.Remaining != 1 {
		t.Errorf("a request that was denied elsewhere left %+v", d)
	}
}

func TestElasticCosts(t *testing.T) {
	child, lender := limitNamed(t, "child", 4), limitNamed(t, "lender", 10)
	table := least(1)
	for _, step := range []struct {
		cost uint64
		want string
	}{{3, "aa"}, {2, "wa"}, {1, "aa"}, {5, "dw"}, {4, "wa"}, {1, "dw"}, {11, "dw"}} {
		ds := table.TakeAll(borrow(child, ann, lender, step.cost), start, nil)
		if got := said(ds); got != step.want {
			t.Errorf("a cost of %d: %s, want %s", step.cost, got, step.want)
		}
		if never := ds[0].RetryAfter == counters.Never; never != (step.cost > 10) {
			t.Errorf("a cost of %d is to wait for %v", step.cost, ds[0].RetryAfter)
		}
	}
	if v, w := table.View(child, ann, start), table.View(lender, shared, start); v != 4 || w != 10 {
		t.Errorf("%d and %d are used", v, w)
	}
}

// Lenders that are no layer, are closed, have no limit, or are in another mode themselves.
func TestElasticLenders(t *testing.T) {
	const e = counters.Elastic
	one, closed, full := limitNamed(t, "one", 1), limitNamed(t, "closed", 0), limitNamed(t, "full", 1)
	table := least(1)
	table.Take(full, 1, 1, start)
	for _, tt := range []struct {
		name    string
		charges []counters.Charge
		want    [2]string // the first request of a child, and the second
	}{
		{"nobody", []counters.Charge{{Mode: e}}, [2]string{"a", "d"}},
		{"the idle system", []counters.Charge{{Mode: e, Lender: counters.Idle}}, [2]string{"a", "w"}},
		{"one without a limit", []counters.Charge{{Mode: e, Lender: 2}, {}}, [2]string{"aa", "wa"}},
		{"a closed one", []counters.Charge{{Mode: e, Lender: 2}, {Limit: closed}}, [2]string{"ad", "ad"}},
		{"one before it", []counters.Charge{{Limit: full}, {Mode: e, Lender: 1}}, [2]string{"wa", "wd"}},
		{"a full one in shadow mode", []counters.Charge{{Mode: e, Lender: 2}, {Limit: full, Mode: counters.Shadow}},
			[2]string{"aw", "dw"}},
		{"a full quota", []counters.Charge{{Mode: e, Lender: 2}, {Limit: full, Mode: counters.Quota}},
			[2]string{"aw", "dw"}},
		{"in shadow mode itself", []counters.Charge{{Mode: counters.Shadow, Lender: 2}, {Limit: full}},
			[2]string{"ad", "ad"}},
		{"two of a full one", []counters.Charge{{Mode: e, Lender: 3}, {Mode: e, Lender: 3}, {Limit: full}},
			[2]string{"aaw", "ddw"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for i := range tt.charges {
				if ch := &tt.charges[i]; ch.Limit == nil && (ch.Mode == e || ch.Mode == counters.Shadow) {
					ch.Limit, ch.Key, ch.Cost = one, counters.Key(len(tt.name)*100+i), 1
				} else {
					ch.Key, ch.Cost = 1, 1
				}
			}
			for i, want := range tt.want {
				if got := said(table.TakeAll(tt.charges, start, nil)); got != want {
					t.Errorf("request %d: %s, want %s", i+1, got, want)
				}
			}
		})
	}
}

// Many borrow at the same time: each gets what it was promised, and what is lent is what was left, to the last.
func TestConcurrentElasticLimits(t *testing.T) {
	const children, each, most = 8, 50, 1000
	child, lender := limitNamed(t, "child", each), limitNamed(t, "lender", most)
	table := least(1)
	var own, lent [children]atomic.Uint64
	var wg sync.WaitGroup
	for g := range 2 * children {
		wg.Go(func() {
			who := g % children
			var ds []counters.Decision
			for range 200 {
				ds = table.TakeAll(borrow(child, counters.Key(who), lender, 1), start, ds[:0])
				switch said(ds)[0] {
				case 'a':
					own[who].Add(1)
				case 'w':
					lent[who].Add(1)
				}
			}
		})
	}
	wg.Wait()
	owned, loans := uint64(0), uint64(0)
	for who := range children {
		if got, view := own[who].Load(), table.View(child, counters.Key(who), start); got != each || view != each {
			t.Errorf("child %d passed %d by itself, and counts %d, want %d", who, got, view, each)
		}
		owned, loans = owned+own[who].Load(), loans+lent[who].Load()
	}
	view := table.View(lender, shared, start)
	if owned+loans != view || view < most || loans == 0 || view > most+owned {
		t.Errorf("%d by themselves and %d lent, of which the lender counts %d", owned, loans, view)
	}
	if d := table.Take(lender, shared, 1, start); d.Allowed {
		t.Errorf("the lender has more to give: %+v", d)
	}
}

func TestElasticAllocatesNothing(t *testing.T) {
	child, lender := limitNamed(t, "child", 1), limitNamed(t, "lender", 500)
	table := least(1)
	charges := borrow(child, ann, lender, 1)
	table.TakeAll(charges, start, nil)
	ds := make([]counters.Decision, 0, 2)
	if n := allocations(func(now int64) { ds = table.TakeAll(charges, now, ds[:0]) }); n != 0 {
		t.Errorf("%v allocations, lent or denied", n)
	}
	if got := said(ds); got != "dw" {
		t.Errorf("%s: the lender was never full", got)
	}
	charges = borrow(limitNamed(t, "wide", counters.MaxLimit), ann, lender, 1)
	table.TakeAll(charges, start, nil)
	if n := allocations(func(now int64) { ds = table.TakeAll(charges, now, ds[:0]) }); n != 0 {
		t.Errorf("%v allocations of a promise", n)
	}
}

// A lender is charged what its borrower is guaranteed, even more than its own limit at once. Peers receive that, too,
// if the lender was charged before.
func TestOverchargedLendersAreReplicated(t *testing.T) {
	for _, a := range algorithms {
		for _, drained := range []bool{false, true} {
			child := newLimit(t, counters.NewMeter("child", a, time.Hour), 10)
			lender := newLimit(t, counters.NewMeter("lender", a, time.Hour), 3)
			table := least(1)
			table.TakeAll(borrow(child, ann, lender, 1), start, nil)
			if drained {
				table.DrainDirty(start)
			}
			if got := said(table.TakeAll(borrow(child, ann, lender, 5), start, nil)); got != "aw" {
				t.Fatalf("%v: %s, want the borrower allowed and the lender waived", a, got)
			}
			sent := uint64(0)
			for _, s := range table.DrainDirty(start).Slots {
				if *s.Meter == lender.Meter() {
					sent += s.Count
				}
			}
			if used := table.View(lender, shared, start); sent != used || used != 6 {
				t.Errorf("%v, drained %v: %d were sent of the %d that the lender counts", a, drained, sent, used)
			}
		}
	}
}

// What peers report of a lender is believed also where it is more than its limit, as far as honest ones go.
func TestOverchargedLendersAreBelieved(t *testing.T) {
	child, lender := limitNamed(t, "child", 10), limitNamed(t, "lender", 10)
	a, b := least(1), least(2)
	b.Know([]*counters.Limit{child, lender})
	for who := range counters.Key(5) {
		a.TakeAll(borrow(child, who, lender, 10), start, nil)
	}
	b.Merge(a.DrainDirty(start).Slots, start)
	if got := b.View(lender, shared, start); got != 20 || b.Stats().Implausible != 0 {
		t.Errorf("a peer believes %d, and refused %d slots", got, b.Stats().Implausible)
	}
}

// lending is what a child, its lender and another layer say, of their naive models.
type lending struct {
	child, lender, third *oracle.Model
}

// take decides as elastic.go has it: own and lender say whether they have room.
func (m *lending) take(who counters.Key, cost, beside uint64, now int64) (passes, lent bool) {
	own, room := m.child.Fits(who, cost, now), m.lender.Fits(shared, cost, now)
	if !own && !room || !m.third.Fits(shared, beside, now) {
		return false, false
	}
	m.third.Charge(shared, beside, now)
	if own {
		m.child.Charge(who, cost, now)
	}
	overdraw(m.lender, shared, cost, now)
	return true, !own
}

// report charges as overdraft.go has it.
func (m *lending) report(who counters.Key, cost, beside uint64, now int64) {
	own, room := m.child.Fits(who, cost, now), m.lender.Fits(shared, cost, now)
	if own || !room {
		overdraw(m.child, who, cost, now)
	}
	overdraw(m.lender, shared, cost, now)
	overdraw(m.third, shared, beside, now)
}

// overdraw charges up to twice the limit.
func overdraw(m *oracle.Model, key counters.Key, cost uint64, now int64) {
	largest := 2 * m.Limit().Max()
	m.Charge(key, min(cost, largest-min(m.View(key, now), largest)), now)
}

// Whatever is asked, the table says what its naive model does, and a request that is asked to wait passes just when the
// wait is over.
func TestElasticAgainstItsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string, largest uint64) *counters.Limit {
			m := counters.NewMeter(name, rapid.SampledFrom(algorithms).Draw(t, name), 10*time.Second)
			return newLimit(t, m, rapid.SampledFrom([]uint64{1, 2, 5, largest}).Draw(t, "limit"))
		}
		child, lender, third := draw("child", 10), draw("lender", 20), draw("third", 40)
		m := &lending{oracle.NewModel(child), oracle.NewModel(lender), oracle.NewModel(third)}
		table := least(1)
		now := start
		for range rapid.IntRange(1, 80).Draw(t, "requests") {
			now += rapid.SampledFrom([]int64{0, 0, 1, 3e8, 1e9, 7e9}).Draw(t, "pause")
			who, cost := rapid.SampledFrom([]counters.Key{ann, bob}).
				Draw(t, "who"),
				rapid.Uint64Range(1, 4).
					Draw(t, "cost")
			charges := borrow(child, who, lender, cost, counters.Charge{Limit: third, Key: shared, Cost: 1})
			peek := borrow(child, who, lender, 0)
			if cost == 1 && rapid.Bool().Draw(t, "peek") {
				table.TakeAll(peek, now, nil)
			}
			if rapid.IntRange(0, 4).Draw(t, "report") == 0 {
				reported := rapid.Uint64Range(1, 50).Draw(t, "reported")
				if first := rapid.Bool().Draw(t, "the lender first"); first {
					table.Report([]counters.Charge{
						{Limit: third, Key: shared, Cost: 2}, {Limit: lender, Key: shared, Cost: reported},
						{Limit: child, Key: who, Cost: reported, Mode: counters.Elastic, Lender: 2},
					}, now)
				} else {
					table.Report(borrow(child, who, lender, reported,
						counters.Charge{Limit: third, Key: shared, Cost: 2}), now)
				}
				m.report(who, reported, 2, now)
			}
			ds := table.TakeAll(charges, now, nil)
			passes, lent := m.take(who, cost, 1, now)
			if got := allAllowed(ds); got != passes || passes && ds[0].Waived != lent {
				t.Fatalf("a cost of %d: %s, want it to pass: %v, lent: %v", cost, said(ds), passes, lent)
			}
			if v, w, x := table.View(child, who, now), table.View(lender, shared, now),
				table.View(third, shared, now); v != m.child.View(
				who,
				now,
			) ||
				w != m.lender.View(shared, now) ||
				x != m.third.View(shared, now) {
				t.Fatalf("%d, %d and %d are used, want %d, %d and %d", v, w, x, m.child.View(who, now),
					m.lender.View(shared, now), m.third.View(shared, now))
			}
			if wait := ds[0].RetryAfter; wait > 0 {
				fits := func(at int64) bool { return m.child.Fits(who, cost, at) || m.lender.Fits(shared, cost, at) }
				if !fits(now+int64(wait)) || fits(now+int64(wait)-1) {
					t.Fatalf("a cost of %d is told to wait for %v", cost, wait)
				}
			} else if wait < 0 && cost <= max(child.Max(), lender.Max()) {
				t.Fatalf("a cost of %d is told to wait for ever", cost)
			}
		}
	})
}

// A lender beyond the charges is a caller's bug, and leaves no lock held.
func TestElasticLenderOutOfRange(t *testing.T) {
	child := limitNamed(t, "child", 1)
	table := least(1)
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
		if d := table.Take(child, ann, 1, start); !d.Allowed {
			t.Errorf("after it: %+v", d)
		}
	}()
	table.TakeAll(
		[]counters.Charge{{Limit: child, Key: ann, Cost: 1, Mode: counters.Elastic, Lender: math.MaxUint8 - 1}}, start,
		nil)
}

// Three tables that tell each other what they admitted admit what one would that knows all: who keeps to what is
// promised is never denied, however much others borrow, and no window holds more than the lender's limit and what was
// promised in it.
func TestElasticInACluster(t *testing.T) {
	alone, together := busyWindows(t, 1), busyWindows(t, 3)
	for window := range alone {
		a, b := alone[window], together[window]
		if a > 1000+190 || b > a*103/100 || b < a*97/100 {
			t.Errorf("window %d: %d passed one table, and %d three", window, a, b)
		}
	}
}

// busyWindows returns how much passes so many tables in each of six windows of a lender's limit of 1000: of one who
// asks for twice of what there is, and of one who asks for 190 of the 200 that are promised within two seconds, every
// twelve.
func busyWindows(t *testing.T, nodes int) (passed [6]int) {
	child := newLimit(t, counters.NewMeter("child", counters.SlidingWindow, 10*time.Second), 200)
	lender := newLimit(t, counters.NewMeter("lender", counters.SlidingWindow, 10*time.Second), 1000)
	var tables []*counters.Table
	for i := range nodes {
		table := small(counters.Origin(i + 1))
		table.Know([]*counters.Limit{child, lender})
		table.SetCluster(nodes-1, horizon)
		tables = append(tables, table)
	}
	for tick := range 600 { // of a tenth of a second each
		now := start + int64(tick)*1e8
		for i := range 18 {
			if allAllowed(tables[i%nodes].TakeAll(borrow(child, ann, lender, 1), now, nil)) {
				passed[tick/100]++
			}
		}
		for i := range 10 {
			if tick%120 >= 19 {
				break
			}
			if ds := tables[i%nodes].TakeAll(borrow(child, bob, lender, 1), now, nil); !allAllowed(ds) || ds[0].Waived {
				t.Fatalf("%d tables, after %d ticks: %+v of who keeps to what is promised", nodes, tick, ds)
			}
			passed[tick/100]++
		}
		for i, from := range tables {
			sent := from.DrainDirty(now).Slots
			for j, to := range tables {
				if i != j {
					to.Merge(sent, now)
					to.SetWatermark(counters.Origin(i+1), now)
				}
			}
		}
	}
	return passed
}
