package main

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// This file and merge.go hold all uses of the counting engine.

const (
	benchWindow = time.Minute // of every limit: sub-windows of six seconds
	benchLimit  = 1 << 32     // never reached
	logLimit    = 100         // of the sliding log, whose memory grows with it
	// benchStart is the first time of the coarse clocks: the start of a sub-window.
	benchStart = int64(20_000_000) * int64(benchWindow)
)

// variant is an algorithm of the engine.
type variant struct {
	name   string
	meter  counters.Meter
	max    uint64
	memory int // budget that holds a million keys
}

// variants returns the algorithms that are compared, the default first.
func variants() []variant {
	plain := func(name string, a counters.Algorithm) variant {
		return variant{name, counters.NewMeter("bench/per_client", a, benchWindow), benchLimit, counters.DefaultMemory}
	}
	two := plain(nameTwoBuckets, counters.SlidingWindow)
	two.meter.Sub = benchWindow
	log := plain(nameLog, counters.SlidingLog)
	log.max, log.memory = logLimit, 2<<30
	return []variant{plain(nameEngine, counters.SlidingWindow), two, plain(nameTokenBucket, counters.TokenBucket),
		plain(nameFixed, counters.FixedWindow), log}
}

func variantNamed(name string) variant {
	all := variants()
	return all[slices.IndexFunc(all, func(v variant) bool { return v.name == name })]
}

// remoteOrigins are the numbers of other origins in the comparison.
var remoteOrigins = []int{12, 50}

// engines returns the variants, and the first of them with other callers and with slots of other origins.
func engines() (all []contestant) {
	for _, v := range variants() {
		all = append(all, contestant{name: v.name, open: opener(v, engine{}), mayDeny: v.max == logLimit})
		if v.name != nameEngine {
			continue
		}
		all = append(all, contestant{name: nameGiven, open: opener(v, engine{given: true}), sharesTable: true,
			moves: true})
		large := v
		large.memory = 4 * v.memory * 5 / 8 // a million keys take five eighths
		all = append(all, contestant{name: nameQuarter, open: opener(large, engine{given: true}), sharesTable: true})
		for _, n := range remoteOrigins {
			all = append(all, contestant{name: fmt.Sprintf(nameOrigins, n), open: opener(v, engine{origins: n}),
				hotOnly: true, sharesTable: true})
		}
	}
	return all
}

// engine is a table with one limit.
type engine struct {
	table   *counters.Table
	limit   *counters.Limit
	clock   *clock
	origins int  // others with a slot of each key in each sub-window
	given   bool // it takes a request's key, not its identity
}

// opener opens engines of a variant that are asked as e is.
func opener(v variant, e engine) func(*state) (*limiter, error) {
	return func(s *state) (*limiter, error) {
		if s.limited {
			v.max = 1
		}
		e, err := newEngine(v, v.memory, e)
		if err != nil {
			return nil, err
		}
		drain := func() { e.drain(e.clock.Load()) }
		return &limiter{take: each(e.take), fill: e.fill, clock: e.clock, drain: drain}, nil
	}
}

// newEngine returns e with a table of its own.
func newEngine(v variant, memory int, e engine) (*engine, error) {
	limit, err := counters.NewLimit(v.meter, v.max)
	e.table, e.limit, e.clock = counters.NewTable(counters.Config{Origin: 1, Memory: memory}), limit, newClock()
	return &e, err
}

func (e *engine) key(s *stream, i int) counters.Key {
	if e.given {
		return counters.Key(s.keys[i])
	}
	return counters.Key(hashIdentity(s.identity(i)))
}

func (e *engine) take(s *stream, i int) bool {
	return e.table.Take(e.limit, e.key(s, i), 1, e.clock.Load()).Allowed
}

// fill makes a request of every client in every sub-window of the current window, also in the one that leaves, and
// merges a slot of each other origin.
func (e *engine) fill(s *stream) error {
	for back := e.limit.Meter().SubWindows(); back >= 0; back-- {
		e.fillSub(s.keys, back, e.origins)
	}
	if st := e.table.Stats(); st.Keys < s.len() {
		return fmt.Errorf("%d of %d keys fit into the budget", st.Keys, s.len())
	}
	return nil
}

// fillSub fills the sub-window that is back sub-windows before the current one.
func (e *engine) fillSub(keys []uint64, back, origins int) {
	now := benchStart - int64(back)*int64(e.limit.Meter().Sub)
	e.takeAll(keys, now)
	e.mergeAll(keys, origins, now, now)
	e.drain(now)
}

// full fills the table until it evicts, and returns the number of keys that it holds and the bytes in use per key.
func (e *engine) full(memory int) (keys int, inUse float64) {
	e.takeAll(distinctKeys(2*memory/minCell), benchStart)
	st := e.table.Stats()
	return st.Keys, float64(st.Bytes) / float64(st.Keys)
}

// growth merges slots of other origins into some keys, in each sub-window (dense) or in one, and returns the bytes that
// a slot adds to those in use.
func (e *engine) growth(origins int, dense bool) (keys int, bytes float64) {
	const some = 1000
	all, m := distinctKeys(some), e.limit.Meter()
	e.takeAll(all, benchStart)
	before, slots := e.table.Stats().Bytes, 0
	for back := 0; back == 0 || dense && back < m.SubWindows(); back++ {
		slots += e.mergeAll(all, origins, benchStart-int64(back)*int64(m.Sub), benchStart)
	}
	return some, float64(e.table.Stats().Bytes-before) / float64(slots)
}

// distinctKeys returns n keys (splitmix64).
func distinctKeys(n int) []uint64 {
	keys := make([]uint64, n)
	for i := range keys {
		z := uint64(i+1) * 0x9e3779b97f4a7c15
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		keys[i] = z ^ z>>31
	}
	return keys
}

// takeAll makes a request of every key, on two cores.
func (e *engine) takeAll(keys []uint64, now int64) {
	var halves sync.WaitGroup
	for _, half := range [][]uint64{keys[:len(keys)/2], keys[len(keys)/2:]} {
		halves.Go(func() {
			for _, key := range half {
				e.table.Take(e.limit, counters.Key(key), 1, now)
			}
		})
	}
	halves.Wait()
}

// mergeAll merges a slot of each key and other origin in the sub-window of a time, and returns how many were new.
func (e *engine) mergeAll(keys []uint64, origins int, at, now int64) (merged int) {
	m := e.limit.Meter()
	frame := make([]counters.Slot, 0, len(keys))
	for o := range origins {
		frame = frame[:0]
		for _, key := range keys {
			frame = append(frame, remoteSlot(&m, key, o, at))
		}
		merged += e.table.Merge(frame, now)
	}
	return merged
}

// remoteSlot is a slot of the o-th other origin.
func remoteSlot(m *counters.Meter, key uint64, o int, now int64) counters.Slot {
	return counters.Slot{Meter: m, Key: counters.Key(key), Index: m.Index(now), Origin: counters.Origin(2 + o),
		Birth: 1, Count: 1}
}

// drain takes the changes from the table, as a node does every gossip interval.
func (e *engine) drain(now int64) { e.table.DrainDirty(now) }
