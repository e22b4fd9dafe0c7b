package node

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// limited is rules of one domain, each "name limit window".
func limited(specs ...string) *rules.Set {
	text := "domain: test\ndescriptors:\n"
	for _, spec := range specs {
		var name, window string
		var most int
		if _, err := fmt.Sscan(spec, &name, &most, &window); err != nil {
			panic(err)
		}
		text += fmt.Sprintf("  - {key: %s, rate_limit: {name: %[1]s, requests_per_unit: %d, window: %s}}\n", name, most,
			window)
	}
	return ruleSet(text)
}

// A limit that is raised or lowered keeps its counts, and so do rules beside it; another window starts anew. Metrics go
// on all the while.
func TestSetRulesKeepsCounts(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		var log testkit.Log
		cfg := quiet("")
		cfg.RuleSet, cfg.Logger = limited("a 10 1h", "b 10 1h", "gone 5 1h"), log.Logger()
		n := launch(t, cfg).ready(t)
		time.Sleep(time.Second) // until all that is asked below is of one sub-window
		takeSome(t, n.Node, "a", "x", 8)
		takeSome(t, n.Node, "b", "x", 4)
		for _, change := range []struct {
			a            string
			spent, admit int // of ten requests
			says         string
		}{
			{"a 10 1h", 8, 2, "rules in force"},
			{"a 15 1h", 10, 5, `change=limit rule=a counts=kept old="10 in 1 h`},
			{"a 12 1h", 15, 0, `change=limit rule=a counts=kept old="15 in 1 h`},
			{"a 20 1h", 15, 5, `change=limit rule=a counts=kept old="12 in 1 h`},
			{"a 20 2h", 0, 10,
				`change=meter rule=a counts=anew old="20 in 1 h by sliding_window" new="20 in 2 h`},
		} {
			n.SetRules(limited(change.a, "b 10 1h", "come 5 1h"))
			if !log.HasLine("level=INFO", change.says) {
				t.Errorf("%s: the log does not say %q: %s", change.a, change.says, log.String())
			}
			d := take(t, n.Node, Request{Rule: "a", Identity: "x", Peek: true})
			if want := max(0, int(d.Limit)-change.spent); int(d.Remaining) != want {
				t.Errorf("%s: %d remain of %d, want %d", change.a, d.Remaining, d.Limit, want)
			}
			if got := takeSome(t, n.Node, "a", "x", 10); got != change.admit {
				t.Errorf("%s: of ten requests %d are admitted, want %d", change.a, got, change.admit)
			}
			if got := spent(t, n.Node, "b", "x"); got != 4 {
				t.Errorf("%s: the rule beside it has counted %d, want 4", change.a, got)
			}
		}
		for _, words := range [][]string{{"change=added", "rule=come"}, {"change=removed", "rule=gone"},
			{"rules in force", "rules=3", "changes=2"}} {
			if !log.HasLine(words...) {
				t.Errorf("the log does not say %q", words)
			}
		}
		p := n.policy.Load()
		for _, r := range p.set.Rules() {
			want := map[string][2]uint64{"test/a": {30, 28}, "test/b": {4, 0}}[r.FullName]
			if got := [2]uint64{p.tallies[r].allowed.Load(), p.tallies[r].denied.Load()}; got != want {
				t.Errorf("%s: %d allowed and denied, want %d", r, got, want)
			}
		}
	})
}

