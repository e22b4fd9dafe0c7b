package reference

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// findings is what a run finds.
type findings struct{ usual, scripted, json, statistics, random *tally }

// usualGroups are the scripts that ask what most configurations do: rules, values, wildcards, units, hits.
var usualGroups = []string{"counting", "addends", "nested rules", "wildcards", "several descriptors", "units", "values"}

// isUsual reports whether an exchange is what most users see: neither a rare setting nor a rare field of the protocol.
func isUsual(c *comparison) bool {
	rare := func(env string) bool {
		return strings.HasPrefix(env, "QUOTA_MODE=") || strings.HasPrefix(env, "RESPONSE_DYNAMIC_METADATA=")
	}
	return slices.Contains(usualGroups, c.exchange.name) && !slices.ContainsFunc(c.env, rare)
}

// Both servers give the same answers in every setting, to the scripted exchanges and to random ones.
func TestAnswers(t *testing.T) {
	found := &findings{newTally(), newTally(), newTally(), newTally(), newTally()}
	planned, ran := 0, 0
	run := func(name string, into *tally, comparisons func(t *testing.T) []comparison) {
		planned++
		t.Run(name, func(t *testing.T) {
			ran++
			all := comparisons(t)
			into.judge(t, all)
			for i := range all {
				if into == found.scripted && isUsual(&all[i]) {
					found.usual.count(&all[i])
				}
			}
		})
	}
	atEdges := startEdges(t)
	for i := range settings {
		s := &settings[i]
		files := s.rules(t)
		run(s.name, found.scripted, func(t *testing.T) []comparison { return perform(t, s, files, scripted()) })
		run(s.name+" at /json", found.json, func(t *testing.T) []comparison {
			return perform(t, s, files, append(atJSON(scripted()), plain()...))
		})
		run(s.name+" in statistics", found.statistics, func(t *testing.T) []comparison {
			return statistics(t, s, files, scripted())
		})
	}
	for seed := range uint64(sessions) {
		s := &settings[int(seed)%len(settings)]
		run(fmt.Sprintf("session %d, %s", seed, s.name), found.random, func(t *testing.T) []comparison {
			random := newSession(seed)
			return perform(t, s, random.files(), random.exchanges())
		})
	}
	run("unknown units", found.scripted, func(t *testing.T) []comparison {
		return perform(t, &settings[0], settings[0].rules(t), unknownUnits())
	})
	run("edges of windows", found.scripted, atEdges)
	t.Logf("scripted: %s; at /json: %s; counters: %s; random: %s", found.scripted, found.json, found.statistics,
		found.random)
	if t.Failed() || ran < planned {
		return // the list and the page are about all of it
	}
	if n := found.random; n.denied < n.exchanges/10 || n.denied > n.exchanges*9/10 {
		t.Errorf("random sessions have %d of %d exchanges with a denial: they hold little", n.denied, n.exchanges)
	}
	for k := range differences {
		if found.scripted.known[k]+found.json.known[k]+found.statistics.known[k] == 0 {
			t.Errorf("no exchange shows the known difference %q", differences[k].name)
		}
	}
	if n := found.usual; n.equal < n.exchanges {
		t.Errorf("%d of %d exchanges that most configurations have differ", n.exchanges-n.equal, n.exchanges)
	}
	checkPage(t, found)
}

// rules are the files of the scripted exchanges.
func (s *setting) rules(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("testdata/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"rules.yaml": string(text)}
	maps.Copy(files, s.files)
	return files
}

// edgeSettings are those in which exchanges wait for the ends of windows.
var edgeSettings = []string{"defaults", "stopped increments", "local cache"}

// startEdges has exchanges wait for the ends of windows while other tests run, and returns a function that waits for
// their answers.
func startEdges(t *testing.T) func(*testing.T) []comparison {
	t.Helper()
	type run struct {
		*setting
		script []exchange
		answer []comparison // nil: a second began between two answers
	}
	var runs []*run
	var waiting sync.WaitGroup
	for i := range settings {
		s := &settings[i]
		if !slices.Contains(edgeSettings, s.name) {
			continue
		}
		for _, script := range edges() {
			p, r := startPair(t, s, s.rules(t)), &run{setting: s, script: script}
			runs = append(runs, r)
			waiting.Go(func() {
				r.answer, _ = p.play(t.Context(), s, script)
				p.stop()
			})
		}
	}
	return func(t *testing.T) (all []comparison) {
		waiting.Wait()
		for _, r := range runs {
			if r.answer == nil {
				r.answer = perform(t, r.setting, r.rules(t), r.script)
			}
			all = append(all, r.answer...)
		}
		return all
	}
}
