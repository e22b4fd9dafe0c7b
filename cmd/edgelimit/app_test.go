package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/leaks"
	"github.com/urfave/cli/v2"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// patience is how long a test waits for what should come at once, on a machine that is busy with other things.
const patience = time.Minute

// eventually looks every few milliseconds whether the condition holds, and fails the test if it does not in time.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.After(patience); !holds(); {
		select {
		case <-deadline:
			t.Fatalf("not within %v: %s", patience, what)
		case <-ticker.C:
		}
	}
}

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
	app := newApp()
	app.Reader, app.Writer, app.ErrWriter = in, &out, &errOut
	err := execute(ctx, app, append([]string{"edgelimit"}, args...))
	r := result{out: out.String(), err: errOut.String()}
	if err != nil {
		r.code = 2
		r.err += err.Error()
		if exit, ok := errors.AsType[cli.ExitCoder](err); ok {
			r.code = exit.ExitCode()
		}
	}
	return r
}

// parsed runs a command whose flags are read as always, but whose action is the test's.
func parsed(t *testing.T, action func(*cli.Context) error, command string, args ...string) error {
	t.Helper()
	app := newApp()
	app.Writer, app.ErrWriter = io.Discard, io.Discard
	app.Command(command).Action = action
	return execute(t.Context(), app, append([]string{"edgelimit", command}, args...))
}

func TestMainIsSmall(t *testing.T) {
	b, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(b, []byte("\n")); n >= 60 {
		t.Errorf("main.go has %d lines; it is to stay under 60", n)
	}
}

// Every command explains itself and each of its flags, with the variable that sets it.
func TestHelp(t *testing.T) {
	app := newApp()
	top := edgelimit(t, "--help")
	for _, c := range app.Commands {
		top.says(t, 0, c.Name, c.Usage)
		help := edgelimit(t, c.Name, "--help")
		help.says(t, 0, c.Usage)
		for _, f := range c.Flags {
			name := f.Names()[0]
			if hidden := !f.(cli.VisibleFlag).IsVisible(); hidden {
				if strings.Contains(help.out, "--"+name) {
					t.Errorf("%s --help tells of --%s, which is not there yet", c.Name, name)
				}
				continue
			}
			if !regexp.MustCompile(`(?m)^ +--` + name + `[ ,].*\S`).MatchString(help.out) {
				t.Errorf("%s --help does not explain --%s", c.Name, name)
			}
			for _, v := range f.(cli.DocGenerationFlag).GetEnvVars() {
				help.says(t, 0, v)
			}
			if f.(cli.DocGenerationFlag).GetUsage() == "" {
				t.Errorf("--%s of %s has no usage", name, c.Name)
			}
		}
	}
	if a, b := edgelimit(t, "help", "rules", "explain"), edgelimit(t, "rules", "explain", "-h"); a != b || !strings.Contains(a.out, "--identity WHO") {
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
		"serve": "config rules region node-id http grpc resp health admin gossip gossip-wan join redis key-file interval advertise-lan advertise-wan " +
			"inject-wan-delay inject-wan-jitter inject-wan-loss",
		"demo": "regions nodes limit window interval load duration cut log json",
		"sim": "regions nodes limit window interval load pattern wan-delay lan-delay loss skew partition keys duration seed algorithm strategy " +
			"trace json plot",
		"replay": "rules compare domain descriptor field format worst json",
		"check":  "addr rule identity domain cost peek json timeout", "health": "url timeout",
		"keygen": "out", "version": "", "rules": "",
	}
	for _, c := range newApp().Commands {
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

// Whatever serve can be told by a flag, it can be told by a variable.
func TestServeFlagsHaveVariables(t *testing.T) {
	for _, f := range serveCommand().Flags {
		name := f.Names()[0]
		want := "EDGELIMIT_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		if got := f.(cli.DocGenerationFlag).GetEnvVars(); name != "print-config" && !slices.Equal(got, []string{want}) {
			t.Errorf("--%s is set by %v, want %s", name, got, want)
		}
	}
}

func TestUnknownCommand(t *testing.T) {
	edgelimit(t, "serv").says(t, 2, `no command "serv"`, "[serve demo sim")
	edgelimit(t, "rules", "valid").says(t, 2, `no command "valid"`, "[validate explain")
	edgelimit(t, "rules").says(t, 0, "COMMANDS:", "validate")
	edgelimit(t, "serve", "--htp", "127.0.0.1:1").says(t, 2, "not defined: -htp", "--http")
}

func TestVersion(t *testing.T) {
	r := edgelimit(t, "version")
	if r.says(t, 0); !regexp.MustCompile(`^edgelimit \S.* ?go1\.\d+\S*\n$`).MatchString(r.out) {
		t.Errorf("it says %q", r.out)
	}
}
