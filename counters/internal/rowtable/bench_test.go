package rowtable_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/counters/internal/rowtable"
)

// These benchmarks compare this table with counters.Table. Each round gives each contestant a slice of requests, and
// what counts is the fastest slice: other programs disturb some, and never make one faster. The median says whether the
// fastest one is a rare one.

// contestant does a slice of work: n units from the i-th on. What it has to do before is not measured.
type contestant struct {
	name    string
	prepare func(i, n int) // nil: nothing
	work    func(i, n int)
}

// compare reports the time of a unit of each contestant, and the second one's as a part of the first one's, of the
// fastest slices and of the medians. Slices of different classes, one after the other, do different work: it reports
// the mean of the fastest of each class.
func compare(b *testing.B, n, classes int, all ...contestant) {
	least := make([][]time.Duration, len(all))
	for c := range least {
		least[c] = slices.Repeat([]time.Duration{math.MaxInt64}, classes)
	}
	taken := make([][]time.Duration, len(all))
	i := 0
	for b.Loop() {
		for c := range all {
			if all[c].prepare != nil {
				all[c].prepare(i, n)
			}
			class := &least[c][i/n%classes]
			start := time.Now()
			all[c].work(i, n)
			took := time.Since(start)
			*class, taken[c] = min(*class, took), append(taken[c], took)
		}
		i += n
	}
	means, medians := make([]float64, len(all)), make([]float64, len(all))
	for c := range all {
		slices.Sort(taken[c])
		medians[c] = float64(taken[c][len(taken[c])/2].Nanoseconds()) / float64(n)
		b.ReportMetric(medians[c], "median-ns/"+all[c].name)
		for _, d := range least[c][:min(classes, i/n)] {
			means[c] += float64(d.Nanoseconds()) / float64(min(classes, i/n)*n)
		}
		b.ReportMetric(means[c], "ns/"+all[c].name)
	}
	b.ReportMetric(means[1]/means[0], all[1].name+"/"+all[0].name)
	b.ReportMetric(medians[1]/medians[0], "median-"+all[1].name+"/"+all[0].name)
}

const (
	benchMax = 1 << 32
	begin    = int64(20_000_000) * int64(time.Minute)
	subs     = 10
)

// both is both tables under the same limit, of a minute in ten sub-windows.
type both struct {
	old      *counters.Table
	oldLimit *counters.Limit
	new      *rowtable.Table
	newLimit *rowtable.Limit
	meter    counters.Meter
}

func newBoth(b *testing.B, memory int, maximum uint64) *both {
	m := counters.NewMeter("bench/per_client", counters.SlidingWindow, time.Minute)
	old, err := counters.NewLimit(m, maximum)
	if err != nil {
		b.Fatal(err)
	}
	meter := rowtable.Meter{ID: rand.Uint64() | 1, Sub: int64(m.Sub), N: subs}
	return &both{counters.NewTable(counters.Config{Origin: 1, Memory: memory}), old,
		rowtable.New(memory, 1), rowtable.NewLimit(meter, maximum), m}
}

func (x *both) takeOld(key uint64, now int64) (remaining uint64) {
	return x.old.Take(x.oldLimit, counters.Key(key), 1, now).Remaining
}

func (x *both) takeNew(key uint64, now int64) (remaining uint64) {
	return x.new.Take(x.newLimit, key, 1, now).Remaining()
}

// fill asks both for each key in each sub-window of a window.
func (x *both) fill(keys []uint64) {
	for back := int64(subs) - 1; back >= 0; back-- {
		now := begin - back*int64(x.meter.Sub)
		for _, key := range keys {
			x.takeOld(key, now)
			x.takeNew(key, now)
		}
		x.old.DrainDirty(now)
		x.new.Drain(nil, now)
		x.new.Expire(now)
	}
}

func randomKeys(n int) []uint64 {
	r := rand.New(rand.NewPCG(1, 2))
	keys := make([]uint64, n)
	for i := range keys {
		keys[i] = r.Uint64()
	}
	return keys
}

// asked is a contestant that is asked for the keys of a stream, one after the other. dependent: the next key is known
// only after the decision.
func asked(name string, take func(key uint64, now int64) uint64, stream []uint64, dependent bool) contestant {
	return contestant{name, nil, func(i, n int) {
		wait, all := uint64(0), uint64(0)
		if dependent {
			all = math.MaxUint64
		}
		for ; n > 0; n-- {
			wait = take(stream[(uint64(i)+wait)&uint64(len(stream)-1)], begin+1000) >> 60 & all // 0
			i++
		}
	}}
}

