package app

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/replay"
	"github.com/edgelimit/edgelimit/testnet/demo"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// alone is the shortest demo that there is: one node decides as the oracle does, so its figures always hold.
var alone = []string{"demo", "--regions", "1", "--nodes", "1", "--window", "1s", "--duration", "1s", "--limit", "20"}

// demoed is a demo that ended well. Its clock is the real one: one in which the machine was measured to stand still,
// and that did not end well, is repeated once.
func demoed(t *testing.T, in string, args ...string) (r result) {
	t.Helper()
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		r = edgelimitReading(t, ctx, strings.NewReader(in), args...)
		if cancel(); r.code == 0 {
			return r
		}
		if !strings.Contains(r.out, "this machine let the demo wait") {
			break
		}
		t.Logf("the machine stood still: %q", r.out)
	}
	t.Fatalf("the demo ended with %d, %q and %q", r.code, r.out, r.err)
	return r
}

func TestDemoJSON(t *testing.T) {
	r := demoed(t, "", append(alone, "--json", "--load", "3")...)
	lines := strings.Split(strings.TrimSuffix(r.out, "\n"), "\n")
	if len(lines) < 3 {
		t.Fatalf("%d lines: %q", len(lines), r.out)
	}
	for i, line := range lines {
		var got map[string]any
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatalf("line %d is no JSON object: %q", i+1, line)
		}
		if _, sample := got["phase"]; sample != (i < len(lines)-1) {
			t.Errorf("line %d of %d: %q", i+1, len(lines), line)
		}
	}
	var report map[string]any
	testkit.Must(t, json.Unmarshal([]byte(lines[len(lines)-1]), &report))
	for key, want := range map[string]any{"regions": 1.0, "nodes": 1.0, "limit": 20.0, "ok": true,
		"compliant_clients": 1.0, "compliant_offered": 18.0, "false_rejections": 0.0, "heal_ms": 0.0,
		"bound_pct": 0.0} {
		if report[key] != want {
			t.Errorf("%s is %v, want %v", key, report[key], want)
		}
	}
	offered, _ := report["offered"].(float64)
	admitted, _ := report["admitted"].(float64)
	// The node decides as the oracle does, by a clock that may be a moment late.
	if oracle, _ := report["oracle_admitted"].(float64); offered < 30 || offered > 90 || admitted < oracle-2 ||
		admitted > oracle+2 ||
		admitted < 20 ||
		admitted > 45 {
		t.Errorf("offered %v, admitted %v, oracle %v of 60 offered on a limit of 20", offered, admitted, oracle)
	}
}

func TestDemoText(t *testing.T) {
	plot := filepath.Join(t.TempDir(), "demo.svg")
	r := demoed(t, "", append(alone, "--load", "2", "--plot", plot)...)
	r.says(t, 0, "1 regions of 1 nodes", "Limit: 20 per 1 s", "at 2 times the limit", "-- filling the window",
		"offered",
		"admitted", "the oracle would have admitted", "0 of 18 requests of clients within 95 % of the limit", "\nok: ")
	if strings.Contains(r.out, "\x1b") {
		t.Error("it steers a terminal that is not there")
	}
	if svg, err := os.ReadFile(plot); err != nil || !bytes.HasPrefix(svg, []byte("<svg ")) {
		t.Errorf("the plot is %.20q, %v", svg, err)
	}
	if strings.Contains(r.out, "partition") || strings.Contains(r.out, "healed") {
		t.Errorf("it shows a partition that was not: %s", r.out)
	}
}

// A demo that shows nothing is not ok, and its status says so. At this load a request comes once in four days.
func TestDemoNotOK(t *testing.T) {
	t.Parallel()
	r := edgelimit(t, "demo", "--regions", "1", "--nodes", "1", "--window", "1h", "--duration", "1s", "--limit", "1",
		"--load", "0.01")
	if r.says(t, 1, "NOT ok:", "nothing was offered"); strings.Contains(r.out, "\nok: ") || r.err != "" {
		t.Errorf("it says %q and %q", r.out, r.err)
	}
}

