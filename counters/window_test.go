package counters

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The arithmetic alone, over rings that hold anything, against the definition in numbers of any size.

// history is a ring, and what it holds by sub-window.
type history struct {
	m      Meter
	now    int64
	ring   []uint64
	counts map[int64]uint64
}

func drawCount() *rapid.Generator[uint64] {
	return rapid.OneOf(
		rapid.Just(uint64(0)),
		rapid.Uint64Range(0, 100),
		rapid.Uint64Range(0, MaxLimit),
		rapid.Uint64Range(math.MaxUint64-3, math.MaxUint64),
		rapid.Uint64(),
	)
}

// drawHistory draws a meter, a time at which at least a window has passed since the epoch, often at the edge of a sub-window, and a
// count for each sub-window of the ring.
func drawHistory(t *rapid.T) history {
	sub := rapid.OneOf(
		rapid.SampledFrom([]int64{int64(time.Millisecond), int64(time.Second), int64(time.Hour)}),
		rapid.Int64Range(int64(minSubWindow), int64(MaxWindow)/MaxSubWindows),
	).Draw(t, "sub")
	n := rapid.Int64Range(1, MaxSubWindows).Draw(t, "sub-windows")
	if n == 1 {
		sub = rapid.SampledFrom([]int64{sub, int64(MaxWindow)}).Draw(t, "longest")
	}
	m := Meter{Rule: "r", Algorithm: SlidingWindow, Window: time.Duration(n * sub), Sub: time.Duration(sub)}
	if err := m.Validate(); err != nil {
		t.Fatal(err)
	}
	index := rapid.Int64Range(n, int64(4e18)/sub).Draw(t, "index")
	into := rapid.OneOf(rapid.SampledFrom([]int64{0, 1, sub / 2, sub - 1}), rapid.Int64Range(0, sub-1)).Draw(t, "into")
	h := history{m: m, now: index*sub + into, ring: make([]uint64, m.ringSize()), counts: make(map[int64]uint64)}
	for i := index - n; i <= index+1; i++ {
		h.counts[i] = drawCount().Draw(t, "count")
		h.ring[place(i, len(h.ring))] = h.counts[i]
	}
	return h
}

// viewAt is the definition of the count at a time from now on, if nothing is added.
func (h *history) viewAt(now int64) uint64 {
	sub, n := int64(h.m.Sub), int64(h.m.SubWindows())
	c := now / sub
	// Rounded up: (count*left + sub-1) / sub.
	sum := new(big.Int).SetUint64(h.counts[c-n])
	sum.Mul(sum, big.NewInt(sub-now%sub))
	sum.Add(sum, big.NewInt(sub-1))
	sum.Div(sum, big.NewInt(sub))
	for i := c - n + 1; i <= c; i++ {
		sum.Add(sum, new(big.Int).SetUint64(h.counts[i]))
	}
	if !sum.IsUint64() {
		return math.MaxUint64
	}
	return sum.Uint64()
}

func (h *history) view() uint64 { return view(h.ring, &h.m, h.m.at(h.now)) }

func TestViewIsTheDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawHistory(t)
		if got, want := h.view(), h.viewAt(h.now); got != want {
			t.Fatalf("view = %d, want %d", got, want)
		}
	})
}

// math/bits.Div64 panics where a quotient does not fit into 64 bits. It always does: the weight is at most one.
func TestOverlapFitsForEveryCount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := drawCount().Draw(t, "n")
		sub := rapid.OneOf(rapid.Int64Range(1, 1000), rapid.Int64Range(1, math.MaxInt64)).Draw(t, "sub")
		left := rapid.OneOf(rapid.SampledFrom([]int64{1, max(1, sub-1), sub}), rapid.Int64Range(1, sub)).Draw(t, "left")

		want := new(big.Int).SetUint64(n)
		want.Mul(want, big.NewInt(left))
		want.Add(want, big.NewInt(sub-1))
		want.Div(want, big.NewInt(sub))
		if !want.IsUint64() || want.Uint64() > n {
			t.Fatalf("ceil(%d*%d/%d) = %d: a part is larger than the whole", n, left, sub, want)
		}
		if got := overlap(n, left, sub); got != want.Uint64() {
			t.Fatalf("overlap(%d, %d, %d) = %d, want %d", n, left, sub, got, want)
		}
	})
}

// After the wait there is room. Before it there is none at any time: inside a sub-window the view never grows, so that it is enough
// to look at the last nanosecond of each, and at the last one before the wait is over.
func TestRoomAfterIsTheLeastWait(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawHistory(t)
		seen := h.viewAt(h.now)
		if seen == 0 {
			return
		}
		// There is no room now, neither for a limit that people use nor for any other.
		most := rapid.OneOf(rapid.Uint64Range(0, min(seen, MaxLimit)), rapid.Uint64Range(0, seen)).Draw(t, "most")
		cost := rapid.Uint64Range(0, most).Draw(t, "cost")
		if most-cost >= seen {
			return
		}
		wait := roomAfter(h.ring, &h.m, h.m.at(h.now), most, cost)
		sub := int64(h.m.Sub)
		if wait <= 0 || int64(wait) > int64(h.m.Window)+2*sub {
			t.Fatalf("a wait of %v, want more than nothing and at most what the ring holds", wait)
		}
		then := h.now + int64(wait)
		if got := h.viewAt(then); got > most-cost {
			t.Fatalf("after %v the view is %d, which leaves no room for %d of %d", wait, got, cost, most)
		}
		for last := (h.now/sub+1)*sub - 1; last < then; last += sub {
			if got := h.viewAt(last); got <= most-cost {
				t.Fatalf("after %v of %v the view is %d already", time.Duration(last-h.now), wait, got)
			}
		}
		if got := h.viewAt(then - 1); got <= most-cost {
			t.Fatalf("a nanosecond before %v the view is %d already", wait, got)
		}
	})
}

