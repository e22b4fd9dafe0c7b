package rulefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func domain(name string) string {
	return "domain: " + name + "\ndescriptors: [{key: k, rate_limit: {unlimited: true}}]\n"
}

func TestLoadDirectory(t *testing.T) {
	dir := dirOf(t, map[string]string{
		"c.yaml": domain("third"), "a.yml": domain("first"), "b.yaml": domain("second") + "---\n" + domain("2b"),
		"notes.txt": "not: rules", "b.yaml~": "{", "deeper/d.yaml": domain("deeper"), "e.yaml/f.yaml": domain("deeper"),
	})
	s, err := Load(dir)
	testkit.Must(t, err)
	compareRules(t, s, "first/k: first/k unlimited", "second/k: second/k unlimited", "2b/k: 2b/k unlimited",
		"third/k: third/k unlimited")
}

func TestLoadFilesInTheGivenOrder(t *testing.T) {
	dir := dirOf(t, map[string]string{"a.yaml": domain("a"), "b.conf": domain("b"), "d/c.yaml": domain("c")})
	s, err := Load(filepath.Join(dir, "d"), filepath.Join(dir, "b.conf"), filepath.Join(dir, "a.yaml"))
	testkit.Must(t, err)
	compareRules(t, s, "c/k: c/k unlimited", "b/k: b/k unlimited", "a/k: a/k unlimited")
}

func TestLoadReportsAllFiles(t *testing.T) {
	dir := dirOf(t, map[string]string{
		"a.yaml": domain("edge") + "limit: 1\n",
		"b.yaml": "",
		"c.yaml": "# c\n" + domain("edge"),
		"d.yaml": strings.Repeat("#", maxFileSize+1),
	})
	s, err := Load(dir, dir+"/missing")
	if s != nil || err == nil {
		t.Fatalf("loaded %v", s)
	}
	lines := strings.Split(err.Error(), "\n")
	want := []string{
		dir + "/a.yaml:3:1: unknown key \"limit\"",
		dir + "/b.yaml:1:1: there is no domain in the file",
		dir + "/c.yaml:2:9: domain \"edge\" was already given at " + dir + "/a.yaml:1",
		dir + "/d.yaml:1:1: the file is larger than",
		"load rules: stat " + dir + "/missing: ",
	}
	if len(lines) != len(want) {
		t.Fatalf("%d problems, want %d:\n%v", len(lines), len(want), err)
	}
	for i, line := range lines {
		if !strings.HasPrefix(filepath.ToSlash(line), filepath.ToSlash(want[i])) {
			t.Errorf("problem %d is\n\t%s\nwant\n\t%s", i+1, line, want[i])
		}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		t.Error("that a file does not exist does not follow from the error")
	}
}

func TestLoadNothing(t *testing.T) {
	if _, err := Load(); err == nil || !strings.Contains(err.Error(), "no file or directory was given") {
		t.Errorf("without a path: %v", err)
	}
	dir := dirOf(t, map[string]string{"notes.txt": ""})
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "holds no *.yaml, *.yml or *.json file") {
		t.Errorf("a directory without rules: %v", err)
	}
}

func TestLoadUnreadableFile(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "a.yaml")
	if err := os.Symlink(filepath.Join(dir, "nowhere"), link); err != nil {
		t.Fatal("no symbolic links here:", err)
	}
	if _, err := Load(dir); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), link) {
		t.Errorf("a link to nowhere: %v", err)
	}
}

func TestSample(t *testing.T) {
	s := Sample()
	compareRules(t, s,
		"edge/remote_address: per_ip 100/1m0s",
		"edge/path=/login/remote_address: login 5/10s",
		"edge/api_key: per_api_key 10000/1h0m0s",
		"edge/api_key=partner: partner unlimited",
	)
	if s != Sample() {
		t.Error("the sample is parsed more than once")
	}
}

// Parents are found in whatever file of the domain they are, and mistakes about them are reported with the others.
func TestParentsInOtherFiles(t *testing.T) {
	dir := dirOf(t, map[string]string{
		"a.yaml": "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: day, requests_per_unit: 1, mode: elastic, " +
			"parent: pool}}\n",
		"b.yaml": "domain: d\ndescriptors:\n- {key: b, value: all, rate_limit: {name: pool, unit: day, " +
			"requests_per_unit: 10}}\n",
	})
	s, err := Options{MergeDomains: true}.Load(dir)
	testkit.Must(t, err)
	req := rules.Request{Domain: "d", Descriptors: [][]rules.Entry{{{Key: "a", Value: "x"}}}}
	met, err := s.Match(&req, rules.Secret{}, nil)
	if err != nil || len(met) != 2 || met[1].Rule != s.Rule("d/b=all") || s.Rule("d/a").Parent != "d/b=all" {
		t.Errorf("%v: %+v", err, met)
	}
	_, err = Load(dir + "/a.yaml")
	compareProblems(t, dir+"/a.yaml", err, []string{`3:81: unknown rule "pool" in the domain`})
}

func TestDefaultAlgorithmOfOptions(t *testing.T) {
	for name, want := range map[string]counters.Algorithm{"": counters.SlidingWindow,
		"fixed_window": counters.FixedWindow,
		"gcra":         counters.LeakyBucket, "sliding_log": counters.SlidingLog} {
		if got := (Options{Algorithm: name}).DefaultAlgorithm(); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}