func TestDemoInterrupted(t *testing.T) {
	ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, context.Canceled)
	defer cancel()
	began := time.Now()
	r := edgelimitReading(t, ctx, strings.NewReader(""), "demo", "--regions", "1", "--nodes", "1", "--duration", "60s",
		"--window", "1s")
	if r.says(t, 2, "interrupted"); time.Since(began) > patience {
		t.Errorf("it took %v", time.Since(began))
	}
}

func TestDemoRefuses(t *testing.T) {
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"--regions", "0", "--limit", "0", "--load", "NaN"},
			[]string{"0 regions", "a limit of 0", "a load of NaN"}},
		{[]string{"--regions", "1", "--cut", "2s"}, []string{"at least two regions"}},
		{[]string{"--duration", "4s", "--cut", "3s"}, []string{"at most half"}},
		{[]string{"--window", "10"}, []string{"window"}},
		{[]string{"--on-partition", "both"}, []string{`unknown policy for partitions "both"`}},
		{[]string{"--plot", "no/such/demo.svg"}, []string{"no/such/demo.svg"}},
		{[]string{"--log", "no/such.log"}, []string{"no/such.log"}},
		{[]string{"--log", written(t, "empty.log", "")}, []string{"empty.log", "no request"}},
		{[]string{"--log", written(t, "rubbish.log", "nonsense\n")},
			[]string{"line 1", "left out 1 lines", "no request"}},
		{[]string{"--log", written(t, "broken.gz", "\x1f\x8bnonsense")}, []string{"gzip"}},
	} {
		r := edgelimit(t, append([]string{"demo"}, test.args...)...)
		if r.says(t, 2, test.want...); r.out != "" && !strings.HasPrefix(r.out, "Incorrect Usage") {
			t.Errorf("%v: it prints %q", test.args, r.out)
		}
	}
}

// optioned is what demo makes of its arguments.
func optioned(t *testing.T, args ...string) (o demo.Options, err error) {
	t.Helper()
	o = demo.DefaultOptions()
	if outer := parsed(t, func(c *cli.Context) error {
		o, err = demoOptions(c, o)
		return nil
	}, demoFlags(&o), args...); outer != nil {
		t.Fatal(outer)
	}
	return o, err
}

func TestDemoOptions(t *testing.T) {
	log := written(t, "access.log", line("10.0.0.1", 0))
	const s = time.Second
	for _, test := range []struct {
		args []string
		want func(*demo.Options)
	}{
		{nil, func(*demo.Options) {}},
		{[]string{"--regions", "5", "--nodes", "3", "--limit", "7", "--window", "2s", "--interval", "50ms", "--load",
			"1.5", "--duration", "40s", "--cut", "3s"},
			func(o *demo.Options) {
				*o = demo.Options{Regions: 5, Nodes: 3, Limit: 7, Window: 2 * s, Interval: 50 * time.Millisecond,
					Load: 1.5, Duration: 40 * s, Partition: 3 * s, Seed: o.Seed}
			}},
		// nobody to be partitioned from
		{[]string{"--regions", "1"}, func(o *demo.Options) { o.Regions, o.Partition = 1, 0 }},
		// shorter in a shorter demo
		{[]string{"--duration", "12s"}, func(o *demo.Options) { o.Duration, o.Partition = 12*s, 3*s }},
		// and no longer in a longer one
		{[]string{"--duration", "60s"}, func(o *demo.Options) { o.Duration = 60 * s }},
		{[]string{"--on-partition", "local"}, func(o *demo.Options) { o.OnPartition = counters.Local }}, //
		{[]string{"--cut", "0s"}, func(o *demo.Options) { o.Partition = 0 }},                            //
		// of an address, not of everybody
		{[]string{"--log", log}, func(o *demo.Options) { o.Limit = demo.DefaultLogLimit }},
		// asked for, so taken
		{[]string{"--log", log, "--limit", "1000"}, func(o *demo.Options) {}},
		{[]string{"--log", log, "--limit", "3", "--load", "9"}, func(o *demo.Options) { o.Limit, o.Load = 3, 9 }}, //
	} {
		want := demo.DefaultOptions()
		test.want(&want)
		got, err := optioned(t, test.args...)
		entries := len(got.Log)
		got.Log = nil
		if err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Errorf("%v:\n got %+v, %v\nwant %+v", test.args, got, err, want)
		}
		if hasLog := len(test.args) > 0 && test.args[0] == "--log"; hasLog != (entries == 1) {
			t.Errorf("%v: %d requests of a log", test.args, entries)
		}
	}
}

