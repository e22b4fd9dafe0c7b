package counters

import "time"

// Never is the RetryAfter of a request whose cost no wait can make room for.
const Never time.Duration = -1

// Decision is the answer to one request under one limit. A denial is a decision, never an error.
// The zero value is a denial; a request that no rule meets is {Allowed: true} with an empty Rule.
type Decision struct {
	Allowed bool
	// Rule and Window name the limit that decided: the policy of the response headers.
	Rule   string
	Window time.Duration
	// Limit is the most that a window may hold; Remaining what is left of it after this decision, as far as this node
	// knows: 0 <= Remaining <= Limit.
	Limit     uint64
	Remaining uint64
	// RetryAfter is how long to wait until the same request is admitted if nobody else asks: 0 when allowed, Never when
	// the cost exceeds the limit. One nanosecond less is too early.
	RetryAfter time.Duration
	// ResetAfter is how long until the whole limit is available again if nobody asks: 0 for an unused key.
	ResetAfter time.Duration
	// Delay is how long the request is to be held back before it may go (leaky bucket as a queue); otherwise 0.
	Delay time.Duration
	// Mode says how the limit is enforced. Waived says that the request was over it, and that the mode lets it pass:
	// Allowed is true then.
	Mode   Mode
	Waived bool
	// Banned says that the key was banned before the request, by one that was denied.
	Banned bool
	// Degraded says that the node could not see the whole cluster when it decided.
	Degraded bool
}

// Governing returns which of a request's decisions stands for all of them: the denial with the longest wait, else the
// one with the smallest part of its limit left; what denies nothing counts only where nothing else does. It is -1 when
// none of them has a rule.
func Governing(ds []Decision) int {
	best := -1
	for i := range ds {
		if ds[i].Rule != "" && (best < 0 || tighter(&ds[i], &ds[best])) {
			best = i
		}
	}
	return best
}

// Verdict is what the decisions of a request's layers say together.
type Verdict struct {
	Allowed  bool          // all of them allow it
	Degraded bool          // one of them was made without a view of the whole cluster
	Delay    time.Duration // the longest: an allowed request waits for its turn in every queue; 0 when it is denied
	// Governing is the decision that stands for all of them, zero when none of them has a rule.
	Governing Decision
}

// VerdictOf returns what the decisions say together. Without any the request is allowed. It keeps no hold of them.
func VerdictOf(layers []Decision) Verdict {
	v := Verdict{Allowed: true}
	for i := range layers {
		d := &layers[i]
		v.Allowed = v.Allowed && d.Allowed
		v.Degraded = v.Degraded || d.Degraded
		v.Delay = max(v.Delay, d.Delay)
	}
	if !v.Allowed {
		v.Delay = 0
	}
	if i := Governing(layers); i >= 0 {
		v.Governing = layers[i]
	}
	return v
}

func tighter(a, b *Decision) bool {
	if a.Allowed != b.Allowed {
		return !a.Allowed
	}
	if !a.Allowed {
		return b.RetryAfter != Never && (a.RetryAfter == Never || a.RetryAfter > b.RetryAfter)
	}
	if a.idle() != b.idle() {
		return b.idle()
	}
	// a.Remaining/a.Limit < b.Remaining/b.Limit without the division; limits stay below 2^40 only in practice, so as
	// floats.
	return float64(a.Remaining)*float64(b.Limit) < float64(b.Remaining)*float64(a.Limit)
}

// idle reports whether the limit has no say in the request: it only observes, a full quota beside others, or a full
// lender.
func (d *Decision) idle() bool {
	return d.Mode == Shadow || d.Waived && (d.Mode == Quota || d.Mode == Enforce)
}
