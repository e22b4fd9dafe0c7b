package fleet

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/scrape"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestMain(m *testing.M) { testkit.MainWithPrograms(m) }

// program is the testnet's node.
var program = testkit.Program("../node")

// smallRun returns the options of a run of a few processes that share no port with other tests.
func smallRun(t *testing.T) Options {
	t.Helper()
	o := DefaultOptions()
	o.Regions, o.Nodes, o.For, o.SmallClients, o.Interval = 2, 2, 2*time.Second, 50, 100*time.Millisecond
	o.Dir, o.Program = t.TempDir(), program(t)
	free := func(base int) bool {
		for port := base; port < base+o.Regions*o.Nodes*PortsPerNode+o.Regions; port++ {
			if !testkit.IsFree(loopback(port)) {
				return false
			}
		}
		return true
	}
	for o.BasePort = testkit.FreePort(t); !free(o.BasePort); {
		o.BasePort = testkit.FreePort(t)
	}
	return o
}

// Four processes in two regions: every assertion holds, under load and after every node was restarted.
func TestFleet(t *testing.T) {
	o := smallRun(t)
	var progress bytes.Buffer
	o.Progress = &progress
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatalf("%v\n%s", err, &progress)
	}
	var text bytes.Buffer
	testkit.Must(t, r.WriteText(&text))
	if !r.OK || r.Steady.Offered == 0 || r.Rolling == nil || r.Rolling.Offered == 0 || r.Hot.Compliant == 0 ||
		r.Steady.Agreement.Counts < 4*keptClients || r.Steady.CPUPct <= 0 || r.Steady.ResidentMiB <= 0 ||
		r.Steady.FramesPerSec <= 0 || r.RestartSeconds <= 0 {
		t.Errorf("%s\n%s%+v", &progress, &text, r)
	}
	for _, want := range []string{"2 regions x 2 nodes", "rolling restart: all nodes count what was acknowledged",
		"staleness across regions"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
	left, _ := exec.Command("pgrep", "-f", o.Dir).Output()
	if len(left) > 0 {
		t.Errorf("processes are left: %s", left)
	}
}

// A node that cannot start ends the run, with nothing left of it.
func TestNodesThatDoNotStart(t *testing.T) {
	o := DefaultOptions()
	o.Regions, o.Nodes, o.Dir, o.Program, o.BasePort = 1, 2, t.TempDir(), "/bin/false", testkit.FreePort(t)
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "r1-1 ended") {
		t.Errorf("error %v", err)
	}
	left, _ := exec.Command("pgrep", "-f", o.Dir).Output()
	if len(left) > 0 {
		t.Errorf("processes are left: %s", left)
	}
	o.Program = filepath.Join(o.Dir, "none")
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("error %v", err)
	}
}

func TestValidate(t *testing.T) {
	o := DefaultOptions()
	o.Program, o.Dir = "edgelimit", "/tmp"
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
	bad := Options{WAN: o.WAN}
	bad.WAN.Loss = 2
	err := bad.Validate()
	for _, want := range []string{"regions", "nodes a region", "load for", "interval", "ports 0", "processors", "MiB",
		"of 0 limits", "small clients", "requests a second", "no program", "no folder"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want one with %q", err, want)
		}
	}
	o.BasePort = 32_500
	if err := o.Validate(); err == nil || !strings.Contains(err.Error(), "ports 32500 to") {
		t.Errorf("error %v", err)
	}
}

