package gossip

import (
	"testing"
	"time"
)

// at is a moment so many milliseconds into a window of ten seconds.
func at(ms int) int64 {
	return time.Unix(1_700_000_000, 0).Add(time.Duration(ms) * time.Millisecond).UnixNano()
}

// A window of 10 s is kept in steps of 1 s.
func TestPeak(t *testing.T) {
	const window = 10 * time.Second
	type reading struct {
		ms    int
		value float64
		want  float64 // the peak after it
	}
	for _, test := range []struct {
		name     string
		readings []reading
	}{
		{"the largest counts", []reading{{0, 0.1, 0.1}, {100, 0.3, 0.3}, {200, 0.2, 0.3}, {1500, 0.25, 0.3},
			{2500, 0.4, 0.4}}},
		{"it is held for a window and forgotten a step later", []reading{
			{500, 0.5, 0.5}, {5500, 0, 0.5}, {10_000, 0, 0.5}, {10_500, 0, 0.5}, {10_999, 0, 0.5}, {11_000, 0, 0}}},
		{"what comes later is held for longer", []reading{
			{0, 0.5, 0.5}, {3000, 0.2, 0.5}, {10_999, 0, 0.5}, {11_000, 0, 0.2}, {13_999, 0, 0.2}, {14_000, 0, 0}}},
		{"a pause of a window and more forgets everything", []reading{{0, 0.5, 0.5}, {4000, 0.3, 0.5},
			{60_000, 0.1, 0.1}}},
		{"a pause of half a window forgets what is older", []reading{{0, 0.5, 0.5}, {6000, 0.2, 0.5},
			{12_000, 0.1, 0.2}}},
		{"a clock that steps back keeps the peak", []reading{{5000, 0.5, 0.5}, {2000, 0.1, 0.5}, {2100, 0.6, 0.6},
			{15_999, 0, 0.6}, {16_000, 0, 0}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var p Peak
			if p.Value() != 0 {
				t.Error("the zero value is not zero")
			}
			for _, r := range test.readings {
				if p.Raise(r.value, window, at(r.ms)); p.Value() != r.want {
					t.Errorf("after %v at %d ms the peak is %v, want %v", r.value, r.ms, p.Value(), r.want)
				}
			}
		})
	}
}

// Whatever the length of the window, a value is held for all of it and for no more than a tenth beyond.
func TestPeakHoldsAnyWindow(t *testing.T) {
	for _, window := range []time.Duration{10 * time.Millisecond, time.Second, 1500 * time.Millisecond, time.Minute,
		366 * 24 * time.Hour} {
		for _, offset := range []time.Duration{0, window / 7, window / 3, window - 1} {
			var p Peak
			began := at(0) + int64(offset)
			p.Raise(1, window, began)
			if p.Raise(0, window, began+int64(window)); p.Value() != 1 {
				t.Errorf("window %v: forgotten after it, offset %v", window, offset)
			}
			if p.Raise(0, window, began+int64(window+window/10+1)); p.Value() != 0 {
				t.Errorf("window %v: still held a tenth after it, offset %v", window, offset)
			}
		}
	}
}

// A window that changes, as when a rule is edited, loses nothing: what was is held for a new window.
func TestPeakOfAnotherWindow(t *testing.T) {
	for _, after := range []time.Duration{time.Second, time.Hour} {
		var p Peak
		p.Raise(0.5, 10*time.Second, at(0))
		p.Raise(0.1, after, at(1000))
		if p.Value() != 0.5 {
			t.Errorf("%v: the peak became %v", after, p.Value())
		}
		now := at(1000) + int64(after)
		if p.Raise(0.2, after, now); p.Value() != 0.5 {
			t.Errorf("%v: after a window the peak is %v", after, p.Value())
		}
		if p.Raise(0.2, after, now+int64(after/10)+1); p.Value() != 0.2 {
			t.Errorf("%v: a tenth after it the peak is %v", after, p.Value())
		}
	}
}
