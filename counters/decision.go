package counters

import "time"

// Never is the RetryAfter of a request whose cost exceeds the limit: no wait helps.
const Never time.Duration = -1

// Decision is the answer to one request under one limit. A denial is a decision, never an error. The zero value is a
// denial; the decision without a rule is {Allowed: true} with an empty Rule.
type Decision struct {
	Allowed bool
	// Mode is how the limit is enforced. Waived means that the request was over the limit and its mode let it pass, so
	// Allowed is true.
	Mode   Mode
	Waived bool
	// Banned means that an earlier denied request had banned the key.
	Banned bool
	// Charged means that the layer counts the request although it is denied: the rule counts what it denies, or each
	// request that it admits.
	Charged bool
	// Degraded means that the node could not reach all peers when it decided.
	Degraded bool
	// Failed means that the rule denied or waived the request because of that.
	Failed bool
	// Rule and Window identify the limit, for response headers.
	Rule   string
	Window time.Duration
	// Limit is the maximum per window. Remaining is what is left of it after this decision, as far as this node knows:
	// the largest cost that is admitted at once, unless it is held back for what others will ask.
	// 0 <= Remaining <= Limit.
	Limit     uint64
	Remaining uint64
	// Excess is by how much the counted cost exceeds Limit, where requests beyond it are counted (Limit.Tally); else 0.
	Excess uint64
	// RetryAfter is the shortest wait after which the same request is admitted if no other request comes: 0 if allowed,
	// Never if the cost exceeds the limit.
	RetryAfter time.Duration
	// ResetAfter is the shortest wait after which the complete limit is available if no other request comes; 0 for an
	// unused key.
	ResetAfter time.Duration
	// Delay is how long an allowed request has to wait in a LeakyQueue; 0 for other algorithms.
	Delay time.Duration
}

// Governing returns the index of the decision that stands for all of a request's decisions: the denial with the longest
// wait, else the one with the smallest part of its limit remaining. Decisions that deny nothing come last. It is -1 if
// none has a rule.
func Governing(ds []Decision) int {
	best := -1
	for i := range ds {
		if ds[i].Rule != "" && (best < 0 || tighter(&ds[i], &ds[best])) {
			best = i
		}
	}
	return best
}

// Verdict combines the decisions of a request's layers.
type Verdict struct {
	Allowed   bool          // by all layers
	Degraded  bool          // in any layer
	Delay     time.Duration // the longest of an allowed request, which waits in all queues; 0 if denied
	Governing Decision      // see Governing; zero if no decision has a rule
}

// VerdictOf combines decisions. A request without any is allowed. It does not keep the slice.
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
	// a.Remaining/a.Limit < b.Remaining/b.Limit, without dividing by zero.
	return float64(a.Remaining)*float64(b.Limit) < float64(b.Remaining)*float64(a.Limit)
}

// idle reports whether the limit cannot deny the request: a shadow, a full quota among others, or a full lender.
func (d *Decision) idle() bool {
	return d.Mode == Shadow || d.Waived && (d.Mode == Quota || d.Mode == Enforce)
}
