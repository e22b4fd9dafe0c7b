package counters

import (
	"math"
)

// Rises is what a merge raised of the keys that the table was asked for itself: the most of all of them.
type Rises struct {
	// Since is the time in Unix nanoseconds until which all that comes was known before; 0: unknown.
	Since int64
	// Cost is by how much a key rose.
	Cost uint64
	// Used is how much of its limit a key that rose had used at a moment after Since, as far as the table knows by now;
	// [math.MaxUint64] if that is not known.
	Used uint64
}

// noteRise records that a key rose. It matters only where the table decided on the key.
func (m *merge) noteRise(a *arrival, rise uint64) {
	c := a.c
	if m.rises == nil || rise == 0 || !c.has(local) {
		return
	}
	if c.key != m.rising {
		m.rising, m.rise = c.key, 0
	}
	m.rise += rise
	m.rises.Cost = max(m.rises.Cost, m.rise)
	m.rises.Used = max(m.rises.Used, m.usedSince(a))
}

// usedSince is Rises.Used of a key.
func (m *merge) usedSince(a *arrival) uint64 {
	sh, c := &m.spec.shape, a.c
	if sh.algorithm != SlidingWindow && sh.algorithm != FixedWindow {
		return math.MaxUint64
	}
	l := m.state.limit.Load()
	if l == nil {
		return math.MaxUint64
	}
	left := l.leftUnseen()
	switch {
	case c.hotKey != 0:
		left = a.s.memory.hotKey(c.hotKey).left
	case c.inner+c.counts(sh)[0] <= left[0]: // with what left it is no excess: this is most keys
		return l.max
	}
	return l.window.Most(c.counts(sh), left[:], m.rises.Since-c.index*sh.sub) + a.s.ahead(c)
}

// leftUnseen is what left the ring of a cell that had no hotKey, as hotKey.left: together it was less than makes one.
func (l *Limit) leftUnseen() [2]uint64 { return [2]uint64{l.max / hotShare} }
