package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

const stalled = "some avg10=12.50 avg60=0.80 avg300=0.20 total=123456\n"

// The file is read once a second. While it cannot be read the pressure counts as high, and the log says so once.
func TestPressureFile(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		file := write(t, "cpu", stalled)
		var book testkit.Log
		cfg := quiet(elastic)
		cfg.PressureFile, cfg.Logger = file, book.Logger()
		n := launch(t, cfg).ready(t)
		time.Sleep(1500 * time.Millisecond)
		if p := n.Pressure(); p != 0.125 {
			t.Errorf("the pressure is %v", p)
		}
		writeFile(t, file, strings.Replace(stalled, "12.50", "40.00", 1))
		time.Sleep(time.Second)
		if p := n.Pressure(); p != 0.4 {
			t.Errorf("the pressure has risen to %v", p)
		}
		writeFile(t, file, "nothing of the kind")
		time.Sleep(10 * time.Second)
		if p := n.Pressure(); p != 1 {
			t.Errorf("the pressure that nobody can read is %v", p)
		}
		if got := strings.Count(book.String(), "the pressure cannot be read"); got != 1 {
			t.Errorf("the log says so %d times", got)
		}
	})
}

func TestPressureFileThatIsNone(t *testing.T) {
	for name, want := range map[string]string{
		filepath.Join(t.TempDir(), "missing"): "no such file",
		write(t, "empty", ""):                 "EOF",
		write(t, "other",
			"1.5\n"): `does not begin with the part of the last ten seconds, as in "some avg10=1.50"`,
	} {
		cfg := quiet(elastic)
		cfg.PressureFile = name
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "pressure_file: ") ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

// A report from a time to come is as old as one from long ago.
func TestPressureAcrossAStepOfTheClock(t *testing.T) {
	n := idle(t, elastic)
	for _, ahead := range []time.Duration{-6 * time.Second, 6 * time.Second, math.MinInt64 / 2} {
		n.pressure.Store(&pressure{0, n.clock.Now() + int64(ahead)})
		if p := n.Pressure(); p != 1 {
			t.Errorf("a report that is %v ahead counts: %v", ahead, p)
		}
	}
}

const metered = `
domain: test
descriptors:
  - key: tenant
    rate_limit: {name: tenant, unit: hour, requests_per_unit: 100}
    descriptors:
      - {key: user, rate_limit: {name: user, unit: hour, requests_per_unit: 10, mode: elastic, parent: tenant}}
  - key: client
    rate_limit: {name: client, unit: hour, requests_per_unit: 20, cost: 2, ban: 60s}
  - key: bucket
    rate_limit: {name: bucket, unit: hour, requests_per_unit: 20, algorithm: token_bucket}
`

// charged reports a request and returns what is left in each layer.
func charged(t *testing.T, n *Node, req Request) string {
	t.Helper()
	layers, err := n.Report(t.Context(), &req, []Decision{{Rule: "earlier"}})
	if err != nil || layers[0] != (Decision{Rule: "earlier"}) {
		t.Fatalf("%+v, %v", layers, err)
	}
	text := ""
	for _, d := range layers[1:] {
		text += fmt.Sprintf(" %s %v %d", d.Rule, d.Allowed, d.Remaining)
	}
	return strings.TrimPrefix(text, " ")
}

// What is reported is charged in every layer, times the rule's own cost, whether or not there is room; the answer is a
// peek right after.
func TestReport(t *testing.T) {
	n := idle(t, metered)
	both := ask(by("client", "x"), by("bucket", "x"), by("nobody", "x"))
	for _, step := range []struct {
		cost uint64
		want string
	}{
		{0, "client true 18 bucket true 19  true 0"}, // 1
		{8, "client true 2 bucket true 11  true 0"},
		{2, "client false 0 bucket true 9  true 0"},
		{1000, "client false 0 bucket false 0  true 0"},
	} {
		both.Cost = step.cost
		if got := charged(t, n, both); got != step.want {
			t.Errorf("a report of %d: %s, want %s", step.cost, got, step.want)
		}
	}
	if d := take(t, n, Request{Rule: "client", Identity: "x", Peek: true}); d.Banned {
		t.Errorf("a report banned: %+v", d)
	}
	both.Peek, both.Descriptors = true, [][]rules.Entry{by("client", "y")}
	if got := charged(t, n, both); got != "client true 20" {
		t.Errorf("a peek: %s", got)
	}
	for r, tally := range n.policy.Load().tallies {
		if tally.allowed.Load()+tally.denied.Load()+tally.waived.Load()+tally.banned.Load() != 0 {
			t.Errorf("reports are counted as decisions of %s", r)
		}
	}
}

// Of an elastic rule a report is lent, as a request would be, and the parent comes along.
func TestReportOfElasticRules(t *testing.T) {
	n := idle(t, metered)
	by := func(user string, cost uint64) Request {
		return Request{
			Domain:      "test",
			Descriptors: [][]rules.Entry{{{Key: "tenant", Value: "t"}, {Key: "user", Value: user}}},
			Cost:        cost,
		}
	}
	for _, step := range []struct {
		user string
		cost uint64
		want string
	}{
		{"ann", 10, "user true 0 tenant true 90"},
		{"ann", 80, "user true 0 tenant true 10"}, // a loan
		{"bob", 4, "user true 6 tenant true 6"},
		{"ann", 50, "user false 0 tenant true 0"},
		{"bob", 5, "user true 1 tenant true 0"},
	} {
		if got := charged(t, n, by(step.user, step.cost)); got != step.want {
			t.Errorf("%d of %s: %s, want %s", step.cost, step.user, got, step.want)
		}
	}
}

func TestReportErrors(t *testing.T) {
	n := idle(t, metered)
	for _, tt := range []struct {
		req  Request
		want error
	}{
		{Request{}, rules.ErrInvalidRequest},
		{Request{Rule: "nonsense", Identity: "x"}, rules.ErrUnknownRule},
		{Request{Rule: "client", Identity: "x", Cost: counters.MaxLimit + 1}, rules.ErrInvalidRequest},
	} {
		before := []Decision{{Rule: "earlier"}}
		if got, err := n.Report(t.Context(), &tt.req, before); !errors.Is(err, tt.want) || len(got) != 1 ||
			got[0] != before[0] {
			t.Errorf("%+v: %+v, %v; want %v", tt.req, got, err, tt.want)
		}
	}
	if keys := n.table.Stats().Keys; keys != 0 {
		t.Errorf("refused reports left %d counters", keys)
	}
}

func TestReportDoesNotAllocate(t *testing.T) {
	n := idle(t, metered)
	var room [4]Decision
	req := ask(by("client", "x"), by("bucket", "x"))
	send := func() {
		if _, err := n.Report(t.Context(), &req, room[:0]); err != nil {
			t.Fatal(err)
		}
	}
	send()
	if allocs := testing.AllocsPerRun(500, send); allocs != 0 {
		t.Errorf("a report allocates %v times", allocs)
	}
}

// The kill switch denies nothing, and counts what is reported.
func TestReportInShadow(t *testing.T) {
	n := idle(t, metered)
	n.Shadow(true)
	for range 2 {
		if got := charged(t, n, Request{Rule: "bucket", Identity: "x", Cost: 25}); got != "bucket true 0" {
			t.Errorf("in shadow mode: %s", got)
		}
	}
	n.Shadow(false)
	if d := take(t, n, Request{Rule: "bucket", Identity: "x"}); d.Allowed {
		t.Errorf("it was not counted: %+v", d)
	}
}

// The listener of a node takes reports, and charges one with a request_id once.
func TestReportAPI(t *testing.T) {
	cfg := quiet(metered)
	cfg.HTTP = "127.0.0.1:0"
	n := launch(t, cfg)
	for range 2 {
		status, body := post(t, n.Addr("http"), "/v1/report",
			`{"rule":"bucket","identity":"x","cost":15,"request_id":"a"}`)
		var a struct {
			Allowed   bool
			Remaining uint64
		}
		if err := json.Unmarshal([]byte(body), &a); err != nil || status != 200 || !a.Allowed || a.Remaining != 5 {
			t.Errorf("%d %s, %v", status, body, err)
		}
	}
	if status, body := post(t, n.Addr("http"), "/v1/check",
		`{"rule":"bucket","identity":"x","cost":15,"request_id":"a"}`); status != 409 {
		t.Errorf("a check with the id of a report: %d %s", status, body)
	}
	if used := spent(t, n.Node, "bucket", "x"); used != 15 {
		t.Errorf("%d are used, want 15", used)
	}
}
