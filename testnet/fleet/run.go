package fleet

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
)

// Run starts the fleet, plays the run and ends it, whatever happens. An error says why there is no report, or that
// nodes did not end in order.
func Run(ctx context.Context, o Options) (_ *Report, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	f, err := open(ctx, &o)
	if err != nil {
		return nil, err
	}
	f.log("all %d nodes see each other", len(f.nodes))
	hot, err := o.hotRule()
	if err != nil {
		f.kill()
		return nil, err
	}
	r := &run{fleet: f, load: newLoad(f), hot: hot, report: &Report{Regions: o.Regions, Nodes: o.Nodes,
		IntervalMillis: float64(o.Interval.Milliseconds()), StartSeconds: time.Since(f.began).Seconds()}}
	if err := r.play(ctx); err != nil {
		f.kill()
		return nil, err
	}
	f.log("ending all nodes")
	if err := f.close(ctx); err != nil {
		return nil, fmt.Errorf("nodes did not end in order: %w", err)
	}
	r.report.assert(&o)
	return r.report, nil
}

// run is a run of a fleet that is complete.
type run struct {
	fleet  *fleet
	load   *load
	report *Report
	hot    *rules.Rule
}

// hotRule returns the rule of the clients above their limits, as the nodes read it.
func (o *Options) hotRule() (*rules.Rule, error) {
	set, err := rulefile.Load(filepath.Join(o.Dir, rulesFile))
	if err != nil {
		return nil, err
	}
	for _, rule := range set.Rules() {
		if rule.Name == hotRule {
			return rule, nil
		}
	}
	return nil, fmt.Errorf("no rule %s in %s", hotRule, rulesFile)
}

func (r *run) play(ctx context.Context) error {
	if err := r.steady(ctx); err != nil {
		return err
	}
	if r.fleet.opt.Restart {
		if err := r.rolling(ctx); err != nil {
			return err
		}
	}
	return r.conclude(ctx)
}

// steady offers load and measures the nodes.
func (r *run) steady(ctx context.Context) error {
	f, o := r.fleet, r.fleet.opt
	f.log("load for %v", o.For)
	before, err := r.reading(ctx)
	if err != nil {
		return err
	}
	var p probes
	p.fleet = f
	began := time.Now()
	if err := r.under(ctx, &r.report.Steady, func(ctx context.Context) error {
		probing, stop := context.WithTimeout(ctx, o.For)
		defer stop()
		p.run(probing)
		return context.Cause(ctx)
	}); err != nil {
		return err
	}
	after, err := r.reading(ctx)
	if err != nil {
		return err
	}
	r.report.Steady.InRegion, r.report.Steady.Across = p.staleness()
	r.report.Steady.cost(before, after, time.Since(began))
	return r.agree(ctx, &r.report.Steady)
}

// rolling restarts every node in turn under load.
func (r *run) rolling(ctx context.Context) error {
	f := r.fleet
	f.log("restarting every node in turn")
	r.report.Rolling = &Phase{}
	if err := r.under(ctx, r.report.Rolling, func(ctx context.Context) error {
		for i, n := range f.nodes {
			began := time.Now()
			if err := f.restart(ctx, i, func() { r.load.restarted(i) }); err != nil {
				return fmt.Errorf("restart %s: %w", n.name, err)
			}
			r.report.RestartSeconds = max(r.report.RestartSeconds, time.Since(began).Seconds())
			if (i+1)%f.opt.Nodes == 0 {
				f.log("%d of %d nodes are restarted", i+1, len(f.nodes))
			}
		}
		return f.awaitComplete(ctx)
	}); err != nil {
		return err
	}
	return r.agree(ctx, r.report.Rolling)
}

// under offers load while do runs, and measures meanwhile what it did to the clients and to this process.
func (r *run) under(ctx context.Context, phase *Phase, do func(context.Context) error) error {
	loading, stop := context.WithCancel(ctx)
	defer stop()
	began, before := time.Now(), r.load.summary()
	s, stalls := &sweeper{fleet: r.fleet, rule: r.hot.FullName}, &pauses{}
	var background sync.WaitGroup
	background.Go(func() { r.load.run(loading) })
	background.Go(func() { s.run(loading) })
	background.Go(func() { stalls.run(loading) })
	err := do(ctx)
	stop()
	background.Wait()
	phase.bounds, phase.Seconds = s.bounds, time.Since(began).Seconds()
	phase.pauses(stalls.each)
	phase.requests(before, r.load.summary())
	return err
}

// agree waits until the nodes agree, and logs what does not.
func (r *run) agree(ctx context.Context, phase *Phase) (err error) {
	if phase.Agreement, err = r.load.agree(ctx); err != nil {
		return err
	}
	r.fleet.log("%d counts of %d clients, %d wrong, after %.1f s %s", phase.Agreement.Counts, phase.Agreement.Clients,
		phase.Agreement.Wrong, phase.Agreement.Seconds, phase.Agreement.First)
	return nil
}

// reading is what the nodes have used and sent so far.
type reading struct {
	usages []usage
	totals gossipTotals
	self   time.Duration // CPU time of this process
}

func (r *run) reading(ctx context.Context) (x reading, err error) {
	if x.usages, err = r.fleet.usages(); err != nil {
		return x, err
	}
	u, err := readUsage(os.Getpid())
	if err != nil {
		return x, err
	}
	x.self = u.cpu
	x.totals, err = r.fleet.totals(ctx)
	return x, err
}

// conclude judges what was recorded of the whole run.
func (r *run) conclude(ctx context.Context) error {
	slices.SortFunc(r.load.hot, func(a, b decision) int { return cmp.Compare(a.sent, b.sent) })
	r.report.Hot = judgeExcess(r.load.hot, r.report.Steady.bounds, r.fleet.sweep(), r.hot.Limit)
	last, err := r.reading(ctx)
	if err != nil {
		return err
	}
	r.report.Malformed, r.report.RefusedSlots = last.totals.malformed, last.totals.refused
	peak := r.fleet.discarded.resident
	for _, u := range last.usages {
		peak = max(peak, u.resident)
	}
	r.report.PeakMiB = float64(peak) / (1 << 20)
	return context.Cause(ctx)
}
