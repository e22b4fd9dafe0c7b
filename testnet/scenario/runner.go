package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/edgelimit/edgelimit/testnet/cluster"
	"github.com/edgelimit/edgelimit/testnet/judge"
	"github.com/edgelimit/edgelimit/testnet/traffic"
)

// MaxPause is the longest time that this process may be kept from running: a gossip interval. Beyond that, the nodes'
// knowledge is older than network and interval explain, and the run measures the machine.
const MaxPause = 100 * time.Millisecond

// Runner runs scenarios.
type Runner struct {
	Cluster Cluster
	// Progress, if set, gets a line for each step.
	Progress io.Writer
	// Records is a folder to keep the records in; empty: they are removed, unless the scenario fails.
	Records string
	// Client sends the requests; nil: one for each run.
	Client *http.Client

	measurePause func(context.Context) time.Duration // until ctx ends; nil: traffic.LongestStall
}

// Run runs a scenario, and repeats it once where Result.repeatable says so. The record of the first run is kept then,
// and named in the result.
func (x *Runner) Run(ctx context.Context, s Scenario) Result {
	if x.Progress == nil {
		x.Progress = io.Discard
	}
	if x.measurePause == nil {
		x.measurePause = traffic.LongestStall
	}
	began := time.Now()
	fmt.Fprintf(x.Progress, "-- %s: %s\n", s.Name, s.What)
	result := x.attempt(ctx, s)
	result.Attempts = 1
	if result.repeatable() && ctx.Err() == nil {
		fmt.Fprintf(x.Progress, "%s-- %s: once more, as the machine stood still\n", result.text(), s.Name)
		first := result
		result = x.attempt(ctx, s)
		result.Attempts, result.FirstRecord = 2, first.Record
	}
	result.Seconds = time.Since(began).Seconds()
	return result
}

// attempt runs a scenario once.
func (x *Runner) attempt(ctx context.Context, s Scenario) (result Result) {
	result = Result{Name: s.Name, Assertions: []Assertion{}, Figures: map[string]float64{},
		Violations: []judge.Violation{}, Observations: []string{}}
	r := &Run{Cluster: x.Cluster, progress: x.Progress, result: &result, client: x.Client, started: time.Now(),
		// The clock and not a random number, so that a log orders the runs.
		name: s.Name + "-" + strconv.FormatInt(time.Now().UnixMilli(), 36)}
	if r.client == nil {
		r.client = traffic.NewClient(traffic.DefaultWorkers)
		defer r.client.CloseIdleConnections()
	}
	file, err := x.prepare(ctx, r, s.Rule)
	if err != nil {
		result.Error = err.Error()
		return result
	}
	err = errors.Join(x.execute(ctx, r, s), r.restore(ctx), r.record.file.Close())
	if err == nil {
		err = r.judge(s, file)
	}
	result.Record = file
	if err == nil && result.passed() && x.Records == "" {
		err = os.RemoveAll(filepath.Dir(file))
		result.Record = ""
	}
	if err != nil {
		result.Error = err.Error()
	}
	result.OK = result.Error == "" && result.passed()
	return result
}

// prepare waits until the cluster is complete, finds its nodes and the rule, and creates the record.
func (x *Runner) prepare(ctx context.Context, r *Run, rule string) (file string, err error) {
	if err := r.Cluster.Up(ctx); err != nil {
		return "", err
	}
	all, err := r.Cluster.Nodes(ctx)
	if err != nil {
		return "", err
	}
	r.Nodes = cluster.WithoutSidecars(all)
	if r.rule, err = FindRule(r.Cluster.Rules(), rule); err != nil {
		return "", err
	}
	dir := x.Records
	if dir == "" {
		dir, err = os.MkdirTemp("", "edgelimit-scenario-")
	} else {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return "", err
	}
	file = filepath.Join(dir, r.name+".jsonl.gz")
	w, err := CreateRecord(file, r.rule, r.Nodes)
	r.record = &recorder{file: w}
	return file, err
}

// execute offers the load, runs the steps meanwhile, and measures whether the machine stood still.
func (x *Runner) execute(ctx context.Context, r *Run, s Scenario) error {
	if s.Setup.Do != nil {
		r.log("%s", s.Setup.What)
		if err := s.Setup.Do(ctx, r); err != nil {
			return fmt.Errorf("%s: %w", s.Setup.What, err)
		}
	}
	options, identities := r.options(s)
	if s.Rule == accountRule && !s.Unprimed {
		for _, stream := range s.Streams {
			used := cmp.Or(s.Used[stream.Identity], primeCost)
			if err := r.Prime(ctx, r.Nodes[0].Name, r.ID(stream.Identity), used); err != nil {
				return err
			}
		}
	}
	measuring, stopMeasuring := context.WithCancel(ctx)
	defer stopMeasuring()
	paused := make(chan time.Duration, 1)
	go func() { paused <- x.measurePause(measuring) }()
	watch := Watch{Nodes: r.Nodes, Observe: r.Cluster.Observe, Rule: r.rule.Name,
		Identities: identities, Client: r.client}
	var err error
	r.Load, err = Offer(ctx, options, watch, r.record, func(ctx context.Context) error {
		defer stopMeasuring()
		for _, step := range s.Steps {
			r.log("%s", step.What)
			if err := step.Do(ctx, r); err != nil {
				return fmt.Errorf("%s: %w", step.What, err)
			}
		}
		r.log("the load ends; observing the nodes until they settle")
		return nil
	})
	pause := <-paused
	r.Figure("generator_late_ms", float64(r.Load.Late.Milliseconds()))
	r.Figure("machine_pause_ms", float64(pause.Milliseconds()))
	if pause > MaxPause {
		r.result.Busy = fmt.Sprintf("this process was kept from running for %v", pause.Round(time.Millisecond))
	}
	return err
}

// options returns the scenario's load with the identities of this run.
func (r *Run) options(s Scenario) (traffic.Options, []string) {
	o := traffic.Options{Rule: r.rule.Name, Duration: traffic.MaxDuration / 6, Seed: uint64(len(s.Name)),
		Timeout: s.Timeout, Elsewhere: s.Elsewhere, Balanced: s.Balanced, Client: r.client, Workers: 512}
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

// judge checks the record's invariants and the assertions.
func (r *Run) judge(s Scenario, file string) error {
	report, err := judge.CheckFile(file)
	if err != nil {
		return err
	}
	r.Report = report
	r.result.Violations = report.Violations
	total := &report.Total
	for name, v := range map[string]float64{
		"offered": float64(r.Load.Offered), "admitted": float64(total.Admitted), "denied": float64(total.Denied),
		"failed": float64(r.Load.Failed), "moved": float64(r.Load.Moved), "lost_answers": float64(r.Load.Lost),
		"net_pct": total.NetPct, "excess_pct": total.ExcessPct, "bound_pct": total.BoundPct,
		"false_rejections": float64(total.FalseRejections), "p50_ms": total.LatencyP50Ms, "p99_ms": total.LatencyP99Ms,
		"agree_ms": report.AgreeMs,
	} {
		r.Figure(name, v)
	}
	r.Assert("every request is answered", r.Load.Failed == 0 && r.Load.Offered > 0, "0 failed", "%d of %d failed %v",
		r.Load.Failed, r.Load.Offered, r.Load.Kinds())
	r.Assert("no invariant is broken", report.OK, "0 violations", "%d violations", len(report.Violations))
	if s.Check != nil {
		s.Check(r)
	}
	return nil
}

// accountRule is a rule whose counts are exact: nothing leaves its window while a scenario runs.
const accountRule = "per_account"

var _ Cluster = (*cluster.Cluster)(nil)
