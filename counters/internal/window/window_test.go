package window

import (
	"math/rand/v2"
	"testing"
)

// Ten places of ten seconds each and the one that leaves, under a limit of 100: an even share is 10.
func TestPartOfALeavingSubWindow(t *testing.T) {
	w := Window{Sub: 10, Even: Even(100, 10)}
	for _, c := range []struct {
		count uint64
		left  int64
		want  uint64
		why   string
	}{
		{0, 10, 0, "nothing"},
		{1, 10, 0, "an even client may have come just before"},
		{10, 10, 9, "all of it, but for one"},
		{10, 5, 4, "half of it, but for one"},
		{10, 4, 3, "four tenths of it, but for one"},
		{7, 5, 3, "3.5 rounded up, but for one"},
		{10, 1, 0, "one, but for one"},
		{30, 5, 20, "what exceeds an even share stays"},
		{30, 10, 29, "until it is less than its part"},
		{30, 1, 20, "to the end"},
	} {
		if got := w.Part(c.count, c.left); got != c.want {
			t.Errorf("part(%d, %d) = %d, want %d: %s", c.count, c.left, got, c.want, c.why)
		}
	}
	w.Fixed = true
	if got := w.Part(30, 10); got != 0 {
		t.Errorf("a fixed window still counts %d of a sub-window before it", got)
	}
}

func TestEvenIsRoundedUp(t *testing.T) {
	for _, c := range []struct {
		limit uint64
		n     int
		want  uint64
	}{{0, 10, 0}, {1, 10, 1}, {10, 10, 1}, {11, 10, 2}, {100, 1, 100}} {
		if got := Even(c.limit, c.n); got != c.want {
			t.Errorf("Even(%d, %d) = %d, want %d", c.limit, c.n, got, c.want)
		}
	}
}

// Two sub-windows of ten: 4 are leaving, 3 and 5 are in the window. A limit of 20 has an even share of 10.
func TestWaitsOfAnExample(t *testing.T) {
	w := Window{Sub: 10, Even: 10}
	ring := []uint64{4, 3, 5}
	if got := w.Seen(ring, 8, 0); got != 11 {
		t.Errorf("%d are seen, want 3 + 5 and 4 but for one", got)
	}
	for _, want := range []struct {
		room uint64
		wait int64
		why  string
	}{
		{10, 3, "7 of 10 are left: ceil(2.8) - 1 = 2"},
		{8, 8, "2 of 10 are left: ceil(0.8) - 1 = 0"},
		{7, 10, "the 4 have left, and the 3 begin to leave: they count as 2"},
		{6, 14, "6 of 10 are left: ceil(1.8) - 1 = 1"},
		{0, 28, "the 5 are the last: 2 of 10 are left"},
	} {
		if got := w.Wait(ring, 8, 0, want.room, 0); got != want.wait {
			t.Errorf("room for %d after %d, want %d: %s", want.room, got, want.wait, want.why)
		}
	}
	if got := w.Reset(ring, 8, 0, 0); got != 28 {
		t.Errorf("nothing is seen after %d, want 28", got)
	}
	if got := w.Reset(ring, 8, 1, 0); got != 30 {
		t.Errorf("with one ahead, nothing is seen after %d, want 30: one alone is no part", got)
	}
}

// counts are what a window is asked about.
type counts struct {
	ring         []uint64
	inner, ahead uint64
}

// later is the counts so many nanoseconds after the beginning of the sub-window, and how far into the next one.
func (w *Window) later(c counts, after int64) (counts, int64) {
	for ; after >= w.Sub; after -= w.Sub {
		c.ring = append(c.ring[1:len(c.ring):len(c.ring)], c.ahead)
		c.inner, c.ahead = c.inner-c.ring[0]+c.ahead, 0
	}
	return c, after
}

// Wait and Reset are what waiting a nanosecond at a time comes to.
func TestWaitsAreExact(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		n := 1 + r.IntN(5)
		w := Window{Sub: 1 + r.Int64N(20), Even: 1 + r.Uint64N(6)}
		if n == 1 {
			w.Fixed = r.IntN(2) == 0
		}
		c := counts{ring: make([]uint64, n+1)}
		for i := range c.ring {
			if r.IntN(2) == 0 {
				c.ring[i] = r.Uint64N(15)
			}
			if i > 0 {
				c.inner += c.ring[i]
			}
		}
		if r.IntN(4) == 0 {
			c.ahead = r.Uint64N(15)
		}
		off := r.Int64N(w.Sub)
		seen := w.Seen(c.ring, c.inner, off)
		if seen == 0 {
			continue
		}
		room := r.Uint64N(seen)
		if got, want := w.Wait(c.ring, c.inner, c.ahead, room, off), w.slowWait(c, room, off); got != want {
			t.Fatalf("%+v, %+v at %d: room for %d after %d, want %d", w, c, off, room, got, want)
		}
		if got, want := w.Reset(c.ring, c.inner, c.ahead, off), w.slowWait(c, 0, off); got != want {
			t.Fatalf("%+v, %+v at %d: nothing is seen after %d, want %d", w, c, off, got, want)
		}
	}
}

