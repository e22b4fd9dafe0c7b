package app

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestMain(m *testing.M) { testkit.MainWithoutLeaks(m) }

// patience is how long a test waits for what should come at once, on a machine that is busy with other things.
const patience = testkit.Patience

// What tests of all packages share, under short names.
var (
	eventually = testkit.Eventually
	free       = testkit.FreeAddr
)

// result is what a command said, and the status that main would exit with.
type result struct {
	code     int
	out, err string
}

func (r result) says(t *testing.T, code int, parts ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit status %d, want %d; it said %q and %q", r.code, code, r.out, r.err)
	}
	for _, p := range parts {
		if !strings.Contains(r.out+r.err, p) {
			t.Errorf("it does not say %q, but %q and %q", p, r.out, r.err)
		}
	}
}

// edgelimit runs a command in this process.
func edgelimit(t *testing.T, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience) // a command that should end but serves
	defer cancel()
	return edgelimitReading(t, ctx, strings.NewReader(""), args...)
}

func edgelimitReading(t *testing.T, ctx context.Context, in io.Reader, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	app := New()
	app.Reader, app.Writer, app.ErrWriter = in, &out, &errOut
	code := Run(ctx, app, append([]string{"edgelimit"}, args...))
	return result{code, out.String(), errOut.String()}
}

// parsed reads flags and arguments as a command does, whose action is the test's.
func parsed(t *testing.T, action func(*cli.Context) error, flags []cli.Flag, args ...string) error {
	t.Helper()
	app := New()
	app.Writer, app.ErrWriter = io.Discard, io.Discard
	app.Commands = []*cli.Command{{Name: "command", ArgsUsage: "[ARG...]", Flags: flags, Action: action}}
	return execute(t.Context(), app, append([]string{"edgelimit", "command"}, args...))
}

func TestMainIsSmall(t *testing.T) {
	b, err := os.ReadFile("../main.go")
	testkit.Must(t, err)
	if n := bytes.Count(b, []byte("\n")); n >= 60 {
		t.Errorf("main.go has %d lines; it is to stay under 60", n)
	}
}

// Every command explains itself and each of its flags, with the variable that sets it.
func TestHelp(t *testing.T) {
	app := New()
	top := edgelimit(t, "--help")
	words := func(s string) string { return strings.Join(strings.Fields(s), " ") } // as wrapped lines say them
	for _, c := range app.Commands {
		help := edgelimit(t, c.Name, "--help")
		if help.says(t, 0, "Usage:"); !strings.Contains(words(top.out), c.Name+" "+c.Usage) ||
			!strings.Contains(words(help.out), c.Name+": "+c.Usage) {
			t.Errorf("%s is not explained", c.Name)
		}
		for _, f := range c.Flags {
			name := f.Names()[0]
			if !regexp.MustCompile(`(?m)^ +--` + name + `[ ,\n].*\S`).MatchString(help.out) {
				t.Errorf("%s --help does not explain --%s", c.Name, name)
			}
			for _, v := range f.(cli.DocGenerationFlag).GetEnvVars() {
				if c.Name == "serve" || c.Name == "proxy" {
					v = "A variable can stand for each flag: EDGELIMIT_NODE_ID for --node-id"
				}
				help.says(t, 0, v)
			}
			if f.(cli.DocGenerationFlag).GetUsage() == "" {
				t.Errorf("--%s of %s has no usage", name, c.Name)
			}
		}
	}
	if a, b := edgelimit(t, "help", "rules", "explain"), edgelimit(t, "rules", "explain", "-h"); a != b ||
		!strings.Contains(a.out, "--identity WHO") {
		t.Errorf("%+v, and %+v", a, b)
	}
	bare := edgelimit(t)
	if bare.says(t, 0, "edgelimit serve", "edgelimit demo"); bare.out != top.out {
		t.Error("without a command it does not print the help")
	}
}

// Names that people use are not taken away again, and those of what is to come are taken.
func TestCommandsAndFlags(t *testing.T) {
	flags := map[string]string{
		"serve": "config rules region node-id http grpc resp health admin gossip gossip-wan join redis key-file " +
			"interval advertise-lan advertise-wan",
		"demo": "regions nodes limit window interval load duration cut log json",
		"sim": "regions nodes limit window interval load pattern wan-delay lan-delay loss skew partition keys " +
			"duration seed algorithm strategy " +
			"trace json plot",
		"replay": "rules compare domain descriptor field format worst json",
		"check":  "url rule identity domain cost peek json timeout", "health": "url timeout",
		"status": "url timeout json", "top": "url json n once every", "members": "url json", "inspect": "url json",
		"events": "url json follow since", "config": "url json changed",
		"bans": "", "keygen": "out force", "version": "json", "rules": "", "completion": "",
	}
	for _, c := range New().Commands {
		var names []string
		for _, f := range c.Flags {
			names = append(names, f.Names()...)
		}
		for name := range strings.FieldsSeq(flags[c.Name]) {
			if !slices.Contains(names, name) {
				t.Errorf("%s has no --%s", c.Name, name)
			}
		}
		delete(flags, c.Name)
	}
	if len(flags) > 0 {
		t.Errorf("there is no command of %v", flags)
	}
}

// Whatever serve can be told by a flag, it can be told by a variable, and some by that of OpenTelemetry as well.
func TestServeFlagsHaveVariables(t *testing.T) {
	for _, f := range New().Command("serve").Flags {
		name := f.Names()[0]
		want := []string{"EDGELIMIT_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))}
		if otel := otelVariables[name]; otel != "" {
			want = append(want, otel)
		}
		if got := f.(cli.DocGenerationFlag).GetEnvVars(); name != "print-config" && !slices.Equal(got, want) {
			t.Errorf("--%s is set by %v, want %s", name, got, want)
		}
	}
}

func TestCommandsBelow(t *testing.T) {
	edgelimit(t, "rules").says(t, 0, "Commands:", "validate")
}

func TestVersion(t *testing.T) {
	r := edgelimit(t, "version")
	if r.says(t, 0); !regexp.MustCompile(`^edgelimit \S+ \((commit \S+, )?go1\.\d+\S*, \w+/\w+\)\n$`).
		MatchString(r.out) {
		t.Errorf("it says %q", r.out)
	}
	if flag := edgelimit(t, "--version"); flag != r {
		t.Errorf("--version says %+v", flag)
	}
	var v node.Version
	if j := edgelimit(t, "version", "--json"); json.Unmarshal([]byte(j.out), &v) != nil || v != node.BuildVersion() {
		t.Errorf("%+v", j)
	}
}
