package gossip

import (
	"math"
	"testing"

	"github.com/edgelimit/edgelimit/counters"
)

func TestEntrySizes(t *testing.T) {
	m := frameMeters[0]
	now := m.Index(frameTime)
	for _, test := range []struct {
		what  string
		slot  counters.Slot
		bytes int
	}{
		{"one", counters.Slot{Index: now, Count: 1}, 8},
		{"none", counters.Slot{Index: now}, 9},
		{"up to 127", counters.Slot{Index: now, Count: 127}, 9},
		{"more", counters.Slot{Index: now, Count: 128}, 10},
		{"of the sub-windows before", counters.Slot{Index: now - 2, Count: 2}, 9},
		{"of one long before", counters.Slot{Index: now - 3, Count: 2}, 10},
		{"of the one after", counters.Slot{Index: now + 1, Count: 2}, 10},
		{"with a demand", counters.Slot{Index: now, Count: 2, Demand: 1e6}, 10},
		{"of a later cell", counters.Slot{Index: now, Count: 2, Birth: 9}, 10},
		{"of a key close by", counters.Slot{Key: 6<<56 | 1<<55, Index: now, Count: 2}, 9},
		{"of a key farther off", counters.Slot{Key: 7 << 56, Index: now, Count: 2}, 10},
	} {
		if b := appendEntry(nil, &test.slot, 0, now); len(b) != test.bytes {
			t.Errorf("an entry %s takes %d bytes, want %d", test.what, len(b), test.bytes)
		}
	}
	worst := worstSlots(m, 2)
	if b := appendEntry(nil, &worst[1], 0, math.MaxInt64); len(b) != maxEntry {
		t.Errorf("the longest entry takes %d bytes, want %d", len(b), maxEntry)
	}
}

// A demand is rounded up, by less than a tenth.
func TestDemandRoundsUp(t *testing.T) {
	for d := float32(1. / 8); d < 4e8; d *= 1.03 {
		if got := demandSteps[demandStep(d)]; got < d || got > 1.0906*d {
			t.Errorf("a demand of %v arrives as %v", d, got)
		}
	}
	for i, d := range demandSteps {
		if int(demandStep(d)) != i {
			t.Errorf("step %d, which is %v, is packed as step %d", i, d, demandStep(d))
		}
	}
	largest := demandSteps[255]
	for _, test := range []struct{ demand, want float32 }{
		{1e-9, 1. / 8},
		{2 * largest, largest},
		{float32(math.Inf(1)), largest},
	} {
		if got := demandSteps[demandStep(test.demand)]; got != test.want {
			t.Errorf("a demand of %v arrives as %v, want %v", test.demand, got, test.want)
		}
	}
}

// What is no demand at all travels as none.
func TestNoDemand(t *testing.T) {
	for _, d := range []float32{0, -1, float32(math.NaN())} {
		e := entries{rest: appendEntry(nil, &counters.Slot{Demand: d, Count: 1}, 0, 0)}
		var got counters.Slot
		if !e.next(&got, 0) || got.Demand != 0 || len(e.rest) != 0 {
			t.Errorf("a demand of %v arrives as %v", d, got.Demand)
		}
	}
}
