package demo

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/testnet/judge"
	"github.com/edgelimit/edgelimit/testnet/netem"
)

func TestMain(m *testing.M) { testkit.MainWithoutLeaks(m) }

// small is a demo that is over in a few seconds: 200 requests a second and region offered on a limit of 200.
func small() Options {
	o := DefaultOptions()
	o.Regions, o.Nodes, o.Limit = 2, 2, 200
	o.Window, o.Duration, o.Partition = time.Second, 3*time.Second, time.Second
	return o
}

// A short demo ends well. Its figures are those of a real cluster in real time: a run in which the machine was measured
// to stand still says nothing of them, and is repeated once. That a demo cannot end well when it must not is held by
// the tests of deaf clusters.
func TestRunPartitionsAndHeals(t *testing.T) {
	o := small()
	for range 2 {
		var samples []Sample
		r, err := Run(t.Context(), o, func(s Sample) { samples = append(samples, s) })
		if err != nil {
			t.Fatal(err)
		}
		checkReport(t, r)
		checkSamples(t, &o, r, samples)
		wrong := wrongFigures(r, samples)
		if len(wrong) == 0 {
			return
		}
		if !r.Stalled() {
			t.Fatalf("%q with %+v", wrong, *r)
		}
		t.Logf("the machine stood still for %v ms: %q with %+v", r.StallMillis, wrong, *r)
	}
	t.Error("the machine stood still twice")
}

// wrongFigures says what does not hold of the figures.
func wrongFigures(r *Report, samples []Sample) []string {
	wrong := slices.Clone(r.Wrong)
	for _, w := range []struct {
		is   bool
		what string
	}{
		{!r.OK || r.HealMillis < 0 || r.AgreeMillis < 0 || r.PartitionBoundPct <= 0 || r.ExcessPct > r.BoundPct,
			"not ok"},
		{r.Offered < 1000 || r.Offered > 1400, "not about 1200 offered"},
		{r.OracleAdmitted < 200 || r.OracleAdmitted > 900 || r.Admitted < r.OracleAdmitted/2,
			"not 200 a second, and for the cluster not much less"},
		// Each side has half of the traffic and so, alone, room for all of it; but it takes the other to have its
		// share.
		{r.PartitionOverAdmissionPct > 50, "too much over the limit when partitioned"},
		{r.CompliantOffered == 0 || r.FalseRejections > 0, "the compliant client was not there, or was rejected"},
		{len(samples) < 8, "too few samples in more than 3 s"},
	} {
		if w.is {
			wrong = append(wrong, w.what)
		}
	}
	for _, p := range []Phase{Filling, Partitioned} {
		if !slices.ContainsFunc(samples, func(s Sample) bool { return s.Phase == p }) {
			wrong = append(wrong, "no sample of the phase "+string(p))
		}
	}
	return wrong
}

// checkReport looks at what holds whether the figures were good or not.
func checkReport(t *testing.T, r *Report) {
	t.Helper()
	if r.PartitionRegion != "eu-west" || r.PartitionSeconds != 1 || r.PartitionCeilingPct < 100 {
		t.Errorf("partition of %q for %v s with a ceiling of %v %%", r.PartitionRegion, r.PartitionSeconds,
			r.PartitionCeilingPct)
	}
	if r.Offered != r.Admitted+r.Denied || r.Clients != 1 {
		t.Errorf("%+v by %d clients", r.Requests, r.Clients)
	}
	if len(r.Limited) != 1 || r.Limited[0].Requests != r.Requests {
		t.Errorf("limited: %+v", r.Limited)
	}
}

