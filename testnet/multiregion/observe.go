package multiregion

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/edgelimit/edgelimit/regions"
)

// Observation is what a node says of itself.
type Observation struct {
	// At is when it was asked, before it answered.
	At time.Time
	// NotReady is why it is not ready; empty: it is.
	NotReady string
	// Members are the other nodes that it sees.
	Members int
	// Staleness is the age of its oldest knowledge of another one; Degraded its own verdict on that.
	Staleness time.Duration
	Degraded  bool
	// Bound is the largest over-admission bound of its rules, as a part of the limit; Bounds are those of each, by full name.
	Bound  float64
	Bounds map[string]float64
	// Started is when its process was.
	Started time.Time
	// StorePending and StoreFailed are slots that wait for the region's Redis, and calls of it that failed; -1: it has no store.
	StorePending, StoreFailed int64
	// StoreLost is how often it found that the region's Redis had lost data.
	StoreLost int64
	// Breaker says whether it calls the region's Redis: closed (it does), open or half-open; empty: it has no store.
	Breaker string
}

// askTimeout is how long a node may take to answer; on one machine, only one that is paused takes long.
const askTimeout = 3 * time.Second

// Observe asks a node for its metrics and its readiness.
func (t *Testnet) Observe(ctx context.Context, n Node) (Observation, error) {
	if n.Metrics == "" {
		return Observation{}, fmt.Errorf("node %s publishes no metrics", n.Name)
	}
	o := Observation{At: time.Now()}
	_, text, err := t.get(ctx, n.Metrics+"/metrics")
	if err != nil {
		return o, fmt.Errorf("node %s: %w", n.Name, err)
	}
	if err := o.read(strings.NewReader(text)); err != nil {
		return o, fmt.Errorf("node %s: metrics: %w", n.Name, err)
	}
	status, text, err := t.get(ctx, n.Metrics+"/readyz")
	if err != nil {
		return o, fmt.Errorf("node %s: %w", n.Name, err)
	}
	if status != http.StatusOK {
		o.NotReady = strings.TrimSpace(text)
	}
	return o, nil
}

func (t *Testnet) get(ctx context.Context, url string) (status int, body string, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := t.web.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	return resp.StatusCode, string(b), err
}

// read takes the figures from a node's metrics.
func (o *Observation) read(metrics io.Reader) error {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(metrics)
	if err != nil {
		return err
	}
	staleness, there := families["edgelimit_staleness_seconds"]
	if !there {
		return fmt.Errorf("there is no edgelimit_staleness_seconds among them")
	}
	o.Staleness = time.Duration(sum(staleness) * float64(time.Second))
	o.Degraded = sum(families["edgelimit_degraded"]) > 0
	o.Members = int(sum(families["edgelimit_members"]))
	o.Bounds = make(map[string]float64)
	for _, m := range families["edgelimit_over_admission_bound_ratio"].GetMetric() {
		o.Bound = max(o.Bound, value(m))
		for _, l := range m.GetLabel() {
			if l.GetName() == "rule" {
				o.Bounds[l.GetValue()] = value(m)
			}
		}
	}
	whole, part := math.Modf(sum(families["process_start_time_seconds"]))
	o.Started = time.Unix(int64(whole), int64(part*1e9))
	o.StorePending, o.StoreFailed = -1, -1
	if pending, there := families["edgelimit_store_pending_slots"]; there {
		o.StorePending, o.StoreFailed = int64(sum(pending)), int64(sum(families["edgelimit_store_failed_calls_total"]))
		o.StoreLost = int64(sum(families["edgelimit_store_lost_total"]))
		o.Breaker = regions.BreakerState(sum(families["edgelimit_store_breaker_state"])).String()
	}
	return nil
}

func sum(f *dto.MetricFamily) (total float64) {
	for _, m := range f.GetMetric() {
		total += value(m)
	}
	return total
}

func value(m *dto.Metric) float64 {
	return m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()
}

// sight is a node and what it said, or why it said nothing.
type sight struct {
	Node
	Observation
	err error
}

// view is all nodes at about the same moment.
type view []sight

// look asks all nodes that run, at once.
func (t *Testnet) look(ctx context.Context) (view, error) {
	nodes, err := t.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	return t.ask(ctx, nodes), nil
}

func (t *Testnet) ask(ctx context.Context, nodes []Node) view {
	v := make(view, len(nodes))
	var asking sync.WaitGroup
	for i, n := range nodes {
		v[i] = sight{Node: n}
		if !n.Running() {
			v[i].err = fmt.Errorf("node %s is not running (%s, exit status %d)", n.Name, n.State, n.container.ExitCode)
			continue
		}
		asking.Go(func() { v[i].Observation, v[i].err = t.Observe(ctx, n) })
	}
	asking.Wait()
	return v
}

// unhealthy tells of the nodes that do not run, answer, or pass the engine's health check.
func (v view) unhealthy() (lack []string) {
	for _, s := range v {
		switch {
		case s.err != nil:
			lack = append(lack, s.err.Error())
		case s.NotReady != "":
			lack = append(lack, fmt.Sprintf("%s is not ready: %s", s.Name, s.NotReady))
		case s.container.Health != "healthy":
			lack = append(lack, fmt.Sprintf("%s is %s to the engine", s.Name, s.container.Health))
		}
	}
	return lack
}

// apart tells of the nodes that answer and do not see all the others that answer and could be seen.
func (v view) apart() (lack []string) {
	for _, s := range v {
		if s.err != nil {
			continue
		}
		others := 0
		for _, o := range v {
			if o.err == nil && o.Name != s.Name && (o.Region == s.Region || !o.Cut && !s.Cut) {
				others++
			}
		}
		if s.Members < others {
			lack = append(lack, fmt.Sprintf("%s sees %d of %d others", s.Name, s.Members, others))
		}
	}
	return lack
}

// complete reports whether all nodes answer and are on the WAN.
func (v view) complete() bool {
	for _, s := range v {
		if s.err != nil || s.Cut {
			return false
		}
	}
	return true
}
