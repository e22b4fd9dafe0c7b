package sim

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func readAll(t *testing.T, s string) *Trace {
	t.Helper()
	trace, err := ReadTrace(strings.NewReader(s))
	testkit.Must(t, err)
	return trace
}

func TestReadTrace(t *testing.T) {
	trace := readAll(t, "\ufeffSeconds, region, node\r\n# a comment\r\n\r\n1.5,eu,b\r\n0,us,a\n0.25, eu , c \n2e0,us,b")
	if trace.Regions != 2 || trace.Nodes != 2 || len(trace.arrivals) != 4 || trace.Duration() != 2001*time.Millisecond {
		t.Fatalf("%+v", trace)
	}
	o := DefaultOptions()
	o.Trace, o.Regions, o.Nodes, o.Duration = trace, 2, 3, trace.Duration()
	got := fmt.Sprint(all(t, o))
	if want := "[{0 3 0} {250000000 1 0} {1500000000 0 0} {2000000000 4 0}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	o.Duration = time.Second
	if n := len(all(t, o)); n != 2 {
		t.Errorf("%d arrivals in the first second, want 2", n)
	}
	o.Nodes = 1
	if o.Validate() == nil {
		t.Error("it fits into one node a region")
	}
}

func TestReadTraceRefuses(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"", "no arrivals"},
		{"seconds,region,node\n", "no arrivals"},
		{"0,a,1\n1,b\n", "line 2: 2 fields"},
		{"0,a,1\n\n# x\n1,b,1,2\n", "line 4: 4 fields"},
		{"x,a,1\n", `line 1: "x" is no number`},
		{"NaN,a,1\n", "no number"},
		{"Inf,a,1\n", "less than 86400"},
		{"-1,a,1\n", "-1 seconds"},
		{"1e99,a,1\n", "1e+99 seconds"},
		{"0,,1\n", "no name"},
		{"0,a,\n", "no name"},
		{"0,a,\xff\n", "no name"},
		{"0," + strings.Repeat("x", 65) + ",1\n", "no name"},
		{"0,a,1\n" + strings.Repeat("x", 600) + "\n", "a line of more than 512 bytes, after 1 arrivals"},
		{"1,a,1\nseconds,region,node\n", "line 2"},
		{"0,a,1\n" + manyNodes(maxNodes+1), "line 2002: 1 regions of 2001 nodes"},
	} {
		if _, err := ReadTrace(strings.NewReader(test.in)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%.40q: %v, want %q", test.in, err, test.want)
		}
	}
}

func manyNodes(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%d,a,%d\n", i, i+1)
	}
	return b.String()
}

// Whatever a file holds, it is an error or a trace that can be played.
func FuzzReadTrace(f *testing.F) {
	for _, s := range []string{"", "seconds,region,node\n0,a,1\n", "0.5,us,1\r\n0.25,eu,2", "1e3,a,b\n", "-0,a,b",
		"0x1p3,a,b", "1_0,a,b", "0,\"a\",b\n", "\ufeff1,a,b"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		trace, err := ReadTrace(bytes.NewReader(b))
		if err != nil {
			return
		}
		if len(trace.arrivals) == 0 || trace.Regions < 1 || trace.Nodes < 1 ||
			len(trace.arrivals) > bytes.Count(b, []byte("\n"))+1 {
			t.Fatalf("%d arrivals at %d regions of %d nodes", len(trace.arrivals), trace.Regions, trace.Nodes)
		}
		o := DefaultOptions()
		o.Trace, o.Regions, o.Nodes, o.Duration = trace, trace.Regions, trace.Nodes, trace.Duration()
		if n := len(all(t, o)); n != len(trace.arrivals) {
			t.Fatalf("%d of %d arrivals", n, len(trace.arrivals))
		}
	})
}