// Whole clusters spend most of their time waiting, so their tests wait at the same time.
func TestClusters(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	for name, test := range map[string]func(*testing.T){
		"ends while it starts": func(t *testing.T) { runEndsWithItsContext(t, true) },
		"ends while it runs":   func(t *testing.T) { runEndsWithItsContext(t, false) },
		"a node fails":         runReportsANodeThatFails,
		"a partition is never healed": func(t *testing.T) {
			deafIsNotOK(t, func(l *netem.Links) { l.Partition(regionName(0)) })
		},
		"all packets are lost, and streams between regions": func(t *testing.T) {
			deafIsNotOK(t, func(l *netem.Links) {
				l.SetDefaults(netem.Link{Loss: 1}, netem.Link{Loss: 1})
				l.Partition(regionName(0))
			})
		},
		"all packets are lost, streams pass": func(t *testing.T) {
			o := small()
			o.Partition, o.Window, o.Limit = 0, 10*o.Window, 10*o.Limit // so that counts outlast slow streams
			lost := netem.Link{Loss: 1}
			if r := playSpoiled(t, o, func(l *netem.Links) { l.SetDefaults(lost, lost) }); r.AgreeMillis < 0 {
				t.Errorf("nodes did not agree over streams: %+v", *r)
			}
		},
	} {
		wg.Go(func() { t.Run(name, test) })
	}
	wg.Wait()
}

func checkSamples(t *testing.T, o *Options, r *Report, samples []Sample) {
	t.Helper()
	for i, s := range samples {
		var sum judge.Requests
		for _, n := range s.Nodes {
			sum.Offered, sum.Admitted, sum.Denied = sum.Offered+n.Requests.Offered, sum.Admitted+n.Requests.Admitted,
				sum.Denied+n.Requests.Denied
			sum.OracleAdmitted += n.Requests.OracleAdmitted
			if n.Bound > s.Bound || n.Stale > s.Stale {
				t.Errorf("sample %d: node %s is beyond the largest", i, n.ID)
			}
		}
		if sum != s.Total || len(s.Nodes) != o.Regions*o.Nodes {
			t.Errorf("sample %d: %d nodes with %+v in all, it says %+v", i, len(s.Nodes), sum, s.Total)
		}
		if i > 0 && (s.Elapsed <= samples[i-1].Elapsed || s.Total.Offered < samples[i-1].Total.Offered) {
			t.Errorf("sample %d goes backwards", i)
		}
		if (s.Partitioned != "") != (s.Phase == Partitioned || s.Phase == Settling || s.Phase == Ending) &&
			s.Phase != Steady {
			t.Errorf("sample %d: %q is partitioned in the phase %q", i, s.Partitioned, s.Phase)
		}
	}
	if n := len(samples); n > 0 && samples[n-1].Total.Offered > r.Offered {
		t.Errorf("the last sample knows of %d requests, the report of %d", samples[n-1].Total.Offered, r.Offered)
	}
}

