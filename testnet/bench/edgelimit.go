package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// All that this program uses of the counting engine is in this file.

const (
	// benchWindow is the window of every limit that is measured: six seconds a sub-window.
	benchWindow = time.Minute
	// benchLimit is a limit that nobody reaches.
	benchLimit = 1 << 32
	// logLimit is the limit of the sliding log, whose memory grows with it.
	logLimit = 100
	// benchStart is when the measuring starts, by the coarse clocks: early in a sub-window.
	benchStart = int64(20_000_000) * int64(benchWindow)
)

// variant is a way to configure the engine.
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
	return []variant{
		plain(nameEngine, counters.SlidingWindow), two, plain(nameTokenBucket, counters.TokenBucket), plain(nameFixed, counters.FixedWindow), log,
	}
}

func variantNamed(name string) (variant, bool) {
	for _, v := range variants() {
		if v.name == name {
			return v, true
		}
	}
	return variant{}, false
}

// remoteOrigins are the numbers of other origins that a key is tried with.
var remoteOrigins = []int{12, 50}

// engines returns the variants, and other ways to ask the first.
func engines() []contestant {
	all := []contestant{}
	for i, v := range variants() {
		all = append(all, contestant{name: v.name, open: opener(v, askHashed, 0), mayDeny: v.max == logLimit})
		if i > 0 {
			continue
		}
		all = append(all,
			contestant{name: nameGiven, open: opener(v, askGiven, 0), sharesTable: true},
			contestant{name: nameBatch, open: opener(v, askHashedBatch, 0), sharesTable: true},
			contestant{name: nameBatchGiven, open: opener(v, askGivenBatch, 0), sharesTable: true},
		)
		for _, n := range remoteOrigins {
			all = append(all, contestant{name: fmt.Sprintf(nameOrigins, n), open: opener(v, askHashed, n), hotOnly: true, sharesTable: true})
		}
	}
	return all
}

// engine is a table with one limit.
type engine struct {
	table   *counters.Table
	limit   *counters.Limit
	clock   clock
	origins int // others that tell a slot of each key in each sub-window
	how     asking
}

// asking is a way to ask.
type asking func(e *engine, s *stream, from, to int) (admitted int)

func opener(v variant, how asking, origins int) func(context.Context, *setting) (limiter, error) {
	return func(_ context.Context, s *setting) (limiter, error) {
		most := v.max
		if s.limited {
			most = 1
		}
		return newEngine(v, most, v.memory, how, origins)
	}
}

func newEngine(v variant, most uint64, memory int, how asking, origins int) (*engine, error) {
	limit, err := counters.NewLimit(v.meter, most)
	if err != nil {
		return nil, err
	}
	e := &engine{table: counters.NewTable(counters.Config{Origin: 1, Memory: memory}), limit: limit, origins: origins, how: how}
	e.clock.ns.Store(benchStart)
	return e, nil
}

func (e *engine) coarse() *clock { return &e.clock }

func (e *engine) ask(s *stream, from, to int) int { return e.how(e, s, from, to) }

func askHashed(e *engine, s *stream, from, to int) (admitted int) {
	for i := from; i < to; i++ {
		if e.table.Take(e.limit, counters.Key(hashIdentity(s.identity(i))), 1, e.clock.ns.Load()).Allowed {
			admitted++
		}
	}
	return admitted
}

func askGiven(e *engine, s *stream, from, to int) (admitted int) {
	for _, key := range s.keys[from:to] {
		if e.table.Take(e.limit, counters.Key(key), 1, e.clock.ns.Load()).Allowed {
			admitted++
		}
	}
	return admitted
}

// batchSize is how many requests a batch holds.
const batchSize = 16

func askHashedBatch(e *engine, s *stream, from, to int) (admitted int) {
	var charges [batchSize]counters.Charge
	var decisions [batchSize]counters.Decision
	for ; from < to; from += batchSize {
		n := min(batchSize, to-from)
		for i := range n {
			charges[i] = counters.Charge{Limit: e.limit, Key: counters.Key(hashIdentity(s.identity(from + i))), Cost: 1}
		}
		admitted += e.batch(charges[:n], decisions[:0])
	}
	return admitted
}

func askGivenBatch(e *engine, s *stream, from, to int) (admitted int) {
	var charges [batchSize]counters.Charge
	var decisions [batchSize]counters.Decision
	for ; from < to; from += batchSize {
		n := min(batchSize, to-from)
		for i, key := range s.keys[from : from+n] {
			charges[i] = counters.Charge{Limit: e.limit, Key: counters.Key(key), Cost: 1}
		}
		admitted += e.batch(charges[:n], decisions[:0])
	}
	return admitted
}

func (e *engine) batch(charges []counters.Charge, dst []counters.Decision) (admitted int) {
	dst = e.table.TakeBatch(charges, e.clock.ns.Load(), dst)
	for i := range dst {
		if dst[i].Allowed {
			admitted++
		}
	}
	return admitted
}

// fill lets every client ask in every sub-window of the window that ends now, and the other origins tell a slot of each.
func (e *engine) fill(s *stream) error {
	for back := e.limit.Meter().SubWindows() - 1; back >= 0; back-- {
		e.fillSub(s.keys, back, e.origins)
	}
	if st := e.table.Stats(); st.Keys < s.len() {
		return fmt.Errorf("%d of %d keys fit into the budget", st.Keys, s.len())
	}
	return nil
}

// fillSub fills the sub-window that is so many before the present one.
func (e *engine) fillSub(keys []uint64, back, origins int) {
	now := benchStart - int64(back)*int64(e.limit.Meter().Sub)
	e.askAll(keys, now)
	e.mergeAll(keys, origins, now)
	e.drainAt(now)
}

