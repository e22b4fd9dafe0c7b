package oracle

import (
	"fmt"
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// start is the beginning of an hour, and of every sub-window that divides one.
var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixNano()

const key = counters.Key(7)

func limitOf(t testing.TB, window, sub time.Duration, largest uint64) *counters.Limit {
	t.Helper()
	l, err := counters.NewLimit(
		counters.Meter{Rule: "edge/per_ip", Algorithm: counters.SlidingWindow, Window: window, Sub: sub}, largest)
	testkit.Must(t, err)
	return l
}

// modelAt returns a model whose key has counted so much in the sub-windows that end with the one of the time now.
func modelAt(l *counters.Limit, now int64, countsUntilNow ...uint64) *Model {
	m := NewModel(l)
	first := l.Meter().Index(now) - int64(len(countsUntilNow)) + 1
	for i, count := range countsUntilNow {
		m.Add(key, first+int64(i), count)
	}
	return m
}

// A quarter into the hour, three quarters of the previous one still count, less one: 84 * 3/4 - 1 + 37 = 99.
func TestTwoBucketsWeighThePreviousHour(t *testing.T) {
	l := limitOf(t, time.Hour, time.Hour, 100)
	now := start + int64(15*time.Minute)
	m := modelAt(l, now, 84, 37)

	if got := m.View(key, now); got != 99 {
		t.Fatalf("view = %d, want 99", got)
	}
	want := counters.Decision{
		Allowed: true, Rule: "edge/per_ip", Window: time.Hour, Limit: 100, Remaining: 0,
		// until this hour's 38 count as nothing as well: a 38th of it is left then
		ResetAfter: 105*time.Minute - time.Hour/38,
	}
	if got := m.Take(key, 1, now); got != want {
		t.Errorf("the hundredth:\n got %+v\nwant %+v", got, want)
	}
	want.Allowed = false
	// 38 + ceil(84 * left) - 1 has to come down to 99: the previous hour may weigh 62/84, and weighs 63/84 now.
	want.RetryAfter = (time.Hour + 83) / 84 // rounded up
	if got := m.Take(key, 1, now); got != want {
		t.Errorf("the next:\n got %+v\nwant %+v", got, want)
	}
	if got := m.View(key, now); got != 100 {
		t.Errorf("a denial counted: view = %d, want 100", got)
	}
}

func TestBucketsOfTwentyMinutes(t *testing.T) {
	l := limitOf(t, time.Hour, 20*time.Minute, 60)
	now := start + int64(7*time.Minute)
	m := modelAt(l, now, 10, 20, 30)

	for _, step := range []struct {
		at   time.Duration
		want uint64
		why  string
	}{
		{7 * time.Minute, 60, "the three that lie within the hour count whole"},
		{20 * time.Minute, 59, "the oldest begins to leave, and counts one less"},
		{20*time.Minute + 1, 59, "a part rounds up"},
		{22 * time.Minute, 58, "a tenth of 10 has left"},
		{30 * time.Minute, 54, "half of 10 has left"},
		{40*time.Minute - 1, 50, "a nanosecond of 10 is left, and counts as nothing"},
		{40 * time.Minute, 49, "10 has left, and 20 begins to leave"},
		{50 * time.Minute, 39, "half of 20 has left"},
		{60 * time.Minute, 29, "20 has left, and 30 begins to leave"},
		{70 * time.Minute, 14, "half of 30 has left"},
		{80*time.Minute - 1, 10, "of 30, the 10 beyond an even share stay to the end"},
		{80 * time.Minute, 0, "all has left"},
	} {
		if got := m.View(key, start+int64(step.at)); got != step.want {
			t.Errorf("view after %v = %d, want %d: %s", step.at, got, step.want, step.why)
		}
	}

	d := m.Take(key, 1, now)
	if d.Allowed || d.Remaining != 0 || d.ResetAfter != 73*time.Minute {
		t.Errorf("61st: %+v, want a denial, reset after 73m", d)
	}
	// Room for one when the oldest begins to leave: at minute 20.
	if d.RetryAfter != 13*time.Minute {
		t.Errorf("61st: retry after %v, want 13m", d.RetryAfter)
	}
	// Room for 32 when two of the newest 30 have left: a thirtieth of 20 minutes after minute 60.
	if d = m.Take(key, 32, now); d.RetryAfter != 53*time.Minute+40*time.Second {
		t.Errorf("32 at once: retry after %v, want 53m40s", d.RetryAfter)
	}
}

func TestPeekLeavesNoTrace(t *testing.T) {
	l := limitOf(t, time.Minute, 6*time.Second, 3)
	m := NewModel(l)
	fresh := counters.Decision{Allowed: true, Rule: "edge/per_ip", Window: time.Minute, Limit: 3, Remaining: 3}
	if got := m.Take(key, 0, start); got != fresh {
		t.Errorf("peek at an unused key:\n got %+v\nwant %+v", got, fresh)
	}
	if len(m.keys) != 0 {
		t.Errorf("the peek left %v", m.keys)
	}
	for range 3 {
		m.Take(key, 1, start)
	}
	peek, take := m.Take(key, 0, start+5), m.Take(key, 1, start+5)
	if peek != take || peek.Allowed || peek.RetryAfter <= 0 {
		t.Errorf("with the limit spent, a peek says %+v and a cost of 1 %+v: want the same denial", peek, take)
	}
}

func TestCostBeyondTheLimitNeverFits(t *testing.T) {
	for _, largest := range []uint64{0, 1, 10} {
		m := NewModel(limitOf(t, time.Minute, 6*time.Second, largest))
		for _, cost := range []uint64{largest + 1, math.MaxUint64} {
			if d := m.Take(key, cost, start); d.Allowed || d.RetryAfter != counters.Never || d.Remaining != largest ||
				d.ResetAfter != 0 {
				t.Errorf("cost %d of %d: %+v, want a denial for ever of an unused key", cost, largest, d)
			}
		}
		if largest > 0 && !m.Take(key, largest, start).Allowed {
			t.Errorf("cost %d of %d: denied", largest, largest)
		}
	}
	if d := NewModel(limitOf(t, time.Minute, 6*time.Second, 0)).Take(key, 0, start); d.Allowed ||
		d.RetryAfter != counters.Never {
		t.Errorf("peek under a limit of 0: %+v, want a denial for ever", d)
	}
}

func TestKeysAreApart(t *testing.T) {
	m := NewModel(limitOf(t, time.Minute, 6*time.Second, 1))
	for k := range counters.Key(3) {
		if !m.Take(k, 1, start).Allowed {
			t.Errorf("key %d is denied for another's cost", k)
		}
	}
}

func TestCountsFromTheNextSubWindowWaitForIt(t *testing.T) {
	l := limitOf(t, 2*time.Second, time.Second, 10)
	m := NewModel(l)
	m.Add(key, l.Meter().Index(start)+1, 10)
	if d := m.Take(key, 4, start); !d.Allowed || d.Remaining != 6 {
		t.Errorf("before: %+v, want admitted with 6 remaining", d)
	}
	later := start + int64(time.Second)
	d := m.Take(key, 1, later)
	if d.Allowed || d.Remaining != 0 || d.ResetAfter != 3*time.Second {
		t.Errorf("when it has come: %+v, want a denial with nothing remaining", d)
	}
	if d.RetryAfter != 2*time.Second {
		t.Errorf("retry after %v, want when the 10 begin to leave", d.RetryAfter)
	}
}

// What is ahead is not in the view until its time has come, and then is not ahead any more.
func TestAhead(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 100)
	m := modelAt(l, start, 5)
	m.Add(key, l.Meter().Index(start)+1, 7)
	m.Add(key, l.Meter().Index(start)+3, 11)
	for _, c := range []struct {
		after       time.Duration
		view, ahead uint64
	}{{0, 5, 18}, {time.Second - 1, 5, 18}, {time.Second, 12, 11}, {2 * time.Second, 12, 11},
		{3 * time.Second, 23, 0}} {
		now := start + int64(c.after)
		if view, ahead := m.View(key, now), m.Ahead(key, now); view != c.view || ahead != c.ahead {
			t.Errorf("after %v: view %d and %d ahead, want %d and %d", c.after, view, ahead, c.view, c.ahead)
		}
	}
	if ahead := m.Ahead(key+1, start); ahead != 0 {
		t.Errorf("%d of another key are ahead", ahead)
	}
}

