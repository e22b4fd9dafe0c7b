package rules

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// Override is another limit of a rule for one key.
type Override struct {
	Rule   string        // the rule's full name
	Key    counters.Key  // of the identity, by the cluster's secret
	Max    uint64        // 0 denies all requests
	Window time.Duration // that of the rule, whose counts then stay; another one counts the key anew
	Until  time.Time     // when it ends; zero: never
}

// maxOwnMeters is how many limits of overrides may have meters of their own in a Set: a table has 262,140 numbers for
// meters. Overrides of one rule with the same limit share one.
const maxOwnMeters = 1000

// overrides are a rule's, by key.
type overrides struct {
	byKey map[counters.Key]overridden
	own   []*counters.Limit // those with meters of their own
	sum   uint64            // of their hashes
}

// overridden is the limit of one key.
type overridden struct {
	limit  *counters.Limit
	margin uint64 // as Policy.Margin
	until  int64  // in nanoseconds since the Unix epoch
}

// Override puts overrides over the limits of the set's rules, before the set is used. An override goes over the rule's
// schedule, and not over its address lists. Of two for one key the last one holds. It returns why some have no effect:
// an error for each.
func (s *Set) Override(all []Override) (refused []error) {
	own := make(map[counters.Meter]*counters.Limit)
	for i := range all {
		if err := s.override(&all[i], own); err != nil {
			refused = append(refused, fmt.Errorf("override of rule %.100q for key %016x: %w",
				s.NameOf(all[i].Rule), uint64(all[i].Key), err))
		}
	}
	for _, r := range s.rules {
		if r.overrides != nil {
			r.relateLimits()
		}
	}
	return refused
}

// override adds one override. own are the limits with meters of their own.
func (s *Set) override(o *Override, own map[counters.Meter]*counters.Limit) error {
	r := s.byFullName[o.Rule]
	if r == nil {
		return fmt.Errorf("there is no such rule: remove the override with edgelimit limits unset, or bring it back")
	}
	limit, margin, err := r.overrideLimit(o.Max, o.Window)
	if err != nil {
		return err
	}
	if r.overrides == nil {
		r.overrides = &overrides{byKey: make(map[counters.Key]overridden)}
	}
	if m := limit.Meter(); m != r.Limit.Meter() {
		if own[m] == nil {
			if len(own) == maxOwnMeters {
				return fmt.Errorf("more than %d limits of overrides are of other windows than their rules', or of "+
					"buckets", maxOwnMeters)
			}
			own[m] = limit
			r.overrides.own = append(r.overrides.own, limit)
		}
		limit = own[m]
	}
	until := int64(math.MaxInt64)
	if !o.Until.IsZero() {
		until = o.Until.UnixNano()
	}
	r.overrides.byKey[o.Key] = overridden{limit, margin, until}
	r.overrides.sum += o.hash(until)
	return nil
}

func (o *Override) hash(until int64) uint64 {
	var b [32]byte
	for i, n := range [...]uint64{uint64(o.Key), o.Max, uint64(o.Window), uint64(until)} {
		binary.LittleEndian.PutUint64(b[8*i:], n)
	}
	sum := sha256.Sum256(b[:])
	return binary.LittleEndian.Uint64(sum[:])
}

// CheckOverride returns what is wrong with another limit for a key of the rule, and whether the key's counts stay.
func (r *Rule) CheckOverride(maximum uint64, window time.Duration) (keepsCounts bool, err error) {
	l, _, err := r.overrideLimit(maximum, window)
	return err == nil && l.Meter() == r.Limit.Meter(), err
}