// line is a request as a server logs it, so many seconds into an hour.
func line(addr string, second int) string {
	return fmt.Sprintf("%s - - [17/May/2015:10:%02d:%02d +0000] \"GET /x HTTP/1.1\" 200 12 \"-\" \"-\"\n", addr,
		second/60, second%60)
}

// busy is a log of a client with much to ask, one with little and one whose name is meant for a terminal.
func busy() string {
	var b strings.Builder
	b.WriteString("this is no line of a log\n")
	for second := range 40 {
		for range 3 {
			b.WriteString(line("192.0.2.7", second))
		}
		if second%20 == 0 {
			b.WriteString(line("192.0.2.8", second))
		}
		b.WriteString(line("\x1b[31mevil\x07\x9b\u009b", second))
	}
	b.WriteString("nor this\x1b[2J\n\nor this\n")
	return b.String()
}

func checkBusy(t *testing.T, r result) {
	t.Helper()
	r.says(t, 0, "Traffic: 162 requests of a log", "162 requests, clients: 3", "40 times as fast",
		"a window of 1 s holds 40 s of the log", "2 of 3 clients were limited", "192.0.2.7", "\nok: ",
		"left out 4 lines",
		"line 1:")
	for _, steers := range []string{"\x1b", "\x07", "\x9b"} { // the last is also part of U+009B
		if strings.Contains(r.out+r.err, steers) {
			t.Errorf("bytes of the log steer the terminal: %q", r.out+r.err)
		}
	}
	if !strings.Contains(r.out, "?[31mevil?") {
		t.Errorf("the client with the strange name is not there: %q", r.out)
	}
	if strings.Contains(r.out, "192.0.2.8") {
		t.Errorf("a client that kept to its limit is called limited: %s", r.out)
	}
	if n := strings.Count(r.err, "access log line"); n != 3 {
		t.Errorf("%d malformed lines are reported one by one, want 3 of 4: %s", n, r.err)
	}
}

func TestDemoLog(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := z.Write([]byte(busy())); err != nil {
		t.Fatal(err)
	}
	testkit.Must(t, z.Close())
	file := filepath.Join(t.TempDir(), "access.log.gz")
	testkit.Must(t, os.WriteFile(file, zipped.Bytes(), 0o600))
	args := append(alone, "--limit", "5", "--log")
	t.Run("gzip file", func(t *testing.T) { checkBusy(t, demoed(t, "", append(args, file)...)) })
	t.Run("standard input", func(t *testing.T) {
		checkBusy(t, demoed(t, busy(), append(args, "-")...))
	})
	t.Run("nobody limited, as JSON", func(t *testing.T) {
		r := demoed(t, line("a", 0)+line("b", 1), append(args, "-", "--json")...)
		r.says(t, 0, `"offered":2,"admitted":2`, `"clients":2`, `"limited":[]`, `"ok":true`)
	})
	t.Run("nobody limited, in words", func(t *testing.T) {
		r := demoed(t, line("a", 0)+line("b", 1), append(args, "-")...)
		r.says(t, 0, "nobody was limited")
	})
}

// A log is held in memory, so only what is needed of it is kept.
func TestReadLogKeepsLittle(t *testing.T) {
	o, err := optioned(t, "--log", written(t, "a.log", line("10.0.0.1", 5)))
	want := replay.Entry{Addr: "10.0.0.1", Time: time.Date(2015, 5, 17, 10, 0, 5, 0, time.UTC)}
	if err != nil || len(o.Log) != 1 || o.Log[0] != want {
		t.Errorf("%+v, %v", o.Log, err)
	}
}