// playSpoiled is Run, but for links that are spoilt as soon as the nodes have found each other.
func playSpoiled(t *testing.T, o Options, spoil func(*netem.Links)) *Report {
	t.Helper()
	r, err := start(t.Context(), o, func(Sample) {})
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	spoil(r.cluster.links)
	report, err := r.play()
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// The demo has to be able to fail: nodes that receive nothing from each other admit a limit each, and that must not be
// ok.
func deafIsNotOK(t *testing.T, spoil func(*netem.Links)) {
	o := small()
	o.Partition, o.Duration = 0, 2*time.Second
	for range 2 {
		r := playSpoiled(t, o, spoil)
		if r.OK || len(r.Wrong) == 0 {
			t.Fatalf("ok, with %+v", *r)
		}
		if r.AgreeMillis != -1 {
			t.Fatalf("nodes that receive nothing from each other agreed after %d ms", r.AgreeMillis)
		}
		if r.OverAdmissionPct >= 20 {
			return
		}
		if !r.Stalled() { // else the machine may have offered too little in a window to show anything
			t.Fatalf("only %v %% over the limit: the cluster is not deaf, so this test shows nothing",
				r.OverAdmissionPct)
		}
		t.Logf("the machine stood still for %v ms", r.StallMillis)
	}
	t.Error("the machine stood still twice")
}

func runEndsWithItsContext(t *testing.T, atOnce bool) {
	o := small()
	o.Duration, o.Partition = time.Minute, 20*time.Second
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if atOnce {
		cancel()
	}
	began := time.Now()
	r, err := Run(ctx, o, func(Sample) { cancel() })
	if !errors.Is(err, context.Canceled) || r != nil {
		t.Errorf("it returns %v, %v", r, err)
	}
	if took := time.Since(began); took > 50*time.Second {
		t.Errorf("it takes %v to end", took)
	}
}

// A node that stops by itself ends the demo with its error.
func runReportsANodeThatFails(t *testing.T) {
	r, err := start(t.Context(), small(), func(Sample) {})
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	r.stop(errors.New("node x: out of luck"))
	if _, err := r.play(); err == nil || !strings.Contains(err.Error(), "out of luck") {
		t.Errorf("play returned %v", err)
	}
}

// lone is a node without gossip or doors, for what is only about counts.
func lone(t *testing.T, c *cluster, o *Options, id string) {
	t.Helper()
	_, set, err := ruleFor(o)
	if err != nil {
		t.Fatal(err)
	}
	cfg := node.DefaultConfig()
	cfg.NodeID, cfg.HTTP, cfg.Health, cfg.RuleSet, cfg.Logger = id, "", "", set, slog.New(slog.DiscardHandler)
	n, err := node.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c.members = append(c.members, &member{n, id, "here"})
}

func TestAgree(t *testing.T) {
	o := DefaultOptions()
	c := &cluster{}
	lone(t, c, &o, "a")
	ask := func(i int) {
		if d, err := c.members[i].Take(t.Context(), node.Request{Rule: "per_client", Identity: "x"}); err != nil ||
			!d.Allowed {
			t.Fatal(d, err)
		}
	}
	if c.agree() {
		t.Error("a node that holds nothing agrees with itself that nothing has expired")
	}
	ask(0)
	if !c.agree() {
		t.Error("one node does not agree with itself")
	}
	lone(t, c, &o, "b")
	if c.agree() {
		t.Error("a node that counts agrees with one that does not")
	}
	ask(1)
	if c.agree() {
		t.Error("nodes that hold as many counts, but each its own, agree")
	}
	c.members = []*member{c.members[0], c.members[0]}
	if !c.agree() {
		t.Error("equal counts do not agree")
	}
}

// What was opened of a cluster that cannot be started is closed again.
func TestCloseUnstarted(t *testing.T) {
	o := small()
	_, set, err := ruleFor(&o)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{links: netem.NewLinks(1)}
	store := regions.NewEmbedded(0, time.Now)
	for i := range 2 {
		if err := c.open(&o, set, store, "here", i); err != nil {
			t.Fatal(err)
		}
	}
	addrs := []string{c.members[0].Addr("lan"), c.members[0].Addr("wan"), c.members[1].Addr("lan")}
	c.close()
	for _, addr := range addrs {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Errorf("%s was left open: %v", addr, err)
			continue
		}
		_ = l.Close()
	}
	o.Interval = 0
	if _, err := startCluster(t.Context(), &o, set, nil); err == nil || !strings.Contains(err.Error(), "us-east-1") {
		t.Errorf("error %v, want one that names the node", err)
	}
}

// The rule of the demo is what was asked for, whatever the window.
func TestRuleFor(t *testing.T) {
	for _, window := range []time.Duration{time.Second, 1500 * time.Millisecond, 10 * time.Second, time.Minute +
		time.Second/2, time.Hour} {
		o := DefaultOptions()
		o.Window, o.Limit = window, 77
		rule, set, err := ruleFor(&o)
		if err != nil {
			t.Errorf("window %v: %v", window, err)
			continue
		}
		if m := rule.Limit.Meter(); m.Window != window || rule.Limit.Max() != 77 || len(set.Rules()) != 1 ||
			set.Rules()[0] != rule ||
			rule.Name != "per_client" {
			t.Errorf("window %v: rule %s of %d per %v", window, rule.Name, rule.Limit.Max(), m.Window)
		}
	}
}