// overrideLimit returns the limit of an override. Its margin is the same part of it as of the rule's own.
func (r *Rule) overrideLimit(maximum uint64, window time.Duration) (l *counters.Limit, margin uint64, err error) {
	switch {
	case r.Limit == nil:
		return nil, 0, fmt.Errorf("the rule is unlimited: give it a limit in its file first")
	case r.Compatible:
		return nil, 0, fmt.Errorf("its domain is compatible with envoyproxy/ratelimit, which has no overrides")
	case r.Queues():
		return nil, 0, fmt.Errorf("the rule has requests wait in a queue, which has one limit for all keys")
	case maximum > counters.MaxLimit:
		return nil, 0, fmt.Errorf("the limit %d is above %d", maximum, uint64(counters.MaxLimit))
	}
	if number := r.Limit.Max() - r.Margin; r.Margin > 0 && number > 0 {
		margin = scale(maximum, r.Margin, number)
	}
	l, err = r.Limit.Override(maximum+margin, window)
	if err == nil && r.CheckStrict != nil {
		err = r.CheckStrict(l)
	}
	return l, margin, err
}

// scale returns n * by / of, at most counters.MaxLimit.
func scale(n, by, of uint64) uint64 {
	hi, lo := bits.Mul64(n, by)
	if hi >= of {
		return counters.MaxLimit
	}
	scaled, _ := bits.Div64(hi, lo, of)
	return min(scaled, counters.MaxLimit)
}

// relateLimits has all limits on the rule's meter know the largest.
func (r *Rule) relateLimits() {
	m := r.Limit.Meter()
	largest := r.Limit.Max()
	for _, s := range r.Schedule {
		largest = max(largest, s.Limit.Max())
	}
	for _, o := range r.overrides.byKey {
		if o.limit.Meter() == m {
			largest = max(largest, o.limit.Max())
		}
	}
	r.Limit = among(r.Limit, largest)
	for i := range r.Schedule {
		r.Schedule[i].Limit = among(r.Schedule[i].Limit, largest)
	}
	same := make(map[uint64]*counters.Limit) // by maximum: many keys have few limits
	for key, o := range r.overrides.byKey {
		if o.limit.Meter() != m {
			continue
		}
		if same[o.limit.Max()] == nil {
			same[o.limit.Max()] = among(o.limit, largest)
		}
		o.limit = same[o.limit.Max()]
		r.overrides.byKey[key] = o
	}
}

// among returns the limit as one of several on its meter, of which the largest has the given maximum.
func among(l *counters.Limit, largest uint64) *counters.Limit {
	if l.Largest() == largest {
		return l
	}
	l, _ = l.With(func(c *counters.LimitConfig) { c.Among = largest }) // which is no error
	return l
}

// scopedIn returns the overrides with limits of a scope, as Rule.scopedIn.
func (o *overrides) scopedIn(scope counters.Scope, region string) *overrides {
	if o == nil || scope == counters.Global {
		return o
	}
	in := &overrides{byKey: make(map[counters.Key]overridden, len(o.byKey)), sum: o.sum}
	scoped := make(map[*counters.Limit]*counters.Limit)
	of := func(l *counters.Limit) *counters.Limit {
		if scoped[l] == nil {
			scoped[l] = scopedLimit(l, scope, region)
		}
		return scoped[l]
	}
	for _, l := range o.own {
		in.own = append(in.own, of(l))
	}
	for key, v := range o.byKey {
		v.limit = of(v.limit)
		in.byKey[key] = v
	}
	return in
}

// LimitOf returns the limit of a key at a time: that of its override, else LimitAt.
func (r *Rule) LimitOf(key counters.Key, now int64) *counters.Limit {
	if r.overrides != nil {
		if o, ok := r.overrides.byKey[key]; ok && now < o.until {
			return o.limit
		}
	}
	return r.LimitAt(now)
}

// Overrides returns how many keys have a limit of their own, ended ones included.
func (r *Rule) Overrides() int {
	if r.overrides == nil {
		return 0
	}
	return len(r.overrides.byKey)
}

// OverridesAt returns how many keys have a limit of their own at a time.
func (r *Rule) OverridesAt(now int64) (n int) {
	if r.overrides == nil {
		return 0
	}
	for _, o := range r.overrides.byKey {
		if now < o.until {
			n++
		}
	}
	return n
}

// OwnMeters returns the limits of overrides that have meters of their own. The slice is shared.
func (r *Rule) OwnMeters() []*counters.Limit {
	if r.overrides == nil {
		return nil
	}
	return r.overrides.own
}
