package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// rate is that of the steady load, in checks a second.
const rate = 20_000

// mostP99Ms is the goal of the steady load.
const mostP99Ms = 5.0

func verdict(met bool) string {
	if met {
		return "met"
	}
	return "missed"
}

// report is all that a run found.
type report struct {
	Machine string  `json:"machine"`
	Rounds  int     `json:"rounds"`
	SliceMs float64 `json:"slice_ms"`
	Doors   []cost  `json:"doors"`
}

// cost is that of one protocol.
type cost struct {
	Protocol string  `json:"protocol"`
	Goal     string  `json:"goal"`     // of the ratio, or of the node's time, and whether it is met
	Promptly string  `json:"promptly"` // the same of P99Ms
	Ratio    float64 `json:"ratio"`    // the median of the rounds
	Lowest   float64 `json:"lowest"`   // of the rounds
	Highest  float64 `json:"highest"`  //
	NodeNs   float64 `json:"node_ns"`  // processor time a check, the median of the rounds
	BareNs   float64 `json:"bare_ns"`  //
	P50Ms    float64 `json:"p50_ms"`   // at the steady load
	P99Ms    float64 `json:"p99_ms"`   //
	MaxMs    float64 `json:"max_ms"`   //
	Steady   int     `json:"checks"`   // of the steady load
}

func measure(ctx context.Context, p pace, only string, progress io.Writer) (*report, error) {
	node, err := start(ctx, "node")
	if err != nil {
		return nil, err
	}
	defer node.stop()
	bare, err := start(ctx, "bare")
	if err != nil {
		return nil, err
	}
	defer bare.stop()
	r := &report{Machine: machine(), Rounds: p.rounds, SliceMs: p.slice.Seconds() * 1e3}
	for i := range protocols {
		if q := &protocols[i]; only == "" || q.name == only {
			fmt.Fprintln(progress, q.name)
			c, err := compare(ctx, p, q, node, bare)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", q.name, err)
			}
			r.Doors = append(r.Doors, c)
		}
	}
	if len(r.Doors) == 0 {
		return nil, fmt.Errorf("there is no protocol %q", only)
	}
	return r, nil
}

// compare measures one protocol.
func compare(ctx context.Context, p pace, q *protocol, node, bare *child) (c cost, err error) {
	c = cost{Protocol: q.name}
	var ratios, nodes, bares []float64
	atNode, err := q.connect(ctx, node.addrs[q.server], inFlight, q.deep)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, disconnect(atNode)) }()
	atBare, err := q.connect(ctx, bare.addrs[q.server], inFlight, q.deep)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, disconnect(atBare)) }()
	for round := range p.rounds + 1 {
		var ns [2]float64
		for turn := range 2 {
			which := (turn + round) % 2 // who goes first takes turns, too
			server, all := node, atNode
			if which == 1 {
				server, all = bare, atBare
			}
			if ns[which], err = slice(ctx, q, server, all, p.slice); err != nil {
				return c, err
			}
		}
		if round > 0 { // the first warms up
			ratios, nodes, bares = append(ratios, ns[0]/ns[1]), append(nodes, ns[0]), append(bares, ns[1])
		}
	}
	c.Ratio, c.Lowest, c.Highest, c.NodeNs, c.BareNs = median(ratios), slices.Min(ratios), slices.Max(ratios), median(nodes), median(bares)
	if q.deep == 1 {
		c.Goal = fmt.Sprintf("%.2f: %s", q.most, verdict(c.Ratio <= q.most))
	} else {
		c.Goal = fmt.Sprintf("%.1f us: %s", q.most, verdict(c.NodeNs <= q.most*1e3))
	}
	took, err := steady(ctx, q, atNode, rate, p.steady)
	if err != nil {
		return c, err
	}
	at := func(share float64) float64 { return took[int(share*float64(len(took)-1))].Seconds() * 1e3 }
	c.P50Ms, c.P99Ms, c.MaxMs, c.Steady = at(0.5), at(0.99), at(1), len(took)*q.deep
	c.Promptly = fmt.Sprintf("%.0f ms: %s", mostP99Ms, verdict(c.P99Ms < mostP99Ms))
	return c, nil
}

// slice is the processor time that a server uses for a check while all clients ask.
func slice(ctx context.Context, q *protocol, server *child, all []client, d time.Duration) (ns float64, err error) {
	before, err := server.used()
	if err != nil {
		return 0, err
	}
	asked, err := flatOut(ctx, q, all, d)
	if err != nil {
		return 0, err
	}
	after, err := server.used()
	return float64(after-before) / float64(max(1, asked)), err
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

func machine() string {
	model := runtime.GOARCH
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			model = strings.TrimSpace(strings.TrimLeft(name, " \t:"))
			break
		}
	}
	return fmt.Sprintf("%d cores of %s, %s", runtime.NumCPU(), model, runtime.Version())
}

// write writes Markdown.
func (r *report) write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, `# What the doors cost

By `+"`make bench-doors`"+`, on %s. Node, bare server and clients share the machine; %d clients are in flight, and ask for %d identities
under one rule that denies nobody. Of each protocol node and bare server were asked in turns, %d rounds of %.0f ms each.

The processor time of the server, system calls and all, for a check. The bare server decodes the same requests and returns the same
answers without deciding: over HTTP it is what one would write with net/http and encoding/json, for ShouldRateLimit with grpc-go, for CL.THROTTLE it is this project's own
door before a limiter that decides nothing.

| door | node | bare | ratio | rounds | goal |
|---|---|---|---|---|---|
`, r.Machine, inFlight, clients, r.Rounds, r.SliceMs)
	for _, c := range r.Doors {
		fmt.Fprintf(&b, "| %s | %.2f us | %.2f us | %.2f | %.2f to %.2f | %s |\n", c.Protocol, c.NodeNs/1e3, c.BareNs/1e3, c.Ratio, c.Lowest, c.Highest, c.Goal)
	}
	fmt.Fprintf(&b, `
How long a check takes at %d a second, from when it was due.

| door | median | p99 | goal | longest | checks |
|---|---|---|---|---|---|
`, rate)
	for _, c := range r.Doors {
		fmt.Fprintf(&b, "| %s | %.2f ms | %.2f ms | %s | %.1f ms | %d |\n", c.Protocol, c.P50Ms, c.P99Ms, c.Promptly, c.MaxMs, c.Steady)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
