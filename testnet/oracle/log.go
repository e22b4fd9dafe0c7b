package oracle

import (
	"cmp"
	"math"
	"slices"
)

type admission struct {
	at   int64
	cost uint64
}

// admissions are in the order of time.
type admissions []admission

func (y *admissions) add(at int64, cost uint64) {
	*y = slices.Insert(*y, y.until(at), admission{at, cost})
}

// until is the number of admissions that are not after t.
func (y admissions) until(t int64) int {
	i, _ := slices.BinarySearchFunc(y, t, func(a admission, t int64) int { return cmp.Or(cmp.Compare(a.at, t), -1) })
	return i
}

// after is the cost admitted after t.
func (y admissions) after(t int64) (sum uint64) {
	for _, a := range y[y.until(t):] {
		sum = add(sum, a.cost)
	}
	return sum
}

// next is the time of the first admission after t, or the end of time.
func (y admissions) next(t int64) int64 {
	if i := y.until(t); i < len(y) {
		return y[i].at
	}
	return math.MaxInt64
}

// slidingLog counts the admissions in (t-window, t]. What is known by sub-window alone counts from the start of the
// sub-window, and leaves with it: never more than the truth.
type slidingLog struct {
	window, sub int64
	entries     admissions
	counts      subCounts // known by sub-window alone
}

func (l *slidingLog) view(t int64) (sum uint64) {
	for _, e := range l.entries {
		if t-l.window < e.at && e.at <= t {
			sum = add(sum, e.cost)
		}
	}
	for _, s := range l.counts {
		if begin := s.index * l.sub; t-l.window < begin && begin <= t {
			sum = add(sum, s.count)
		}
	}
	return sum
}

func (l *slidingLog) newest() int64 {
	if len(l.entries) == 0 {
		return 0
	}
	return l.entries[len(l.entries)-1].at
}

func (l *slidingLog) charge(cost uint64, t int64)  { l.entries.add(t, cost) }
func (l *slidingLog) add(index int64, cost uint64) { l.counts.add(index, cost) }
func (l *slidingLog) ahead(t int64) uint64         { return add(l.counts.after(t/l.sub), l.entries.after(t)) }

// The view rises where an entry or a sub-window begins to count.
func (l *slidingLog) steady(t int64) int64 { return min(lastOf(t, l.sub), l.entries.next(t)-1) }

func (l *slidingLog) forget(before int64) (all bool) {
	l.entries = slices.DeleteFunc(l.entries, func(e admission) bool { return e.at <= before-l.window })
	l.counts = slices.DeleteFunc(l.counts, func(s subWindow) bool { return s.index*l.sub <= before-l.window })
	return len(l.entries)+len(l.counts) == 0
}