func TestRoomAfterNeverForACostAboveTheLimit(t *testing.T) {
	m := NewMeter("r", SlidingWindow, 10*time.Second)
	ring := make([]uint64, m.ringSize())
	for _, c := range []struct{ most, cost uint64 }{{0, 1}, {9, 10}, {MaxLimit, math.MaxUint64}} {
		if wait := roomAfter(ring, &m, m.at(1e18), c.most, c.cost); wait != Never {
			t.Errorf("room for %d under a limit of %d after %v, want never", c.cost, c.most, wait)
		}
	}
}

func TestResetAfterIsTheLeastWait(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawHistory(t)
		wait := resetAfter(h.ring, &h.m, h.m.at(h.now))
		if h.viewAt(h.now) == 0 {
			if wait != 0 {
				t.Fatalf("a reset of a view of 0 after %v, want 0", wait)
			}
			return
		}
		then, sub := h.now+int64(wait), int64(h.m.Sub)
		if wait <= 0 || h.viewAt(then) != 0 {
			t.Fatalf("after %v the view is %d, want 0", wait, h.viewAt(then))
		}
		for last := (h.now/sub+1)*sub - 1; last < then; last += sub {
			if h.viewAt(last) == 0 {
				t.Fatalf("after %v of %v the view is 0 already", time.Duration(last-h.now), wait)
			}
		}
	})
}

func TestAddSaturated(t *testing.T) {
	const most = math.MaxUint64
	for _, c := range []struct{ a, b, want uint64 }{
		{0, 0, 0}, {1, 2, 3}, {most, 0, most}, {most - 1, 1, most}, {most, 1, most}, {most, most, most}, {1 << 63, 1 << 63, most},
	} {
		if got := addSaturated(c.a, c.b); got != c.want {
			t.Errorf("addSaturated(%d, %d) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

// The ring has a place of its own for each sub-window that it holds, also where the window begins before the epoch: a machine
// without a battery starts there.
func TestPlacesAreApart(t *testing.T) {
	for size := 3; size <= MaxSubWindows+2; size++ {
		for first := int64(-size); first <= 2*int64(size); first++ {
			var taken uint64
			for i := first; i < first+int64(size); i++ {
				p := place(i, size)
				if p < 0 || p >= size {
					t.Fatalf("place(%d, %d) = %d, which is outside the ring", i, size, p)
				}
				taken |= 1 << p
			}
			if want := uint64(1)<<size - 1; taken != want {
				t.Fatalf("sub-windows %d to %d share places of a ring of %d", first, first+int64(size)-1, size)
			}
		}
	}
}

func FuzzWindow(f *testing.F) {
	f.Add(uint64(math.MaxUint64), uint64(math.MaxUint64-1), uint64(1), uint64(5), uint8(10), int64(time.Second))
	f.Add(uint64(1)<<63, uint64(0), uint64(1)<<63, uint64(MaxLimit), uint8(1), int64(MaxWindow))
	f.Fuzz(func(t *testing.T, oldest, newest, next, most uint64, n uint8, sub int64) {
		m := Meter{Rule: "r", Algorithm: SlidingWindow, Sub: time.Duration(sub)}
		if sub > 0 && sub <= int64(MaxWindow) {
			m.Window = time.Duration(int64(n) * sub)
		}
		if m.Validate() != nil {
			return
		}
		index := 2e18 / sub
		h := history{m: m, now: index*sub + int64(oldest%uint64(sub)), ring: make([]uint64, m.ringSize()), counts: map[int64]uint64{
			index - int64(n): oldest, index: newest, index + 1: next,
		}}
		for i, count := range h.counts {
			h.ring[place(i, len(h.ring))] = count
		}
		seen := h.view()
		if want := h.viewAt(h.now); seen != want {
			t.Fatalf("view = %d, want %d", seen, want)
		}
		if most >= seen {
			return
		}
		wait := int64(roomAfter(h.ring, &m, m.at(h.now), most, 0))
		if wait <= 0 || h.viewAt(h.now+wait) > most || h.viewAt(h.now+wait-1) <= most {
			t.Fatalf("room after %d: view %d then and %d just before, limit %d", wait, h.viewAt(h.now+wait), h.viewAt(h.now+wait-1), most)
		}
		if reset := int64(resetAfter(h.ring, &m, m.at(h.now))); h.viewAt(h.now+reset) != 0 || h.viewAt(h.now+reset-1) == 0 {
			t.Fatalf("reset after %d: view %d then", reset, h.viewAt(h.now+reset))
		}
	})
}
