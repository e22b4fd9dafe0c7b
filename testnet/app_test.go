package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/testnet/cluster"
)

// fakeEngine is a Docker Engine with containers that do what they are told, and no image. No node answers.
type fakeEngine struct {
	containers []string // as docker inspect reports them
	stopped    bool
}

// add adds a container; its id is its name.
func (e *fakeEngine) add(name, role, region, state, extra string) {
	e.containers = append(e.containers, fmt.Sprintf(`{"Id":%q,"State":{"Status":%q,"Pid":5,"ExitCode":137},"Config":{
		"Labels":{"com.docker.compose.service":%q,"edgelimit.testnet.role":%q,"edgelimit.testnet.region":%q}%s}`,
		name, state, name, role, region, extra))
}

func (e *fakeEngine) run(_ context.Context, c cluster.Command) ([]byte, error) {
	out := ""
	switch line := c.String(); {
	case c.Name != "docker":
		return nil, &exec.Error{Name: c.Name, Err: exec.ErrNotFound}
	case c.Args[0] == "ps":
		out = strings.Repeat("id ", len(e.containers))
	case c.Args[0] == "container":
		out = "[" + strings.Join(e.containers, ",") + "]"
	case strings.Contains(line, "kill --signal STOP"):
		e.stopped = true
	case c.Args[0] == "top":
		out = "5 " + map[bool]string{true: "T", false: "S"}[e.stopped]
	case strings.HasSuffix(line, "PING"):
		out = "PONG"
	case strings.HasSuffix(line, "FLUSHALL"):
		out = "OK"
	}
	return []byte(out), nil
}

// invoke runs a command of the program against the engine.
func invoke(t *testing.T, e *fakeEngine, args ...string) (out string, err error) {
	t.Helper()
	app := newApp(func(c *cli.Context) (*cluster.Cluster, error) {
		return cluster.Open(cluster.Options{Root: "..", Run: e.run, Profiles: c.StringSlice("with"),
			Patience: c.Duration("patience")})
	})
	var stdout, stderr bytes.Buffer
	app.Writer, app.ErrWriter = &stdout, &stderr
	err = app.RunContext(t.Context(), flagsFirst(app, append([]string{"testnet"}, args...)))
	return stdout.String() + stderr.String(), err
}

func withRedis() *fakeEngine {
	e := new(fakeEngine)
	e.add("eu-west-redis", "redis", "eu-west", "running", "}")
	return e
}