// full fills the table until others go for each key that comes, and returns how many it holds and what each has in use.
func (e *engine) full(memory int) (keys int, inUse float64) {
	e.askAll(floodKeys(2*memory/leastCell), benchStart)
	st := e.table.Stats()
	return st.Keys, float64(st.Bytes) / float64(st.Keys)
}

// growth lets others tell slots of some keys, in each sub-window (dense) or in one, and returns by how many bytes a slot makes grow what
// is in use.
func (e *engine) growth(origins int, dense bool) (keys int, bytes float64) {
	const some = 1000
	all, m := floodKeys(some), e.limit.Meter()
	e.askAll(all, benchStart)
	before, slots := e.table.Stats().Bytes, 0
	for back := 0; back == 0 || dense && back < m.SubWindows(); back++ {
		for o := range origins {
			for _, key := range all {
				slots += e.table.Merge([]counters.Slot{told(&m, key, o, benchStart-int64(back)*int64(m.Sub))}, benchStart)
			}
		}
	}
	return some, float64(e.table.Stats().Bytes-before) / float64(slots)
}

func floodKeys(n int) []uint64 {
	keys := make([]uint64, n)
	for i := range keys {
		keys[i] = floodKey(uint64(i))
	}
	return keys
}

// askAll lets every key ask once, on both halves of the machine.
func (e *engine) askAll(keys []uint64, now int64) {
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

// mergeAll lets each of so many other origins tell one of each key in the sub-window of now.
func (e *engine) mergeAll(keys []uint64, origins int, now int64) {
	m := e.limit.Meter()
	frame := make([]counters.Slot, 0, len(keys))
	for o := range origins {
		frame = frame[:0]
		for _, key := range keys {
			frame = append(frame, told(&m, key, o, now))
		}
		e.table.Merge(frame, now)
	}
}

// told is what the o-th other origin tells of a key.
func told(m *counters.Meter, key uint64, o int, now int64) counters.Slot {
	return counters.Slot{Meter: m, Key: counters.Key(key), Index: m.Index(now), Origin: counters.Origin(2 + o), Birth: 1, Count: 1}
}

// drain tells what changed, as a node does every gossip interval.
func (e *engine) drain() { e.drainAt(e.clock.ns.Load()) }

func (e *engine) drainAt(now int64) { e.table.DrainDirty(now) }

// merger merges frames of one meter's slots, into cells that have slots of a number of origins in all sub-windows.
type merger struct {
	engine *engine
	frames [][]counters.Slot // a frame each: slots of one origin
	next   int
}

const (
	mergeKeys = 4096
	frameSize = 512
)

func newMerger(origins int) (*merger, error) {
	e, err := newEngine(variants()[0], benchLimit, counters.DefaultMemory, askGiven, origins)
	if err != nil {
		return nil, err
	}
	met := newStream(upTo(0, mergeKeys))
	if err := e.fill(met); err != nil {
		return nil, err
	}
	g := &merger{engine: e}
	m := e.limit.Meter()
	for from := 0; from < mergeKeys; from += frameSize {
		for o := range origins {
			var frame []counters.Slot
			for _, key := range met.keys[from : from+frameSize] {
				frame = append(frame, told(&m, key, o, benchStart))
			}
			g.frames = append(g.frames, frame)
		}
	}
	return g, nil
}

// merge merges the next frame, every slot of which is news, and returns how long it took and how many slots it held.
func (g *merger) merge() (took time.Duration, slots int, err error) {
	frame := g.frames[g.next%len(g.frames)]
	g.next++
	for i := range frame {
		frame[i].Count++
	}
	begin := time.Now()
	novel := g.engine.table.Merge(frame, benchStart)
	took = time.Since(begin)
	if novel != len(frame) {
		return 0, 0, fmt.Errorf("of a frame of %d slots %d were news", len(frame), novel)
	}
	return took, len(frame), nil
}

// floodTable is a table that is flooded: one limit an hour, so that nothing expires meanwhile.
type floodTable struct {
	table *counters.Table
	limit *counters.Limit
	told  []counters.Slot
}

// newFloodTable returns a table of so many bytes, the fewest possible if 0.
func newFloodTable(memory int, most uint64) (*floodTable, error) {
	limit, err := counters.NewLimit(counters.NewMeter("bench/flooded", counters.SlidingWindow, time.Hour), most)
	if err != nil {
		return nil, err
	}
	return &floodTable{table: counters.NewTable(counters.Config{Origin: 1, Memory: max(counters.MinMemory, memory)}), limit: limit}, nil
}

func (t *floodTable) take(key uint64, now int64) bool {
	return t.table.Take(t.limit, counters.Key(key), 1, now).Allowed
}

func (t *floodTable) drain(now int64) { t.told = t.table.DrainInto(t.told, now).Slots }

// floodStats is what the table tells of itself.
type floodStats counters.Stats

func (t *floodTable) stats() floodStats { return floodStats(t.table.Stats()) }

// lines returns the figures by name, for people.
func (s floodStats) lines() [][2]string {
	return [][2]string{
		{"keys held", fmt.Sprint(s.Keys)},
		{"bytes in use, MiB", figure(mib(s.Bytes))},
		{"evicted", fmt.Sprint(s.Evicted)},
		{"evicted when denied", fmt.Sprint(s.EvictedDenied)},
		{"expired", fmt.Sprint(s.Expired)},
		{"cost forgotten", fmt.Sprint(s.Forgotten)},
	}
}
