// Package bucket is the arithmetic of token and leaky buckets, on plain numbers.
//
// It is GCRA, the generic cell rate algorithm (ITU-T I.371), in its virtual scheduling form. A bucket of capacity C
// that refills R per window W takes W/R of time for each unit of cost. Its state is a theoretical arrival time (TAT),
// at which it would be full again:
//
//	debt(t) = max(0, TAT - t)
//	a cost k is admitted if debt(t) + k*W/R <= C*W/R; then TAT = max(TAT, t) + k*W/R
//
// The state is a time, not a number of tokens: a bucket stays as full as it was when its rule is edited.
//
// Times are of any unit: fixed-point nanoseconds in package counters. Times of costs are rounded down: where W/R is no
// whole number, a cost takes too little by less than a unit.
package bucket

import (
	"math/bits"
	"time"
)

// MaxSpan is the maximum of a time, so that the sum of two does not overflow. MaxCost stands for costs beyond 64 bits.
const (
	MaxSpan = 1 << 61
	MaxCost = 1 << 40
)

// backdateBy is Backdate for all but short windows: in this time a report crosses an ocean, even if it is lost once.
const backdateBy = 500 * time.Millisecond

// Fraction is how many binary digits after the point the times of a bucket with a window have. For windows under half
// an hour it leaves room for 2^20 windows until a bucket is full.
func Fraction(window time.Duration) uint { return uint(max(0, 41-bits.Len64(uint64(window)))) }

// Backdate is how long before a bucket with a window is full the backdated period begins, with Fraction.
func Backdate(window time.Duration) uint64 {
	return uint64(min(backdateBy, window/4)) << Fraction(window)
}

// Rate is what a bucket gets back: Refill in each Window.
type Rate struct{ Refill, Window uint64 }

// Span is the time that a cost takes, MaxSpan at most.
func (r Rate) Span(cost uint64) uint64 {
	hi, lo := bits.Mul64(cost, r.Window)
	if hi >= r.Refill {
		return MaxSpan
	}
	q, _ := bits.Div64(hi, lo, r.Refill)
	return min(q, MaxSpan)
}

// Fits is the largest cost k that takes no more than a time: floor(k*Window/Refill) <= span if and only if
// k*Window < (span+1)*Refill.
func (r Rate) Fits(span uint64) uint64 {
	hi, lo := bits.Mul64(span+1, r.Refill)
	if hi >= r.Window {
		return MaxCost
	}
	q, rest := bits.Div64(hi, lo, r.Window)
	if rest == 0 && q > 0 {
		q--
	}
	return q
}

// Level is the state of a bucket: two busy periods, of which the one with more debt counts.
//
// A busy period adds up all that was taken since the bucket was last full. What others took is reported late, so the
// bucket may have been full in between, and a busy period that began later misses it. With many nodes that each take a
// little, this would lose nearly everything that others take. So the backdated period begins some time before the
// bucket is full, early enough to include late reports. Neither period owes more than was taken.
type Level struct{ run, backdated run }

// run is a busy period: it began at the time since with a full bucket, which will be full again at the time tat.
type run struct{ tat, since uint64 }

// Began is when the busy period began. Before it, Debt would exceed what was taken.
func (v *Level) Began() uint64 { return v.run.since }

// Debt is the time until the bucket is full.
func (v *Level) Debt(now uint64) uint64 { return max(v.run.tat, v.backdated.tat, now) - now }

// Forgotten reports whether the bucket has been full for so long that Elapse forgot when.
func (v *Level) Forgotten() bool { return max(v.run.tat, v.backdated.tat) == 0 }

// Debit adds what was taken at the time then: now for own requests, in the past for those of others. It adds no more
// debt than there would be had it been known then. The backdated period begins so much before now.
func (v *Level) Debit(span, then, now, backdate uint64) {
	v.run.begin(then)
	v.run.add(span, then)
	v.backdated.begin(now - min(now, backdate))
	v.backdated.add(span, then)
}

// begin begins a new busy period at a time if the bucket is full then.
func (r *run) begin(at uint64) {
	if r.tat <= at {
		r.tat, r.since = at, at
	}
}

// add adds what was taken at a time. If that is before the busy period, the refill until the period began is not owed.
func (r *run) add(span, at uint64) {
	switch {
	case r.since <= at:
		r.tat += span
	case at+span > r.since:
		r.tat, r.since = r.tat+at+span-r.since, at
	}
	r.tat = min(r.tat, MaxSpan)
}

// Credit takes a time off the debt.
func (v *Level) Credit(span, now uint64) {
	for _, r := range [...]*run{&v.run, &v.backdated} {
		if r.tat > now {
			r.tat = max(now, r.tat-min(span, r.tat))
		}
	}
}

// Cap has the bucket full at a time, if it were later.
func (v *Level) Cap(tat uint64) {
	v.run.tat, v.backdated.tat = min(v.run.tat, tat), min(v.backdated.tat, tat)
}

// Elapse moves the zero of all times on by n times a length.
func (v *Level) Elapse(n, length uint64) {
	hi, span := bits.Mul64(n, length)
	if hi != 0 {
		*v = Level{}
		return
	}
	for _, t := range [...]*uint64{&v.run.tat, &v.run.since, &v.backdated.tat, &v.backdated.since} {
		*t -= min(*t, span)
	}
}
