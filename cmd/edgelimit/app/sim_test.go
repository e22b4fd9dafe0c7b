package app

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/plan"
	"github.com/edgelimit/edgelimit/testnet/sim"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// briefly is a run that takes milliseconds.
var briefly = []string{"sim", "--nodes", "2", "--window", "2s", "--duration", "6s", "--limit", "200"}

// simulated is the report of a run.
func simulated(t *testing.T, code int, args ...string) (r sim.Report) {
	t.Helper()
	got := edgelimit(t, append(args, "--json")...)
	got.says(t, code)
	if err := json.Unmarshal([]byte(got.out), &r); err != nil {
		t.Fatalf("%v: %q", err, got.out)
	}
	return r
}

func TestSimJSON(t *testing.T) {
	r := simulated(t, 0, briefly...)
	if r.Offered < 1000 || r.Offered != r.Admitted+r.Denied || r.OracleAdmitted < 600 || r.Regions != 3 ||
		r.Nodes != 2 || !r.OK ||
		r.BoundPct <= 0 ||
		r.MessagesPerNode < 30 ||
		r.BytesPerNode < 3000 {
		t.Errorf("%+v", r)
	}
	if a, b := edgelimit(t, append(briefly, "--json")...), edgelimit(t, append(briefly, "--json")...); a.out != b.out {
		t.Errorf("two runs differ:\n%s%s", a.out, b.out)
	}
	if other := simulated(t, 0, append(briefly, "--seed", "2")...); other.EventHash == r.EventHash {
		t.Error("another seed gives the same run")
	}
}

func TestSimText(t *testing.T) {
	edgelimit(
		t,
		append(briefly, "--partition", "2@2s-4s", "--skew",
			"5ms")...).says(t, 0, "3 regions of 2 nodes", "a limit of 200 per 2s", "clocks up to 5 ms wrong",
		"partitions 2/*@2s-4s", "net over-admission", "peak over-admission", "held at every moment",
		"no client kept to 95 %", "healed", "messages/s", "\nok: ")
	edgelimit(
		t,
		append(briefly, "--beside", "1", "--algorithm", "sliding_log", "--duplicate", "0.1", "--reorder",
			"0.2")...).says(t, 0, "sliding_log",
		"and beside them 1 at 95 %", "10 % twice", "20 % held back", "0 of ")
	edgelimit(
		t,
		append(briefly, "--pattern",
			"compliant-burst")...).says(t, 0, "clients: 12", "never exceeded", "0 of ", "within 95 %")
}

// What becomes of Redis is told where it was asked for, and nowhere else.
func TestSimRedisFaults(t *testing.T) {
	args := []string{"sim", "--nodes", "2", "--duration", "20s", "--limit", "200"}
	edgelimit(
		t,
		append(args, "--redis-fault", "flush@8s, down/2@10s-12s", "--redis-fault", "stale@9s-13s")...).says(t, 0,
		"Redis flush@8s down/2@10s-12s stale@9s-13s", "lost ", "whole again after", "calls failed")
	r := simulated(t, 0, append(args, "--redis-fault", "flush@8s")...)
	if s := r.Redis; s == nil || s.SlotsLost < 30 || s.SlotsMissing != 0 || s.SlotsTwice != 0 || s.RepairFlushes < 1 ||
		s.RepairFlushes > 2 ||
		s.Calls < 100 {
		t.Errorf("%+v", s)
	}
	if got := edgelimit(t, append(args, "--json")...); strings.Contains(got.out, "edis") {
		t.Errorf("without a fault it says %s", got.out)
	}
}

// A run without a request shows nothing, and its status says so.
func TestSimNotOK(t *testing.T) {
	edgelimit(
		t, "sim", "--nodes", "1", "--limit", "1", "--window", "1h", "--load", "0.01", "--duration", "1s",
	).says(t, 1, "NOT ok:", "nothing was offered")
}

// simulation is what sim makes of its arguments.
func simulation(t *testing.T, args ...string) (o sim.Options, err error) {
	t.Helper()
	o = sim.DefaultOptions()
	err = parsed(t, func(c *cli.Context) (err error) {
		o, err = simOptions(c, o)
		return err
	}, simFlags(&o), args...)
	return o, err
}

