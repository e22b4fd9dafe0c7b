package sim

import (
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// The bound holds by what nodes tell each other and know of themselves, and by nothing else: it does not hold without any of that.
func TestBoundNeedsEachTerm(t *testing.T) {
	steady := DefaultOptions()
	steady.Strategy, steady.Duration = Plain, 15*time.Second
	surprise := DefaultOptions()
	surprise.Load, surprise.Loss, surprise.Duration = 20, 0, 8*time.Second
	cut := DefaultOptions()
	cut.OnPartition, cut.Duration = counters.Local, 25*time.Second
	cut.Partitions = []Partition{{A: 2, From: 5 * time.Second, Until: 25 * time.Second}}
	bucket := DefaultOptions()
	bucket.Method, bucket.Duration = counters.TokenBucket, 25*time.Second
	for _, test := range []struct {
		name    string
		o       Options
		without func(*counters.Demand)
		holds   bool
	}{
		{"a surprise", surprise, func(*counters.Demand) {}, true},
		{"a surprise, and nobody tells by how much the hottest key rose", surprise, func(d *counters.Demand) { d.Rise = 0 }, false},
		{"steady traffic", steady, func(*counters.Demand) {}, true},
		{"steady traffic, and nobody knows how much of the limit he saw used", steady, func(d *counters.Demand) { d.Used = 0 }, false},
		{"a cut", cut, func(*counters.Demand) {}, true},
		{"a cut, and nobody tells what he is asked for", cut, func(d *counters.Demand) { d.Rate = 0 }, false},
		{"a bucket", bucket, func(*counters.Demand) {}, true},
		{"a bucket that overlooks nothing", bucket, func(d *counters.Demand) { d.Used = min(d.Used, bucket.Limit) }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := noHooks()
			h.drained = func(d *counters.Drained) {
				for i := range d.Demand {
					test.without(&d.Demand[i])
				}
			}
			w, err := newWorld(test.o, h)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.offer(t.Context(), func(time.Duration) {}); err != nil {
				t.Fatal(err)
			}
			w.runTo(w.now + int64(2*time.Second))
			if r := w.report(0); r.BoundHeld != test.holds || r.ObservedPct == 0 {
				t.Errorf("held: %v, %v %% observed, %v %% exported", r.BoundHeld, r.ObservedPct, r.BoundPct)
			}
		})
	}
}

// Twice the limit, evenly, at every interval that the goals name: the bound is at most 8 %.
func TestBoundIsTight(t *testing.T) {
	for _, interval := range []time.Duration{50, 100, 200} {
		o := DefaultOptions()
		o.Interval, o.Duration = interval*time.Millisecond, 20*time.Second
		r, err := Run(t.Context(), o, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !r.BoundHeld || r.BoundPct > 8 || r.BoundPct < r.ObservedPct {
			t.Errorf("every %v: held: %v, %v %% exported, %v %% observed", o.Interval, r.BoundHeld, r.BoundPct, r.ObservedPct)
		}
	}
}