func TestParsePartition(t *testing.T) {
	for in, want := range map[string]string{
		"2@20s-50s": "2/*@20s-50s", "1/2@1m-90s": "1/2@1m0s-1m30s", "1>2@0s-1ms": "1>2@0s-1ms",
		"2>*@1s-2s": "2>*@1s-2s", "*>2@1s-2s": "*>2@1s-2s",
	} {
		p, err := ParsePartition(in)
		if err != nil || p.String() != want {
			t.Errorf("%s: %v, %v, want %s", in, p, err, want)
			continue
		}
		if again, err := ParsePartition(p.String()); err != nil || again != p {
			t.Errorf("%s is read as %v, %v", p, again, err)
		}
	}
	for _, in := range []string{"", "2", "2@", "2@20s", "x@1s-2s", "0@1s-2s", "-1@1s-2s", "1/x@1s-2s", "1>@1s-2s",
		"2@x-2s", "2@1s-x", "99999999@1s-2s"} {
		if p, err := ParsePartition(in); err == nil || !strings.Contains(err.Error(), "want e.g.") {
			t.Errorf("%s: %v, %v", in, p, err)
		}
	}
	for _, p := range []Partition{{A: 1, B: 1, Until: 1}, {A: 4, Until: 1}, {A: 1, From: 2, Until: 2}, {A: 1,
		From: -1, Until: 2}, {Until: 1}} {
		if p.validate(3) == nil {
			t.Errorf("%v is valid", p)
		}
	}
	if (Partition{A: 1, Until: 1}).validate(1) == nil {
		t.Error("a region that is alone can be cut off")
	}
}

// Who hears whom, by region.
func TestPartitionCuts(t *testing.T) {
	for _, test := range []struct {
		p    string
		cuts string // from and to
	}{
		{"2@0s-1s", "12 21 23 32"}, {"1/2@0s-1s", "12 21"}, {"1>2@0s-1s", "12"}, {"2>*@0s-1s", "21 23"}, {"*>2@0s-1s",
			"12 32"},
	} {
		p, err := ParsePartition(test.p)
		testkit.Must(t, err)
		var got []string
		for a := range 3 {
			for b := range 3 {
				if p.blocks(a, b) {
					got = append(got, fmt.Sprint(a+1, b+1))
				}
			}
		}
		if cuts := strings.ReplaceAll(strings.Join(got, "|"), " ", ""); strings.ReplaceAll(cuts, "|",
			" ") != test.cuts {
			t.Errorf("%s cuts %v, want %s", test.p, got, test.cuts)
		}
	}
}

// Members give each other up when no third region can relay, and find each other again.
func TestLongPartition(t *testing.T) {
	for _, test := range []struct {
		cut   string
		given bool
	}{{"2@1s-60s", true}, {"1/2@1s-60s", false}} {
		p, _ := ParsePartition(test.cut)
		c, err := newCluster(
			short(func(o *Options) { o.Partitions, o.Duration, o.Load = []Partition{p}, 75*time.Second, 0.5 }),
			noHooks())
		testkit.Must(t, err)
		members := func() (n int) {
			for _, p := range c.nodes[0].replica.Peers(c.clock(c.nodes[0])) {
				if p.Member {
					n++
				}
			}
			return n
		}
		var before, during int
		c.after(lead, func() { before = members() })
		c.after(lead+59*time.Second, func() { during = members() })
		testkit.Must(t, c.offer(t.Context(), func(time.Duration) {}))
		r := c.report(c.settle())
		if want := map[bool]int{true: 3, false: 5}[test.given]; before != 5 || during != want || members() != 5 {
			t.Errorf("%s: %d members before it, %d in it and %d after it, want 5, %d and 5", test.cut, before, during,
				members(), want)
		}
		if long := r.HealMillis > 2000; r.HealMillis <= 0 || r.HealMillis > 15_000 || long && !test.given {
			t.Errorf("%s: healed after %v ms", test.cut, r.HealMillis)
		}
	}
}

// In a cut that lasts for longer than membership keeps nodes, both sides share a limit whose window is as long, though
// each is asked for ten times as much.
func TestLongPartitionOfALongWindow(t *testing.T) {
	p, _ := ParsePartition("2@45s-200s")
	for _, nodes := range []int{1, 2} {
		r := run(t, short(func(o *Options) {
			o.Regions, o.Nodes, o.Limit, o.Window, o.Load = 2, nodes, 100, time.Minute, 20
			o.Partitions, o.Duration = []Partition{p}, 220*time.Second
		}))
		if r.SettledPeakPct > 30 || !r.BoundHeld {
			t.Errorf("%d nodes each: at most %v %% above the limit, held to the bound: %v", nodes, r.SettledPeakPct,
				r.BoundHeld)
		}
	}
}