func (x *both) bench(b *testing.B, stream []uint64) {
	for name, dependent := range map[string]bool{"independent": false, "dependent": true} {
		b.Run(name, func(b *testing.B) {
			compare(b, 500, 1, asked("old", x.takeOld, stream, dependent), asked("new", x.takeNew, stream, dependent))
		})
	}
}

func BenchmarkHot(b *testing.B) {
	x := newBoth(b, counters.DefaultMemory, benchMax)
	x.fill([]uint64{42})
	x.bench(b, []uint64{42})
}

func BenchmarkDenied(b *testing.B) {
	x := newBoth(b, counters.DefaultMemory, 1)
	x.fill([]uint64{42})
	x.bench(b, []uint64{42})
}

// BenchmarkLayers asks for requests of three layers: two keys of one limit, and one of another.
func BenchmarkLayers(b *testing.B) {
	for name, maximum := range map[string]uint64{"admitted": benchMax, "denied": 1} {
		b.Run(name, func(b *testing.B) {
			x := newBoth(b, counters.DefaultMemory, benchMax)
			old := [3]counters.Charge{{Limit: x.oldLimit, Key: 1, Cost: 1}, {Limit: x.oldLimit, Key: 2, Cost: 1}}
			now := [3]rowtable.Charge{{Limit: x.newLimit, Key: 1, Cost: 1}, {Limit: x.newLimit, Key: 2, Cost: 1}}
			limit, err := counters.NewLimit(x.meter, maximum)
			if err != nil {
				b.Fatal(err)
			}
			old[2] = counters.Charge{Limit: limit, Key: 3, Cost: 1}
			now[2] = rowtable.Charge{Limit: rowtable.NewLimit(x.newLimit.Meter, maximum), Key: 3, Cost: 1}
			x.fill([]uint64{1, 2, 3})
			var olds [3]counters.Decision
			var news [3]rowtable.Decision
			compare(b, 200, 1, contestant{"old", nil, func(i, n int) {
				for range n {
					x.old.TakeAll(old[:], begin+1000, olds[:0])
				}
			}}, contestant{"new", nil, func(i, n int) {
				for range n {
					x.new.TakeAll(now[:], begin+1000, news[:0])
				}
			}})
		})
	}
}

// BenchmarkBucket asks for a hot key of a token bucket.
func BenchmarkBucket(b *testing.B) {
	m := counters.NewMeter("bench/bucket", counters.TokenBucket, time.Minute)
	old, err := counters.NewLimit(m, benchMax)
	if err != nil {
		b.Fatal(err)
	}
	meter := rowtable.Meter{ID: rand.Uint64() | 1, Sub: int64(m.Sub), N: 1, Algorithm: rowtable.TokenBucket}
	x := &both{counters.NewTable(counters.Config{Origin: 1}), old,
		rowtable.New(counters.DefaultMemory, 1), rowtable.NewLimit(meter, benchMax), m}
	x.bench(b, []uint64{42})
}

func BenchmarkMillion(b *testing.B) {
	x, keys := newBoth(b, counters.DefaultMemory, benchMax), randomKeys(1<<20)
	x.fill(keys)
	stream, r := make([]uint64, 1<<22), rand.New(rand.NewPCG(3, 4))
	for i := range stream {
		stream[i] = keys[r.IntN(len(keys))]
	}
	b.Run("uniform", func(b *testing.B) { x.bench(b, stream) })
	zipf := rand.NewZipf(r, 1.1, 1, uint64(len(keys)-1))
	for i := range stream {
		stream[i] = keys[zipf.Uint64()]
	}
	b.Run("zipf", func(b *testing.B) { x.bench(b, stream) })
	b.Run("drain", func(b *testing.B) { x.benchDrain(b, keys) })
}

// BenchmarkQuarter asks for the keys of tables that are a quarter full.
func BenchmarkQuarter(b *testing.B) {
	x, keys := newBoth(b, 336<<20, benchMax), randomKeys(1<<20)
	x.fill(keys)
	r := rand.New(rand.NewPCG(3, 4))
	stream := make([]uint64, 1<<22)
	for i := range stream {
		stream[i] = keys[r.IntN(len(keys))]
	}
	x.bench(b, stream)
}

// BenchmarkMoves asks for each of a million keys once in so many sub-windows: each has to move to the time. With one, a
// sub-window leaves at each request; with more than there are, nothing is left of the key.
func BenchmarkMoves(b *testing.B) {
	for name, every := range map[string]int{"next": 1, "later": subs + 2} {
		b.Run(name, func(b *testing.B) {
			x, keys := newBoth(b, counters.DefaultMemory, benchMax), randomKeys(1<<20)
			x.fill(keys)
			each := func(take func(key uint64, now int64) uint64) func(i, n int) {
				return func(i, n int) {
					for ; n > 0; n, i = n-1, i+1 {
						take(keys[i%len(keys)], begin+1000+int64((1+i/len(keys))*every)*int64(x.meter.Sub))
					}
				}
			}
			compare(b, 1024, 1, contestant{"old", nil, each(x.takeOld)}, contestant{"new", nil, each(x.takeNew)})
		})
	}
}

