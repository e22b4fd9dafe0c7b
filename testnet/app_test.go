package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/testnet/docker/dockertest"
	"github.com/edgelimit/edgelimit/testnet/multiregion"
)

// invoke runs a command against an engine with one Redis, and no node that answers.
func invoke(t *testing.T, h *dockertest.Host, args ...string) (out string, err error) {
	t.Helper()
	app := newApp(func(c *cli.Context) (*multiregion.Testnet, error) {
		return multiregion.Open(multiregion.Options{Root: "..", Run: h, Profiles: c.StringSlice("with"), Patience: c.Duration("patience")})
	})
	var stdout, stderr bytes.Buffer
	app.Writer, app.ErrWriter = &stdout, &stderr
	err = app.RunContext(t.Context(), flagsFirst(app, append([]string{"testnet"}, args...)))
	return stdout.String() + stderr.String(), err
}

func withRedis() *dockertest.Host {
	h := new(dockertest.Host)
	h.Add(&dockertest.Container{ID: "1", Name: "eu-west-redis", State: "running", PID: 5, Labels: map[string]string{
		"com.docker.compose.project": multiregion.Project, "com.docker.compose.service": "eu-west-redis",
		"edgelimit.testnet.role": "redis", "edgelimit.testnet.region": "eu-west"}})
	return h
}

// Every command explains itself and each of its flags.
func TestHelp(t *testing.T) {
	top, err := invoke(t, withRedis(), "--help")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range newApp(nil).Commands {
		if !strings.Contains(top, c.Name) || c.Usage == "" {
			t.Errorf("the help does not tell of %s", c.Name)
		}
		help, err := invoke(t, withRedis(), c.Name, "--help")
		if err != nil || !strings.Contains(help, c.Usage) {
			t.Errorf("%s --help: %v", c.Name, err)
		}
		for _, f := range c.Flags {
			if name := f.Names()[0]; !regexp.MustCompile(`(?m)^ +--`+name+`[ ,].*\S`).MatchString(help) || f.(cli.DocGenerationFlag).GetUsage() == "" {
				t.Errorf("%s --help does not explain --%s", c.Name, name)
			}
		}
	}
}

func TestCommands(t *testing.T) {
	var names []string
	for _, c := range newApp(nil).Commands {
		names = append(names, c.Name)
	}
	for name := range strings.FieldsSeq("build up down status list partition heal kill pause unpause restart stop redis-kill redis-stop redis-restart redis-pause redis-unpause redis-flush") {
		if !slices.Contains(names, name) {
			t.Errorf("there is no command %s", name)
		}
	}
}

func TestFlagsFirst(t *testing.T) {
	app := newApp(nil)
	for typed, want := range map[string]string{
		"partition eu-west --one-way in":          "partition --one-way in eu-west",
		"partition eu-west --one-way=in --json":   "partition --one-way=in --json eu-west",
		"partition --one-way in eu-west":          "partition --one-way in eu-west",
		"restart us-east-1 --new-address":         "restart --new-address us-east-1",
		"restart us-east-1 --patience 5m --json":  "restart --patience 5m --json us-east-1",
		"kill -- --json":                          "kill -- --json",
		"up":                                      "up",
		"no-such-command a --json":                "no-such-command a --json",
		"partition eu-west --no-such-flag --json": "partition --no-such-flag --json eu-west",
		"partition eu-west --one-way":             "partition --one-way eu-west",
	} {
		got := flagsFirst(app, append([]string{"testnet"}, strings.Fields(typed)...))
		if line := strings.Join(got[1:], " "); line != want {
			t.Errorf("%q becomes %q, want %q", typed, line, want)
		}
	}
}

