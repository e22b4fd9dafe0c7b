package oracle

import (
	"cmp"
	"slices"
)

// slidingLog is a list of what was admitted, each with its time: at the time t it counts what came in (t-window, t]. Of
// what is known by its sub-window alone, all counts from when the sub-window began, and leaves when its beginning does:
// never more than the truth.
type slidingLog struct {
	window, sub int64
	entries     []admission // in the order of time
	counts      subCounts   // known by their sub-window alone
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

func (l *slidingLog) charge(cost uint64, t int64) {
	l.entries = slices.Insert(l.entries, l.until(t), admission{t, cost})
}

// until is how many entries are not after t.
func (l *slidingLog) until(t int64) int {
	i, _ := slices.BinarySearchFunc(l.entries, t,
		func(e admission, t int64) int { return cmp.Or(cmp.Compare(e.at, t), -1) })
	return i
}

// newest is the time of the last entry, or 0.
func (l *slidingLog) newest() int64 {
	if len(l.entries) == 0 {
		return 0
	}
	return l.entries[len(l.entries)-1].at
}

func (l *slidingLog) add(index int64, cost uint64) { l.counts.add(index, cost) }

func (l *slidingLog) ahead(t int64) uint64 {
	sum := l.counts.after(t / l.sub)
	for _, e := range l.entries[l.until(t):] {
		sum = add(sum, e.cost)
	}
	return sum
}

// steady: the view rises where an entry or a sub-window begins to count.
func (l *slidingLog) steady(t int64) int64 {
	last := lastOf(t, l.sub)
	if next := l.until(t); next < len(l.entries) {
		last = min(last, l.entries[next].at-1)
	}
	return last
}

func (l *slidingLog) forget(before int64) (all bool) {
	l.entries = slices.DeleteFunc(l.entries, func(e admission) bool { return e.at <= before-l.window })
	gone := slices.IndexFunc(l.counts, func(s subWindow) bool { return s.index*l.sub > before-l.window })
	if gone < 0 {
		gone = len(l.counts)
	}
	l.counts = slices.Delete(l.counts, 0, gone)
	return len(l.entries)+len(l.counts) == 0
}
