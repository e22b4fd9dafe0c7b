package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/testnet/demo"
)

func options() demo.Options {
	o := demo.DefaultOptions()
	o.Regions, o.Nodes = 2, 1
	return o
}

// at is a sample of two nodes, the second of which is cut off in the phase of the cut.
func at(elapsed time.Duration, phase demo.Phase, over float64) demo.Sample {
	return demo.Sample{
		Elapsed: elapsed, Phase: phase, CutOff: "eu-west", Over: over, Bound: 0.08, Stale: 104 * time.Millisecond,
		Total: demo.Tally{Offered: 400, Admitted: 210, Denied: 190, OracleAdmitted: 200},
		Nodes: []demo.NodeSample{
			{ID: "us-east-1", Region: "us-east", Members: 1, Tally: demo.Tally{Offered: 150}},
			{ID: "eu-west-1", Region: "eu-west", Members: 0, Tally: demo.Tally{Offered: 250}},
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
			phase = demo.Cut
		}
		s.sample(at(time.Duration(i+1)*250*time.Millisecond, phase, over))
	}
	want := `-- steady
  1.0s  offered 400  admitted 210 (oracle 200)  over the limit +5.0 % (bound 8.0 %)  staleness 104ms
-- cut: eu-west is alone, and so are the others
  2.0s  offered 400  admitted 210 (oracle 200)  over the limit +0.0 % (bound 8.0 %)  staleness 104ms
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func report() *demo.Report {
	return &demo.Report{
		Tally: demo.Tally{Offered: 400, Admitted: 210, Denied: 190, OracleAdmitted: 200}, Clients: 1, Traffic: "2 times the limit",
		Fairness: demo.Fairness{CompliantClients: 1, CompliantOffered: 270}, NetPct: 5, OverAdmissionPct: 3, BoundPct: 8, CutRegion: "eu-west", CutSeconds: 8, CutOverAdmissionPct: 97, CutCeilingPct: 100,
		HealMillis: 412, AgreeMillis: 33, OK: true,
	}
}

func TestSummary(t *testing.T) {
	for _, test := range []struct {
		name          string
		change        func(*demo.Report)
		wanted, never []string
	}{
		{"fine", func(*demo.Report) {}, []string{"400 requests, clients: 1", "(+5.0 %)", "0 of 270 requests of clients that keep to 95 % of the limit", "+3.00 %, the nodes' bound was 8.00 %", "in the cut of eu-west for 8s",
			"412 ms until every node knew", "33 ms until all nodes held", "\nok: "}, []string{"NOT", "never"}},
		{"without a cut", func(r *demo.Report) { r.CutSeconds = 0 }, []string{"+3.00 %", "\nok: "}, []string{"cut", "healed"}},
		{"never healed", func(r *demo.Report) {
			r.HealMillis, r.AgreeMillis, r.OK, r.Wrong = -1, -1, false, []string{"the cluster did not heal", "nor did it agree"}
		}, []string{"never: every node knew", "never: all nodes held", "NOT ok:\n - the cluster did not heal\n - nor did it agree"}, []string{"\nok: "}},
		{"many were limited", func(r *demo.Report) {
			r.Clients = 99
			for i := range 30 {
				r.Limited = append(r.Limited, demo.Limited{Client: "client-" + string(rune('A'+i)), Tally: demo.Tally{Denied: 1}})
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
	s := &tableShow{lineShow{out: &out}}
	s.begin(options())
	out.Reset()
	s.sample(at(0, demo.Filling, 0))
	first := out.String()
	if strings.Contains(first, "\x1b") || strings.Contains(first, "#") {
		t.Errorf("the first goes up, or shows progress:\n%q", first)
	}
	out.Reset()
	s.sample(at(18*time.Second, demo.Cut, 0.031))
	second := out.String()
	up := regexp.MustCompile(`^\x1b\[(\d+)A\x1b\[J`).FindStringSubmatch(second)
	if up == nil || up[1] != "10" || strings.Count(first, "\n") != 10 {
		t.Errorf("after %d lines it goes up by %q", strings.Count(first, "\n"), up)
	}
	for _, part := range []string{"[###############...............]", "18s of 36s", "eu-west is alone", "✂ eu-west", "us-east-1", "+3.1 %", "8.0 %", "104ms"} {
		if !strings.Contains(second, part) {
			t.Errorf("it does not show %q:\n%s", part, second)
		}
	}
	if strings.Contains(second, "✂ us-east") || strings.Contains(first, "✂") {
		t.Error("it shows the wrong region as cut off")
	}
	s.sample(at(time.Hour, demo.Ending, 0)) // later than planned: the bar is full, and no longer
	if !strings.Contains(out.String(), "["+strings.Repeat("#", 30)+"]") {
		t.Errorf("the bar is not full:\n%s", out.String())
	}
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "münchen.example ✂": "münchen.example ✂", "": "",
		"\x1b[31mred\x1b[0m": "?[31mred?[0m", "a\r\nb\tc\x00\x7f": "a??b?c??", "\u009b31m\u0080": "?31m?",
		"\x9b31m\xff": "\uFFFD31m\uFFFD", // bytes that are no text are made visible
	} {
		if got := clean(in); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
}

// Where the output is no terminal, there are lines; asked for JSON, JSON.
func TestShowFor(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, asJSON := range []bool{false, true} {
		app := newApp()
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
		if err := app.RunContext(context.Background(), args); err != nil {
			t.Fatal(err)
		}
		if _, isJSON := got.(*jsonShow); isJSON != asJSON {
			t.Errorf("%v shows with %T", args, got)
		}
		if _, isTable := got.(*tableShow); isTable {
			t.Errorf("%v draws a table into a file", args)
		}
	}
}
