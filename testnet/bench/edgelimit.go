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
	for i, v := range variants() {
		all = append(all, contestant{name: v.name, open: opener(v, takeHashed, 0), mayDeny: v.max == logLimit})
		if i > 0 {
			continue
		}
		all = append(all,
			contestant{name: nameGiven, open: opener(v, takeGiven, 0), sharesTable: true},
			contestant{name: nameBatch, open: opener(v, batchHashed, 0), sharesTable: true},
			contestant{name: nameBatchGiven, open: opener(v, batchGiven, 0), sharesTable: true})
		for _, n := range remoteOrigins {
			all = append(all, contestant{name: fmt.Sprintf(nameOrigins, n), open: opener(v, takeHashed, n),
				hotOnly:     true,
				sharesTable: true})
		}
	}
	return all
}

// engine is a table with one limit.
type engine struct {
	table   *counters.Table
	limit   *counters.Limit
	clock   clock
	origins int // others with a slot of each key in each sub-window
	call    caller
}

// caller makes the requests from..to-1 of a stream.
type caller func(e *engine, s *stream, from, to int) (admitted int)

func opener(v variant, call caller, origins int) func(*state) (limiter, error) {
	return func(s *state) (limiter, error) {
		if s.limited {
			v.max = 1
		}
		return newEngine(v, v.memory, call, origins)
	}
}

func newEngine(v variant, memory int, call caller, origins int) (*engine, error) {
	limit, err := counters.NewLimit(v.meter, v.max)
	if err != nil {
		return nil, err
	}
	table := counters.NewTable(counters.Config{Origin: 1, Memory: memory})
	e := &engine{table: table, limit: limit, origins: origins, call: call}
	e.clock.ns.Store(benchStart)
	return e, nil
}

func (e *engine) coarse() *clock { return &e.clock }

func (e *engine) take(s *stream, from, to int) int { return e.call(e, s, from, to) }

func hashed(s *stream, i int) counters.Key { return counters.Key(hashIdentity(s.identity(i))) }
func given(s *stream, i int) counters.Key  { return counters.Key(s.keys[i]) }

func takeHashed(e *engine, s *stream, from, to int) (admitted int) {
	for i := from; i < to; i++ {
		if e.table.Take(e.limit, hashed(s, i), 1, e.clock.ns.Load()).Allowed {
			admitted++
		}
	}
	return admitted
}

func takeGiven(e *engine, s *stream, from, to int) (admitted int) {
	for i := from; i < to; i++ {
		if e.table.Take(e.limit, given(s, i), 1, e.clock.ns.Load()).Allowed {
			admitted++
		}
	}
	return admitted
}

const batchSize = 16

func batchHashed(e *engine, s *stream, from, to int) (admitted int) {
	var charges [batchSize]counters.Charge
	for ; from < to; from += batchSize {
		n := min(batchSize, to-from)
		for i := range n {
			charges[i] = counters.Charge{Limit: e.limit, Key: hashed(s, from+i), Cost: 1}
		}
		admitted += e.batch(charges[:n])
	}
	return admitted
}

func batchGiven(e *engine, s *stream, from, to int) (admitted int) {
	var charges [batchSize]counters.Charge
	for ; from < to; from += batchSize {
		n := min(batchSize, to-from)
		for i := range n {
			charges[i] = counters.Charge{Limit: e.limit, Key: given(s, from+i), Cost: 1}
		}
		admitted += e.batch(charges[:n])
	}
	return admitted
}

func (e *engine) batch(charges []counters.Charge) (admitted int) {
	var decisions [batchSize]counters.Decision
	for _, d := range e.table.TakeBatch(charges, e.clock.ns.Load(), decisions[:0]) {
		if d.Allowed {
			admitted++
		}
	}
	return admitted
}

// fill makes a request of every client in every sub-window of the current window, and merges a slot of each other
// origin.
func (e *engine) fill(s *stream) error {
	for back := e.limit.Meter().SubWindows() - 1; back >= 0; back-- {
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
	e.mergeAll(keys, origins, now)
	e.drainAt(now)
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
		for o := range origins {
			for _, key := range all {
				slot := remoteSlot(&m, key, o, benchStart-int64(back)*int64(m.Sub))
				slots += e.table.Merge([]counters.Slot{slot}, benchStart)
			}
		}
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

// mergeAll merges a slot of each key and other origin in the sub-window of now.
func (e *engine) mergeAll(keys []uint64, origins int, now int64) {
	m := e.limit.Meter()
	frame := make([]counters.Slot, 0, len(keys))
	for o := range origins {
		frame = frame[:0]
		for _, key := range keys {
			frame = append(frame, remoteSlot(&m, key, o, now))
		}
		e.table.Merge(frame, now)
	}
}

// remoteSlot is a slot of the o-th other origin.
func remoteSlot(m *counters.Meter, key uint64, o int, now int64) counters.Slot {
	return counters.Slot{Meter: m, Key: counters.Key(key), Index: m.Index(now), Origin: counters.Origin(2 + o),
		Birth: 1,
		Count: 1}
}

// drain takes the changes from the table, as a node does every gossip interval.
func (e *engine) drain() { e.drainAt(e.clock.ns.Load()) }

func (e *engine) drainAt(now int64) { e.table.DrainDirty(now) }