// benchDrain drains some of a million keys.
func (x *both) benchDrain(b *testing.B, keys []uint64) {
	var slots []counters.Slot
	var own []rowtable.Slot
	part := func(i, n int) []uint64 { return keys[i%len(keys):][:n] }
	compare(b, 1<<14, 1, contestant{"old", func(i, n int) {
		for _, key := range part(i, n) {
			x.takeOld(key, begin+2000)
		}
	}, func(int, int) { slots = x.old.DrainInto(slots, begin+2000).Slots }}, contestant{"new", func(i, n int) {
		for _, key := range part(i, n) {
			x.takeNew(key, begin+2000)
		}
	}, func(int, int) { own = x.new.Drain(own[:0], begin+2000) }})
}

// BenchmarkNewKeys asks full tables for keys that they do not have.
func BenchmarkNewKeys(b *testing.B) {
	x := newBoth(b, 64<<20, benchMax)
	fresh := func(i int) uint64 { return uint64(i+1) * 0x9e3779b97f4a7c15 }
	const most = 1 << 20
	for i := range most {
		x.takeOld(fresh(i), begin)
		x.takeNew(fresh(i), begin)
	}
	x.new.Expire(begin)
	compare(b, 100, 1, contestant{"old", nil, func(i, n int) {
		for k := range n {
			x.takeOld(fresh(most+i+k), begin)
		}
	}}, contestant{"new", nil, func(i, n int) {
		for k := range n {
			x.takeNew(fresh(most+i+k), begin)
		}
	}})
}

// BenchmarkMerge merges frames of slots that all rise, into keys that so many others count in all sub-windows, or in
// two. A class of slices are those of the same origins: some are found sooner than others.
func BenchmarkMerge(b *testing.B) {
	for _, c := range []struct {
		name                string
		keys, origins, back int
	}{
		{"1", 4096, 1, subs}, {"12", 4096, 12, subs}, {"50", 4096, 50, subs},
		{"1 of two", 512, 1, 2}, {"50 of two", 512, 50, 2}, {"1500 of two", 512, 1500, 2},
	} {
		b.Run(c.name, func(b *testing.B) {
			x, keys := newBoth(b, counters.DefaultMemory, benchMax), randomKeys(c.keys)
			x.fill(keys)
			for back := range int64(c.back) {
				for o := range c.origins {
					for from := 0; from < len(keys); from += frame {
						x.mergeOld(b, keys[from:from+frame], o, int64(c.back)-1-back, 1)
						x.mergeNew(b, keys[from:from+frame], o, int64(c.back)-1-back, 1)
					}
				}
			}
			each := func(merge func(*testing.B, []uint64, int, int64, uint64)) func(i, n int) {
				return func(i, n int) {
					for ; n > 0; n, i = n-frame, i+frame {
						turn := i / frame // those of all origins with some keys, then with others
						from := turn / c.origins * frame
						merge(b, keys[from%len(keys):][:frame], turn%c.origins, 0, uint64(from/len(keys))+2)
					}
				}
			}
			compare(b, 2*frame, (c.origins+1)/2, contestant{"old", nil, each(x.mergeOld)},
				contestant{"new", nil, each(x.mergeNew)})
		})
	}
}

const frame = 512

var (
	oldFrame [frame]counters.Slot
	newFrame [frame]rowtable.Slot
)

func (x *both) mergeOld(b *testing.B, keys []uint64, origin int, back int64, count uint64) {
	for i, key := range keys {
		oldFrame[i] = counters.Slot{Meter: &x.meter, Key: counters.Key(key), Index: x.meter.Index(begin) - back,
			Origin: counters.Origin(2 + origin), Count: count}
	}
	if n := x.old.Merge(oldFrame[:], begin); n != len(keys) {
		b.Fatalf("%d slots rose", n)
	}
}

func (x *both) mergeNew(b *testing.B, keys []uint64, origin int, back int64, count uint64) {
	for i, key := range keys {
		newFrame[i] = rowtable.Slot{Key: key, Index: x.meter.Index(begin) - back,
			Origin: uint16(2 + origin), Count: count}
	}
	if n := x.new.Merge(&x.newLimit.Meter, newFrame[:], begin); n != len(keys) {
		b.Fatalf("%d slots rose", n)
	}
}