func (w *Window) slowWait(c counts, room uint64, off int64) int64 {
	for wait := int64(1); ; wait++ {
		if then, at := w.later(c, off+wait); w.Seen(then.ring, then.inner, at) <= room {
			return wait
		}
	}
}

func TestNewest(t *testing.T) {
	for want, ring := range [][]uint64{{7, 0, 0}, {7, 7, 0}, {0, 0, 7}} {
		if got := Newest(ring); got != want {
			t.Errorf("the newest of %v is %d, want %d", ring, got, want)
		}
	}
	if got := Newest([]uint64{0, 0}); got != 0 {
		t.Errorf("the newest of nothing is %d", got)
	}
}

// Ten sub-windows of ten under a limit of 100: in the last one, 20 came, as in each before, and 50 in the one that left
// last but one.
func TestMostOfAnExample(t *testing.T) {
	w := Window{Sub: 10, Even: 10}
	ring := []uint64{20, 10, 10, 10, 10, 10, 10, 10, 10, 10, 20}
	left := []uint64{5, 50}
	for _, c := range []struct {
		since int64
		want  uint64
		why   string
	}{
		{9, 110 + 10, "nine tenths of the leaving 20 have left, but what exceeds an even share stays"},
		{1, 110 + 17, "nine tenths of the leaving 20 count, but for one"},
		{0, 110 + 19, "all of the leaving 20, but for one"},
		{30, 110 + 10, "a time to come"},
		{-1, 110 + 19, "in the sub-window before, 90, 20 and 5 counted"},
		{-11, 80 + 20 + 5 + 40, "in the one before that, 80, 20 and 5, and of the 50 what exceeds an even share"},
		{-40, 60 + 20 + 5 + 50 + 50 + 49, "earlier, the largest that is known in place of what is not"},
	} {
		if got := w.Most(ring, left, c.since); got != c.want {
			t.Errorf("since %d: %d, want %d: %s", c.since, got, c.want, c.why)
		}
	}
	fixed := Window{Sub: 10, Fixed: true}
	if got := fixed.Most([]uint64{7, 3}, []uint64{0}, -1); got != 7 {
		t.Errorf("a fixed window: %d, want the 7 of the one before", got)
	}
	if got := fixed.Most([]uint64{7, 3}, []uint64{0}, 0); got != 3 {
		t.Errorf("a fixed window: %d, want 3", got)
	}
}

// Most is never below what was seen at a time since, whatever came when, as long as no more has left than is known.
func TestMostIsAnUpperBound(t *testing.T) {
	const sub, times = 8, 24 * 8
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		n := 1 + r.IntN(6)
		w := Window{Sub: sub, Even: r.Uint64N(20)}
		var came [times]uint64
		for range r.IntN(40) {
			came[r.IntN(times)] = r.Uint64N(30)
		}
		count := func(sub int64, until int) (sum uint64) { // what came in a sub-window until a time
			for at := max(sub*w.Sub, 0); at < min((sub+1)*w.Sub, int64(until)+1); at++ {
				sum += came[at]
			}
			return sum
		}
		ring := func(until int) (ring []uint64, inner uint64) {
			current := int64(until) / sub
			for i := current - int64(n); i <= current; i++ {
				ring = append(ring, count(i, until))
			}
			for _, count := range ring[1:] {
				inner += count
			}
			return ring, inner
		}
		now := sub*(n+3) + r.IntN(times-sub*(n+3))
		current := int64(now) / sub
		since := now - r.IntN(int(int64(now)-(current-2)*sub)+1) // in the last three sub-windows
		all, _ := ring(now)
		left := []uint64{count(current-int64(n)-1, now), count(current-int64(n)-2, now)}
		most := w.Most(all, left, int64(since)-current*sub)
		for at := since; at <= now; at++ {
			known, inner := ring(at)
			if seen := w.Seen(known, inner, int64(at%sub)); seen > most {
				t.Fatalf("%d were seen at %d, and since %d at most %d: %v, %v before", seen, at, since, most, all, left)
			}
		}
	}
}
