package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/judge"
	"github.com/edgelimit/edgelimit/testnet/traffic"
)

func (f *fakeCluster) run(t *testing.T, name string) Result {
	t.Helper()
	found, err := Find(name, Options{})
	if err != nil {
		t.Fatal(err)
	}
	x := Runner{Cluster: f, Client: &http.Client{Transport: f}, Records: t.TempDir()}
	return x.Run(t.Context(), found[0])
}

func describe(r Result) string {
	var b bytes.Buffer
	_ = WriteTable(&b, []Result{r})
	return b.String()
}

// Nodes without a flaw pass every scenario, and each fault is undone.
func TestScenariosHold(t *testing.T) {
	for _, s := range All(Options{}) {
		t.Run(s.Name, func(t *testing.T) {
			withFakeCluster(t, func(t *testing.T, f *fakeCluster) {
				r := f.run(t, s.Name)
				if !r.OK || r.Error != "" || r.Attempts != 1 || len(r.Assertions) < 3 {
					t.Errorf("%s", describe(r))
				}
				if s.Name != "global-limit" && len(r.Observations) == 0 {
					t.Error("nothing shows that the fault took hold")
				}
				if f.way != "" || f.blocked || f.redis.down || f.redis.paused || f.ups < 2 {
					t.Errorf("it leaves a partition %q, Redis %+v, complete %d times", f.way, f.redis, f.ups)
				}
				for _, n := range f.nodes {
					if n.down || n.paused != nil {
						t.Errorf("it leaves %s down", n.name)
					}
				}
			})
		})
	}
}

// A fault that does not take hold shows nothing, and so fails the scenario, whatever else went well.
func TestFaultsHaveToTakeHold(t *testing.T) {
	for name, c := range map[string]struct{ ignores, want string }{
		"partition":                {"partition", "the partition leaks"},
		"one-way":                  {"partition", "the partition leaks"},
		"blocked-udp":              {"block", "names what is blocked"},
		"redis-loss":               {"stop", "do not notice"},
		"redis-slow":               {"pause", "do not notice"},
		"redis-flush":              {"flush", "FLUSHALL did not take hold"},
		"node-kill":                {"kill", "still answers"},
		"node-restart-new-address": {"move", "still at"},
		"pause":                    {"pause", "did not take hold"},
		"drain":                    {"stop", "still answers"},
		"rolling":                  {"stop", "did not take hold"},
		"rotate":                   {"install", "does not have it"},
		"upgrade":                  {"stop", "did not take hold"},
		"wide":                     {"partition", "the partition leaks"},
	} {
		t.Run(name, func(t *testing.T) {
			withFakeCluster(t, func(t *testing.T, f *fakeCluster) {
				f.ignores = c.ignores
				if r := f.run(t, name); r.OK || !strings.Contains(r.Error, c.want) {
					t.Errorf("error %q, want one with %q", r.Error, c.want)
				}
			})
		})
	}
}

