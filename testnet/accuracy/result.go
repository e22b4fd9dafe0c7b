package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/testnet/sim"
)

// seeds are those that each scenario is run with: as many as count, from the first on.
type seeds struct {
	first uint64
	count int
}

// committedSeeds are those of testnet/ACCURACY.md.
var committedSeeds = seeds{first: 1, count: 5}

// result is a scenario with what its runs showed, a report a seed.
type result struct {
	options sim.Options
	reports []*sim.Report
}

// results holds each scenario once, in how many tables it may stand.
type results map[string]*result

func keyOf(o sim.Options) string { return fmt.Sprintf("%+v", o) }

// of is the result of a row; nil if it was not run.
func (rs results) of(r *row) *result { return rs[keyOf(r.options())] }

// job is one run to be made.
type job struct {
	*result
	seed int // its place among the reports
}

// simulator is sim.Run, or what a test has in its place.
type simulator func(context.Context, sim.Options, func(time.Duration)) (*sim.Report, error)

// simulate runs all rows with all seeds, so many at a time. Each run is single-threaded and follows from its options
// alone.
func simulate(
	ctx context.Context, rows []row, s seeds, workers int, run simulator, progress io.Writer,
) (results, error) {
	all, jobs := plan(rows, s)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var working sync.WaitGroup
	var taken atomic.Int64
	done := report(progress, len(jobs))
	for range workers {
		working.Go(func() {
			for i := taken.Add(1); i <= int64(len(jobs)) && ctx.Err() == nil; i = taken.Add(1) {
				j := jobs[i-1]
				o := j.options
				o.Seed = s.first + uint64(j.seed)
				r, err := run(ctx, o, nil)
				if err != nil {
					stop(fmt.Errorf("%q: %w", o.Flags(), err))
					return
				}
				j.reports[j.seed] = r // its own place
				done()
			}
		})
	}
	working.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return all, nil
}

// plan lists the runs, those that take longest first, so that none of them is left over at the end.
func plan(rows []row, s seeds) (results, []job) {
	all := make(results)
	for i := range rows {
		o, count := rows[i].options(), min(s.count, cmp.Or(rows[i].max, s.count))
		r := all[keyOf(o)]
		if r == nil {
			r = &result{options: o}
			all[keyOf(o)] = r
		}
		if count > len(r.reports) {
			r.reports = make([]*sim.Report, count)
		}
	}
	var jobs []job
	for _, r := range all {
		for seed := range r.reports {
			jobs = append(jobs, job{r, seed})
		}
	}
	slices.SortFunc(jobs, func(a, b job) int {
		return cmp.Or(cmp.Compare(b.effort(), a.effort()), cmp.Compare(keyOf(a.options), keyOf(b.options)),
			cmp.Compare(a.seed, b.seed))
	})
	return all, jobs
}

// effort is how long a run takes, in no unit: frames go from each node to each other one in every interval.
func (j job) effort() float64 {
	o := &j.options
	return float64(o.Total()*o.Total()) * o.Duration.Seconds() / o.Interval.Seconds()
}

const reportEvery = 5 * time.Second

// report returns what each of n runs calls at its end. It reports the progress now and then, and is safe for concurrent
// use.
func report(progress io.Writer, n int) func() {
	var mu sync.Mutex
	began, next, finished := time.Now(), time.Now().Add(reportEvery), 0
	return func() {
		mu.Lock()
		defer mu.Unlock()
		finished++
		if now := time.Now(); now.After(next) || finished == n {
			next = now.Add(reportEvery)
			fmt.Fprintf(progress, "accuracy: %d of %d runs in %v\n", finished, n, now.Sub(began).Round(time.Second))
		}
	}
}

// spread is a figure over several seeds.
type spread struct{ median, worst float64 }

// over takes a figure of each report. The worst is that furthest from 0.
func over(reports []*sim.Report, figure func(*sim.Report) float64) (s spread) {
	var all []float64
	for _, r := range reports {
		v := figure(r)
		all = append(all, v)
		if math.Abs(v) > math.Abs(s.worst) {
			s.worst = v
		}
	}
	if len(all) == 0 {
		return spread{}
	}
	slices.Sort(all)
	s.median = (all[(len(all)-1)/2] + all[len(all)/2]) / 2
	return s
}

// sum adds a count of each report.
func sum(reports []*sim.Report, figure func(*sim.Report) float64) (total float64) {
	for _, r := range reports {
		total += figure(r)
	}
	return total
}
