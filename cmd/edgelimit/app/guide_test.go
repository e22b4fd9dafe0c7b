package app

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

var (
	shellBlock = regexp.MustCompile("(?m)^ *```sh\n((?:.*\n)*?) *```\n(?:\n *```text\n((?:.*\n)*?) *```\n)?")
	codeSpan   = regexp.MustCompile("`([^`\n]+)`")
	flagName   = regexp.MustCompile(`(?:^|\s)--([a-z][a-z0-9-]*)`)
)

// guide returns the operator's pages.
func guide(t *testing.T) (pages string) {
	t.Helper()
	for _, name := range []string{"PLANNING.md", "OPERATING.md"} {
		page, err := os.ReadFile("../../../node/" + name)
		if err != nil {
			t.Fatal(err)
		}
		pages += string(page)
	}
	return pages
}

// checkGuide runs each command of the operator's pages in a cluster of two regions, with a client that is banned.
// Commands that are refused, and the last one of a block, are repeated until the node knows what the guide shows.
func checkGuide(t *testing.T, binary string) {
	dir := t.TempDir()
	rules := `domain: edge
descriptors:
  - {key: remote_address, rate_limit: {name: per_ip, unit: minute, requests_per_unit: 100, expose: identity}}
  - {key: account, rate_limit: {name: login, unit: hour, requests_per_unit: 3, ban: 1h}}
`
	for name, text := range map[string]string{"rules.yaml": rules, "old.yaml": rules} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	key := filepath.Join(dir, "cluster.key")
	if err := node.CreateKeyFile(key, false); err != nil {
		t.Fatal(err)
	}
	door, health, admin, seed := free(t), free(t), free(t), free(t)
	redis := "redis://" + regionstest.StartRedis(t).Addr()
	start(t, binary, "serve", "--node-id", "us-1", "--region", "us-east", "--rules", filepath.Join(dir, "rules.yaml"),
		"--key-file", key, "--http", door, "--health", health, "--admin", admin, "--gossip-wan", seed, "--redis", redis)
	start(t, binary, "serve", "--node-id", "eu-1", "--region", "eu-west", "--rules", filepath.Join(dir, "rules.yaml"),
		"--key-file", key, "--http", free(t), "--health", "", "--admin", "", "--gossip-wan", free(t),
		"--join", "wan:"+seed)
	run := func(command string) result {
		command = strings.ReplaceAll(command, "127.0.0.1:7948", health)
		sh := exec.CommandContext(t.Context(), "sh", "-c", command)
		sh.Dir = dir
		sh.Env = append(os.Environ(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"),
			"EDGELIMIT_ADMIN_URL=http://"+admin,
			"EDGELIMIT_URL=http://"+door, "EDGELIMIT_HEALTH_URL=http://"+health)
		var out, errs bytes.Buffer
		sh.Stdout, sh.Stderr = &out, &errs
		_ = sh.Run()
		return result{sh.ProcessState.ExitCode(), out.String(), errs.String()}
	}
	blocks := shellBlock.FindAllStringSubmatch(guide(t), -1)
	if len(blocks) < 10 {
		t.Fatalf("%d blocks found", len(blocks))
	}
	for _, block := range blocks {
		if strings.Contains(block[1], "inspect") {
			for range 4 {
				run("edgelimit check --rule login --identity joe")
			}
		}
		var last, before string
		var r result
		for command := range strings.Lines(block[1]) {
			last, before = strings.TrimSpace(command), before+r.out
			eventually(t, last, func() bool { // a node that starts, or has not read the key file yet, refuses
				r = run(last)
				return r.code == 0 || strings.Contains(last, "inspect") && r.code == 1 // it is denied
			})
		}
		if missing := testkit.Lacking(before+r.out, block[2]); missing != "" {
			eventually(t, last+" prints "+missing, func() bool {
				return testkit.Lacking(before+run(last).out, block[2]) == ""
			})
		}
	}
}

// The guide names no command and no flag that is not there.
func TestGuideKnowsTheCommands(t *testing.T) {
	commands, flags := make(map[string]bool), make(map[string]bool)
	var look func(path string, all []*cli.Command)
	look = func(path string, all []*cli.Command) {
		for _, c := range all {
			commands[path+c.Name] = true
			for _, f := range c.Flags {
				flags[f.Names()[0]] = true
			}
			look(path+c.Name+" ", c.Subcommands)
		}
	}
	look("", New().Commands)
	text := shellBlock.ReplaceAllString(guide(t), "")
	spans := codeSpan.FindAllStringSubmatch(text, -1)
	if len(spans) < 100 {
		t.Fatalf("%d spans of code found", len(spans))
	}
	for _, span := range spans {
		for _, f := range flagName.FindAllStringSubmatch(span[1], -1) {
			if !flags[f[1]] {
				t.Errorf("`%s`: there is no flag --%s", span[1], f[1])
			}
		}
		words, ok := strings.CutPrefix(span[1], "edgelimit ")
		if !ok {
			continue
		}
		name := strings.Fields(words)
		if !commands[name[0]] || len(name) > 1 && (name[0] == "rules" || name[0] == "bans" || name[0] == "keys") &&
			!commands[name[0]+" "+name[1]] {
			t.Errorf("`%s`: there is no such command", span[1])
		}
	}
}
