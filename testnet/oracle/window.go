package oracle

import (
	"cmp"
	"slices"
)

// subCounts are the counts of sub-windows in the order of time.
type subCounts []subWindow

type subWindow struct {
	index int64
	count uint64
}

// since returns the sub-windows from an index on.
func (y subCounts) since(first int64) subCounts {
	i, _ := slices.BinarySearchFunc(y, first, func(s subWindow, index int64) int { return cmp.Compare(s.index, index) })
	return y[i:]
}

func (y *subCounts) add(index int64, cost uint64) {
	i := len(*y) - len(y.since(index))
	if i == len(*y) || (*y)[i].index != index {
		*y = slices.Insert(*y, i, subWindow{index: index})
	}
	(*y)[i].count = add((*y)[i].count, cost)
}

// after is the count of the sub-windows after an index.
func (y subCounts) after(index int64) (sum uint64) {
	for _, s := range y.since(index + 1) {
		sum = add(sum, s.count)
	}
	return sum
}

// drop removes the sub-windows before the index first, and reports whether none is left.
func (y *subCounts) drop(first int64) (empty bool) {
	*y = slices.Delete(*y, 0, len(*y)-len(y.since(first)))
	return len(*y) == 0
}

// fixedWindow counts the current window. Windows follow each other from the epoch on.
type fixedWindow struct {
	sub    int64
	counts subCounts
}

func (w *fixedWindow) view(t int64) uint64 {
	if s := w.counts.since(t / w.sub); len(s) > 0 && s[0].index == t/w.sub {
		return s[0].count
	}
	return 0
}

func (w *fixedWindow) charge(cost uint64, t int64)    { w.counts.add(t/w.sub, cost) }
func (w *fixedWindow) add(index int64, cost uint64)   { w.counts.add(index, cost) }
func (w *fixedWindow) ahead(t int64) uint64           { return w.counts.after(t / w.sub) }
func (w *fixedWindow) steady(t int64) int64           { return lastOf(t, w.sub) }
func (w *fixedWindow) forget(before int64) (all bool) { return w.counts.drop(before / w.sub) }

// slidingWindow is the sliding-window counter. A window has n sub-windows of s nanoseconds; the time t lies in the
// sub-window c = t/s, and
//
//	view(t) = sum of the counts of c-n+1 to c  +  max(ceil(count of c-n * (s - t mod s) / s) - 1, count of c-n - even)
//
// with even = ceil(limit / n). A sub-window c-n without a count adds nothing.
type slidingWindow struct {
	fixedWindow
	n    int64 // sub-windows in a window
	even uint64
}

func (w *slidingWindow) view(t int64) (sum uint64) {
	current := t / w.sub
	for _, s := range w.counts.since(current - w.n) {
		switch {
		case s.index == current-w.n && s.count > 0:
			part := product(s.count, uint64(w.sub-t%w.sub)).over(uint64(w.sub)) - 1
			sum = add(sum, max(part, s.count-min(s.count, w.even)))
		case s.index <= current:
			sum = add(sum, s.count)
		}
	}
	return sum
}

func (w *slidingWindow) forget(before int64) (all bool) { return w.counts.drop(before/w.sub - w.n) }

// lastOf is the last nanosecond of the sub-window that holds t.
func lastOf(t, sub int64) int64 { return t - t%sub + sub - 1 }
