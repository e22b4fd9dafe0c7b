package demo

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/gossip"
	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/rules"
)

const (
	sampleEvery = 250 * time.Millisecond
	healWithin  = 30 * time.Second
	agreeWithin = 5 * time.Second
	startUp     = 2 * time.Second // before it, nodes that were idle speak but every second
)

// run is a demo under way.
type run struct {
	opt     Options
	rule    *rules.Rule
	cluster *cluster
	ledger  *ledger
	watch   func(Sample)

	start    time.Time
	cutAt    time.Time // zero without a cut
	healedAt time.Time // when every node knew all again; zero before
	cutOff   string
	healMs   int64
	samples  []Sample
}

// Run runs the demo and calls watch with a sample four times a second. A report whose OK is false is no error.
func Run(ctx context.Context, o Options, watch func(Sample)) (*Report, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	rule, set, err := ruleFor(&o)
	if err != nil {
		return nil, err
	}
	c, err := startCluster(ctx, &o, set)
	if err != nil {
		return nil, err
	}
	defer c.close()
	r := &run{opt: o, rule: rule, cluster: c, ledger: newLedger(rule.Limit, o.Regions*o.Nodes), watch: watch, start: time.Now()}
	agreeMs, err := r.play(ctx)
	if err != nil {
		return nil, err
	}
	return r.report(agreeMs), nil
}

// ruleFor makes the one rule of the demo: each client may ask Limit times a Window.
func ruleFor(o *Options) (*rules.Rule, *rules.Set, error) {
	set, err := rules.Parse("demo", fmt.Appendf(nil,
		"domain: demo\ndescriptors: [{key: client, rate_limit: {name: per_client, window: %s, requests_per_unit: %d}}]\n", o.Window, o.Limit))
	if err != nil {
		return nil, nil, err
	}
	rule := set.Rules()[0]
	rule.Limit = rule.Limit.OnPartition(o.OnPartition)
	return rule, set, nil
}

// play offers the traffic, cuts and heals meanwhile, and at the end waits until the nodes agree.
func (r *run) play(ctx context.Context) (agreeMs int64, err error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	sampling, endSampling := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() { r.sample(sampling) })
	background.Go(func() {
		if err := r.cutAndHeal(ctx); err != nil {
			stop(err)
		}
	})
	background.Go(func() {
		select {
		case err := <-r.cluster.failed:
			stop(err)
		case <-sampling.Done():
		}
	})
	offer(ctx, &r.opt, r.start, func(i int, client string) { r.take(ctx, i, client) })
	ended := time.Now()
	agreeMs = -1
	switch err := r.cluster.await(ctx, agreeWithin, r.cluster.agree); err {
	case nil:
		agreeMs = time.Since(ended).Milliseconds()
	case errTooLong:
	default: // a node failed; it may be this wait that was told
		stop(err)
	}
	endSampling()
	background.Wait()
	return agreeMs, context.Cause(ctx)
}

func (r *run) take(ctx context.Context, i int, client string) {
	req := node.Request{Domain: "demo", Descriptors: [][]rules.Entry{{{Key: "client", Value: client}}}}
	at := time.Now()
	d, err := r.cluster.members[i].Take(ctx, req)
	if err == nil {
		r.ledger.note(i, client, at, d.Allowed)
	}
}

// cutAndHeal cuts the second region off for as long as asked, and measures how long the cluster takes to heal.
func (r *run) cutAndHeal(ctx context.Context) error {
	cut, heal := r.opt.schedule()
	if heal == 0 || !sleepUntil(ctx, r.start.Add(cut)) {
		return nil
	}
	region := regionName(1)
	r.cluster.links.Partition(region)
	r.mark(func() { r.cutAt, r.cutOff, r.healMs = time.Now(), region, -1 })
	if !sleepUntil(ctx, r.start.Add(heal)) {
		return nil
	}
	r.cluster.links.Heal()
	healed := time.Now()
	if err := r.cluster.await(ctx, healWithin, r.cluster.knownSince(healed)); err == nil {
		r.mark(func() { r.healedAt, r.healMs = time.Now(), time.Since(healed).Milliseconds() })
	} else if err != errTooLong {
		return err
	}
	return nil
}

func sleepUntil(ctx context.Context, t time.Time) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(time.Until(t)):
		return true
	}
}

// mark changes what the sampler reads.
func (r *run) mark(change func()) {
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	change()
}

func (r *run) sample(ctx context.Context) {
	ticker := time.NewTicker(sampleEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			s := r.look(now)
			r.samples = append(r.samples, s)
			r.watch(s)
		}
	}
}

