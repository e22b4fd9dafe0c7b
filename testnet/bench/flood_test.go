package main

import (
	"context"
	"io"
	"testing"
	"time"
)

// A flood that fits into the budget forgets nobody, and what it reports adds up.
func TestFloodThatFits(t *testing.T) {
	size := floodSize{uniques: 20_000, offenders: 100, all: 5_000}
	for _, act := range []play{uniqueKeys, allOverLimit} {
		r, err := runOne(t.Context(), size, act, 1<<40, false, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if r.Kept != r.Over || r.Stats.Evicted != 0 {
			t.Errorf("%s: of %d keys over their limit %d were kept, %d evicted", r.Flood, r.Over, r.Kept, r.Stats.Evicted)
		}
		if r.Asked == 0 || r.P50 <= 0 || r.P50 > r.P99 || r.P99 > r.P999 || r.P999 > r.Max {
			t.Errorf("%s: %d requests, quantiles %v %v %v %v", r.Flood, r.Asked, r.P50, r.P99, r.P999, r.Max)
		}
		for _, p := range r.Promises[:1] {
			if !p.Met {
				t.Errorf("%s: %s is missed with %.0f MiB", r.Flood, p.Text, r.RSSMiB)
			}
		}
	}
}

func TestFloodEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := runOne(ctx, floodSize{uniques: 1000, offenders: 1, all: 1000}, allOverLimit, 0, false, io.Discard); err == nil {
		t.Error("a flood that was told to end went on")
	}
}

// A key that is let in again after it was over its limit is not kept, however often it is denied after that.
func TestFloodKept(t *testing.T) {
	f := &flood{let: []bool{false, true, false}}
	r := f.verdicts(floodReport{Over: 3, Kept: f.kept()}, 10<<20)
	if r.Kept != 2 {
		t.Errorf("kept %d of 3, want 2", r.Kept)
	}
	f.promised = true
	r = f.verdicts(floodReport{Over: 3, Kept: f.kept()}, 1<<30)
	if len(r.Promises) != 3 || r.Promises[0].Met || !r.Promises[1].Met || r.Promises[2].Met {
		t.Errorf("promises %+v", r.Promises)
	}
	f.times.add(2 * time.Millisecond)
	if r = f.verdicts(r, 0); r.Promises[1].Met {
		t.Error("a p99 of 2 ms is said to be below one")
	}
}

func TestFloodKeysDiffer(t *testing.T) {
	seen := map[uint64]bool{}
	for i := range uint64(100_000) {
		seen[floodKey(i)] = true
	}
	if len(seen) != 100_000 {
		t.Errorf("%d keys of 100000 clients", len(seen))
	}
}
