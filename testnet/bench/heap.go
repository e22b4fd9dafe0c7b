package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/edgelimit/edgelimit/testnet/bench/rig"
)

// footprint is the memory of a contestant with a million keys.
type footprint struct {
	name        string
	bytesPerKey float64 // growth of the heap, with the identities that it keeps
	gcMS        float64 // a full collection, median
	blockGCMS   float64 // the same with a block of as many bytes without pointers instead
}

// footprints measures the contestants, each alone in memory.
func footprints(ctx context.Context, all []contestant, d duration, progress io.Writer) ([]footprint, error) {
	seen := newStream(stateMillion.clients())
	var prints []footprint
	for i := range all {
		c := &all[i]
		if c.sharesTable || c.outOfProcess {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		fmt.Fprintf(progress, "a million keys: %s\n", c.name)
		f, err := footprintOf(c, seen, d.collections)
		if err != nil {
			return nil, err
		}
		prints = append(prints, f)
	}
	runtime.KeepAlive(seen)
	return prints, nil
}

func footprintOf(c *contestant, seen *stream, collections int) (footprint, error) {
	before := heapAfterGC()
	l, err := c.inState(stateMillion, seen)
	if err != nil {
		return footprint{}, err
	}
	growth := heapAfterGC() - before
	f := footprint{name: c.name, bytesPerKey: float64(growth) / million, gcMS: collectionTime(collections)}
	if err := closeLimiter(l); err != nil {
		return footprint{}, err
	}
	runtime.KeepAlive(l)
	l = nil
	heapAfterGC()
	block := make([]uint64, growth/8)
	for i := 0; i < len(block); i += 512 {
		block[i] = 1 // touch every page
	}
	f.blockGCMS = collectionTime(collections)
	runtime.KeepAlive(block)
	return f, nil
}

// heapAfterGC returns the bytes in use of the heap without garbage.
func heapAfterGC() uint64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools kept
	return heapInUse()
}

// collectionTime returns the median time of a full collection in ms, of at least that many and of at least 100 ms.
func collectionTime(least int) float64 {
	var ms []float64
	for start := time.Now(); len(ms) < least || time.Since(start) < 100*time.Millisecond; {
		begin := time.Now()
		runtime.GC()
		ms = append(ms, time.Since(begin).Seconds()*1e3)
	}
	return rig.Median(ms)
}