// What fits is what a request for it is admitted, and asking leaves no trace.
func TestFits(t *testing.T) {
	l := limitOf(t, 10*time.Second, time.Second, 10)
	m := modelAt(l, start, 7)
	for cost, want := range map[uint64]bool{0: true, 3: true, 4: false, 10: false, 11: false, math.MaxUint64: false} {
		if got := m.Fits(key, cost, start); got != want {
			t.Errorf("a cost of %d beside 7 of 10 fits: %v", cost, got)
		}
	}
	if view := m.View(key, start); view != 7 {
		t.Errorf("view = %d after asking, want 7", view)
	}
}

func TestForget(t *testing.T) {
	l := limitOf(t, time.Hour, 20*time.Minute, 100)
	now := start + int64(7*time.Minute)
	m := modelAt(l, now, 1, 2, 4, 8, 16)
	m.Add(key+1, l.Meter().Index(now)-9, 5)

	before := m.View(key, now)
	m.Forget(now)
	if got := m.View(key, now); got != before {
		t.Errorf("view = %d after forgetting what lies before now, want %d", got, before)
	}
	if len(m.keys) != 1 || len(m.keys[key].(*slidingWindow).counts) != 4 {
		t.Errorf("kept %v, want one key with four sub-windows", m.keys)
	}
	m.Forget(now + int64(2*time.Hour))
	if len(m.keys) != 0 {
		t.Errorf("kept %v, want nothing", m.keys)
	}
}

