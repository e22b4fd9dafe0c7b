package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// mergeCost is the time and the allocations per slot of merging into cells with slots of a number of origins.
type mergeCost struct {
	origins    int
	ns, allocs float64
}

// mergeCosts measures merges, the numbers of origins in turns.
func mergeCosts(ctx context.Context, d duration, progress io.Writer) ([]mergeCost, error) {
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
		for range d.rounds {
			for i, g := range mergers {
				if err := ctx.Err(); err != nil {
					return err
				}
				collect()
				n, a, err := mergeFor(g, d.slice)
				if err != nil {
					return err
				}
				ns[i], allocs[i] = append(ns[i], n), append(allocs[i], a)
			}
		}
		return nil
	})
	var all []mergeCost
	for i, n := range origins {
		all = append(all, mergeCost{n, median(ns[i]), median(allocs[i])})
	}
	return all, err
}

// mergeFor merges for about d and returns nanoseconds and allocations per slot.
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

// merger merges frames of one meter's slots into cells with slots of a number of origins in all sub-windows.
type merger struct {
	engine *engine
	frames [][]counters.Slot // of one origin each
	next   int
}

const (
	mergeKeys = 4096
	frameSize = 512
)

func newMerger(origins int) (*merger, error) {
	e, err := newEngine(variants()[0], counters.DefaultMemory, engine{origins: origins})
	if err != nil {
		return nil, err
	}
	seen := newStream(upTo(0, mergeKeys))
	if err := e.fill(seen); err != nil {
		return nil, err
	}
	g := &merger{engine: e}
	m := e.limit.Meter()
	for from := 0; from < mergeKeys; from += frameSize {
		for o := range origins {
			var frame []counters.Slot
			for _, key := range seen.keys[from : from+frameSize] {
				frame = append(frame, remoteSlot(&m, key, o, benchStart))
			}
			g.frames = append(g.frames, frame)
		}
	}
	return g, nil
}

// merge merges the next frame, every slot of which is new, and returns the time and the number of slots.
func (g *merger) merge() (took time.Duration, slots int, err error) {
	frame := g.frames[g.next%len(g.frames)]
	g.next++
	for i := range frame {
		frame[i].Count++
	}
	start := time.Now()
	novel := g.engine.table.Merge(frame, benchStart)
	took = time.Since(start)
	if novel != len(frame) {
		return 0, 0, fmt.Errorf("%d of %d slots of a frame were new", novel, len(frame))
	}
	return took, len(frame), nil
}
