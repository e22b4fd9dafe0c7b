package app

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// ruleFile writes a rule file and returns its name.
func ruleFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "rules.yaml")
	testkit.Must(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

const validRules = `domain: edge
descriptors:
  - key: path
    value: /login
    descriptors:
      - {key: remote_address, rate_limit: {name: login, window: 10s, requests_per_unit: 5}}
  - {key: remote_address, rate_limit: {name: per_ip, unit: minute, requests_per_unit: 100}}
`

const invalidRules = "domain: edge\ndescriptors:\n\t- key: a\n"

func TestRulesValidate(t *testing.T) {
	edgelimit(t, "rules", "validate", ruleFile(t, validRules)).says(t, 0, "valid: 2 rules")
	broken := ruleFile(t,
		strings.Replace(validRules, "unit: minute, requests_per_unit", "unit: minuet, request_per_unit", 1))
	r := edgelimit(t, "rules", "validate", broken)
	r.says(t, 1, "3 problems", "rules.yaml:7:39: a rate_limit needs requests_per_unit",
		`rules.yaml:7:60: unknown unit "minuet" in a rate_limit: did you mean "minute"?`,
		`rules.yaml:7:68: unknown key "request_per_unit" in a rate_limit: did you mean "requests_per_unit"?`)
	var line, caret string
	lines := strings.Split(r.out, "\n")
	for i, l := range lines {
		if strings.Contains(l, "minuet\"") {
			line, caret = lines[i+1], lines[i+2]
		}
	}
	if at := strings.Index(line, "minuet"); at < 0 || strings.Index(caret, "^") != at {
		t.Errorf("the caret is not under the word:\n%s\n%s", line, caret)
	}
	r = edgelimit(t, "rules", "validate", "--json", broken)
	var answer struct {
		Valid    bool
		Problems []problem
	}
	if err := json.Unmarshal([]byte(r.out), &answer); err != nil || answer.Valid || len(answer.Problems) != 3 ||
		answer.Problems[1].Column != 60 ||
		!strings.Contains(answer.Problems[1].Source, "minuet") {
		t.Errorf("%v: %s", err, r.out)
	}
	edgelimit(
		t, "rules", "validate", ruleFile(t, invalidRules),
	).says(t, 1, "1 problem", "not valid YAML", "\n  \t- key: a\n  ^\n")
	edgelimit(t, "rules", "validate", "--json", ruleFile(t, validRules)).says(t, 0, `"valid": true`, `"rules": 2`)
	edgelimit(t, "rules", "validate").says(t, 2, "which files")
	edgelimit(t, "rules", "validate", "/nowhere.yaml").says(t, 2, "no such file")
	dir, err := os.Getwd()
	testkit.Must(t, err)
	edgelimit(t, "rules", "validate", "nowhere.yaml").says(t, 2, "nowhere.yaml: no such file or directory in "+dir)
	for _, setting := range []string{"rules: [nowhere]", "gossip: {key_file: nowhere}", "admin_tokens_file: nowhere",
		"tls: {http: {cert_file: nowhere, key_file: nowhere}}"} {
		edgelimit(t, "serve", "--config", written(t, "node.yaml", setting+"\n"), "--http", "127.0.0.1:0",
			"--health", "127.0.0.1:0", "--admin", "127.0.0.1:0").says(t, 2,
			"nowhere: no such file or directory in "+dir)
	}
	edgelimit(
		t, "rules", "validate", "--default-algorithm", "guess", ruleFile(t, validRules),
	).says(t, 2, `default algorithm "guess": want one of sliding_window`)
	edgelimit(t, "rules", "validate", ruleFile(t, validRules), ruleFile(t, validRules)).says(t, 1, "already given at")
	edgelimit(
		t, "rules", "validate", "--merge-domains", ruleFile(t, validRules), ruleFile(t, "domain: edge\n"),
	).says(t, 0, "valid: 2 rules")
}

func TestRulesExplain(t *testing.T) {
	file := ruleFile(t, validRules)
	edgelimit(t, "rules", "explain", "--rules", file, "path=/login,remote_address=2001:db8::1", "path=/").says(t, 0,
		`"path" with value "/login": met by its exact value`, "=> login (edge/path=/login/remote_address): 5 in 10 s "+
			"by sliding_window",
		"counted for remote_address=2001:db8::/64", "no descriptor of this key has the value", "=> no rule: allowed")
	edgelimit(
		t, "rules", "explain", "--rules", file, "--rule", "per_ip", "--identity", "192.0.2.1",
	).says(t, 0, "=> per_ip (edge/remote_address)")
	r := edgelimit(t, "rules", "explain", "--rules", file, "--json", "remote_address=192.0.2.1")
	var answer struct {
		Domain string
		Layers []explained
	}
	if err := json.Unmarshal([]byte(r.out), &answer); err != nil || answer.Domain != "edge" ||
		len(answer.Layers) != 1 ||
		answer.Layers[0].Rule != "per_ip" {
		t.Errorf("%v: %s", err, r.out)
	}
	edgelimit(t, "rules", "explain", "remote_address=192.0.2.1").says(t, 0, "per_ip") // by the sample
	edgelimit(t, "rules", "explain", "--rules", file).says(t, 2, "say what to explain")
	edgelimit(t, "rules", "explain", "--rules", file, "remote_address").says(t, 2, "want KEY=VALUE")
	edgelimit(t, "rules", "explain", "--rules", file, "--rule", "nobody").says(t, 2, "unknown rule")
	edgelimit(
		t, "rules", "explain", "--rules", ruleFile(t, validRules+"---\ndomain: other\n"), "path=/",
	).says(t, 2, "--domain", "edge, other")
	edgelimit(t, "rules", "explain", "--rules", ruleFile(t, invalidRules), "path=/").says(t, 1, "1 problem")
}

func TestRulesDiff(t *testing.T) {
	before := ruleFile(t, validRules)
	edgelimit(t, "rules", "diff", before, before).says(t, 0, "no rule changes")
	after := ruleFile(
		t,
		strings.NewReplacer("window: 10s", "window: 20s", "requests_per_unit: 100", "requests_per_unit: 50").
			Replace(validRules)+
			"  - {key: user, rate_limit: {unlimited: true}}\n",
	)
	edgelimit(
		t, "rules", "diff", before, after,
	).says(t, 0, "~ per_ip (its counts are kept)", "from 100 in 1 min", "to   50 in 1 min",
		"~ login (its counts start anew)", "+ edge/user")
	edgelimit(t, "rules", "diff", after, before).says(t, 0, "- edge/user")
	edgelimit(t, "rules", "diff", "--json", before, after).says(t, 0, `"kind": "limit"`, `"counts": "kept"`)
	edgelimit(t, "rules", "diff", before).says(t, 2, "the old and the new")
	edgelimit(t, "rules", "diff", before, ruleFile(t, invalidRules)).says(t, 1, "1 problem")
}

func TestRulesSchema(t *testing.T) {
	r := edgelimit(t, "rules", "schema")
	if r.says(t, 0, "https://json-schema.org/draft/2020-12/schema"); !json.Valid([]byte(r.out)) {
		t.Error("it is no JSON")
	}
}

// A directory of envoyproxy/ratelimit is validated as that server reads it, with a warning for each doubtful line.
func TestRulesValidateRatelimit(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"limits": "domain: edge\ndescriptors:\n  - key: path*\n    shadow_mode: on\n" +
			"    rate_limit: {unit: Minute, shadow_mode: true}\n",
		"sub/more.conf": "domain: api\ndescriptors: [{key: user, rate_limit: null}, {key: ip, rate_limit: " +
			"{unit: day, requests_per_unit: 1, requests_per_unit: 2}}]\n---\ndomain: never\n",
		".hidden": "domain: [\n",
	} {
		path := filepath.Join(dir, name)
		testkit.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		testkit.Must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	testkit.Must(t, os.Symlink("nobody@nowhere", filepath.Join(dir, "#lock")))
	validate := []string{"rules", "validate", "--compatibility", "ratelimit"}
	edgelimit(t, append(validate, dir)...).says(t, 1, "1 problem", ".hidden:1:", "not valid YAML")
	validate = append(validate, "--ignore-dot-files")
	edgelimit(t, append(validate, dir)...).says(t, 0, "valid: 2 rules",
		"warning: "+dir+"/limits:3:10: key \"path*\" holds a *",
		"limits:5:17: a rate_limit without requests_per_unit counts as 0",
		"limits:5:32: shadow_mode has no effect in a rate_limit",
		"sub/more.conf:2:39: rate_limit is empty",
		"sub/more.conf:2:102: key \"requests_per_unit\" was already given in line 2: this one counts",
		"sub/more.conf:4:1: only the first document of a file is read",
		"#lock:1:1: not read: no such file or directory")
	edgelimit(t, append(validate, "--strict", dir)...).says(t, 1, "warnings: 7")
	r := edgelimit(t, append(validate, "--json", dir)...)
	var answer struct {
		Valid    bool
		Rules    int
		Warnings []struct {
			Text, File string
			Line       int
			Hint       bool
		}
	}
	if err := json.Unmarshal([]byte(r.out), &answer); err != nil || !answer.Valid || answer.Rules != 2 {
		t.Fatalf("%v: %s", err, r.out)
	}
	placed := 0
	for _, w := range answer.Warnings {
		if w.File != "" && w.Line > 0 && !w.Hint && strings.HasPrefix(w.Text, w.File) {
			placed++
		}
	}
	if placed != 7 {
		t.Errorf("%d warnings have a place: %s", placed, r.out)
	}
	// Without the switch nothing changes: other files of the directory are none, and these are wrong.
	edgelimit(t, "rules", "validate", dir).says(t, 2, "holds no *.yaml")
	edgelimit(t, "rules", "validate", filepath.Join(dir, "limits")).says(t, 1, "3 problems", "may not hold a *",
		"needs requests_per_unit", `unknown key "shadow_mode" in a rate_limit`)
	// A document may say it for itself.
	edgelimit(t, "rules", "validate", ruleFile(t, "compatibility: ratelimit\ndomain: a\ndescriptors:\n"+
		"  - {key: k, rate_limit: {unit: day}}\n---\ndomain: b\n")).says(t, 0, "valid: 1 rules", "warning: ", ":4:26: ")
}