func TestCountsThatDoNotFit(t *testing.T) {
	l := limitOf(t, time.Minute, 30*time.Second, 10)
	now := start + int64(29*time.Second)
	m := modelAt(l, now, math.MaxUint64, math.MaxUint64-1, math.MaxUint64)
	m.Add(key, l.Meter().Index(now), 5)
	if got := m.View(key, now); got != math.MaxUint64 {
		t.Errorf("view = %d, want the largest", got)
	}
	if d := m.Take(key, 1, now); d.Allowed || d.Remaining != 0 || d.ResetAfter != 61*time.Second {
		t.Errorf("%+v, want a denial and a reset after 61s", d)
	}
	// Of 2^64-1, all but an even share of 10 counts.
	half := modelAt(l, start, math.MaxUint64, 0, 0)
	if got := half.View(key, start+int64(15*time.Second)); got != math.MaxUint64-5 {
		t.Errorf("half of the largest = %d, want what exceeds an even share", got)
	}
}

// drawn is a random limit with a random history behind it.
type drawn struct {
	limit *counters.Limit
	model *Model
	log   map[int64]*big.Int // the same counts once more
	now   int64
}

func drawHistory(t *rapid.T) drawn {
	sub := time.Duration(rapid.SampledFrom([]int64{1e6, 1e6 + 1, 999_999_937, 1e9, 60e9}).Draw(t, "sub"))
	n := rapid.SampledFrom([]int64{1, 2, 3, 10, 60}).Draw(t, "sub-windows")
	largest := rapid.OneOf(rapid.Uint64Range(0, 20), rapid.Uint64Range(1, counters.MaxLimit)).Draw(t, "limit")
	l, err := counters.NewLimit(counters.Meter{
		Rule: "edge/drawn", Algorithm: counters.SlidingWindow, Window: time.Duration(n) * sub, Sub: sub,
	}, largest)
	testkit.Must(t, err)
	h := drawn{limit: l, model: NewModel(l), log: make(map[int64]*big.Int)}
	h.now = start + rapid.Int64Range(0, int64(sub)).Draw(t, "begin")
	for range rapid.IntRange(0, 30).Draw(t, "events") {
		h.now += rapid.OneOf(
			rapid.Just(int64(0)), rapid.Int64Range(0, int64(sub)), rapid.Int64Range(0, n*int64(sub)),
		).Draw(t, "pause")
		cost := rapid.OneOf(rapid.Uint64Range(0, 5), rapid.Uint64Range(0, largest+1)).Draw(t, "cost")
		index := l.Meter().Index(h.now)
		if rapid.Bool().Draw(t, "merged") {
			index -= rapid.Int64Range(-1, n).Draw(t, "age")
			h.model.Add(key, index, cost)
		} else if !h.model.Take(key, cost, h.now).Allowed {
			continue
		}
		if h.log[index] == nil {
			h.log[index] = new(big.Int)
		}
		h.log[index].Add(h.log[index], new(big.Int).SetUint64(cost))
	}
	return h
}

