package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"

	"github.com/edgelimit/edgelimit/testnet/bench/rig"
)

// report holds the results of a run.
type report struct {
	duration   duration
	redis      string  // its version, or why there is none
	redisBytes float64 // per key in Redis, 0 without Redis
	timings    []timing
	merges     []mergeCost
	footprints []footprint
	budgets    []budget

	series map[series][]float64 // ns per decision, a value per round
}

// series names the values that were measured once per round.
type series struct{ contestant, workload string }

// timing holds the medians of a series.
type timing struct {
	series
	ns, allocs float64
	least      float64 // minimum of ns
	cpu        float64 // share of its cores that it got
}

// compare measures everything, or only the times of the contestants that only names.
func compare(ctx context.Context, d duration, only string, progress io.Writer) (*report, error) {
	r := &report{duration: d}
	addr, version, stop, err := rig.StartRedis(ctx)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		r.redis = "redis-server is not installed: without redis_rate"
		fmt.Fprintln(progress, r.redis)
	case err != nil:
		return nil, err
	default:
		defer stop()
		r.redis = version
	}
	all := contestants(addr)
	if only != "" {
		all = named(all, only)
		return r, r.time(ctx, all, progress)
	}
	if r.footprints, err = footprints(ctx, all, d, progress); err != nil {
		return nil, err
	}
	if r.budgets, err = budgets(ctx, d.budgets, progress); err != nil {
		return nil, err
	}
	if addr != "" {
		if r.redisBytes, err = redisBytesPerKey(ctx, addr, newStream(stateMillion.clients())); err != nil {
			return nil, err
		}
	}
	fmt.Fprintln(progress, "merging")
	merges, err := mergeTurns()
	if err == nil {
		err = takeTurns(ctx, merges, d, progress)
	}
	if err != nil {
		return nil, err
	}
	for _, t := range merges {
		r.merges = append(r.merges, mergeCost{t.origins, rig.Median(t.each(sliceNS)), rig.Median(t.each(sliceAllocs))})
	}
	return r, r.time(ctx, all, progress)
}

// time measures the times of decisions.
func (r *report) time(ctx context.Context, all []contestant, progress io.Writer) error {
	fmt.Fprintln(progress, "filling every contestant with a million keys")
	turns, stop, err := openTurns(ctx, all)
	defer stop()
	if err == nil {
		err = takeTurns(ctx, turns, r.duration, progress)
	}
	r.addTurns(turns)
	return err
}

func sliceNS(s slice) float64     { return s.ns }
func sliceAllocs(s slice) float64 { return s.allocs }
func sliceCPU(s slice) float64    { return s.cpu }

// each returns a figure of each slice.
func (t *turn) each(figure func(slice) float64) (all []float64) {
	for _, s := range t.slices {
		all = append(all, figure(s))
	}
	return all
}

func (r *report) addTurns(turns []*turn) {
	r.series = map[series][]float64{}
	for _, t := range turns {
		id := series{t.contestant.name, t.load.name}
		r.series[id] = t.each(sliceNS)
		r.timings = append(r.timings, timing{id, rig.Median(r.series[id]), rig.Median(t.each(sliceAllocs)),
			slices.Min(r.series[id]), rig.Median(t.each(sliceCPU))})
	}
}

// cpu is the median share of the cores that contestants in this process got, with one core or with two.
func (r *report) cpu(cores int) float64 {
	var all []float64
	for _, t := range r.timings {
		if t.contestant != nameRedisRate && strings.HasSuffix(t.workload, twoCores) == (cores == 2) {
			all = append(all, t.cpu)
		}
	}
	return rig.Median(all)
}

// least returns the ratio of the minima of a and b: other programs slow a slice down, and make none faster. It returns
// false if one of them was not measured.
func (r *report) least(a, b series) (float64, bool) {
	as, bs := r.series[a], r.series[b]
	if len(as) == 0 || len(bs) == 0 {
		return 0, false
	}
	return slices.Min(as) / slices.Min(bs), true
}

// ratio returns the median of the ratios of a to b within the rounds, or false if one of them was not measured.
func (r *report) ratio(a, b series) (float64, bool) {
	as, bs := r.series[a], r.series[b]
	if len(as) == 0 || len(as) != len(bs) {
		return 0, false
	}
	return rig.Median(rig.Ratios(as, bs)), true
}
