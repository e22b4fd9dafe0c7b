package scenario

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/checker"
	"github.com/edgelimit/edgelimit/testnet/load"
	"github.com/edgelimit/edgelimit/testnet/multiregion"
	"github.com/edgelimit/edgelimit/testnet/record"
)

// What makes a run no measurement, and how often it is repeated then.
const (
	BusyAfter = 250 * time.Millisecond
	Repeats   = 4
)

// settle is how long nodes are observed after the last request: longer than they may take to agree, which is 5 s.
const settle = 6500 * time.Millisecond

// Runner runs scenarios.
type Runner struct {
	Net Net
	// Progress gets a line for each step; nil: nobody does.
	Progress io.Writer
	// Records is a folder to keep the records in; empty: they are removed, unless the scenario fails.
	Records string
	// Client asks the nodes; nil: one for each run.
	Client *http.Client
}

// Run runs a scenario, again where the machine was too busy.
func (x *Runner) Run(ctx context.Context, s Scenario) Result {
	if x.Progress == nil {
		x.Progress = io.Discard
	}
	began := time.Now()
	for attempt := 1; ; attempt++ {
		fmt.Fprintf(x.Progress, "-- %s: %s\n", s.Name, s.What)
		result := x.attempt(ctx, s)
		result.Attempts, result.Seconds = attempt, time.Since(began).Seconds()
		if result.OK || result.Busy == "" || attempt > Repeats || ctx.Err() != nil {
			return result
		}
		fmt.Fprintf(x.Progress, "-- %s: machine too busy: %s; once more\n", s.Name, result.Busy)
		if x.Records == "" && result.Record != "" {
			_ = os.RemoveAll(filepath.Dir(result.Record)) // what is left of it harms nobody
		}
	}
}

// attempt runs a scenario once.
func (x *Runner) attempt(ctx context.Context, s Scenario) (result Result) {
	result = Result{Name: s.Name, Promises: []Promise{}, Figures: map[string]float64{}, Violations: []checker.Violation{}, Evidence: []string{}}
	defer func() {
		result.OK = result.Error == "" && len(result.Violations) == 0 && result.held() == len(result.Promises)
	}()
	r := &Run{Net: x.Net, progress: x.Progress, result: &result, client: x.Client, started: time.Now()}
	if r.client == nil {
		r.client = load.NewClient(load.DefaultWorkers)
		defer r.client.CloseIdleConnections()
	}
	// The machine's clock and not a random number, so that runs are told apart in a log.
	r.name = s.Name + "-" + strconv.FormatInt(time.Now().UnixMilli(), 36)
	fail := func(err error) {
		if err != nil {
			result.Error = errors.Join(errorOf(result.Error), err).Error()
		}
	}
	if err := r.open(ctx, s.Rule); err != nil {
		fail(err)
		return result
	}
	file, err := x.create(r)
	if err != nil {
		fail(err)
		return result
	}
	busy, err := r.play(ctx, s)
	fail(err)
	fail(r.mend(ctx))
	fail(r.log.file.Close())
	result.Busy = busy
	if result.Error == "" {
		fail(r.judge(s, file))
	}
	if result.Error == "" && len(result.Violations) == 0 && result.held() == len(result.Promises) && x.Records == "" {
		fail(os.RemoveAll(filepath.Dir(file)))
	} else {
		result.Record = file
	}
	return result
}

func errorOf(text string) error {
	if text == "" {
		return nil
	}
	return errors.New(text)
}

// open makes sure that the testnet is whole, and finds its nodes and its rules.
func (r *Run) open(ctx context.Context, rule string) (err error) {
	if err := r.Net.Up(ctx); err != nil {
		return err
	}
	all, err := r.Net.Nodes(ctx)
	if err != nil {
		return err
	}
	for _, n := range all {
		if !n.Sidecar {
			r.Nodes = append(r.Nodes, n)
		}
	}
	if r.rules, err = rules.Load(r.Net.RulesFile()); err != nil {
		return err
	}
	for _, known := range r.rules.Rules() {
		if known.Name == rule && known.Limit != nil {
			r.rule = known
			return nil
		}
	}
	return fmt.Errorf("%s has no rule %s with a limit, which the scenario needs", r.Net.RulesFile(), rule)
}

// create begins the record.
func (x *Runner) create(r *Run) (file string, err error) {
	dir := x.Records
	if dir == "" {
		if dir, err = os.MkdirTemp("", "edgelimit-scenario-"); err != nil {
			return "", err
		}
	} else if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	h := record.Header{Rule: record.NewRule(r.rule.Limit), Started: time.Now().UnixNano()}
	for _, n := range r.Nodes {
		h.Nodes = append(h.Nodes, record.Node{ID: n.Name, Region: n.Region})
	}
	file = filepath.Join(dir, r.name+".jsonl.gz")
	w, err := record.Create(file, h)
	r.log = &journal{file: w}
	return file, err
}