// A flaw of the nodes breaks the assertion that is about it.
func TestBrokenAssertions(t *testing.T) {
	for name, c := range map[string]struct {
		scenario  string
		flaw      func(f *fakeCluster)
		assertion string
	}{
		"no gossip":             {"global-limit", func(f *fakeCluster) { f.noGossip = true }, "one limit holds"},
		"requests fail":         {"global-limit", func(f *fakeCluster) { f.drops = "us-east-2" }, "is answered"},
		"sends nothing":         {"node-kill", func(f *fakeCluster) { f.mute = faultNode }, "takes with it"},
		"drains nothing":        {"drain", func(f *fakeCluster) { f.mute = faultNode }, "counts are with the others"},
		"admits too much":       {"partition", func(f *fakeCluster) { f.generous = true }, "about one limit a window"},
		"shares nothing":        {"one-way", func(f *fakeCluster) { f.generous = true }, "share the limit"},
		"unlike predicted":      {"one-way", func(f *fakeCluster) { f.generous = true }, "simulator predicts"},
		"blocked: flickers":     {"blocked-udp-in", func(f *fakeCluster) { f.flickers = true }, "does not flicker"},
		"blocked: no guarantee": {"blocked-tcp", func(f *fakeCluster) { f.surprised = true }, "never below"},
		"blocked: not counted":  {"blocked-udp-out", func(f *fakeCluster) { f.noGossip = true }, "the limit holds"},
		"rolling: not answered": {"rolling", func(f *fakeCluster) { f.abrupt = true }, "is answered"},
		"rolling: forgotten":    {"rolling", func(f *fakeCluster) { f.cold = true }, "stays used up"},
		"rolling: lost for long": {"rolling", func(f *fakeCluster) { f.lone = "us-east-1" },
			"seen without another"},
		"rolling: lost for a moment": {"rolling", func(f *fakeCluster) { f.loses = "ap-south-1" },
			"logs that it lost another"},
		"upgrade: forgotten":   {"upgrade", func(f *fakeCluster) { f.cold = true }, "stays used up"},
		"upgrade: unread":      {"upgrade", func(f *fakeCluster) { f.garbles = "us-east-1" }, "reads what the others"},
		"upgrade: none":        {"upgrade", func(f *fakeCluster) { f.ignores = "replace" }, "ends as an upgrade"},
		"upgrade: lost":        {"upgrade", func(f *fakeCluster) { f.loses = "eu-west-2" }, "logs that it lost"},
		"upgrade: denied":      {"upgrade", func(f *fakeCluster) { f.refuses = "-own" }, "within its limit is denied"},
		"rotate: not answered": {"rotate", func(f *fakeCluster) { f.drops = "eu-west-1" }, "request is answered"},
		"rotate: unreadable":   {"rotate", func(f *fakeCluster) { f.keys.deaf = true }, "read each other"},
		"rotate: lost":         {"rotate", func(f *fakeCluster) { f.lone = "us-east-1" }, "seen without another"},
		"restarts at zero":     {"node-kill", func(f *fakeCluster) { f.cold = true }, "warm before it is ready"},
	} {
		t.Run(name, func(t *testing.T) {
			withFakeCluster(t, func(t *testing.T, f *fakeCluster) {
				c.flaw(f)
				r := f.run(t, c.scenario)
				about := func(a Assertion) bool { return strings.Contains(a.What, c.assertion) }
				i := slices.IndexFunc(r.Assertions, about)
				if r.OK || i < 0 || r.Assertions[i].OK || r.Record == "" {
					t.Errorf("%s", describe(r))
				}
			})
		})
	}
	withFakeCluster(t, func(t *testing.T, f *fakeCluster) {
		f.keys.lax = true // it removes the key that it should use next
		if r := f.run(t, "rotate"); r.OK || !strings.Contains(r.Error, "it has one gossip key") {
			t.Errorf("%s", describe(r))
		}
	})
	withFakeCluster(t, func(t *testing.T, f *fakeCluster) {
		f.keys.welcomes = true
		if r := f.run(t, "rotate"); r.OK || !strings.Contains(r.Error, "no node refused a process with the old key") ||
			f.keys.intruders != 0 {
			t.Errorf("%d left, %s", f.keys.intruders, describe(r))
		}
	})
	withFakeCluster(t, func(t *testing.T, f *fakeCluster) {
		f.mute = "us-east-2" // nobody reads what it sends
		if r := f.run(t, "upgrade"); r.OK || !strings.Contains(r.Error, "count") {
			t.Errorf("%s", describe(r))
		}
	})
	withFakeCluster(t, func(t *testing.T, f *fakeCluster) {
		f.mute = "us-east-2"
		if r := f.run(t, "wide"); r.OK || !strings.Contains(r.Error, "count") {
			t.Errorf("%s", describe(r))
		}
	})
	withFakeCluster(t, func(t *testing.T, f *fakeCluster) {
		f.forgets = true
		if r := f.run(t, "redis-flush"); r.OK || !strings.Contains(r.Error, "holds 0 of") {
			t.Errorf("%s", describe(r))
		}
	})
}

// The cluster is restored whatever fails.
func TestFaultsAreUndone(t *testing.T) {
	withFakeCluster(t, func(t *testing.T, f *fakeCluster) {
		f.failHeal = errors.New("no such network")
		if r := f.run(t, "partition"); r.OK || !strings.Contains(r.Error, "no such network") || f.undoes != 2 {
			t.Errorf("undone %d times, error %q", f.undoes, r.Error)
		}
	})
	withFakeCluster(t, func(t *testing.T, f *fakeCluster) {
		f.broken = true
		if r := f.run(t, "partition"); r.OK || !strings.Contains(r.Error, "not complete") {
			t.Errorf("error %q", r.Error)
		}
	})
}

