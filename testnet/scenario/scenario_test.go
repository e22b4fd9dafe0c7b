package scenario

import (
	"bytes"
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

	"github.com/edgelimit/edgelimit/testnet/checker"
	"github.com/edgelimit/edgelimit/testnet/load"
)

func (f *fakeNet) run(t *testing.T, name string) Result {
	t.Helper()
	found, err := Find(name, Options{})
	if err != nil {
		t.Fatal(err)
	}
	x := Runner{Net: f, Client: &http.Client{Transport: f}, Records: t.TempDir()}
	return x.Run(t.Context(), found[0])
}

func describe(r Result) string {
	var b bytes.Buffer
	_ = WriteTable(&b, []Result{r})
	return b.String()
}

// Nodes without a flaw keep every promise of every scenario, and each fault is undone.
func TestScenariosHold(t *testing.T) {
	for _, s := range All(Options{}) {
		t.Run(s.Name, func(t *testing.T) {
			inFakeNet(t, func(t *testing.T, f *fakeNet) {
				r := f.run(t, s.Name)
				if !r.OK || r.Error != "" || r.Attempts != 1 || len(r.Promises) < 3 {
					t.Errorf("%s", describe(r))
				}
				if s.Name != "global-limit" && len(r.Evidence) == 0 {
					t.Error("nothing shows that the fault took hold")
				}
				if f.cut != "" || f.redis.down || f.redis.paused || f.ups < 2 {
					t.Errorf("it leaves the testnet cut %q, Redis %+v, made whole %d times", f.cut, f.redis, f.ups)
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
	for name, c := range map[string]struct{ ignores, says string }{
		"partition":                {"partition", "the cut is not what it should be"},
		"one-way":                  {"partition", "the cut is not what it should be"},
		"redis-loss":               {"stop", "do not notice"},
		"redis-slow":               {"pause", "do not notice"},
		"redis-flush":              {"flush", "FLUSHALL did not take hold"},
		"node-kill":                {"kill", "still answers"},
		"node-restart-new-address": {"move", "still at"},
		"pause":                    {"pause", "did not take hold"},
		"drain":                    {"stop", "still answers"},
	} {
		t.Run(name, func(t *testing.T) {
			inFakeNet(t, func(t *testing.T, f *fakeNet) {
				f.ignores = c.ignores
				if r := f.run(t, name); r.OK || !strings.Contains(r.Error, c.says) {
					t.Errorf("error %q, want one with %q", r.Error, c.says)
				}
			})
		})
	}
}

// A flaw of the nodes is found by the promise that it breaks.
func TestBrokenPromises(t *testing.T) {
	for name, c := range map[string]struct {
		scenario string
		flaw     func(f *fakeNet)
		promise  string
	}{
		"no gossip":        {"global-limit", func(f *fakeNet) { f.deaf = true }, "one limit holds"},
		"requests fail":    {"global-limit", func(f *fakeNet) { f.drops = "us-east-2" }, "every request is answered"},
		"tells nobody":     {"node-kill", func(f *fakeNet) { f.mute = faultNode }, "takes with it"},
		"drains nothing":   {"drain", func(f *fakeNet) { f.mute = faultNode }, "counts are with the others"},
		"admits too much":  {"partition", func(f *fakeNet) { f.generous = true }, "about one limit a window"},
		"shares nothing":   {"one-way", func(f *fakeNet) { f.generous = true }, "share the limit"},
		"unlike predicted": {"one-way", func(f *fakeNet) { f.generous = true }, "simulator predicts"},
		"restarts at zero": {"node-kill", func(f *fakeNet) { f.cold = true }, "warm before it is ready"},
	} {
		t.Run(name, func(t *testing.T) {
			inFakeNet(t, func(t *testing.T, f *fakeNet) {
				c.flaw(f)
				r := f.run(t, c.scenario)
				i := slices.IndexFunc(r.Promises, func(p Promise) bool { return strings.Contains(p.What, c.promise) })
				if r.OK || i < 0 || r.Promises[i].OK || r.Record == "" {
					t.Errorf("%s", describe(r))
				}
			})
		})
	}
	inFakeNet(t, func(t *testing.T, f *fakeNet) {
		f.forgets = true
		if r := f.run(t, "redis-flush"); r.OK || !strings.Contains(r.Error, "holds 0 of") {
			t.Errorf("%s", describe(r))
		}
	})
}

// Whatever goes wrong, the testnet is mended.
func TestFaultsAreUndone(t *testing.T) {
	inFakeNet(t, func(t *testing.T, f *fakeNet) {
		f.failHeal = errors.New("no such network")
		if r := f.run(t, "partition"); r.OK || !strings.Contains(r.Error, "no such network") || f.undoes != 2 {
			t.Errorf("undone %d times, error %q", f.undoes, r.Error)
		}
	})
	inFakeNet(t, func(t *testing.T, f *fakeNet) {
		f.broken = true
		if r := f.run(t, "partition"); r.OK || !strings.Contains(r.Error, "not whole") {
			t.Errorf("error %q", r.Error)
		}
	})
}

// Where the machine is too busy a scenario is repeated, but not for ever, and not where it went well.
func TestRepeatsWhereTheMachineIsBusy(t *testing.T) {
	inFakeNet(t, func(t *testing.T, f *fakeNet) {
		runs := 0
		s := Scenario{Name: "busy", Rule: "per_client", Streams: []load.Stream{{Identity: "x", Rate: 10}}, Steps: []Step{wait("load", 3*time.Second)},
			Check: func(r *Run) { r.Promise("it is quick", runs > 2, "", "") }}
		x := Runner{Net: f, Records: t.TempDir(), Client: &http.Client{Transport: slow(func(r *http.Request) (*http.Response, error) {
			return f.RoundTrip(r)
		})}}
		if r := x.Run(t.Context(), s); r.OK || r.Attempts != 1 {
			t.Errorf("repeated without need: %s", describe(r))
		}
		s.Streams[0].Rate = 8000 // more than there are workers for, as each answer takes a while
		x.Client.Transport = slow(func(r *http.Request) (*http.Response, error) {
			time.Sleep(5 * time.Second)
			return nil, errors.New("too late")
		})
		s.Steps[0] = wait("load", time.Second)
		t.Setenv("TMPDIR", t.TempDir())
		x.Records = ""
		if r := x.Run(t.Context(), s); r.OK || r.Attempts != 1+Repeats || !strings.Contains(r.Busy, "fell behind") || !strings.Contains(r.Error, "fell behind") {
			t.Errorf("%d attempts: %s", r.Attempts, describe(r))
		}
		if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "edgelimit-*")); len(left) != 1 {
			t.Errorf("the records of %d attempts are left, want that of the last", len(left))
		}
	})
}

type slow func(*http.Request) (*http.Response, error)

func (s slow) RoundTrip(r *http.Request) (*http.Response, error) { return s(r) }

func TestFind(t *testing.T) {
	all, err := Find("all", Options{})
	if err != nil || len(all) != 10 {
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
	b, err := json.Marshal(Result{Promises: []Promise{{}}, Violations: []checker.Violation{{}}, Figures: map[string]float64{"a_ms": 1}})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	keys := func(v any) string { return strings.Join(slices.Sorted(maps.Keys(v.(map[string]any))), " ") }
	for _, c := range []struct{ got, want string }{
		{keys(got), "attempts busy error evidence figures name ok promises record seconds violations"},
		{keys(got["promises"].([]any)[0]), "expected got ok promise"},
		{keys(got["violations"].([]any)[0]), "expected got invariant second times what"},
	} {
		if c.got != c.want {
			t.Errorf("keys %q, want %q", c.got, c.want)
		}
	}
}

func TestRecordsOfGoodRunsAreRemoved(t *testing.T) {
	inFakeNet(t, func(t *testing.T, f *fakeNet) {
		t.Setenv("TMPDIR", t.TempDir())
		found, _ := Find("global-limit", Options{})
		x := Runner{Net: f, Client: &http.Client{Transport: f}}
		r := x.Run(t.Context(), found[0])
		left, _ := filepath.Glob(filepath.Join(os.TempDir(), "edgelimit-*"))
		if !r.OK || r.Record != "" || len(left) != 0 {
			t.Errorf("record %q, left %q: %s", r.Record, left, describe(r))
		}
	})
}
