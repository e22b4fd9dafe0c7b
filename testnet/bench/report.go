package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
)

// report is all that a run found.
type report struct {
	Machine    string      `json:"machine"`
	Rounds     int         `json:"rounds"`
	SliceMS    float64     `json:"slice_ms"`
	Redis      string      `json:"redis"`               // what the Redis says of itself, or why there is none
	RedisBytes float64     `json:"redis_bytes_per_key"` // in Redis, 0 without one
	Timings    []timing    `json:"timings"`
	Merges     []merging   `json:"merges"`
	Footprints []footprint `json:"footprints"`
	Budgets    []budget    `json:"budgets"`
	Goals      []verdict   `json:"goals"`

	series map[series][]float64 // nanoseconds a decision, a value a round
	allocs map[series]float64
}

// series names what was measured once a round.
type series struct{ contestant, workload string }

// timing is the figures of one contestant at one workload.
type timing struct {
	Contestant  string  `json:"contestant"`
	Workload    string  `json:"workload"`
	NS          float64 `json:"ns"`
	Allocs      float64 `json:"allocs"`
	Served      float64 `json:"served"`                   // share of its cores that it got
	OfXTime     float64 `json:"of_x_time_rate,omitempty"` // its time as a multiple of theirs
	OfGoLimiter float64 `json:"of_go_limiter,omitempty"`
}

// compare measures everything, or only the times of some.
func compare(ctx context.Context, p pace, only string, progress io.Writer) (*report, error) {
	r := &report{Machine: machine(), Rounds: p.rounds, SliceMS: p.slice.Seconds() * 1e3}
	addr, stop, err := startRedis(ctx)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		r.Redis = "redis-server is not installed: redis_rate is left out"
		fmt.Fprintln(progress, r.Redis)
	case err != nil:
		return nil, err
	default:
		defer stop()
		r.Redis = redisVersion()
	}
	all := contestants(addr)
	if only != "" {
		all = named(all, only)
		return r, r.time(ctx, all, p, progress)
	}
	if r.Footprints, err = footprints(ctx, all, p, progress); err != nil {
		return nil, err
	}
	if r.Budgets, err = budgets(ctx, p.budgets, progress); err != nil {
		return nil, err
	}
	if addr != "" {
		if r.RedisBytes, err = redisBytesPerKey(ctx, addr, newStream(settingMillion.clients())); err != nil {
			return nil, err
		}
	}
	if r.Merges, err = mergings(ctx, p, progress); err != nil {
		return nil, err
	}
	return r, r.time(ctx, all, p, progress)
}

// time measures the times of decisions, and judges.
func (r *report) time(ctx context.Context, all []contestant, p pace, progress io.Writer) error {
	turns, err := timings(ctx, all, p, progress)
	if err != nil {
		return err
	}
	r.addTurns(turns)
	for _, g := range goals {
		r.Goals = append(r.Goals, g.judge(r))
	}
	return nil
}

// machine tells what the figures depend on.
func machine() string {
	return fmt.Sprintf("%d CPUs, %s/%s, %s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
}

// redisVersion returns "Redis 7.0.15".
func redisVersion() string {
	out, _ := exec.Command("redis-server", "--version").Output()
	for _, f := range strings.Fields(string(out)) {
		if v, ok := strings.CutPrefix(f, "v="); ok {
			return "Redis " + v
		}
	}
	return "Redis"
}

func (r *report) addTurns(turns []*turn) {
	r.series, r.allocs = map[series][]float64{}, map[series]float64{}
	for _, t := range turns {
		id := series{t.contestant.name, t.load.name}
		r.series[id] = each(t.slices, func(s slice) float64 { return s.ns })
		r.allocs[id] = median(each(t.slices, func(s slice) float64 { return s.allocs }))
	}
	for _, t := range turns {
		id := series{t.contestant.name, t.load.name}
		ofXTime, _ := r.ratio(id, series{nameXTime, t.load.name})
		ofGoLimiter, _ := r.ratio(id, series{nameGoLimiter, t.load.name})
		r.Timings = append(r.Timings, timing{
			Contestant: id.contestant, Workload: id.workload, NS: median(r.series[id]), Allocs: r.allocs[id],
			Served: median(each(t.slices, func(s slice) float64 { return s.served })), OfXTime: ofXTime, OfGoLimiter: ofGoLimiter,
		})
	}
}

func each(slices []slice, figure func(slice) float64) []float64 {
	all := make([]float64, len(slices))
	for i, s := range slices {
		all[i] = figure(s)
	}
	return all
}

// served is the median share of the cores that the contestants in this process got, with one core and with two.
func (r *report) served(cores int) float64 {
	var all []float64
	for _, t := range r.Timings {
		if t.Contestant != nameRedisRate && strings.HasSuffix(t.Workload, twoCores) == (cores == 2) {
			all = append(all, t.Served)
		}
	}
	return median(all)
}

// ratio is the median of the ratios of a to b within the rounds; false if one of them was not measured.
func (r *report) ratio(a, b series) (float64, bool) {
	as, bs := r.series[a], r.series[b]
	if len(as) == 0 || len(as) != len(bs) {
		return 0, false
	}
	ratios := make([]float64, len(as))
	for i := range as {
		ratios[i] = as[i] / bs[i]
	}
	return median(ratios), true
}

// timing returns the figures of a contestant at a workload.
func (r *report) timing(id series) (timing, bool) {
	for _, t := range r.Timings {
		if t.Contestant == id.contestant && t.Workload == id.workload {
			return t, true
		}
	}
	return timing{}, false
}

func (r *report) footprint(name string) (footprint, bool) {
	for _, f := range r.Footprints {
		if f.Name == name {
			return f, true
		}
	}
	return footprint{}, false
}

// worstBudget returns the budget of which a key takes most.
func (r *report) worstBudget(name string) (worst budget, ok bool) {
	for _, b := range r.Budgets {
		if b.Name == name && (!ok || b.Bytes > worst.Bytes) {
			worst, ok = b, true
		}
	}
	return worst, ok
}