// While rules come and go, each request is decided, by one set of rules as a whole, and a limit that all sets share
// admits what it says.
func TestSetRulesUnderLoad(t *testing.T) {
	const most, clients, each = 3000, 8, 1000
	sets := make([]*rules.Set, 2)
	for i := range sets {
		text := "domain: test\ndescriptors:\n" +
			"  - {key: exact, rate_limit: {name: exact, algorithm: sliding_log, window: 24h, requests_per_unit: " +
			fmt.Sprint(most) + "}}\n" +
			"  - {key: both, rate_limit: {name: both, window: 24h, requests_per_unit: " + fmt.Sprint(1000+i) + "}}\n"
		for j := range 50 {
			text += fmt.Sprintf("  - {key: k%d, rate_limit: {window: %dm, requests_per_unit: 5}}\n", 100*i+j, 10+i+j)
		}
		sets[i] = ruleSet(text)
	}
	cfg := quiet("")
	cfg.RuleSet = sets[0]
	n := launch(t, cfg).ready(t)
	var admitted atomic.Int64
	var asking, reloading sync.WaitGroup
	stop := make(chan struct{})
	for i := range 2 {
		reloading.Go(func() {
			for swaps := i; ; swaps++ {
				n.SetRules(sets[swaps%2])
				select {
				case <-stop:
					if swaps > 100 {
						return
					}
				default:
				}
			}
		})
	}
	for range clients {
		asking.Go(func() {
			for range each {
				var room [2]Decision
				req := ask(by("exact", "x"), by("both", "x"))
				layers, err := n.Decide(t.Context(), &req, room[:0])
				if err != nil || len(layers) != 2 || layers[1].Limit != 1000 && layers[1].Limit != 1001 {
					t.Errorf("%+v, %v", layers, err)
					return
				}
				d, err := n.Take(t.Context(), Request{Rule: "exact", Identity: "y"})
				if err != nil || d.Rule != "exact" || d.Limit != most {
					t.Errorf("%+v, %v", d, err)
					return
				}
				if d.Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	asking.Wait()
	close(stop)
	reloading.Wait()
	if got := admitted.Load(); got != most {
		t.Errorf("%d were admitted, want %d", got, most)
	}
	if got := spent(t, n.Node, "exact", "x"); got < 1000 || got > 1001 {
		t.Errorf("of two layers %d were admitted, want 1000 or 1001", got)
	}
	p := n.policy.Load()
	for _, r := range p.set.Rules() {
		counted := p.tallies[r].allowed.Load() + p.tallies[r].denied.Load()
		if want := uint64(clients*each + 1000); r.Name == "exact" && counted != want && counted != want+1 {
			t.Errorf("%d decisions are counted, want %d, or one more", counted, want)
		}
	}
}

// launchWithFile runs a node with a rule file, which is looked at when it is told to, or when the file system tells.
func launchWithFile(t *testing.T, text string) (n *running, file string, log *testkit.Log) {
	t.Helper()
	log = new(testkit.Log)
	file = write(t, "rules.yaml", text)
	cfg := withListeners(quiet(""))
	cfg.Rules, cfg.Logger = []string{file}, log.Logger()
	return launch(t, cfg).ready(t), file, log
}

// replaceFile puts another file in the place of one, so that nobody sees half of it.
func replaceFile(t *testing.T, file, text string) {
	t.Helper()
	writeFile(t, file+".new", text)
	testkit.Must(t, os.Rename(file+".new", file))
}

// What is written into a rule file is in force soon after; what is wrong is told, and leaves all as it was.
func TestRuleFilesAreWatched(t *testing.T) {
	t.Parallel()
	n, file, log := launchWithFile(t, perClient)
	takeSome(t, n.Node, "per_client", "x", 3)
	metrics := func(loaded, ok, failed float64) {
		t.Helper()
		_, got := scrape(t, n.Addr("health"))
		if got["edgelimit_rules_loaded"] != loaded || got["edgelimit_rules_loads_total outcome=ok"] < ok ||
			got["edgelimit_rules_loads_total outcome=failed"] < failed ||
			time.Since(time.UnixMilli(int64(1000*got["edgelimit_rules_timestamp_seconds"]))).Abs() > time.Minute {
			t.Errorf("loaded %v, %v ok and %v failed, at %v", got["edgelimit_rules_loaded"],
				got["edgelimit_rules_loads_total outcome=ok"], got["edgelimit_rules_loads_total outcome=failed"],
				got["edgelimit_rules_timestamp_seconds"])
		}
	}
	metrics(1, 1, 0)

	replaceFile(t, file, strings.ReplaceAll(perClient, "1000", "7"))
	testkit.Eventually(t, "another limit",
		func() bool { return take(t, n.Node, Request{Rule: "per_client", Identity: "x", Peek: true}).Limit == 7 })
	metrics(1, 2, 0)

	replaceFile(t, file, strings.ReplaceAll(perClient, "1000", "ten"))
	testkit.Eventually(t, "a complaint",
		func() bool { return log.HasLine("level=ERROR", "the last good rules stay in force", "problems=1") })
	if !log.HasLine("level=ERROR", "rules refused", file+":", "ten") {
		t.Errorf("the log does not say where: %s", log)
	}
	metrics(0, 2, 1)
	if d := take(t, n.Node, Request{Rule: "per_client", Identity: "x", Peek: true}); d.Limit != 7 || d.Remaining != 4 {
		t.Errorf("with an invalid file: %+v", d)
	}

	replaceFile(t, file, perClient)
	testkit.Eventually(t, "good rules again", func() bool { return n.loads.good.Load() })
	if d := take(t, n.Node, Request{Rule: "per_client", Identity: "x", Peek: true}); d.Limit != 1000 ||
		d.Remaining != 997 {
		t.Errorf("when the file is good again: %+v", d)
	}
}

func TestReload(t *testing.T) {
	t.Parallel()
	n, _, log := launchWithFile(t, perClient)
	before := n.loads.ok.Load()
	n.Reload()
	testkit.Eventually(t, "a load of what has not changed", func() bool { return n.loads.ok.Load() > before })
	testkit.Eventually(t, "a line", func() bool { return log.HasLine("rules in force", "rules=1", "changes=0") })

	var said testkit.Log
	cfg := quiet(perClient)
	cfg.Logger = said.Logger()
	other, err := New(cfg)
	testkit.Must(t, err)
	if other.Reload(); !said.HasLine("no rule files") {
		t.Errorf("without files it says %s", said.String())
	}
}

// Of very many changes or problems some are told, and their number.
func TestReloadLogsWithinReason(t *testing.T) {
	var log testkit.Log
	cfg := quiet("")
	cfg.RuleSet, cfg.Logger = limited(), log.Logger()
	n, err := New(cfg)
	testkit.Must(t, err)
	var specs []string
	text := "domain: d\ndescriptors: []\n"
	for i := range 3 * maxLogLines {
		specs = append(specs, fmt.Sprintf("k%d 5 1m", i))
		text += fmt.Sprintf("k%d: 1\n", i)
	}
	n.SetRules(limited(specs...))
	if got := strings.Count(log.String(), `msg="rule changed"`); got != maxLogLines ||
		!log.HasLine("rules in force", fmt.Sprint("changes=", 3*maxLogLines)) {
		t.Errorf("%d changes are told", got)
	}
	_, err = rulefile.Parse("f", []byte(text))
	n.loaded(nil, err)
	if got := strings.Count(log.String(), `msg="rules refused"`); got != maxLogLines ||
		!log.HasLine("the last good rules", fmt.Sprint("problems=", 3*maxLogLines)) {
		t.Errorf("%d problems are told", got)
	}
}

// A rule file that an editor, a template or a disk has mangled is refused or taken as a whole, and requests are decided
// all the while.
func TestMutatedRuleFiles(t *testing.T) {
	t.Parallel()
	texts := mutants(t, 1000)
	n := launch(t, quiet(perClient)).ready(t)
	file := write(t, "rules.yaml", perClient)
	files := n.cfg.ruleOptions().Watch([]string{file}, time.Hour, n.log)
	stop := make(chan struct{})
	var asking sync.WaitGroup
	asked := 0
	asking.Go(func() {
		for ; ; asked++ {
			if _, err := n.Take(t.Context(), ask(by("client", "x"))); err != nil {
				t.Error(err)
				return
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	valid := 0
	for i, text := range texts {
		before := n.policy.Load()
		writeFile(t, file, text)
		set, err := files.Load()
		n.loaded(set, err)
		after := n.policy.Load()
		if n.loads.good.Load() != (err == nil) || err != nil && after != before {
			t.Fatalf("file %d is invalid (%v) and changes the rules, or is taken for valid:\n%s", i, err, text)
		}
		if err == nil {
			valid++
			want := set.In("here").Rules()
			if got := after.set.Rules(); !slices.EqualFunc(got, want,
				func(a, b *rules.Rule) bool { return a.FullName == b.FullName }) {
				t.Fatalf("file %d: rules %v, want %v", i, got, want)
			}
		}
	}
	close(stop)
	asking.Wait()
	if ok, failed := int(n.loads.ok.Load()), int(n.loads.failed.Load()); ok != 1+valid || failed != len(texts)-valid ||
		asked < 1000 {
		t.Errorf("%d loads are good and %d fail, while %d requests are decided", ok, failed, asked)
	}
	if valid < 100 || valid > 900 {
		t.Errorf("%d of %d files are valid: the test says little", valid, len(texts))
	}
}

// mutants are rule files that something has happened to, the same ones every time.
func mutants(t *testing.T, count int) []string {
	t.Helper()
	files, err := filepath.Glob("rules/rulefile/testdata/valid/*")
	if err != nil || len(files) == 0 {
		t.Fatal("no rule files: ", err)
	}
	var texts []string
	for _, file := range append(files, "rules/rulefile/sample.yaml") {
		text, err := os.ReadFile(file)
		testkit.Must(t, err)
		texts = append(texts, string(text))
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	const odd = " \n\t:-*&!|>{}[],'\"#%?<~\\0a\x00\xff"
	mutated := make([]string, count)
	for i := range mutated {
		text := texts[i%len(texts)]
		lines := strings.SplitAfter(text, "\n")
		at, other := rnd.IntN(len(lines)), rnd.IntN(len(lines))
		from := rnd.IntN(len(text))
		switch rnd.IntN(6) {
		case 0: // a line is missing
			text = strings.Join(slices.Delete(lines, at, at+1), "")
		case 1: // a line is there twice
			text = strings.Join(slices.Insert(lines, other, lines[at]), "")
		case 2: // two lines are exchanged
			lines[at], lines[other] = lines[other], lines[at]
			text = strings.Join(lines, "")
		case 3: // the end is missing
			text = text[:from]
		case 4: // a character is wrong
			text = text[:from] + string(odd[rnd.IntN(len(odd))]) + text[from+1:]
		default: // a piece is missing
			text = text[:from] + text[min(len(text), from+1+rnd.IntN(12)):]
		}
		mutated[i] = text
	}
	return mutated
}