func TestActionsSayWhatTheyDid(t *testing.T) {
	out, err := invoke(t, withRedis(), "redis-flush", "eu-west")
	if err != nil || !regexp.MustCompile(`^the Redis of eu-west is empty \(\d+\.\d s\)\n$`).MatchString(out) {
		t.Errorf("%q, %v", out, err)
	}
	h := withRedis()
	out, err = invoke(t, h, "redis-pause", "eu-west", "--json")
	var done struct {
		Command, Done string
		Args          []string
		Seconds       *float64
	}
	if err != nil || json.Unmarshal([]byte(out), &done) != nil || done.Command != "redis-pause" || !slices.Equal(done.Args, []string{"eu-west"}) || done.Done == "" || done.Seconds == nil {
		t.Errorf("%q, %v", out, err)
	}
	if !h.Get("eu-west-redis").Paused {
		t.Error("it is not paused")
	}
}

func TestUsageErrors(t *testing.T) {
	for args, want := range map[string][]string{
		"kill":                                  {"wants one NODE", "list"},
		"partition":                             {"wants one REGION"},
		"partition eu-west us-east":             {"wants one REGION", `["eu-west" "us-east"]`},
		"up now":                                {"takes no arguments", `"now"`},
		"status x":                              {"takes no arguments"},
		"list x":                                {"takes no arguments"},
		"build x":                               {"takes no arguments"},
		"partition eu-west --one-way up":        {"--one-way up", "in or out"},
		"up --with nothing":                     {`"nothing"`, "sidecar and metrics"},
		"redis-kill mars":                       {`"mars-redis"`, "eu-west-redis"},
		"redis-flush eu-west --patience sooner": {"patience"},
	} {
		_, err := invoke(t, withRedis(), strings.Fields(args)...)
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%s: error %v, want one with %q", args, err, w)
			}
		}
	}
	for _, command := range []string{"status", "list", "heal", "kill x", "restart x --new-address"} {
		if _, err := invoke(t, new(dockertest.Host), strings.Fields(command)...); !errors.Is(err, multiregion.ErrNotUp) {
			t.Errorf("%s of what is not up: %v", command, err)
		}
	}
	if _, err := invoke(t, withRedis(), "partitoin"); err == nil || !strings.Contains(err.Error(), `Did you mean "partition"`) {
		t.Errorf("error %v", err)
	}
}

func TestStatusAndList(t *testing.T) {
	h := withRedis()
	h.Add(&dockertest.Container{ID: "2", Name: "n", State: "exited", ExitCode: 137, Ports: map[string]string{"8080/tcp": "127.0.0.1:8121", "9100/tcp": "127.0.0.1:9121"},
		Env: map[string]string{"EDGELIMIT_ADVERTISE_LAN": "10.77.2.21:7946", "EDGELIMIT_ADVERTISE_WAN": "10.77.100.21:7947"},
		Labels: map[string]string{"com.docker.compose.project": multiregion.Project, "com.docker.compose.service": "eu-west-1",
			"edgelimit.testnet.role": "node", "edgelimit.testnet.region": "eu-west"}})
	for command, want := range map[string]string{
		"list":   `(?m)^eu-west-1 +eu-west +http://127.0.0.1:8121 +http://127.0.0.1:9121/metrics +10.77.2.21 +10.77.100.21 +exited$[^$]*^eu-west-redis +eu-west +running$`,
		"status": `(?m)^eu-west-1 +http://127.0.0.1:8121 +node eu-west-1 is not running \(exited, exit status 137\) +cut +- +- +- +up$`,
	} {
		if out, err := invoke(t, h, command); err != nil || !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("%s: %q, %v", command, out, err)
		}
		out, err := invoke(t, h, command, "--json")
		var got struct {
			Nodes []struct{ Name, Region, HTTP, Error string }
			Redis []struct{ Name, Error string }
		}
		if err != nil || json.Unmarshal([]byte(out), &got) != nil || len(got.Nodes) != 1 || got.Nodes[0].Name != "eu-west-1" || got.Nodes[0].HTTP != "http://127.0.0.1:8121" ||
			len(got.Redis) != 1 || got.Redis[0].Error != "" || (got.Nodes[0].Error != "") != (command == "status") {
			t.Errorf("%s --json: %q, %v", command, out, err)
		}
	}
}
