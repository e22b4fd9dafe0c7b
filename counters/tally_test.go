package counters_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// tallied returns limits of several maxima that count the same thing.
func tallied(t rapid.TB, maxima ...uint64) (limits []*counters.Limit) {
	t.Helper()
	for _, maximum := range maxima {
		l := newLimit(t, counters.NewMeter("tallied", counters.FixedWindow, time.Minute), maximum)
		limits = append(limits, with(t, l, func(c *counters.LimitConfig) { c.Tally = true }))
	}
	return limits
}

// A tallied limit is a sum by window, whatever the maxima: each request is counted and then compared. Layers without
// Each are not charged where another one of them denies.
func TestTallyCountsEveryRequest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits, table := tallied(t, 0, 1, 10, 1000), counters.NewTable(counters.Config{Origin: 1})
		now, sums := start, make(map[counters.Key]uint64)
		for range rapid.IntRange(1, 200).Draw(t, "requests") {
			index := now / int64(time.Minute)
			if now += rapid.Int64Range(0, int64(10*time.Second)).Draw(t, "wait"); now/int64(time.Minute) != index {
				clear(sums)
			}
			charges := make([]counters.Charge, rapid.IntRange(1, 4).Draw(t, "layers"))
			denies, stop := make([]bool, len(charges)), false // of layers that stop with the others
			for i := range charges {
				ch := counters.Charge{
					Limit: rapid.SampledFrom(limits).Draw(t, "limit"),
					Key:   counters.Key(rapid.Uint64Range(1, 3).Draw(t, "key")),
					Cost:  rapid.SampledFrom([]uint64{0, 1, 1, 1, 7, 2000, 1 << 50}).Draw(t, "cost"),
					Each:  rapid.Bool().Draw(t, "each"),
				}
				charges[i], denies[i] = ch, !ch.Each && sums[ch.Key]+ch.Cost > ch.Limit.Max()
				stop = stop || denies[i]
			}
			for i, d := range table.TakeAll(charges, now, nil) {
				ch := &charges[i]
				if ch.Each || denies[i] || !stop {
					sums[ch.Key] = min(sums[ch.Key]+ch.Cost, counters.MaxTally)
				}
				sum, maximum := sums[ch.Key], ch.Limit.Max()
				want := counters.Decision{
					Allowed: sum <= maximum, Rule: "tallied", Window: time.Minute, Limit: maximum,
					Remaining: maximum - min(sum, maximum), Excess: sum - min(sum, maximum), RetryAfter: d.RetryAfter,
					ResetAfter: time.Duration(int64(time.Minute) - now%int64(time.Minute)),
				}
				if d.Allowed != (d.RetryAfter == 0) || d != want {
					t.Fatalf("layer %d of %+v:\ngot  %+v\nwant %+v", i, charges, d, want)
				}
			}
		}
	})
}

// Peers believe each other's counts, however far above the limit they are: denied requests are counted.
func TestTallyOfPeersIsPlausible(t *testing.T) {
	l := tallied(t, 10)[0]
	a, b := counters.NewTable(counters.Config{Origin: 1}), counters.NewTable(counters.Config{Origin: 2})
	b.Know([]*counters.Limit{l})
	a.Take(l, 1, 5000, start)
	b.Merge(a.DrainDirty(start).Slots, start)
	larger, err := l.Override(6000, l.Meter().Window)
	testkit.Must(t, err)
	if d := b.Take(larger, 1, 1, start); !d.Allowed || d.Remaining != 999 {
		t.Errorf("under a larger limit on the same meter: %+v", d)
	}
	if d := b.Take(l, 1, 0, start); d.Allowed || d.Excess != 4991 {
		t.Errorf("a peek: %+v", d)
	}
	if st := b.Stats(); st.Implausible != 0 {
		t.Errorf("%d counts are taken for forged", st.Implausible)
	}
}

func TestTallyIsForFixedWindows(t *testing.T) {
	for _, a := range []counters.Algorithm{counters.SlidingWindow, counters.SlidingLog, counters.TokenBucket} {
		l := newLimit(t, counters.NewMeter("r", a, time.Minute), 10)
		if _, err := l.With(func(c *counters.LimitConfig) { c.Tally = true }); err == nil {
			t.Errorf("%s: no error", a)
		}
	}
}

// A layer that counts by itself is counted although another one denies, and does not pay for that one.
func TestTallyBesideOtherLayers(t *testing.T) {
	table, l := counters.NewTable(counters.Config{Origin: 1}), tallied(t, 1)[0]
	other := newLimit(t, counters.NewMeter("other", counters.SlidingWindow, time.Minute), 100)
	charges := []counters.Charge{{Limit: other, Key: 1, Cost: 1}, {Limit: l, Key: 1, Cost: 1, Each: true}, {}}
	for i := range 3 {
		ds := table.TakeAll(charges, start, nil)
		if allowed := i == 0; ds[1].Allowed != allowed || ds[1].Excess != uint64(i) || !ds[2].Allowed {
			t.Errorf("request %d: %+v", i+1, ds)
		}
	}
	if used := table.View(other, 1, start); used != 1 {
		t.Errorf("the other layer was charged %d, want 1", used)
	}
}

// What a table denies to leave room for its peers has not happened: if it counted, as other denials do, the window
// would be full before the limit is admitted. Each counts only while the tables share the limit.
func TestTallyOfSharedLimitsAdmitsAll(t *testing.T) {
	for _, largest := range []uint64{5, 20, 100} {
		for _, layers := range []int{0, 1, 2} { // 0: Take
			l := tallied(t, largest)[0]
			wide := tallied(t, 1<<20)[0]
			tables := []*counters.Table{clustered(1, l), counters.NewTable(counters.Config{Origin: 2})}
			tables[1].SetCluster(1, horizon)
			tables[1].Know([]*counters.Limit{l})
			for window := range 4 {
				var admitted uint64
				for i := range 10 * int(largest) {
					now := start + int64(window)*int64(time.Minute) + int64(i)*int64(59*time.Second)/int64(10*largest)
					for from, table := range tables {
						if takeTallied(table, l, wide, layers, now) {
							admitted++
						}
						slots := table.DrainDirty(now).Slots
						other := tables[1-from]
						other.Merge(slots, now)
						other.SetWatermark(counters.Origin(from+1), now)
					}
				}
				if admitted < largest {
					t.Errorf("%d layers, window %d: %d of %d are admitted", layers, window+1, admitted, largest)
				}
				end := start + int64(window)*int64(time.Minute) + int64(59*time.Second)
				if beside := tables[0].View(wide, 2, end); layers == 2 && beside != admitted {
					t.Errorf("window %d: %d are admitted, and the layer beside counts %d", window+1, admitted, beside)
				}
			}
		}
	}
}

// takeTallied asks for a key under a limit, alone or beside others that do not deny.
func takeTallied(table *counters.Table, l, wide *counters.Limit, layers int, now int64) bool {
	if layers == 0 {
		return table.Take(l, 1, 1, now).Allowed
	}
	charges := []counters.Charge{{Limit: l, Key: 1, Cost: 1}, {Limit: wide, Key: 2, Cost: 1}}[:layers]
	return table.TakeAll(charges, now, nil)[0].Allowed
}