// play offers the load and takes the steps.
func (r *Run) play(ctx context.Context, s Scenario) (busy string, err error) {
	options, identities := r.options(s)
	if s.Rule == accounts {
		for _, identity := range identities {
			if err := r.Prime(ctx, r.Nodes[0].Name, identity); err != nil {
				return "", err
			}
		}
	}
	watch := load.Watch{Nodes: r.Nodes, Observe: r.Net.Observe, Rule: r.rule.Name, FullName: r.rule.FullName, Identities: identities, Client: r.client}
	watching, stopWatching := context.WithCancel(ctx)
	loading, stopLoading := context.WithCancel(ctx)
	defer stopWatching()
	defer stopLoading()
	var watched, loaded error
	var watchers, loaders sync.WaitGroup
	watchers.Go(func() { watched = watch.Run(watching, r.log) })
	loaders.Go(func() { r.Load, loaded = load.Run(loading, options, r.log) })
	loaders.Go(func() { r.Pause = load.Pulse(loading) })

	stepped := r.steps(ctx, s.Steps)
	stopLoading()
	loaders.Wait()
	if stepped == nil {
		r.say("the load has ended: %d requests; watching the nodes settle", r.Load.Offered)
		stepped = sleep(ctx, settle)
	}
	stopWatching()
	watchers.Wait()

	r.Figure("generator_late_ms", float64(r.Load.Late.Milliseconds()))
	r.Figure("machine_pause_ms", float64(r.Pause.Milliseconds()))
	if errors.Is(loaded, load.ErrBehind) {
		busy = loaded.Error()
	} else if r.Pause > BusyAfter {
		busy = fmt.Sprintf("this process was not let run for %v", r.Pause.Round(time.Millisecond))
	}
	return busy, errors.Join(stepped, loaded, watched)
}

func (r *Run) steps(ctx context.Context, steps []Step) error {
	for _, step := range steps {
		r.say("%s", step.What)
		if err := step.Do(ctx, r); err != nil {
			return fmt.Errorf("%s: %w", step.What, err)
		}
	}
	return nil
}

// options make the scenario's streams this run's.
func (r *Run) options(s Scenario) (load.Options, []string) {
	o := load.Options{Rule: r.rule.Name, Duration: load.MaxDuration / 6, Seed: uint64(len(s.Name)), Timeout: s.Timeout, Elsewhere: s.Elsewhere, Client: r.client, Workers: 512}
	for _, n := range r.Nodes {
		o.Targets = append(o.Targets, targetOf(n))
	}
	var identities []string
	for _, stream := range s.Streams {
		if only := s.Only[stream.Identity]; only != "" {
			stream.Weights = make([]float64, len(r.Nodes))
			for i, n := range r.Nodes {
				if n.Name == only {
					stream.Weights[i] = 1
				}
			}
		}
		stream.Identity = r.ID(stream.Identity)
		identities = append(identities, stream.Identity)
		o.Streams = append(o.Streams, stream)
	}
	return o, identities
}

// judge has the record checked, and checks the promises.
func (r *Run) judge(s Scenario, file string) error {
	report, err := checker.CheckFile(file)
	if err != nil {
		return err
	}
	r.Report = report
	r.result.Violations = report.Broken()
	total := &report.Total
	for name, v := range map[string]float64{
		"offered": float64(r.Load.Offered), "admitted": float64(total.Admitted), "denied": float64(total.Denied), "failed": float64(r.Load.Failed),
		"moved": float64(r.Load.Moved), "lost_answers": float64(r.Load.Lost), "net_pct": total.NetPct, "excess_pct": total.ExcessPct,
		"bound_pct": total.BoundPct, "false_rejections": float64(total.FalseRejections),
		"p50_ms": total.LatencyP50Ms, "p99_ms": total.LatencyP99Ms, "agree_ms": report.AgreeMs,
	} {
		r.Figure(name, v)
	}
	r.Promise("every request is answered", r.Load.Failed == 0 && r.Load.Offered > 0, "0 failed", fmt.Sprintf("%d of %d failed %v", r.Load.Failed, r.Load.Offered, r.Load.Kinds()))
	r.Promise("no invariant is broken", report.OK, "0 violations", fmt.Sprintf("%d violations", len(report.Violations)))
	if s.Check != nil {
		s.Check(r)
	}
	return nil
}

// accounts is the rule whose counts are exact: nothing leaves its window while a scenario runs.
const accounts = "per_account"

var _ Net = (*multiregion.Testnet)(nil)
