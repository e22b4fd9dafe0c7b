package main

import (
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/testnet/bench/rig"
)

// slice is the result of one turn of one contestant.
type slice struct {
	ns       float64 // wall time per decision, of all cores together
	allocs   float64 // per decision
	requests int
	admitted int
	cpu      float64 // share of its cores that the process got; the rest went to others, or to waiting for locks
}

// collectAt is the garbage in bytes that causes a collection between two slices.
const collectAt = 1 << 30

// measure makes the requests of the streams, one stream per core, for about d. at is the position in each stream.
func measure(l *limiter, streams []*stream, at []int, d time.Duration, chunk int) slice {
	if l.drain != nil {
		l.drain()
	}
	if l.clock != nil {
		defer l.clock.run()()
	}
	runtime.GOMAXPROCS(len(streams))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, start := rig.CPUTime(), time.Now()
	type share struct {
		requests, admitted int
		took               time.Duration
		_                  [64]byte // another cache line
	}
	shares := make([]share, len(streams))
	var all sync.WaitGroup
	var ready atomic.Int32
	for core, s := range streams {
		all.Go(func() {
			for ready.Add(1); int(ready.Load()) < len(streams); { // start together
				runtime.Gosched()
			}
			requests, admitted, pos := 0, 0, at[core]
			begin := time.Now()
			took := time.Duration(0)
			for ; took < d; took = time.Since(begin) {
				to := min(pos+chunk, s.len())
				admitted += l.take(s, pos, to)
				requests += to - pos
				pos = to % s.len()
			}
			at[core] = pos
			shares[core] = share{requests: requests, admitted: admitted, took: took}
		})
	}
	all.Wait()
	r := slice{cpu: float64(rig.CPUTime()-cpu) / float64(time.Since(start)) / float64(len(streams))}
	runtime.ReadMemStats(&after)
	perNs := 0.0
	for _, s := range shares {
		r.requests += s.requests
		r.admitted += s.admitted
		perNs += float64(s.requests) / float64(s.took)
	}
	r.ns = 1 / perNs
	r.allocs = float64(after.Mallocs-before.Mallocs) / float64(r.requests)
	return r
}

// withoutCollections runs f with the garbage collector off. f calls collect between slices.
func withoutCollections(f func(collect func()) error) error {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	runtime.GC()
	base := heapInUse()
	return f(func() {
		if heapInUse() > base+collectAt {
			runtime.GC()
			base = heapInUse()
		}
	})
}

func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
