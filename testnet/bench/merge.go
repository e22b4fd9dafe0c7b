package main

import (
	"fmt"

	"github.com/edgelimit/edgelimit/counters"
)

// mergeCost is the time and the allocations per slot of merging into cells with slots of a number of origins.
type mergeCost struct {
	origins    int
	ns, allocs float64
}

const (
	mergeKeys = 4096
	frameSize = 512
)

// mergeTurns are a contestant for each number of origins that merges frames of one meter's slots, instead of taking
// requests, into cells with slots of all these origins in all sub-windows.
func mergeTurns() (turns []*turn, err error) {
	seen := newStream(upTo(0, mergeKeys))
	load := &workload{"merging", stateHot, []*stream{seen}, []int{0}}
	for _, origins := range append([]int{1}, remoteOrigins...) {
		e, err := newEngine(variants()[0], counters.DefaultMemory, engine{origins: origins})
		if err != nil {
			return nil, err
		}
		if err := e.fill(seen); err != nil {
			return nil, err
		}
		turns = append(turns, &turn{contestant: &contestant{name: fmt.Sprintf("%d origins", origins)}, load: load,
			limiter: &limiter{take: e.mergeFrames(seen)}, at: []int{0}, chunk: frameSize, origins: origins})
	}
	return turns, nil
}

// mergeFrames returns a take that merges a frame of one origin, every slot of which is new, and returns their number.
func (e *engine) mergeFrames(s *stream) func(s *stream, from, to int) (merged int) {
	var frames [][]counters.Slot
	m := e.limit.Meter()
	for from := 0; from < mergeKeys; from += frameSize {
		for o := range e.origins {
			var frame []counters.Slot
			for _, key := range s.keys[from : from+frameSize] {
				frame = append(frame, remoteSlot(&m, key, o, benchStart))
			}
			frames = append(frames, frame)
		}
	}
	next := 0
	return func(_ *stream, from, to int) int {
		frame := frames[next%len(frames)][:to-from]
		next++
		for i := range frame {
			frame[i].Count++
		}
		return e.table.Merge(frame, benchStart)
	}
}
