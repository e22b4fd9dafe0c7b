package bucket

import (
	"math"
	"math/rand/v2"
	"testing"
)

// A bucket of 5 that refills one in 1000, as of the time 10,000.
func TestDebtsOfAnExample(t *testing.T) {
	rate, v, now := Rate{Refill: 1, Window: 1000}, new(Level), uint64(10_000)
	take := func(cost uint64) { v.Debit(rate.Span(cost), now, now, 0) }
	owes := func(want uint64, why string) {
		t.Helper()
		if got := v.Debt(now); got != want {
			t.Errorf("at %d it owes %d, want %d: %s", now, got, want, why)
		}
	}
	owes(0, "it is full")
	take(3)
	owes(3000, "three tokens")
	now += 500
	owes(2500, "half a token came back")
	take(2)
	owes(4500, "two more")
	if fits := rate.Fits(5000 - v.Debt(now)); fits != 0 {
		t.Errorf("there is room for %d more, want none: half a token is left", fits)
	}
	v.Credit(1500, now)
	owes(3000, "a credit")
	v.Elapse(1, 10_000)
	now -= 10_000
	owes(3000, "times are relative")
	now += 3000
	owes(0, "it is full again")
	v.Elapse(1, now+1)
	if !v.Forgotten() {
		t.Error("it remembers when it was full")
	}
}

// A bucket owes 700 as of 10,000. Then what others took before is reported. It counts as far as it would not have been
// refilled until then, or from the start of the backdated period on in full.
func TestLateDebitsOfAnExample(t *testing.T) {
	for _, c := range []struct {
		then, reports, backdate uint64
		want                    uint64
		why                     string
	}{
		{10_000, 1, 0, 700 + 400, "at the same time"},
		{9_900, 1, 0, 700 + 300, "100 of it came back before"},
		{9_500, 3, 0, 700, "all of each came back before"},
		{9_500, 3, 500, 700 + 3*400 - 500, "the backdated period knows that not all of all three did"},
		{9_500, 1, 500, 700, "of which the one with more debt counts"},
	} {
		v := new(Level)
		v.Debit(700, 10_000, 10_000, c.backdate)
		for range c.reports {
			v.Debit(400, c.then, 10_000, c.backdate)
		}
		if got := v.Debt(10_000); got != c.want {
			t.Errorf("%d of 400 at %d, backdated by %d: owes %d, want %d: %s", c.reports, c.then, c.backdate, got,
				c.want, c.why)
		}
	}
}

// In whatever order debits come, the debt is never more than what a bucket owes to which they came in their order.
func TestLateDebitsNeverExceedTheTruth(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		type taken struct{ at, span uint64 }
		debits, now := make([]taken, 1+r.IntN(6)), uint64(1000)
		for i := range debits {
			debits[i] = taken{r.Uint64N(now), 1 + r.Uint64N(200)}
		}
		truth := uint64(0) // what was taken since any time, less the refill since
		for _, first := range debits {
			sum := uint64(0)
			for _, d := range debits {
				if d.at >= first.at {
					sum += d.span
				}
			}
			truth = max(truth, sum-min(sum, now-first.at))
		}
		late := new(Level)
		for _, d := range debits {
			late.Debit(d.span, d.at, now, r.Uint64N(300))
		}
		if got := late.Debt(now); got > truth {
			t.Fatalf("%v: owes %d, but no more than %d was taken and not refilled", debits, got, truth)
		}
	}
}

// Fits is the inverse of Span.
func TestFitsIsTheInverseOfSpan(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 100_000 {
		rate := Rate{Refill: 1 + r.Uint64N(1000), Window: 1 + r.Uint64N(100_000)}
		span := r.Uint64N(1_000_000)
		if k := rate.Fits(span); rate.Span(k) > span || rate.Span(k+1) <= span {
			t.Fatalf("%+v: %d fits into %d: it takes %d, and one more %d", rate, k, span, rate.Span(k), rate.Span(k+1))
		}
	}
	rate := Rate{Refill: 1, Window: MaxSpan}
	if got := rate.Span(math.MaxUint64); got != MaxSpan {
		t.Errorf("a cost takes %d, want %d at most", got, uint64(MaxSpan))
	}
	if got := (Rate{Refill: math.MaxUint64, Window: 1}).Fits(2); got != MaxCost {
		t.Errorf("%d fits, want %d", got, uint64(MaxCost))
	}
}
