package app

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/testnet/demo"
	"github.com/edgelimit/edgelimit/testnet/judge"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func options() demo.Options {
	o := demo.DefaultOptions()
	o.Regions, o.Nodes = 2, 1
	return o
}

// at is a sample of two nodes, the second of which is partitioned in that phase.
func at(elapsed time.Duration, phase demo.Phase, over float64) demo.Sample {
	return demo.Sample{
		Elapsed: elapsed, Phase: phase, Partitioned: "eu-west", Over: over, Bound: 0.08, Stale: 104 * time.Millisecond,
		Total: judge.Requests{Offered: 400, Admitted: 210, Denied: 190, OracleAdmitted: 200},
		Nodes: []demo.NodeSample{
			{ID: "us-east-1", Region: "us-east", Peers: 1, Requests: judge.Requests{Offered: 150}},
			{ID: "eu-west-1", Region: "eu-west", Peers: 1, Requests: judge.Requests{Offered: 250}},
		},
	}
}

// A line a second, with the worst of the second, and one for each phase that begins.
func TestLines(t *testing.T) {
	var out bytes.Buffer
	s := &lineShow{out: &out}
	s.begin(options())
	out.Reset()
	overs := []float64{0.01, 0.05, 0, 0.02, 0, 0, 0, 0}
	for i, over := range overs {
		phase := demo.Steady
		if i >= 4 {
			phase = demo.Partitioned
		}
		s.sample(at(time.Duration(i+1)*250*time.Millisecond, phase, over))
	}
	want := `-- steady
  1.0s  offered 400  admitted 210 (oracle 200)  over +5.0 % (bound 8.0 %)  age 104 ms
-- partition of eu-west
  2.0s  offered 400  admitted 210 (oracle 200)  over +0.0 % (bound 8.0 %)  age 104 ms
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func report() *demo.Report {
	return &demo.Report{
		Requests: judge.Requests{
			Offered: 400, Admitted: 210, Denied: 190, OracleAdmitted: 200,
		}, Clients: 1, Traffic: "2 times the limit",
		Fairness: judge.Fairness{
			CompliantClients: 1, CompliantOffered: 270,
		}, NetPct: 5, OverAdmissionPct: 9, ExcessPct: 3, BoundPct: 8, PartitionRegion: "eu-west", PartitionSeconds: 8,
		PartitionOverAdmissionPct: 97, PartitionCeilingPct: 100,
		HealMillis: 412, AgreeMillis: 33, OK: true,
	}
}

func TestSummary(t *testing.T) {
	for _, test := range []struct {
		name          string
		change        func(*demo.Report)
		wanted, never []string
	}{
		{"fine", func(*demo.Report) {}, []string{"400 requests, clients: 1", "(+5.0 %)",
			"0 of 270 requests of clients within 95 % of the limit",
			"+3.00 % of the limit, the nodes' bound was 8.00 %", "partition of eu-west    for 8s",
			"412 ms until every node had received", "33 ms until all nodes held", "\nok: "}, []string{"NOT", "never"}},
		{"without a partition", func(r *demo.Report) { r.PartitionSeconds = 0 }, []string{"+3.00 %", "\nok: "},
			[]string{"partition", "healed"}},
		{"never healed", func(r *demo.Report) {
			r.HealMillis, r.AgreeMillis, r.OK, r.Wrong = -1, -1, false,
				[]string{"the cluster did not heal", "nor did it agree"}
		}, []string{"never: every node had received", "never: all nodes held",
			"NOT ok:\n - the cluster did not heal\n - nor did it agree"}, []string{"\nok: "}},
		{"many were limited", func(r *demo.Report) {
			r.Clients = 99
			for i := range 30 {
				r.Limited = append(r.Limited,
					demo.Limited{Client: "client-" + string(rune('A'+i)), Requests: judge.Requests{Denied: 1}})
			}
		}, []string{"30 of 99 clients were limited", "client-A", "client-J"}, []string{"client-K", "nobody"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer
			s := &lineShow{out: &out}
			s.begin(options())
			r := report()
			test.change(r)
			s.end(r)
			for _, part := range test.wanted {
				if !strings.Contains(out.String(), part) {
					t.Errorf("it does not say %q:\n%s", part, out.String())
				}
			}
			for _, part := range test.never {
				if strings.Contains(out.String(), part) {
					t.Errorf("it says %q:\n%s", part, out.String())
				}
			}
		})
	}
}

// The table is drawn over itself: it goes up by as many lines as it drew.
func TestTable(t *testing.T) {
	var out bytes.Buffer
	s := &tableShow{lineShow: lineShow{out: &out}, terminal: &out}
	s.begin(options())
	out.Reset()
	s.sample(at(0, demo.Filling, 0))
	first := out.String()
	if strings.Contains(first, "\x1b") || strings.Contains(first, "#") {
		t.Errorf("the first goes up, or shows progress:\n%q", first)
	}
	out.Reset()
	s.sample(at(18*time.Second, demo.Partitioned, 0.031))
	second := out.String()
	up := regexp.MustCompile(`^\x1b\[(\d+)A\x1b\[J`).FindStringSubmatch(second)
	if up == nil || up[1] != "10" || strings.Count(first, "\n") != 10 {
		t.Errorf("after %d lines it goes up by %q", strings.Count(first, "\n"), up)
	}
	for _, part := range []string{"[############............]", "18s of 36 s", "partition of eu-west", "✂ eu-west-1",
		"us-east-1", "+3.1 %", "8.0 %", "104 ms"} {
		if !strings.Contains(second, part) {
			t.Errorf("it does not show %q:\n%s", part, second)
		}
	}
	if strings.Contains(second, "✂ us-east") || strings.Contains(first, "✂") {
		t.Error("it shows the wrong region as partitioned")
	}
	s.sample(at(time.Hour, demo.Ending, 0)) // later than planned: the bar is full, and no longer
	if !strings.Contains(out.String(), "["+strings.Repeat("#", barWidth)+"]") {
		t.Errorf("the bar is not full:\n%s", out.String())
	}
}

// twoRegions is a demo of 64 nodes in the middle of a partition: the worst that has to fit a terminal.
func twoRegions() demo.Sample {
	p := demo.Sample{
		Elapsed:     18 * time.Second,
		Phase:       demo.Partitioned,
		Partitioned: "region-64",
		Bound:       1.436,
		Over:        1.5,
		Stale:       time.Hour,
		Total:       judge.Requests{Offered: 1e8, Admitted: 1e8, Denied: 1e8, OracleAdmitted: 1e8},
	}
	for i := range 64 {
		n := demo.NodeSample{
			ID:       fmt.Sprintf("region-6%d-%d", 3+i/32, i%32+1),
			Region:   fmt.Sprintf("region-6%d", 3+i/32),
			Peers:    63,
			Requests: judge.Requests{Offered: 1e5, Admitted: 1e5, Denied: 1e5},
			Stale:    4097 * time.Millisecond,
			Bound:    1.436,
		}
		for j := range 32 {
			other := 3 + (i/32+1)%2
			n.Unreachable = append(n.Unreachable,
				demo.Peer{ID: fmt.Sprintf("region-6%d-%d", other, j+1), Region: fmt.Sprintf("region-6%d", other)})
		}
		p.Nodes = append(p.Nodes, n)
	}
	return p
}

// A terminal of 80 columns and 24 lines has room for the table, however many nodes there are: then a line is a region.
func TestTableFits(t *testing.T) {
	for _, p := range []demo.Sample{twoRegions(), at(36*time.Second, demo.Settling, 0),
		at(time.Second, demo.Partitioned, 0)} {
		s := &tableShow{lineShow: lineShow{opt: demo.DefaultOptions()}, height: 24}
		lines := strings.Split(strings.TrimSuffix(s.draw(p), "\n"), "\n")
		if len(lines) >= 24 {
			t.Errorf("%d lines", len(lines))
		}
		for _, l := range lines {
			if n := utf8.RuneCountInString(l); n > 80 {
				t.Errorf("%d columns: %s", n, l)
			}
		}
	}
}

// In a partition the table says in words and numbers who cannot be reached, why the bound is loose, and paints it.
func TestTableOfAPartition(t *testing.T) {
	s := &tableShow{lineShow: lineShow{opt: demo.DefaultOptions()}, height: 24}
	plain := s.draw(twoRegions())
	for _, part := range []string{"31/63",
		"region-64: nothing comes from region-63\nregion-63: nothing comes from region-64\n", looseBound} {
		if !strings.Contains(plain, part) {
			t.Errorf("it does not show %q:\n%s", part, plain)
		}
	}
	if strings.Contains(plain, "\x1b") {
		t.Error("it paints without being asked")
	}
	s.ink = true
	if painted := s.draw(twoRegions()); !strings.Contains(painted, "\x1b[33m") ||
		!strings.Contains(painted, "\x1b[31m+150.0 %\x1b[0m") {
		t.Errorf("no colour for the partition, or for what is above the bound:\n%q", painted)
	}
	complete := s.draw(at(time.Second, demo.Steady, 0))
	if strings.Contains(complete, "nothing comes") || strings.Contains(complete, looseBound) ||
		!strings.Contains(complete, "1/1") {
		t.Errorf("without a partition it shows\n%s", complete)
	}
}

// A bound above the ceiling of two sides is explained.
func TestSummaryExplainsALooseBound(t *testing.T) {
	for bound, explained := range map[float64]bool{143.6: true, 99: false} {
		var out bytes.Buffer
		s := &lineShow{out: &out}
		s.begin(options())
		r := report()
		r.PartitionBoundPct = bound
		if s.end(r); strings.Contains(out.String(), looseBound) != explained {
			t.Errorf("a bound of %v %% and a ceiling of %v %%:\n%s", bound, r.PartitionCeilingPct, out.String())
		}
	}
}

// Where the output is no terminal, there are lines; asked for JSON, JSON.
func TestShowFor(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	testkit.Must(t, err)
	defer file.Close()
	for _, asJSON := range []bool{false, true} {
		app := New()
		app.Writer = file
		var got show
		app.Command("demo").Action = func(c *cli.Context) error {
			got = showFor(c)
			return nil
		}
		args := []string{"edgelimit", "demo"}
		if asJSON {
			args = append(args, "--json")
		}
		testkit.Must(t, app.RunContext(context.Background(), args))
		if _, isJSON := got.(*jsonShow); isJSON != asJSON {
			t.Errorf("%v shows with %T", args, got)
		}
		if _, isTable := got.(*tableShow); isTable {
			t.Errorf("%v draws a table into a file", args)
		}
	}
}
