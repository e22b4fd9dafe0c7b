package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// duration sets how long to measure.
type duration struct {
	rounds      int
	slice       time.Duration
	repeats     int   // maximum of slices to repeat because the machine was busy
	budgets     []int // sizes of the tables to fill in MiB. The worst counts: how well a size fits varies
	collections int   // minimum of garbage collections to time per contestant
}

// minCPU is the share of its cores that a slice must get. While there are repeats left, one that got less is measured
// again: other processes took the time, or the cores waited for each other, which then repeats.
const minCPU = 0.9

// workload is a pattern of requests.
type workload struct {
	name    string
	state   *state
	streams []*stream // one per core
	offset  []int     // where each core starts in its stream
}

// The names in the goals and ratios. Each workload is also one of two cores.
const (
	twoCores = ", 2 cores"

	loadHot    = "hot key"
	loadSome   = "own 1024 keys"
	loadCold   = "1M uniform"
	loadTurn   = "1M uniform, one known after the other"
	loadMoving = "1M uniform, new in their sub-window"
	loadZipf   = "1M Zipf"
	loadDenied = "denied"
)

func workloads() (all []workload) {
	one, cold, busy := newStream(hot()), newStream(uniform(1<<21)), newStream(zipf(1<<21))
	half := cold.len() / 2
	turn := *cold
	turn.dependent = true
	for _, w := range []struct {
		name          string
		state         *state
		first, second *stream
		offset        int // of the second core
	}{
		{loadHot, stateHot, one, one, 0},
		{loadSome, stateHot, newStream(some(1)), newStream(some(2)), 0},
		{loadCold, stateMillion, cold, cold, half},
		{loadTurn, stateMillion, &turn, &turn, half},
		{loadMoving, stateMoving, cold, cold, half},
		{loadZipf, stateMillion, busy, busy, half},
		{loadDenied, stateDenied, one, one, 0},
	} {
		all = append(all, workload{w.name, w.state, []*stream{w.first}, []int{0}},
			workload{w.name + twoCores, w.state, []*stream{w.first, w.second}, []int{0, w.offset}})
	}
	return all
}

// turn is a contestant at one workload.
type turn struct {
	contestant *contestant
	load       *workload
	limiter    *limiter
	at         []int // position in each stream
	chunk      int   // requests between two looks at the time: some 30 us, unless it is set
	slices     []slice
	origins    int // of what it merges, if it does
}

// takeTurns measures every contestant at every workload, round after round.
func takeTurns(ctx context.Context, turns []*turn, d duration, progress io.Writer) error {
	return withoutCollections(func(collect func()) error {
		for _, t := range turns { // warm up, and find the chunk
			s := measure(t.limiter, t.load.streams, t.at, time.Millisecond, cmp.Or(t.chunk, 16))
			t.chunk = cmp.Or(t.chunk, max(1, min(4096, int(30e3/s.ns)/len(t.at))))
		}
		for round := range d.rounds {
			fmt.Fprintf(progress, "round %d of %d\n", round+1, d.rounds)
			for _, t := range turns {
				if err := ctx.Err(); err != nil {
					return err
				}
				collect()
				s, err := t.measure(d.slice, &d.repeats)
				if err != nil {
					return err
				}
				t.slices = append(t.slices, s)
			}
		}
		return nil
	})
}

// openTurns opens a limiter for each contestant and state.
func openTurns(ctx context.Context, all []contestant) (turns []*turn, stop func(), err error) {
	type id struct {
		contestant *contestant
		state      *state
	}
	open, seen := map[id]*limiter{}, map[*state]*stream{}
	stop = func() {
		for _, l := range open {
			_ = closeLimiter(l)
		}
	}
	for _, load := range workloads() {
		s := load.state
		if seen[s] == nil {
			seen[s] = newStream(s.clients())
		}
		for i := range all {
			c := &all[i]
			if c.hotOnly && (s == stateMillion || s.moving) || s.moving && !c.moves {
				continue
			}
			if open[id{c, s}] == nil {
				l, err := c.inState(s, seen[s])
				if err := errors.Join(err, ctx.Err()); err != nil {
					return nil, stop, err
				}
				open[id{c, s}] = l
			}
			turns = append(turns, &turn{contestant: c, load: &load, limiter: open[id{c, s}],
				at: slices.Clone(load.offset)})
		}
	}
	return turns, stop, nil
}

// measure measures a slice, and up to twice more while it gets too little of the machine. The best one counts.
func (t *turn) measure(d time.Duration, repeats *int) (best slice, err error) {
	for try := range 3 {
		if try > 0 {
			if t.contestant.outOfProcess || best.cpu >= minCPU || *repeats == 0 {
				break
			}
			*repeats--
		}
		if t.load.state.moving {
			t.limiter.clock.Add(int64(benchWindow) / counters.DefaultSubWindows)
		}
		s := measure(t.limiter, t.load.streams, t.at, d, t.chunk)
		if err := t.plausible(s); err != nil {
			return s, err
		}
		if try == 0 || s.cpu > best.cpu {
			best = s
		}
	}
	return best, nil
}

// plausible returns an error unless the slice admits or denies as the state demands. Not every request need be
// admitted: throttled denies after ten failed attempts to update a key that two cores share.
func (t *turn) plausible(s slice) error {
	share := float64(s.admitted) / float64(s.requests)
	if t.load.state.limited && share > 0.001 || !t.load.state.limited && share < 0.9 && !t.contestant.mayDeny {
		return fmt.Errorf("%s, %s: admitted %d of %d", t.contestant.name, t.load.name, s.admitted, s.requests)
	}
	return nil
}
