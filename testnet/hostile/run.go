package hostile

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
	probe  *http.Client
}

// Phase is what one kind of hostility did.
type Phase struct {
	Name    string         `json:"name"`
	Seconds float64        `json:"seconds"`
	Opening Waits          `json:"opening"` // of clients that behave, while hostile connections are opened
	Good    Waits          `json:"good"`    // of the same, once they are
	Most    Gauges         `json:"most"`    // while it lasted
	After   Gauges         `json:"after"`   // when it was over
	Fates   map[string]int `json:"fates,omitempty"`
}

// Report is what a run found. Broken are the promises that the node did not keep; none: all is well.
type Report struct {
	Before Gauges   `json:"before"`
	Phases []Phase  `json:"phases"`
	Broken []string `json:"broken"`
}

// Run has clients that behave ask a node, alone and beside each kind of hostility. An error means that nothing can be said of the node.
func Run(ctx context.Context, target Target, opt Options, progress func(Phase)) (Report, error) {
	if err := opt.Validate(); err != nil {
		return Report{}, err
	}
	r := &run{opt, target, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	all := r.clients()
	defer func() {
		for _, c := range all {
			c.hangUp()
		}
	}()
	for _, c := range all {
		if err := c.ask(); err != nil {
			return Report{}, fmt.Errorf("ask %s: %w", c.addr, err)
		}
	}
	before, err := r.read(ctx)
	report := Report{Before: before, Broken: []string{}}
	if err != nil {
		return report, err
	}
	for _, p := range r.phases() {
		phase := r.phase(ctx, p, all)
		after, settled := r.settle(ctx, before)
		if ctx.Err() != nil {
			return report, ctx.Err()
		}
		phase.After = after
		report.Phases = append(report.Phases, phase)
		report.Broken = append(report.Broken, p.broken(phase, settled)...)
		progress(phase)
	}
	return report, nil
}

// kind is a kind of hostility.
type kind struct {
	name string
	// begin starts it. The functions that it returns wait until it is under way, and end it.
	begin func(ctx context.Context) (underWay func(), end func() map[string]int)
	// words are what clients are told that there is no room for; empty: there is room for all.
	words string
}

// phases are the kinds of hostility that the node has doors for.
func (r *run) phases() []kind {
	swarm := func(name string, n int, of func(int) speech, words string) kind {
		return kind{name, func(ctx context.Context) (func(), func() map[string]int) {
			s := r.send(ctx, n, of)
			return s.opened.Wait, s.end
		}, words}
	}
	toil := func(name string, do func(context.Context) map[string]int) kind {
		return kind{name, func(ctx context.Context) (func(), func() map[string]int) {
			var fates map[string]int
			var doing sync.WaitGroup
			doing.Go(func() { fates = do(ctx) })
			return func() {}, func() map[string]int { doing.Wait(); return fates }
		}, ""}
	}
	all := []kind{swarm("alone", 0, nil, ""), swarm("idle", r.opt.Idle, r.idle, refusedHTTP)}
	if r.target.RESP != "" {
		all = append(all, swarm("idle, Redis protocol", r.opt.Idle, r.idleRESP, refusedRESP))
	}
	all = append(all, swarm("stalled", r.opt.Stalled, r.stalled, ""), swarm("long bodies", r.opt.Bodies, r.longBody, ""), toil("nonsense", r.babble))
	if r.target.GRPC != "" {
		all = append(all, toil("streams reset", r.reset))
	}
	return append(all, swarm("afterwards", 0, nil, ""))
}

// phase measures the clients that behave while there is hostility of a kind.
func (r *run) phase(ctx context.Context, k kind, all []*client) Phase {
	begun := time.Now()
	p := Phase{Name: k.name}
	underWay, end := k.begin(ctx)
	var watching sync.WaitGroup
	watched, stop := context.WithCancel(ctx)
	watching.Go(func() { p.Most = r.watch(watched) })
	opened := make(chan struct{})
	go func() {
		underWay()
		close(opened)
	}()
	p.Opening = r.measure(ctx, all, math.MaxInt, opened)
	p.Good = r.measure(ctx, all, r.opt.Requests, nil)
	stop()
	watching.Wait()
	p.Fates = end()
	p.Seconds = time.Since(begun).Seconds()
	return p
}

// broken are the promises that were broken in a phase.
func (k *kind) broken(p Phase, settled bool) (broken []string) {
	say := func(format string, args ...any) { broken = append(broken, p.Name+": "+fmt.Sprintf(format, args...)) }
	for _, w := range []Waits{p.Opening, p.Good} {
		if w.Failed > 0 {
			say("%d of %d requests of clients that behave were not answered, the last one: %s", w.Failed, w.Failed+w.Answers, w.Error)
		}
	}
	if !settled {
		say("the node did not give back what it took: %+v", p.After)
	}
	if n := p.Fates[closedAtOnce]; k.words != "" && n > 0 {
		say("%d connections were closed without a word", n)
	}
	return broken
}
