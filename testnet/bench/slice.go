package main

import (
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// timekeeper drives the coarse clock of whoever is measured now.
type timekeeper struct {
	running atomic.Pointer[clock]
	end     chan struct{}
	ended   sync.WaitGroup
}

func startTimekeeper() *timekeeper {
	k := &timekeeper{end: make(chan struct{})}
	k.ended.Go(func() {
		ticks := time.NewTicker(time.Millisecond)
		defer ticks.Stop()
		for last := time.Now(); ; {
			select {
			case <-k.end:
				return
			case now := <-ticks.C:
				if c := k.running.Load(); c != nil {
					c.ns.Add(int64(now.Sub(last)))
				}
				last = now
			}
		}
	})
	return k
}

func (k *timekeeper) stop() {
	close(k.end)
	k.ended.Wait()
}

// slice is what one turn of one contestant came to.
type slice struct {
	ns       float64 // wall time per decision, of all cores together
	allocs   float64 // allocations per decision
	asked    int
	admitted int
	served   float64 // share of its cores' time that the process got: the rest went to others, or to waiting for each other
}

// collectAt is how much garbage may lie about before it is collected between two slices.
const collectAt = 1 << 30

// measure lets the limiter work through the streams, one a core, for about d. at is where it is in each stream.
func (k *timekeeper) measure(l limiter, streams []*stream, at []int, d time.Duration, chunk int) slice {
	if e, ok := l.(interface{ drain() }); ok {
		e.drain()
	}
	if c, ok := l.(clocked); ok {
		k.running.Store(c.coarse())
		defer k.running.Store(nil)
	}
	runtime.GOMAXPROCS(len(streams))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, begun := processorTime(), time.Now()
	type share struct {
		asked, admitted int
		took            time.Duration
		_               [64]byte
	}
	shares := make([]share, len(streams))
	var all sync.WaitGroup
	var ready atomic.Int32
	for core, s := range streams {
		all.Go(func() {
			for ready.Add(1); int(ready.Load()) < len(streams); { // so that nobody works alone
				runtime.Gosched()
			}
			asked, admitted, pos := 0, 0, at[core]
			begin := time.Now()
			took := time.Duration(0)
			for ; took < d; took = time.Since(begin) {
				to := min(pos+chunk, s.len())
				admitted += l.ask(s, pos, to)
				asked += to - pos
				pos = to % s.len()
			}
			at[core] = pos
			shares[core] = share{asked: asked, admitted: admitted, took: took}
		})
	}
	all.Wait()
	r := slice{served: float64(processorTime()-cpu) / float64(time.Since(begun)) / float64(len(streams))}
	runtime.ReadMemStats(&after)
	perNs := 0.0
	for _, s := range shares {
		r.asked += s.asked
		r.admitted += s.admitted
		perNs += float64(s.asked) / float64(s.took)
	}
	r.ns = 1 / perNs
	r.allocs = float64(after.Mallocs-before.Mallocs) / float64(r.asked)
	return r
}

// processorTime is how long this process has run on a core, all its threads together.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it cannot fail with these arguments
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// withoutCollections runs f with the garbage collector off, and gives it a way to collect between slices.
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
