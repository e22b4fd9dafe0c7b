package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"time"
)

// merging is what it takes to merge what other origins tell, into cells that have slots of so many origins in all sub-windows.
type merging struct {
	Origins int     `json:"origins"`
	NS      float64 `json:"ns_per_slot"`
	Allocs  float64 `json:"allocs_per_slot"`
}

// mergings measures merges, the numbers of origins in turns.
func mergings(ctx context.Context, p pace, progress io.Writer) ([]merging, error) {
	fmt.Fprintln(progress, "merging")
	origins := append([]int{1}, remoteOrigins...)
	mergers := make([]*merger, len(origins))
	for i, n := range origins {
		var err error
		if mergers[i], err = newMerger(n); err != nil {
			return nil, err
		}
	}
	ns, allocs := make([][]float64, len(origins)), make([][]float64, len(origins))
	err := withoutCollections(func(collect func()) error {
		for range p.rounds {
			for i, g := range mergers {
				if err := ctx.Err(); err != nil {
					return err
				}
				collect()
				n, a, err := mergeFor(g, p.slice)
				if err != nil {
					return err
				}
				ns[i], allocs[i] = append(ns[i], n), append(allocs[i], a)
			}
		}
		return nil
	})
	var all []merging
	for i, n := range origins {
		all = append(all, merging{Origins: n, NS: median(ns[i]), Allocs: median(allocs[i])})
	}
	return all, err
}

// mergeFor merges for about d and returns nanoseconds and allocations a slot.
func mergeFor(g *merger, d time.Duration) (ns, allocs float64, err error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var took time.Duration
	slots := 0
	for took < d {
		t, n, err := g.merge()
		if err != nil {
			return 0, 0, err
		}
		took += t
		slots += n
	}
	runtime.ReadMemStats(&after)
	return float64(took) / float64(slots), float64(after.Mallocs-before.Mallocs) / float64(slots), nil
}
