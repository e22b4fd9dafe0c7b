package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"time"
)

// footprint is what a million keys need of a contestant.
type footprint struct {
	Name        string  `json:"name"`
	BytesPerKey float64 `json:"bytes_per_key"` // of the heap; what a server would hold for the contestant, identities included
	GC          float64 `json:"gc_ms"`         // a full collection, median
	BlockGC     float64 `json:"block_gc_ms"`   // the same with a block of as many bytes without pointers instead
}

// footprints measures what a million keys need of each contestant, one alone at a time.
func footprints(ctx context.Context, all []contestant, p pace, progress io.Writer) ([]footprint, error) {
	met := newStream(settingMillion.clients())
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
		f, err := footprintOf(ctx, c, met, p.collections)
		if err != nil {
			return nil, err
		}
		prints = append(prints, f)
	}
	runtime.KeepAlive(met)
	return prints, nil
}

func footprintOf(ctx context.Context, c *contestant, met *stream, collections int) (footprint, error) {
	before := heapAfterGC()
	l, err := c.opened(ctx, settingMillion, met)
	if err != nil {
		return footprint{}, err
	}
	grown := heapAfterGC() - before
	f := footprint{Name: c.name, BytesPerKey: float64(grown) / million, GC: collectionTime(collections)}
	if c, ok := l.(closer); ok {
		if err := c.close(); err != nil {
			return footprint{}, err
		}
	}
	runtime.KeepAlive(l)
	l = nil
	heapAfterGC()
	block := make([]uint64, grown/8)
	for i := 0; i < len(block); i += 512 {
		block[i] = 1 // so that it is there
	}
	f.BlockGC = collectionTime(collections)
	runtime.KeepAlive(block)
	return f, nil
}

// heapAfterGC is what is in use of the heap, garbage left out.
func heapAfterGC() uint64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools held on to
	return heapInUse()
}

// collectionTime is how long a full collection takes, in milliseconds: the median of so many, or of more as long as they are short.
func collectionTime(least int) float64 {
	var ms []float64
	for begun := time.Now(); len(ms) < least || time.Since(begun) < 100*time.Millisecond; {
		begin := time.Now()
		runtime.GC()
		ms = append(ms, time.Since(begin).Seconds()*1e3)
	}
	return median(ms)
}
