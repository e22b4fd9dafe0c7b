package rowtable_test

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/counters/internal/rowtable"
)

// BenchmarkStalls measures how long single requests take while a table of a million keys is worked on all the time, and
// while it comes to a million. Other programs interrupt some requests for milliseconds. So beside the longest of all it
// reports the median of the longest of every 250, which the work delays as well.
func BenchmarkStalls(b *testing.B) {
	var own []rowtable.Slot
	var slots []counters.Slot
	for _, c := range []struct {
		name     string
		old, new func(b *testing.B, x *both, keys []uint64, i int)
	}{
		{"alone", nil, nil},
		{"drained", func(_ *testing.B, x *both, _ []uint64, _ int) {
			slots = x.old.DrainInto(slots, begin+2000).Slots // removes what expired, too
		}, func(_ *testing.B, x *both, _ []uint64, _ int) { own = x.new.Drain(own[:0], begin+2000) }},
		{"scanned", func(_ *testing.B, x *both, _ []uint64, _ int) { x.old.DrainInto(nil, begin+2000) },
			func(_ *testing.B, x *both, _ []uint64, _ int) { x.new.Expire(begin + 2000) }},
		{"merged", func(b *testing.B, x *both, keys []uint64, i int) {
			x.mergeOld(b, keys[i*frame%len(keys):][:frame], 0, 0, uint64(1+i*frame/len(keys)))
		}, func(b *testing.B, x *both, keys []uint64, i int) {
			x.mergeNew(b, keys[i*frame%len(keys):][:frame], 0, 0, uint64(1+i*frame/len(keys)))
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			x, keys := newBoth(b, counters.DefaultMemory, benchMax), randomKeys(1<<20)
			for _, key := range keys {
				x.takeOld(key, begin)
				x.takeNew(key, begin)
			}
			x.stalls(b, "old", keys, x.takeOld, c.old)
			x.stalls(b, "new", keys, x.takeNew, c.new)
		})
	}
	b.Run("grows", func(b *testing.B) {
		x, keys := newBoth(b, counters.DefaultMemory, benchMax), randomKeys(1<<20)
		x.stalls(b, "old", keys, x.takeOld, nil)
		x.stalls(b, "new", keys, x.takeNew, nil)
	})
}

// stalls asks for all keys while somebody works all the time, and reports how long requests take.
func (x *both) stalls(b *testing.B, name string, keys []uint64, take func(key uint64, now int64) uint64,
	work func(b *testing.B, x *both, keys []uint64, i int),
) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; work != nil; i++ {
			select {
			case <-stop:
				return
			default:
				work(b, x, keys, i)
			}
		}
	}()
	const part = 250
	var took, longest []time.Duration
	for len(took) < len(keys) {
		start := time.Now()
		take(keys[len(took)], begin+1000)
		took = append(took, time.Since(start))
		if n := len(took); n%part == 0 {
			longest = append(longest, slices.Max(took[n-part:]))
		}
	}
	close(stop)
	<-stopped
	slices.Sort(took)
	slices.Sort(longest)
	micros := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
	b.ReportMetric(micros(took[len(took)-1]), name+"-max-us")
	b.ReportMetric(micros(took[len(took)*9999/10_000]), name+"-p99.99-us")
	b.ReportMetric(micros(longest[len(longest)/2]), name+"-longest-us")
}

// BenchmarkCollection reports how long a garbage collection takes, at the least, with a table of a million keys and
// without one.
func BenchmarkCollection(b *testing.B) {
	least := func() time.Duration {
		took := time.Hour
		for range 20 {
			start := time.Now()
			runtime.GC()
			took = min(took, time.Since(start))
		}
		return took
	}
	keys := randomKeys(1 << 20)
	for b.Loop() {
		empty := least()
		x := newBoth(b, counters.DefaultMemory, benchMax)
		x.old = nil
		for _, key := range keys {
			x.takeNew(key, begin)
		}
		lines := least()
		runtime.KeepAlive(x.new)
		x = newBoth(b, counters.DefaultMemory, benchMax)
		x.new = nil
		for _, key := range keys {
			x.takeOld(key, begin)
		}
		cells := least()
		runtime.KeepAlive(x.old)
		b.ReportMetric(float64(empty.Microseconds()), "us-empty")
		b.ReportMetric(float64(lines)/float64(empty), "new/empty")
		b.ReportMetric(float64(cells)/float64(empty), "old/empty")
	}
}