// Every node has addresses of its own, and seeds that start before it.
func TestPlan(t *testing.T) {
	o := DefaultOptions()
	o.Dir = "/d"
	seen, all := make(map[string]string), o.nodes()
	for _, n := range all {
		for _, addr := range []string{n.http, n.health, n.lan, n.wan, n.resp, n.grpc} {
			if seen[addr] != "" {
				t.Errorf("%s and %s are at %s", seen[addr], n.name, addr)
			}
			seen[addr] = n.name
		}
	}
	if len(all) != 100 || len(seen) != 600 || seen[loopback(o.redisPort(4))] != "" {
		t.Errorf("%d nodes at %d addresses", len(all), len(seen))
	}
	args := strings.Join(o.args(all[45], all), " ")
	for _, want := range []string{"--region r3 --node-id r3-6 ", "--join " + all[40].lan + " ",
		"--join wan:" + all[0].wan, "--redis redis://" + loopback(o.redisPort(2)), "--inject-wan-delay 40ms"} {
		if !strings.Contains(args, want) {
			t.Errorf("no %q in %s", want, args)
		}
	}
	if strings.Contains(args, "--join "+all[0].lan) || strings.Contains(args, all[41].lan) {
		t.Errorf("seeds of other regions on the LAN, or that start with it: %s", args)
	}
}

// A small client asks its nodes, which differ; the kept clients ask all.
func TestArrivals(t *testing.T) {
	o := DefaultOptions()
	asked, after := make(map[string]map[int]int), time.Duration(0)
	next := o.arrivals()
	for range 50_000 {
		a, ok := next()
		if !ok || a.After < after {
			t.Fatal(a, ok)
		}
		after = a.After
		if asked[a.Client] == nil {
			asked[a.Client] = make(map[int]int)
		}
		asked[a.Client][a.Node]++
	}
	rates := make(map[string]float64)
	for client, nodes := range asked {
		for _, n := range nodes {
			rates[ruleOf(client)] += float64(n) / after.Seconds()
		}
		if ruleOf(client) == smallRule && len(nodes) > smallNodes || ruleOf(client) == keptRule && len(nodes) < 30 {
			t.Errorf("%s asks %d nodes", client, len(nodes))
		}
	}
	for i := range 1000 {
		if h := o.homes(i); h[0] == h[1] || max(h[0], h[1]) >= 100 {
			t.Errorf("client %d asks the nodes %v", i, h)
		}
	}
	hot := float64(o.HotClients)*o.HotLoad*hotLimit/hotWindow.Seconds() + 0.9*hotLimit/(1.2*hotWindow.Seconds())
	for rule, want := range map[string]float64{hotRule: hot, keptRule: o.Rate, smallRule: o.Rate} {
		if got := rates[rule]; got < 0.9*want || got > 1.1*want {
			t.Errorf("%s: %.1f requests a second, want %.1f", rule, got, want)
		}
	}
}

func TestParseUsage(t *testing.T) {
	stat := "7 (edge) limit) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 8 0 100 1 2"
	u, err := parseUsage(stat, "Name:\tx\nVmHWM:\t  2048 kB\nVmRSS:\t1 kB\n")
	if err != nil || u.cpu != 2*time.Second || u.resident != 2<<20 {
		t.Errorf("%+v, %v", u, err)
	}
	for _, bad := range [][2]string{{"7 (x) S", "VmHWM: 1 kB"}, {stat, "VmRSS: 1 kB"},
		{strings.Replace(stat, " 150 ", " x ", 1), "VmHWM: 1 kB"}} {
		if u, err := parseUsage(bad[0], bad[1]); err == nil {
			t.Errorf("%q: %+v", bad, u)
		}
	}
}