func TestSimFlags(t *testing.T) {
	o, err := simulation(t, strings.Fields("--regions 2 --nodes 3 --limit 40 --window 5s --interval 50ms --load 3 "+
		"--pattern skew --wan-delay 30ms --lan-delay 2ms --loss 0.2 --skew 7ms --partition 1@1s-2s "+
		"--partition 1>2@3s-4s --keys 5 --duration 9s --seed 11 --algorithm sliding_window --strategy plain")...)
	testkit.Must(t, err)
	if o.Regions != 2 || o.Nodes != 3 || o.Limit != 40 || o.Window != 5*time.Second ||
		o.Interval != 50*time.Millisecond || o.Load != 3 || o.Pattern != sim.Skew ||
		o.WANDelay != 30*time.Millisecond || o.LANDelay != 2*time.Millisecond || o.Loss != 0.2 ||
		o.Skew != 7*time.Millisecond || len(o.Partitions) != 2 ||
		!o.Partitions[1].OneWay || o.Keys != 5 ||
		o.Duration != 9*time.Second ||
		o.Seed != 11 {
		t.Errorf("%+v", o)
	}
}

// The flags that options say of themselves make the same options again.
func TestSimReadsItsOwnFlags(t *testing.T) {
	second := time.Second
	for _, change := range []func(*sim.Options){
		func(*sim.Options) {},
		func(o *sim.Options) {
			o.Regions, o.Nodes, o.Limit, o.Window, o.Interval, o.Load, o.Keys, o.Compliant = 2, 9, 5, second,
				50*time.Millisecond, 0.5, 3, 2
			o.Pattern, o.Method, o.Duration, o.Seed = sim.Hotspot, counters.FixedWindow, 7*second, 99
			o.WANDelay, o.LANDelay, o.Loss, o.Duplicate, o.Reorder, o.Skew = 1, 2, 0, 0.25, 0.5, time.Millisecond
			o.Partitions = []sim.Partition{{A: 2, From: second, Until: 2 * second},
				{A: 1, B: 2, OneWay: true, Until: second}}
		},
		func(o *sim.Options) { o.Pattern, o.Keys = sim.CompliantBurst, sim.BurstKeys },
		func(o *sim.Options) {
			o.Pattern, o.Keys, o.Burst, o.BurstAt = sim.CompliantBurst, 1, second, sim.Moving
		},
		func(o *sim.Options) { o.Pattern, o.Method = sim.Flash, counters.LeakyQueue },
		func(o *sim.Options) {
			o.StoreFaults = []sim.StoreFault{{Kind: sim.StoreFlush, Region: 2, From: second, Until: second},
				{Kind: sim.StoreStale, From: second, Until: 3 * second}}
		},
	} {
		want := sim.DefaultOptions()
		change(&want)
		got, err := simulation(t, want.Flags()...)
		if err != nil {
			t.Error(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q:\n%+v, want\n%+v", want.Flags(), got, want)
		}
	}
}

func TestSimTrace(t *testing.T) {
	name := written(t, "arrivals.csv", "seconds,region,node\n0,eu,a\n0.1,eu,b\n0.2,us,a\n0.9,us,a\n")
	r := simulated(t, 0, "sim", "--trace", name)
	if r.Pattern != "trace" || r.Regions != 2 || r.Nodes != 2 || r.Offered != 4 || r.Admitted != 4 || r.Seconds < 0.9 ||
		r.Seconds > 1 {
		t.Errorf("%+v", r)
	}
	if r := simulated(t, 0, "sim", "--trace", name, "--regions", "3", "--duration", "500ms"); r.Regions != 3 ||
		r.Offered != 3 {
		t.Errorf("%+v", r)
	}
	in := edgelimitReading(t, t.Context(), strings.NewReader("0,a,1\n"), "sim", "--trace", "-")
	in.says(t, 0, "trace at", "1 requests")
}

func TestSimPlot(t *testing.T) {
	name := filepath.Join(t.TempDir(), "plot.svg")
	edgelimit(t, append(briefly, "--plot", name)...).says(t, 0, "\nok: ")
	b, err := os.ReadFile(name)
	if err != nil || !strings.HasPrefix(string(b), "<svg ") || !strings.HasSuffix(string(b), "</svg>\n") {
		t.Errorf("%v: %.80q", err, b)
	}
	edgelimit(t, append(briefly, "--plot", filepath.Join(name, "x"))...).says(t, 2, "plot.svg")
}

func TestSimRefuses(t *testing.T) {
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"extra"}, []string{"no arguments"}},
		{[]string{"--regions", "0", "--loss", "2"}, []string{"0 regions", "a loss of 2"}},
		{[]string{"--pattern", "odd"}, []string{"pattern", "hotspot"}},
		{[]string{"--pattern", "flash", "--load", "3"}, []string{"--load does not apply"}},
		{[]string{"--algorithm", "odd"}, []string{"algorithm", "sliding_window", "leaky_queue"}},
		{[]string{"--burst", "1s"}, []string{"bursts are for"}},
		{[]string{"--pattern", "compliant-burst", "--burst-at", "odd"}, []string{"alternating"}},
		{[]string{"--strategy", "odd"}, []string{"strategy", "plain"}},
		{[]string{"--partition", "2"}, []string{`partition "2"`}},
		{[]string{"--partition", "7@1s-2s"}, []string{"there are 3 regions"}},
		{[]string{"--redis-fault", "flush"}, []string{`fault of Redis "flush"`}},
		{[]string{"--redis-fault", "flush/7@1s"}, []string{"there are 3 regions"}},
		{[]string{"--redis-fault", "flush@1s", "--window", "2s"}, []string{"10s and longer"}},
		{[]string{"--trace", "no/such.csv"}, []string{"no/such.csv"}},
		{[]string{"--trace", written(t, "bad.csv", "0,a,1\nnonsense\n")}, []string{"line 2"}},
		{[]string{"--trace", written(t, "good.csv", "0,a,1\n0,b,1\n"), "--regions", "1"}, []string{"more regions"}},
		{[]string{"--trace", written(t, "fine.csv", "0,a,1\n"), "--load", "2"},
			[]string{"--load does not go with --trace"}},
	} {
		if r := edgelimit(t, append([]string{"sim"}, test.args...)...); r.out != "" {
			t.Errorf("%v: it prints %q", test.args, r.out)
		} else {
			r.says(t, 2, test.want...)
		}
	}
}

