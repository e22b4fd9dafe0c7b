package abuse

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"
)

// run is one run against one node.
type run struct {
	opt    Options
	target Target
	probe  *http.Client // reads the node's metrics
}

// Phase is the result of one kind of abuse.
type Phase struct {
	Name      string         `json:"name"`
	Seconds   float64        `json:"seconds"`
	Opening   Latencies      `json:"opening"` // of compliant clients while the abuse starts
	Compliant Latencies      `json:"good"`    // of compliant clients under the full abuse
	Peak      Gauges         `json:"most"`
	After     Gauges         `json:"after"`
	Outcomes  map[string]int `json:"fates,omitempty"` // of the abusive connections
}

// Report is the result of a run. Broken lists the assertions that failed.
type Report struct {
	Before Gauges   `json:"before"`
	Phases []Phase  `json:"phases"`
	Broken []string `json:"broken"`
}

// Run sends requests of compliant clients to a node, alone and under each kind of abuse. It returns an error if it
// could not test the node.
func Run(ctx context.Context, target Target, opt Options, progress func(Phase)) (Report, error) {
	if err := opt.Validate(); err != nil {
		return Report{}, err
	}
	r := &run{opt, target, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	clients := r.compliantClients()
	defer func() {
		for _, c := range clients {
			c.close()
		}
	}()
	for _, c := range clients {
		if err := c.send(); err != nil {
			return Report{}, fmt.Errorf("first request to %s: %w", c.addr, err)
		}
	}
	before, err := r.gauges(ctx)
	report := Report{Before: before, Broken: []string{}}
	if err != nil {
		return report, err
	}
	for _, a := range r.attacks() {
		phase := r.phase(ctx, a, clients)
		after, released := r.awaitRelease(ctx, before)
		if ctx.Err() != nil {
			return report, ctx.Err()
		}
		phase.After = after
		report.Phases = append(report.Phases, phase)
		report.Broken = append(report.Broken, a.broken(phase, released)...)
		progress(phase)
	}
	return report, nil
}

// phase measures the compliant clients during one attack.
func (r *run) phase(ctx context.Context, a attack, clients []*client) Phase {
	start := time.Now()
	p := Phase{Name: a.name}
	awaitOpen, stopAttack := a.start(ctx)
	var watching sync.WaitGroup
	watchCtx, stopWatching := context.WithCancel(ctx)
	watching.Go(func() { p.Peak = r.watchPeak(watchCtx) })
	opened := make(chan struct{})
	go func() {
		awaitOpen()
		close(opened)
	}()
	p.Opening = r.measure(ctx, clients, math.MaxInt, opened)
	p.Compliant = r.measure(ctx, clients, r.opt.Requests, nil)
	stopWatching()
	watching.Wait()
	p.Outcomes = stopAttack()
	p.Seconds = time.Since(start).Seconds()
	return p
}

// broken lists the assertions that failed in a phase.
func (a *attack) broken(p Phase, released bool) (broken []string) {
	add := func(format string, args ...any) { broken = append(broken, p.Name+": "+fmt.Sprintf(format, args...)) }
	for _, l := range []Latencies{p.Opening, p.Compliant} {
		if l.Failed > 0 {
			add("%d of %d requests of compliant clients failed, last error: %s", l.Failed, l.Failed+l.Answers, l.Error)
		}
	}
	if !released {
		add("the node did not release its resources: %+v", p.After)
	}
	if n := p.Outcomes[closedAtOnce]; a.refusal != "" && n > 0 {
		add("%d connections were closed without an error reply", n)
	}
	return broken
}