// exactView is the definition with fractions: each sub-window that lies in (now-window, now] counts in full, and of the
// one that overlaps it the larger of the overlapping part, rounded up, less one, and of what exceeds an even share.
func (h drawn) exactView(now int64) *big.Int {
	m := h.limit.Meter()
	sub := int64(m.Sub)
	sum := new(big.Int)
	for index, count := range h.log {
		if index > now/sub {
			continue // not yet
		}
		// The window reaches back to the same place in the sub-window n before, so this one ends `left` after it.
		left := (index+1)*sub - (now - int64(m.Window))
		switch {
		case left <= 0 || count.Sign() == 0:
		case index > now/sub-int64(m.SubWindows()):
			sum.Add(sum, count)
		default:
			overlap := new(big.Int).Mul(count, big.NewInt(left))
			overlap.Add(overlap, big.NewInt(sub-1)).Quo(overlap, big.NewInt(sub)).Sub(overlap, big.NewInt(1))
			share := new(big.Int).SetUint64(h.limit.Max() + uint64(m.SubWindows()) - 1)
			share.Quo(share, big.NewInt(int64(m.SubWindows())))
			if beyond := share.Sub(count, share); beyond.Cmp(overlap) > 0 {
				overlap = beyond
			}
			sum.Add(sum, overlap)
		}
	}
	return sum
}

func TestViewIsTheDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawHistory(t)
		at := h.now + rapid.Int64Range(0, 2*int64(h.limit.Meter().Window)).Draw(t, "later")
		if got, want := h.model.View(key, at), h.exactView(at); want.Cmp(new(big.Int).SetUint64(got)) != 0 {
			t.Fatalf("view = %d, want %d", got, want)
		}
	})
}

func TestRetryAfterIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawHistory(t)
		largest := h.limit.Max()
		cost := rapid.OneOf(rapid.Uint64Range(0, 3), rapid.Uint64Range(0, largest+1)).Draw(t, "asked")
		admits := func(at int64) bool {
			sum := h.exactView(at)
			return sum.Add(sum, new(big.Int).SetUint64(max(cost, 1))).Cmp(new(big.Int).SetUint64(largest)) <= 0
		}
		allowed := admits(h.now)
		d := h.model.Take(key, cost, h.now)
		if d.Allowed != allowed {
			t.Fatalf("allowed = %v, want %v", d.Allowed, allowed)
		}
		switch {
		case allowed:
			if d.RetryAfter != 0 {
				t.Fatalf("allowed, yet retry after %v", d.RetryAfter)
			}
		case max(cost, 1) > largest:
			if d.RetryAfter != counters.Never {
				t.Fatalf("cost %d of %d: retry after %v, want never", cost, largest, d.RetryAfter)
			}
		default:
			then := h.now + int64(d.RetryAfter)
			if !admits(then) {
				t.Fatalf("still denied after %v", d.RetryAfter)
			}
			sub := int64(h.limit.Meter().Sub)
			for before := then - 1; before >= h.now; before = before/sub*sub - 1 {
				if admits(before) {
					t.Fatalf("retry after %v, yet admitted after %v", d.RetryAfter, time.Duration(before-h.now))
				}
			}
			if !h.model.Take(key, cost, then).Allowed {
				t.Fatalf("the model itself still denies after %v", d.RetryAfter)
			}
		}
	})
}

