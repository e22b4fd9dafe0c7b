package counters

import (
	"slices"
	"testing"
)

// What left the ring last is what was counted then, however many sub-windows it moves on by at a time.
func TestWhatLeftTheRingLast(t *testing.T) {
	for by := range int64(9) {
		at, byOne := hotKey{left: [2]uint64{9, 8}}, hotKey{left: [2]uint64{9, 8}}
		ring := []uint64{3, 4, 5, 6}
		at.leave(ring, by)
		for moving := slices.Clone(ring); by > 0; by-- {
			byOne.leave(moving, 1)
			shift(moving, 1)
		}
		if at.left != byOne.left {
			t.Errorf("%v left last, and %v one after the other", at.left, byOne.left)
		}
	}
}