// Every command explains itself and each of its flags.
func TestHelp(t *testing.T) {
	top, err := invoke(t, withRedis(), "--help")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range newApp(nil).Commands {
		if !strings.Contains(top, c.Name) || c.Usage == "" {
			t.Errorf("the help lacks %s", c.Name)
		}
		help, err := invoke(t, withRedis(), c.Name, "--help")
		if err != nil || !strings.Contains(help, c.Usage) {
			t.Errorf("%s --help: %v", c.Name, err)
		}
		for _, f := range c.Flags {
			if name := f.Names()[0]; !regexp.MustCompile(`(?m)^ +--`+name+`[ ,].*\S`).MatchString(help) ||
				f.(cli.DocGenerationFlag).GetUsage() == "" {
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
	for name := range strings.FieldsSeq("build up down status list run load logins abuse sidecar partition heal kill " +
		"pause unpause restart stop redis-kill redis-stop redis-restart redis-pause redis-unpause redis-flush") {
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
	e := withRedis()
	out, err = invoke(t, e, "redis-pause", "eu-west", "--json")
	var done struct {
		Command, Done string
		Args          []string
		Seconds       *float64
	}
	if err != nil || json.Unmarshal([]byte(out), &done) != nil || done.Command != "redis-pause" ||
		!slices.Equal(done.Args, []string{"eu-west"}) ||
		done.Done == "" ||
		done.Seconds == nil {
		t.Errorf("%q, %v", out, err)
	}
	if !e.stopped {
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
		"build x":                               {`"x"`, "edgelimit, ratelimit, node, redis"},
		"load x":                                {"takes no arguments"},
		"run":                                   {"names of scenarios", "list"},
		"run partitoin":                         {`"partitoin"`, "global-limit", "and all"},
		"run partition --cut 1s":                {"--cut 1s", "5s to 5m0s"},
		"partition eu-west --one-way up":        {"--one-way up", "in or out"},
		"partition eu-west --protocol sctp":     {"sctp", "want udp"},
		"up --with nothing":                     {`"nothing"`, "sidecar, metrics, grafana"},
		"sidecar --runs 0":                      {"--runs 0"},
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
	for _, command := range []string{"status", "heal", "kill x", "restart x --new-address", "load"} {
		if _, err := invoke(t, new(fakeEngine), strings.Fields(command)...); !errors.Is(err, cluster.ErrNotUp) {
			t.Errorf("%s of what is not up: %v", command, err)
		}
	}
	if _, err := invoke(t, withRedis(), "partitoin"); err == nil ||
		!strings.Contains(err.Error(), `Did you mean "partition"`) {
		t.Errorf("error %v", err)
	}
}

func TestStatusAndList(t *testing.T) {
	e := withRedis()
	e.add("eu-west-1", "node", "eu-west", "exited", `,"Env":["EDGELIMIT_ADVERTISE_LAN=10.77.2.21:7946",
		"EDGELIMIT_ADVERTISE_WAN=10.77.100.21:7947"]},"HostConfig":{"PortBindings":{
		"8080/tcp":[{"HostIp":"127.0.0.1","HostPort":"8121"}],"7948/tcp":[{"HostIp":"127.0.0.1","HostPort":"9121"}]}}`)
	for command, want := range map[string]string{
		"list": `(?m)^eu-west-1 +eu-west +http://127.0.0.1:8121 +http://127.0.0.1:9121/metrics +10.77.2.21 ` +
			`+10.77.100.21 +exited$[^$]*^eu-west-redis +eu-west +running$`,
		"status": `(?m)^eu-west-1 +http://127.0.0.1:8121 +node eu-west-1 is not running ` +
			`\(exited, exit status 137\) +partitioned +- +- +- +up$`,
	} {
		if out, err := invoke(t, e, command); err != nil || !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("%s: %q, %v", command, out, err)
		}
		out, err := invoke(t, e, command, "--json")
		var got struct {
			Nodes []struct{ Name, Region, HTTP, Error string }
			Redis []struct{ Name, Error string }
		}
		if err != nil || json.Unmarshal([]byte(out), &got) != nil || len(got.Nodes) != 1 ||
			got.Nodes[0].Name != "eu-west-1" ||
			got.Nodes[0].HTTP != "http://127.0.0.1:8121" ||
			len(got.Redis) != 1 ||
			got.Redis[0].Error != "" ||
			(got.Nodes[0].Error != "") != (command == "status") {
			t.Errorf("%s --json: %q, %v", command, out, err)
		}
	}
}

// Scenarios are listed also while the testnet is not up.
func TestListOfScenarios(t *testing.T) {
	out, err := invoke(t, new(fakeEngine), "list")
	if err != nil || !regexp.MustCompile(`(?m)^global-limit +\d+ s +\S.*$`).MatchString(out) ||
		!strings.Contains(out, "not up") {
		t.Errorf("%q, %v", out, err)
	}
	out, err = invoke(t, new(fakeEngine), "list", "--json")
	var got struct {
		Nodes     []any
		Scenarios []struct {
			Name, What string
			Seconds    float64
		}
	}
	if err != nil || json.Unmarshal([]byte(out), &got) != nil || got.Nodes == nil || len(got.Scenarios) != 18 ||
		got.Scenarios[0].Name != "global-limit" ||
		got.Scenarios[0].What == "" ||
		got.Scenarios[0].Seconds <= 0 {
		t.Errorf("%q, %v", out, err)
	}
}

// After a scenario that fails the others run all the same; the exit status reports it.
func TestRunGoesOnAfterAFailure(t *testing.T) {
	for _, args := range [][]string{{"run", "global-limit", "drain", "--json"}, {"run", "global-limit", "drain"}} {
		out, err := invoke(t, new(fakeEngine), args...)
		exit, ok := errors.AsType[cli.ExitCoder](err)
		if !ok || exit.ExitCode() != 1 ||
			!strings.Contains(err.Error(), "2 of 2 scenarios failed: global-limit, drain") {
			t.Errorf("%v: error %v", args, err)
		}
		if len(args) == 3 {
			if strings.Count(out, "FAILED") != 4 || !strings.Contains(out, "no image") {
				t.Errorf("%q", out)
			}
			continue
		}
		var names []string
		for line := range strings.Lines(out) {
			var r struct {
				Name, Error string
				OK          *bool
			}
			if json.Unmarshal([]byte(line), &r) == nil {
				names = append(names, r.Name)
				if r.OK == nil || *r.OK || !strings.Contains(r.Error, "no image") {
					t.Errorf("%s", line)
				}
			}
		}
		if !slices.Equal(names, []string{"global-limit", "drain"}) {
			t.Errorf("objects for %q", names)
		}
	}
}

func TestLoadOptions(t *testing.T) {
	e := withRedis()
	for _, name := range []string{"eu-west-1", "us-east-1"} {
		e.add(name, "node", name[:len(name)-2], "exited",
			`},"HostConfig":{"PortBindings":{"8080/tcp":[{"HostIp":"127.0.0.1","HostPort":"1"}]}}`)
	}
	for args, want := range map[string]string{
		"load --on mars":                                      "--on mars",
		"load --pattern odd":                                  `pattern "odd"`,
		"load --pattern one --favour eu-west-2":               `"eu-west-2" is not among the targets: eu-west-1, us`,
		"load --on us-east --pattern skew --favour eu-west-1": "targets: us-east-1",
		"load --identities 0":                                 "--identities 0",
		"load --rule none":                                    `no rule "none"`,
		"load --rate -1":                                      "a rate of -1",
		"load --spacing sometimes":                            `spacing "sometimes"`,
	} {
		if _, err := invoke(t, e, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", args, err, want)
		}
	}
}
