package counters_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// Buckets in which a token takes no whole number of nanoseconds, three a second for example. The table rounds down what
// each charge takes, so that it runs ahead of the exact bucket, never behind: it admits what is to be admitted, and by
// no more than the roundings come to too early.

// fractionBits is how many binary fractions of a nanosecond a charge is rounded down to, at least.
func fractionBits(window time.Duration) int {
	if window <= 10*time.Second {
		return 7
	}
	return 0
}

func TestOddRefills(t *testing.T) {
	for _, a := range algorithms {
		if !isBucket(a) {
			continue
		}
		t.Run(a.String(), func(t *testing.T) {
			for seed, done := uint64(0), 0; done < testkit.Tenth(*ops); seed++ {
				r := rand.New(rand.NewPCG(seed, 100+uint64(a)))
				p := newTrial(t, r, seed, oddLimit(t, r, a))
				// what a clock is seen as that goes back depends on when the bucket was full, which a rounding decides
				p.back = false
				charged := 0
				for i := range 2000 {
					p.tick()
					charged += p.takeOdd(counters.Key(r.IntN(2)), i, charged)
				}
				done += 2000
			}
		})
	}
}

func oddLimit(t *testing.T, r *rand.Rand, a counters.Algorithm) *counters.Limit {
	n := pick[int64](r, 1, 2, 10, 60)
	sub := pick[int64](r, 1e6, 1e6+1, 100e6, 1e9, 60e9, 3600e9, 1e6+r.Int64N(1e10))
	m := counters.Meter{Rule: "r", Algorithm: a, Window: time.Duration(n * sub), Sub: time.Duration(sub)}
	refill := pick(r, 3, 7, 30, 1+r.Uint64N(1000), 1+r.Uint64N(1e6),
		1+r.Uint64N(min(counters.MaxLimit, uint64(m.Window)/1000)))
	capacity := min(counters.MaxLimit, pick(r, 1, 5, refill, 1+r.Uint64N(1000), 1+r.Uint64N(10*refill)), 1000*refill)
	return newBucket(t, m, capacity, refill)
}

// takeOdd decides on a request, and has the model follow the table. It returns the charges that were made.
func (p *trial) takeOdd(key counters.Key, op, charged int) int {
	largest := p.limit.Max()
	cost := pick(p.r, 0, 1, 1, 1, 2, p.common, largest, largest+1, 1+p.r.Uint64N(largest))
	slack := time.Duration(1 + charged>>fractionBits(p.limit.Meter().Window))

	want, got := p.model.Ask(key, cost, 0, p.now), p.table.Take(p.limit, key, cost, p.now)
	if want.Allowed && !got.Allowed || got.Allowed && (want.RetryAfter < 0 || want.RetryAfter > slack) {
		p.fatalf(op, "cost %d of key %d:\n got %+v\nwant %+v, or up to %v earlier", cost, key, got, want, slack)
	}
	if !got.Allowed {
		p.wait = got.RetryAfter
		if early := want.RetryAfter - got.RetryAfter; early < 0 || early > slack || want.RetryAfter < 0 && early != 0 {
			p.fatalf(op, "cost %d of key %d: retry after %v, want %v, or up to %v earlier", cost, key, got.RetryAfter,
				want.RetryAfter, slack)
		}
	}
	if got.Allowed && want.Allowed && max(0, got.Delay-want.Delay, want.Delay-got.Delay-slack) > 0 {
		p.fatalf(op, "cost %d of key %d: delay %v, want %v, or up to %v less", cost, key, got.Delay, want.Delay, slack)
	}
	charges := 0
	if got.Allowed && cost > 0 {
		p.model.Charge(key, cost, p.now)
		charges = 1
	}
	p.checkOdd(key, op, got, slack+1)
	return charges
}

// checkOdd holds what a decision says of the bucket afterwards against the exact one, now and so much later.
func (p *trial) checkOdd(key counters.Key, op int, got counters.Decision, slack time.Duration) {
	least := p.model.Ask(key, 0, 0, p.now)
	largest := min(p.limit.Max(), least.Remaining+1+uint64(slack)*p.limit.Refill()/uint64(p.limit.Meter().Window))
	if got.Remaining < least.Remaining || got.Remaining > largest {
		p.fatalf(op, "key %d: %d remain, want %d to %d", key, got.Remaining, least.Remaining, largest)
	}
	if early := least.ResetAfter - got.ResetAfter; early < 0 || early > slack {
		p.fatalf(op, "key %d: reset after %v, want %v, or up to %v earlier", key, got.ResetAfter, least.ResetAfter,
			slack)
	}
	if got, want := p.table.View(p.limit, key, p.now), p.limit.Max()-got.Remaining; got != want &&
		got <= p.limit.Max() {
		p.fatalf(op, "key %d: view %d, want %d", key, got, want)
	}
}

// However small a charge is, it is not rounded down to nothing: of a full bucket that gets ten million tokens a second
// back, taken one by one at once, no more than a hundredth is given away.
func TestManySmallChargesTakeTheirShare(t *testing.T) {
	for _, window := range []time.Duration{time.Millisecond, 10 * time.Second, 1000 * time.Second, time.Hour,
		24 * time.Hour, counters.MaxWindow} {
		const capacity = 10000
		refill := min(counters.MaxLimit, uint64(window)*2/201) // half a nanosecond more than a hundred a token
		l := newBucket(t, counters.NewMeter("r", counters.TokenBucket, window), capacity, refill)
		table, admitted := small(1), 0
		for table.Take(l, 1, 1, start).Allowed && admitted < 2*capacity {
			admitted++
		}
		if admitted < capacity || admitted > capacity+capacity/100 {
			t.Errorf("a bucket of %d, refilled %d in %v: %d are admitted at once", capacity, refill, window, admitted)
		}
	}
}