func TestRemainingAndResetAfter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawHistory(t)
		d := h.model.Take(key, 0, h.now) // a peek: the log stays true
		left := new(big.Int).Sub(new(big.Int).SetUint64(h.limit.Max()), h.exactView(h.now))
		if want := max(0, left.Int64()); d.Remaining != uint64(want) {
			t.Fatalf("remaining = %d, want %d", d.Remaining, want)
		}
		reset := h.now + int64(d.ResetAfter)
		if got := h.exactView(reset); got.Sign() != 0 {
			t.Fatalf("the view is %d when it should be reset", got)
		}
		if d.ResetAfter > 0 && h.exactView(reset-1).Sign() == 0 {
			t.Fatalf("reset after %v, yet it was a nanosecond earlier", d.ResetAfter)
		}
		if d.ResetAfter > h.limit.Meter().Window+2*h.limit.Meter().Sub {
			t.Fatalf("reset after %v of a window of %v", d.ResetAfter, h.limit.Meter().Window)
		}
	})
}

// What Take alone has admitted never goes beyond the limit: not in a view, and not in as many sub-windows as a window
// has.
func TestTakeKeepsTheLimit(t *testing.T) {
	limits := rapid.Custom(func(r *rapid.T) *counters.Limit {
		return limitOf(t, time.Second, 100*time.Millisecond, rapid.Uint64Range(1, 30).Draw(r, "most"))
	})
	rapid.Check(t, func(t *rapid.T) {
		l := limits.Draw(t, "limit")
		m, now := NewModel(l), start
		var log Rolling
		for range rapid.IntRange(1, 200).Draw(t, "requests") {
			now += rapid.Int64Range(0, int64(100*time.Millisecond)).Draw(t, "pause")
			cost := rapid.Uint64Range(1, 4).Draw(t, "cost")
			if m.Take(key, cost, now).Allowed {
				log.Add(now, cost)
			}
			if got := m.View(key, now); got > l.Max() {
				t.Fatalf("view = %d of %d", got, l.Max())
			}
		}
		for end := start; end <= now+int64(l.Meter().Sub); end += int64(l.Meter().Sub) {
			if got := log.PeakWithin(l.Meter().Window, end-1, end-1); got > l.Max() {
				t.Fatalf("ten whole sub-windows hold %d of %d", got, l.Max())
			}
		}
		// A rolling window overlaps eleven sub-windows: those of a view, and one of which an even share may not count.
		if got, bound := log.Peak(l.Meter().Window), l.Max()+(l.Max()+9)/10; got > bound {
			t.Fatalf("a rolling window holds %d of %d", got, l.Max())
		}
	})
}

func ExampleModel() {
	hourly := counters.Meter{Rule: "edge/per_ip", Algorithm: counters.SlidingWindow, Window: time.Hour, Sub: time.Hour}
	limit, err := counters.NewLimit(hourly, 100)
	if err != nil {
		fmt.Println(err)
		return
	}
	const client = counters.Key(0x5ca1ab1e)
	quarterPast := time.Date(2026, 3, 1, 12, 15, 0, 0, time.UTC).UnixNano()

	m := NewModel(limit)
	m.Add(client, hourly.Index(quarterPast)-1, 84)
	m.Add(client, hourly.Index(quarterPast), 37)
	fmt.Println("counted:", m.View(client, quarterPast))
	fmt.Println("one more:", m.Take(client, 1, quarterPast).Allowed)
	next := m.Take(client, 1, quarterPast)
	fmt.Println("the next:", next.Allowed, "retry after", next.RetryAfter.Round(time.Second))
	// Output:
	// counted: 99
	// one more: true
	// the next: false retry after 43s
}

// BenchmarkModel says what an oracle costs: a key at its limit, ten sub-windows.
func BenchmarkModel(b *testing.B) {
	m := NewModel(limitOf(b, 10*time.Second, time.Second, 1000))
	now := start
	b.ReportAllocs()
	for b.Loop() {
		m.Take(key, 1, now)
		now += int64(5 * time.Millisecond)
	}
}