// A long run says how far it is, and hears an interrupt.
func TestSimInterrupted(t *testing.T) {
	ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, context.Canceled)
	defer cancel()
	began := time.Now()
	r := edgelimitReading(t, ctx, strings.NewReader(""), "sim", "--nodes", "20", "--duration", "1h")
	if r.says(t, 2, "interrupted"); time.Since(began) > patience {
		t.Errorf("it took %v", time.Since(began))
	}
}

func TestSimProgress(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		var out strings.Builder
		say := simProgress(&out, time.Minute)
		if say(time.Second); out.Len() > 0 {
			t.Errorf("at once it says %q", out.String())
		}
		time.Sleep(progressInterval)
		say(1500 * time.Millisecond)
		say(1600 * time.Millisecond)
		if want := "edgelimit: simulated 1.5 s of 1 min\n"; out.String() != want {
			t.Errorf("it says %q, want %q", out.String(), want)
		}
	})
}

// planned is a plan that takes a second.
var planned = []string{"sim", "--keys-total", "3K", "--regions", "2", "--nodes", "3", "--window", "2s"}

func TestSimPlan(t *testing.T) {
	edgelimit(t, append(planned, "--new-keys", "5", "--keys", "2")...).says(t, 0, "a plan for 2 regions of 3 nodes",
		"3,000 live keys", "5 new keys/s", "2 keys at all nodes, at 2 times", "sends, Mbit/s", "memory of counts, MiB",
		"What runs out first", "receive queue", "at 1,000 times and more the load", "Simulated, with ")
	got := edgelimit(t, append(planned, "--json", "--requests", "100")...)
	var r plan.Report
	if err := json.Unmarshal([]byte(got.out), &r); err != nil {
		t.Fatalf("%v: %q", err, got.out)
	}
	if !r.OK || r.KeysTotal != 3000 || r.Requests != 100 || r.OverlapPct != 5 || r.HotKeys != 0 || len(r.Breaks) != 5 ||
		r.Mean.MbitOut <= 0 || r.Mean.MiB < 1 || r.Mesh != r.Mean || r.Budget != plan.DefaultBudget() {
		t.Errorf("%+v", r)
	}
	if again := edgelimit(t, append(planned, "--json", "--requests", "100")...); again.out != got.out {
		t.Errorf("two plans differ:\n%s%s", got.out, again.out)
	}
	for line := range strings.Lines(edgelimit(t, planned...).out) {
		if len(line) > 81 {
			t.Errorf("%d columns: %q", len(line)-1, line)
		}
	}
}

// A budget that the load exceeds is reported, by status as well.
func TestSimPlanNotEnough(t *testing.T) {
	edgelimit(t, append(planned, "--bandwidth", "0.01")...).says(t, 1, "NOT ENOUGH")
	for want, args := range map[string][]string{
		"want a number":    {"sim", "--keys-total", "many"},
		"does not go with": {"sim", "--keys-total", "1K", "--trace", "x.csv"},
		"an overlap of 2":  {"sim", "--keys-total", "1K", "--overlap", "200"},
		"a budget of 0":    {"sim", "--keys-total", "1K", "--bandwidth", "0"},
		"no keys":          {"sim", "--keys-total", "0"},
		"only goes with":   {"sim", "--overlap", "5"},
	} {
		if got := edgelimit(t, args...); got.code != 2 || !strings.Contains(got.err, want) {
			t.Errorf("%q: %d, %s", args, got.code, got.err)
		}
	}
}