// A failed run is repeated once if the machine was measured to stand still and no invariant was broken; the records of
// both runs are kept. A slow node or load generator excuses nothing.
func TestRepeatsOnceWhereTheMachineStoodStill(t *testing.T) {
	withFakeCluster(t, func(t *testing.T, f *fakeCluster) {
		for name, c := range map[string]struct {
			pause    time.Duration
			check    func(r *Run)
			attempts int
			busy     bool
		}{
			"the machine ran":  {MaxPause, func(r *Run) { r.Assert("it is quick", false, "", "") }, 1, false},
			"it stood still":   {MaxPause + 1, func(r *Run) { r.Assert("it is quick", false, "", "") }, 2, true},
			"nothing is wrong": {time.Hour, func(*Run) {}, 1, true},
			"an invariant is broken": {time.Hour, func(r *Run) {
				r.result.Violations = append(r.result.Violations, judge.Violation{})
			}, 1, true},
		} {
			runs := 0
			x := Runner{Cluster: f, Records: t.TempDir(), Client: &http.Client{Transport: f},
				measurePause: func(ctx context.Context) time.Duration { <-ctx.Done(); return c.pause }}
			r := x.Run(t.Context(), Scenario{Name: "busy", Rule: "per_client",
				Streams: []traffic.Stream{{Identity: "x", Rate: 10}}, Steps: []Step{wait("load", 3*time.Second)},
				Check: func(r *Run) { runs++; c.check(r) }})
			records, _ := filepath.Glob(filepath.Join(x.Records, "*"))
			if r.Attempts != c.attempts || runs != c.attempts || len(records) != c.attempts ||
				(r.Busy != "") != c.busy || (r.FirstRecord != "") != (c.attempts == 2) || r.Record == r.FirstRecord ||
				r.Error != "" {
				t.Errorf("%s: %d runs, records %q: %s", name, runs, records, describe(r))
			}
		}
		// More requests than there are workers, as no answer comes: the load generator falls behind.
		x := Runner{Cluster: f, Records: t.TempDir(),
			Client: &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) {
				time.Sleep(5 * time.Second)
				return nil, errors.New("too late")
			})}}
		r := x.Run(t.Context(), Scenario{Name: "busy", Rule: "per_client",
			Streams: []traffic.Stream{{Identity: "x", Rate: 8000}}, Steps: []Step{wait("load", 1200*time.Millisecond)}})
		if r.OK || r.Attempts != 1 || !strings.Contains(r.Error, "fell behind") {
			t.Errorf("%d attempts: %s", r.Attempts, describe(r))
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestFind(t *testing.T) {
	all, err := Find("all", Options{})
	if err != nil || len(all) != 18 {
		t.Errorf("%d scenarios, %v", len(all), err)
	}
	seen := map[string]bool{}
	for _, s := range all {
		if s.Name == "" || s.What == "" || s.Takes <= 0 || s.Check == nil || len(s.Steps) == 0 || seen[s.Name] {
			t.Errorf("%+v", s)
		}
		seen[s.Name] = true
	}
	if _, err := Find("partitoin", Options{}); err == nil || !strings.Contains(err.Error(), "global-limit") {
		t.Errorf("error %v", err)
	}
	if one, err := Find("partition", Options{Cut: time.Minute}); err != nil || one[0].Takes < time.Minute {
		t.Errorf("%v", err)
	}
}

// The keys of the JSON are what others build on.
func TestResultAsJSON(t *testing.T) {
	b, err := json.Marshal(Result{Assertions: []Assertion{{}}, Violations: []judge.Violation{{}},
		Figures: map[string]float64{"a_ms": 1}})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	keys := func(v any) string { return strings.Join(slices.Sorted(maps.Keys(v.(map[string]any))), " ") }
	for _, c := range []struct{ got, want string }{
		{keys(got), "attempts busy error evidence figures first_record name ok promises record seconds violations"},
		{keys(got["promises"].([]any)[0]), "expected got ok promise"},
		{keys(got["violations"].([]any)[0]), "expected got invariant second times what"},
	} {
		if c.got != c.want {
			t.Errorf("keys %q, want %q", c.got, c.want)
		}
	}
}

func TestRecordsOfGoodRunsAreRemoved(t *testing.T) {
	withFakeCluster(t, func(t *testing.T, f *fakeCluster) {
		t.Setenv("TMPDIR", t.TempDir())
		found, _ := Find("global-limit", Options{})
		x := Runner{Cluster: f, Client: &http.Client{Transport: f}}
		r := x.Run(t.Context(), found[0])
		left, _ := filepath.Glob(filepath.Join(os.TempDir(), "edgelimit-*"))
		if !r.OK || r.Record != "" || len(left) != 0 {
			t.Errorf("record %q, left %q: %s", r.Record, left, describe(r))
		}
	})
}