func (r *run) look(now time.Time) Sample {
	s := Sample{Elapsed: now.Sub(r.start)}
	var nodes []Tally
	nodes, s.Total, s.Over = r.ledger.look(now)
	for i, m := range r.cluster.members {
		n := NodeSample{ID: m.id, Region: m.region, Tally: nodes[i],
			Members: len(m.Members()), Stale: m.Staleness(), Bound: m.Bound(r.rule.FullName)}
		s.Nodes = append(s.Nodes, n)
		s.Bound, s.Stale = max(s.Bound, n.Bound), max(s.Stale, n.Stale)
	}
	r.mark(func() { s.Phase, s.CutOff = r.phase(now), r.cutOff })
	return s
}

func (r *run) phase(now time.Time) Phase {
	window := r.opt.Window
	switch {
	case !r.cutAt.IsZero() && r.healedAt.IsZero():
		return Cut
	case !r.healedAt.IsZero() && now.Sub(r.healedAt) < r.settling():
		return Settling
	case now.Sub(r.start) > r.opt.Duration:
		return Ending
	case now.Sub(r.start) < window:
		return Filling
	}
	return Steady
}

// settling is how long after a heal the cut still shows: in the window, and in the bound, which forgets it later.
func (r *run) settling() time.Duration { return r.opt.Window*12/10 + gossip.BoundAfter(r.opt.Interval) }

// report draws the figures together.
func (r *run) report(agreeMs int64) *Report {
	o := &r.opt
	out := &Report{
		Regions: o.Regions, Nodes: o.Nodes, Limit: o.Limit, WindowSeconds: o.Window.Seconds(),
		IntervalMillis: millis(o.Interval), Seconds: o.Duration.Seconds(), Traffic: fmt.Sprintf("%g times the limit", o.Load),
		CutRegion: r.cutOff, CutSeconds: o.Cut.Seconds(), HealMillis: r.healMs, AgreeMillis: agreeMs,
	}
	if len(o.Log) > 0 {
		out.Traffic = fmt.Sprintf("a log, %.0f times as fast", o.Speed())
	}
	_, out.Tally, _ = r.ledger.look(time.Now())
	for name, c := range r.ledger.book.Clients() {
		if name == modest {
			out.hasty = !r.ledger.book.Compliant(c)
		} else {
			out.Clients++
		}
	}
	out.Fairness = r.ledger.book.Fairness()
	out.NetPct = percent(float64(out.Admitted)/float64(max(1, out.OracleAdmitted)) - 1)
	end := r.start.Add(o.Duration + late)
	if r.cutAt.IsZero() {
		out.OverAdmissionPct = percent(r.ledger.peakOver(r.start, end))
	} else {
		settled := end.Add(1) // where it never healed, all that is left is the cut's
		if !r.healedAt.IsZero() {
			settled = r.healedAt.Add(r.settling())
		}
		out.OverAdmissionPct = percent(max(r.ledger.peakOver(r.start, r.cutAt), r.ledger.peakOver(settled, end)))
		out.CutOverAdmissionPct = percent(r.ledger.peakOver(r.cutAt, settled))
	}
	r.readSamples(out)
	if o.Cut > 0 {
		out.CutCeilingPct = 100 + out.BoundPct
	}
	out.planned = o.planned()
	out.Limited = r.ledger.limited()
	out.judge()
	return out
}

// readSamples takes from the samples what only they know.
func (r *run) readSamples(out *Report) {
	var stale []time.Duration
	for i, s := range r.samples {
		if s.Phase == Cut || s.Phase == Settling {
			out.CutBoundPct = max(out.CutBoundPct, percent(s.Bound))
			out.CutOverAdmissionPct = max(out.CutOverAdmissionPct, percent(s.Over))
		} else {
			out.BoundPct = max(out.BoundPct, percent(s.Bound))
			out.OverAdmissionPct = max(out.OverAdmissionPct, percent(s.Over))
			if s.Elapsed > startUp {
				stale = append(stale, s.Stale)
			}
		}
		// What was over the limit is in the bound as soon as the reports of it have come.
		exported := s.Bound
		for _, later := range r.samples[i:] {
			if later.Elapsed-s.Elapsed > gossip.BoundAfter(r.opt.Interval) {
				break
			}
			exported = max(exported, later.Bound)
		}
		if s.Over > exported {
			out.Violations++
		}
	}
	if len(stale) > 0 {
		slices.Sort(stale)
		out.StalenessP50Millis = millis(stale[len(stale)/2])
		out.StalenessP99Millis = millis(stale[len(stale)*99/100])
	}
}