// What was admitted beyond the limit is measured, and compared with what nodes exported at that time.
func TestJudgeExcess(t *testing.T) {
	o := Options{Dir: t.TempDir()}
	f := &fleet{opt: &o}
	testkit.Must(t, f.writeSettings())
	rule, err := o.hotRule()
	testkit.Must(t, err)
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var decisions []decision
	add := func(client string, n int, allowed bool) {
		for i := range n {
			at := start.Add(time.Duration(i) * 10 * time.Millisecond).UnixNano()
			decisions = append(decisions, decision{client, at, at, allowed})
		}
	}
	add("hot-0", hotLimit*11/10, true)
	exports := func(ratio float64) (bounds []bound) { // from the last request on
		for i := range 8 {
			at := start.Add(time.Duration(i) * time.Second)
			bounds = append(bounds, bound{at.UnixNano(), map[bool]float64{true: ratio}[i >= 3]})
		}
		return bounds
	}
	e := judgeExcess(decisions, exports(0.2), time.Second, rule.Limit)
	if e.MaxPct < 9 || e.MaxPct > 11 || e.NetPct < 9 || e.Violations != 0 || e.BoundPct != 20 || e.MinPct != 0 {
		t.Errorf("%+v", e)
	}
	if e := judgeExcess(decisions, exports(0.05), time.Second, rule.Limit); e.Violations == 0 {
		t.Errorf("%+v", e)
	}
	decisions = nil
	add(compliant, 20, false)
	if e := judgeExcess(decisions, nil, time.Second, rule.Limit); e.FalseRejections != 20 || e.Compliant != 20 {
		t.Errorf("%+v", e)
	}
}

// Counts above and below what was acknowledged are wrong, unless an answer was lost.
func TestCheck(t *testing.T) {
	l := newLoad(&fleet{nodes: []node{{name: "a"}}})
	l.counts["kept-0"] = &count{acknowledged: 5, uncertain: 1}
	for n, wrong := range map[uint64]int{4: 1, 5: 0, 6: 0, 7: 1} {
		var a Agreement
		if l.check(&a, 0, "kept-0", n); a.Wrong != wrong || a.Counts != 1 || (a.First != "") != (wrong > 0) {
			t.Errorf("%d: %+v", n, a)
		}
	}
	l.counts["kept-0"].nodes = map[int]bool{0: true, 1: true}
	if l.restarted(0); len(l.counts["kept-0"].nodes) != 1 {
		t.Errorf("%v", l.counts["kept-0"].nodes)
	}
}

// A run on a machine that stands still is no measurement of staleness, and is one of everything else.
func TestAssert(t *testing.T) {
	o := DefaultOptions()
	o.Interval = 100 * time.Millisecond
	good := func() *Report {
		r := &Report{Hot: Excess{Compliant: 9}}
		r.Steady = Phase{Offered: 9, Agreement: Agreement{Counts: 9}, InRegion: Staleness{Samples: 9, P99Millis: 200},
			Across: Staleness{Samples: 9, P99Millis: 400}}
		return r
	}
	for name, c := range map[string]struct {
		change func(r *Report)
		ok     bool
	}{
		"good":           {func(*Report) {}, true},
		"stale":          {func(r *Report) { r.Steady.InRegion.P99Millis = 301 }, false},
		"stale across":   {func(r *Report) { r.Steady.Across.P99Millis = 501 }, false},
		"missed":         {func(r *Report) { r.Steady.Across.Missed = 1 }, false},
		"stale and busy": {func(r *Report) { r.Steady.InRegion.P99Millis, r.Steady.PauseP99Millis = 301, 101 }, true},
		"failed":         {func(r *Report) { r.Steady.Failed = 1 }, false},
		"denied":         {func(r *Report) { r.Steady.Denied = 1 }, false},
		"wrong":          {func(r *Report) { r.Steady.Agreement.Wrong, r.Steady.PauseP99Millis = 1, 101 }, false},
		"wrong afterwards": {func(r *Report) {
			r.Rolling = &Phase{Offered: 9, Agreement: Agreement{Counts: 9, Wrong: 1}}
		}, false},
		"false rejection":  {func(r *Report) { r.Hot.FalseRejections = 1 }, false},
		"nobody compliant": {func(r *Report) { r.Hot.Compliant = 0 }, false},
		"all late": {func(r *Report) {
			r.Hot.Compliant, r.Rolling = 0, &Phase{Offered: 9, Agreement: Agreement{Counts: 9}, LateMillis: 5000}
		}, true},
		"above the bound": {func(r *Report) { r.Hot.Violations = 1 }, false},
		"unreadable":      {func(r *Report) { r.Malformed = 1 }, false},
		"refused":         {func(r *Report) { r.RefusedSlots = 1 }, false},
	} {
		r := good()
		c.change(r)
		if r.assert(&o); r.OK != c.ok || len(r.Assertions) < 8 {
			t.Errorf("%s: ok %v, %+v", name, r.OK, r.Assertions)
		}
	}
}

