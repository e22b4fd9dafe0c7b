package sim

import (
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// One node decides as the oracle does, by every algorithm and in every pattern.
func TestEveryAlgorithmEqualsItsOracle(t *testing.T) {
	for _, a := range Algorithms {
		for _, pattern := range Patterns {
			o := short(func(o *Options) {
				o.Method, o.Pattern, o.Regions, o.Nodes, o.Load, o.Keys, o.Compliant, o.Duration = a, pattern, 1, 1,
					3, 2, 1, 25*time.Second
			})
			r := run(t, o)
			if r.Admitted != r.OracleAdmitted || r.NetPct != 0 || r.PeakPct != 0 || r.ObservedPct > 0 ||
				r.Needless != 0 ||
				r.FalseRejections != 0 {
				t.Errorf("%v, %s: it differs from the oracle: %s", a, pattern, encoded(t, r))
			}
			if pattern == CompliantBurst && (r.Denied > 0 || r.CompliantClients != 3) {
				t.Errorf("%v: bursts are rejected: %s", a, encoded(t, r))
			}
			if pattern == Even && r.Denied < r.Offered/3 {
				t.Errorf("%v: only %d of %d denied: that shows little", a, r.Denied, r.Offered)
			}
		}
	}
}

// A cluster admits what the oracle does, a little more or less, and nobody who keeps to the limit is rejected.
func TestEveryAlgorithmInACluster(t *testing.T) {
	for _, a := range Algorithms {
		even := run(t, short(func(o *Options) { o.Method, o.Compliant, o.Duration = a, 2, 20*time.Second }))
		if even.NetPct < -2 || even.NetPct > 15 || even.PeakPct < 1 || even.PeakPct > 40 || even.ObservedPct <= 0 ||
			!even.OK ||
			even.CompliantClients != 2 ||
			even.CompliantOffered < 3000 ||
			even.Algorithm != a.String() {
			t.Errorf("%s", encoded(t, even))
		}
		bursts := run(t, short(func(o *Options) {
			o.Method, o.Pattern, o.Keys, o.Limit, o.Window, o.Duration = a, CompliantBurst, BurstKeys, 100,
				5*time.Second, 30*time.Second
		}))
		if bursts.CompliantClients != BurstKeys || bursts.Denied != 0 || !bursts.OK {
			t.Errorf("%s", encoded(t, bursts))
		}
	}
}

// Peak leaves out what the algorithm itself lets a rolling window hold: of a full bucket up to two limits.
func TestPeakIsOverTheOraclesOwn(t *testing.T) {
	r := run(t, short(func(o *Options) { o.Method, o.Load = counters.TokenBucket, 5 }))
	if r.PeakOverLimitPct < 70 || r.PeakPct > 60 || r.PeakPct <= 0 {
		t.Errorf("%s", encoded(t, r))
	}
}

// Two windows after a heal nothing of the cut is left in any window.
func TestHealedPeak(t *testing.T) {
	o := short(func(o *Options) {
		o.Duration, o.Partitions = 16*time.Second, []Partition{{A: 2, From: 2 * time.Second, Until: 6 * time.Second}}
		o.OnPartition = counters.Local
	})
	if r := run(t, o); r.PeakPct < 30 || r.PartitionNetPct < 30 || r.HealedPeakPct <= 0 || r.HealedPeakPct > 20 {
		t.Errorf("a peak of %v %% in the cut, %v %% when it has passed", r.PeakPct, r.HealedPeakPct)
	}
	o.Duration = 9 * time.Second
	if r := run(t, o); r.HealedPeakPct != 0 {
		t.Errorf("a run that ends before tells of %v %%", r.HealedPeakPct)
	}
}

// The bound holds by what nodes tell each other and know of themselves, and by nothing else: it does not hold without
// any of that.
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
		{"a surprise, and nobody tells by how much the hottest key rose", surprise,
			func(d *counters.Demand) { d.Rise = 0 }, false},
		{"steady traffic", steady, func(*counters.Demand) {}, true},
		{"steady traffic, and nobody knows how much of the limit he saw used", steady,
			func(d *counters.Demand) { d.Used = 0 }, false},
		{"a cut", cut, func(*counters.Demand) {}, true},
		{"a cut, and nobody tells what he is asked for", cut, func(d *counters.Demand) { d.Rate = 0 }, false},
		{"a bucket", bucket, func(*counters.Demand) {}, true},
		{"a bucket that overlooks nothing", bucket, func(d *counters.Demand) { d.Used = min(d.Used, bucket.Limit) },
			false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := noHooks()
			h.drained = func(_ *node, d *counters.Drained) {
				for i := range d.Demand {
					test.without(&d.Demand[i])
				}
			}
			c, err := newCluster(test.o, h)
			testkit.Must(t, err)
			testkit.Must(t, c.offer(t.Context(), func(time.Duration) {}))
			c.runTo(c.now + int64(2*time.Second))
			if r := c.report(0); r.BoundHeld != test.holds || r.ObservedPct == 0 {
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
		testkit.Must(t, err)
		if !r.BoundHeld || r.BoundPct > 8 || r.BoundPct < r.ObservedPct {
			t.Errorf("every %v: held: %v, %v %% exported, %v %% observed", o.Interval, r.BoundHeld, r.BoundPct,
				r.ObservedPct)
		}
	}
}