func TestTotals(t *testing.T) {
	m, err := scrape.Parse(strings.NewReader("edgelimit_gossip_frames_sent_total 3\n" +
		"edgelimit_gossip_bytes_sent_total 40\n" +
		"edgelimit_gossip_malformed_frames_total 1\nedgelimit_refused_slots_total 2\n"))
	testkit.Must(t, err)
	var got gossipTotals
	got.add(m)
	got.add(m)
	if got != (gossipTotals{framesSent: 6, bytesSent: 80, malformed: 2, refused: 4}) {
		t.Errorf("%+v", got)
	}
}

// Every door of two nodes admits all that it is asked for, one at a time and many at once.
func TestMeasureDoors(t *testing.T) {
	o := smallRun(t)
	o.Regions = 1
	many := ThroughputOptions{Slice: 100 * time.Millisecond, Connections: 2, Clients: 20, Rate: 50}
	r, err := MeasureDoors(t.Context(), o, many)
	if err != nil || len(r.Doors) != len(doors()) {
		t.Fatal(r, err)
	}
	var text bytes.Buffer
	testkit.Must(t, r.WriteText(&text))
	for _, d := range r.Doors {
		if s := d.Closed; s.PerSecond < 50 || s.P99Millis < s.P50Millis || s.P50Millis <= 0 || d.Paced == nil ||
			d.Paced.P50Millis <= 0 || !strings.Contains(text.String(), "| "+d.Door+" ") {
			t.Errorf("%+v\n%s", d, &text)
		}
	}
	many.Door = "telepathy"
	if _, err := MeasureDoors(t.Context(), o, many); err == nil || !strings.Contains(err.Error(), "telepathy") {
		t.Errorf("error %v", err)
	}
	if _, err = MeasureDoors(t.Context(), o, ThroughputOptions{}); err == nil ||
		!strings.Contains(err.Error(), "10ms") {
		t.Errorf("error %v", err)
	}
}

// An answer that denies, or is none, ends the measurement.
func TestAnswers(t *testing.T) {
	reader := func(text string) *bufio.Reader { return bufio.NewReader(strings.NewReader(text)) }
	const admitted = "*5\r\n:0\r\n:1\r\n:1\r\n:-1\r\n:1\r\n"
	testkit.Must(t, answersRESP(reader(admitted+admitted), 2))
	denied := strings.Replace(admitted, ":0", ":1", 1)
	for _, bad := range []string{admitted, denied + admitted, "-ERR no\r\n" + admitted} {
		if err := answersRESP(reader(bad), 2); err == nil {
			t.Errorf("%q is taken for two answers", bad)
		}
	}
	response := func(status, body string) string {
		return fmt.Sprintf("HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
	}
	const two = `{"allowed":true},{"allowed":true}`
	testkit.Must(t, answersHTTP(reader(response("200 OK", two)), 2))
	for _, bad := range []string{response("200 OK", two[:20]), response("503 No", two), "HTTP/1.1 200 OK\r\n"} {
		if err := answersHTTP(reader(bad), 2); err == nil {
			t.Errorf("%q is taken for two answers", bad)
		}
	}
}

func TestParseBusy(t *testing.T) {
	busy, err := parseBusy("cpu  100 10 50 1000 500 5 5 30 0 0\ncpu0 1\n")
	if err != nil || busy != 1700*time.Millisecond {
		t.Errorf("%v, %v", busy, err)
	}
	for _, bad := range []string{"", "cpu 1 2 3", "cpu 1 2 x 4 5 6 7 8"} {
		if _, err := parseBusy(bad); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}
