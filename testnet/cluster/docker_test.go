package cluster

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// answers is a Runner that answers each command line as written down for it, and remembers the commands.
type answers struct {
	out      map[string]string
	errs     map[string]error
	commands []Command
}

func (a *answers) Run(_ context.Context, c Command) ([]byte, error) {
	a.commands = append(a.commands, c)
	return []byte(a.out[c.String()]), a.errs[c.String()]
}

// with returns a cluster whose commands are answered by a.
func with(a *answers) *Cluster { return &Cluster{run: a.Run, root: "/d", profiles: []string{"x"}} }

func failed(stderr string) error {
	return commandError(Command{Name: "docker"}, errors.New("exit status 1"), stderr)
}

func notInstalled(name string) error { return &exec.Error{Name: name, Err: exec.ErrNotFound} }

func TestEngineErrorsHint(t *testing.T) {
	const version = "docker version --format {{.Server.Version}}"
	for _, test := range []struct {
		err, want error
		hint      string
	}{
		{nil, nil, ""},
		{notInstalled("docker"), ErrNoDocker, "apt-get install docker.io"},
		{failed("Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"),
			ErrNoDaemon, "systemctl start docker"},
		{failed("permission denied while trying to connect to the docker.sock"), ErrNoAccess, "sudo"},
		{failed("client version 1.10 is too old"), nil, "too old"},
	} {
		err := with(&answers{errs: map[string]error{version: test.err}}).checkEngine(t.Context())
		if test.want != nil && !errors.Is(err, test.want) || test.hint == "" && err != nil ||
			test.hint != "" && (err == nil || !strings.Contains(err.Error(), test.hint)) {
			t.Errorf("%v becomes %v, want %v and %q", test.err, err, test.want, test.hint)
		}
	}
}

func TestCommandLines(t *testing.T) {
	withCluster(t, func(t *testing.T, f *fakeCluster) {
		ctx := t.Context()
		ok(t, f.cluster.Kill(ctx, "us-east-1"))
		ok(t, f.cluster.Restart(ctx, "us-east-1"))
		ok(t, f.cluster.Stop(ctx, "us-east-1"))
		ok(t, f.cluster.Partition(ctx, "eu-west", Both))
		ok(t, f.cluster.Heal(ctx))
		ok(t, f.cluster.FlushRedis(ctx, "eu-west"))
		text, err := f.cluster.Logs(ctx, "us-east-1")
		ok(t, err)
		if text != "its last lines" {
			t.Errorf("logs: %q", text)
		}
		for _, want := range []string{
			"docker kill --signal KILL id-us-east-1", "docker start id-us-east-1", "docker stop id-us-east-1",
			"docker network disconnect edgelimit-testnet_wan id-eu-west-1",
			"docker network connect --ip 10.77.100.21 --alias eu-west-1 --alias eu-west-1.wan edgelimit-testnet_wan " +
				"id-eu-west-1",
			"docker exec id-eu-west-redis redis-cli FLUSHALL", "docker logs --tail 10000 id-us-east-1",
		} {
			same(t, "command", f.Commands(want), want)
		}
	})
}

const inspected = `[{"Id":"abc","Name":"/net_a_1",
"State":{"Status":"running","Pid":42,"ExitCode":0,"Health":{"Status":"healthy"}},
"Config":{"Labels":{"com.docker.compose.service":"a"},"Env":["A=1","B=x=y"]},
"HostConfig":{"NetworkMode":"net_lan","PortBindings":{"8080/tcp":[{"HostIp":"127.0.0.1","HostPort":"8111"}]}},
"NetworkSettings":{"Networks":{"net_lan":{"IPAddress":"10.0.0.1","IPAMConfig":{"IPv4Address":"10.0.0.1"}},
"net_wan":{"IPAddress":"10.1.0.1","IPAMConfig":null}}}},
{"Id":"def","Name":"/net_b_1","State":{"Status":"exited","Pid":0,"ExitCode":137},"Config":{"Labels":null,"Env":null},
"HostConfig":{"NetworkMode":"container:abc","PortBindings":{"7948/tcp":[{"HostIp":"127.0.0.1","HostPort":"9113"}]}},
"NetworkSettings":{"Networks":{"net_lan":{"IPAddress":"","IPAMConfig":{"IPv4Address":"10.0.0.2"}}}}}]`

func TestContainers(t *testing.T) {
	a := &answers{out: map[string]string{
		"docker ps --all --quiet --no-trunc --filter label=com.docker.compose.project=edgelimit-testnet": "abc\ndef\n",
		"docker container inspect abc def": inspected,
	}}
	got, err := with(a).containers(t.Context())
	if err != nil || len(got) != 2 {
		t.Fatalf("%d containers, %v", len(got), err)
	}
	one, two := got[0], got[1]
	if one.Name != "/net_a_1" || one.State.Pid != 42 || one.State.Health.Status != "healthy" || !one.running() ||
		one.env("B") != "x=y" || one.service() != "a" || one.address("net_wan") != "10.1.0.1" ||
		one.url("8080/tcp") != "http://127.0.0.1:8111" || one.url("7946/udp") != "" {
		t.Errorf("%+v", one)
	}
	if two.running() || two.State.ExitCode != 137 || two.HostConfig.NetworkMode != "container:abc" ||
		two.address("net_lan") != "10.0.0.2" || two.url("7948/tcp") != "http://127.0.0.1:9113" {
		t.Errorf("one that ended keeps the addresses that it asked for: %+v", two)
	}
	none, err := with(new(answers)).containers(t.Context())
	if len(none) != 0 || err != nil {
		t.Errorf("%v, %v", none, err)
	}
}

// A health check that runs at the moment has a process in the container, too.
func TestStopped(t *testing.T) {
	ctr := &container{ID: "c"}
	ctr.State.Pid = 42
	for top, want := range map[string]bool{"PID STAT\n7 R\n42 Tsl": true, "PID STAT\n42 Ssl\n43 T": false} {
		a := &answers{out: map[string]string{"docker top c -o pid,stat": top}}
		if got, err := with(a).stopped(t.Context(), ctr); got != want || err != nil {
			t.Errorf("%q: %v, %v", top, got, err)
		}
	}
	if _, err := with(new(answers)).stopped(t.Context(), ctr); err == nil {
		t.Error("a process that is not listed is no error")
	}
}

func TestComposeForms(t *testing.T) {
	const tail = " --project-name edgelimit-testnet --project-directory /d --file /d/docker-compose.multiregion.yml" +
		" --profile x up --detach --no-build --no-deps s"
	for _, test := range []struct {
		missing      []string
		version, err string // of docker-compose version, and of docker compose version
		want         string // the last command line, or part of the error
	}{
		{version: "", want: "docker compose" + tail},
		{version: "1.29.2", err: "docker: 'compose' is not a docker command.", want: "docker-compose" + tail},
		{version: "2.26.1", err: "unknown command", want: "docker-compose" + tail},
		{version: "1.28.6", err: "unknown command", want: "too old"},
		{version: "1.9.0", err: "unknown command", want: "too old"},
		{missing: []string{"docker-compose"}, err: "unknown command", want: "apt-get install docker-compose"},
		{missing: []string{"docker", "docker-compose"}, want: ErrNoDocker.Error()},
	} {
		const plugin, program = "docker compose version", "docker-compose version --short"
		a := &answers{out: map[string]string{program: test.version + "\n"}, errs: make(map[string]error)}
		if test.err != "" {
			a.errs[plugin] = failed(test.err)
		}
		for line, name := range map[string]string{plugin: "docker", program: "docker-compose"} {
			if slices.Contains(test.missing, name) {
				a.errs[line] = notInstalled(name)
			}
		}
		err := with(a).composeUp(t.Context(), []string{"A=1"}, "s")
		last := a.commands[len(a.commands)-1]
		if err == nil && last.String() != test.want || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: ran %q, error %v", test, last.String(), err)
		}
		if err == nil && (last.Dir != "/d" || !slices.Equal(last.Env, []string{"A=1"})) {
			t.Errorf("in %q with %q", last.Dir, last.Env)
		}
	}
}

func TestRunLocal(t *testing.T) {
	var stderr bytes.Buffer
	shell := func(script string) Command { return Command{Name: "sh", Args: []string{"-c", script}} }
	c := shell("echo $A; pwd; echo working >&2")
	c.Env, c.Dir, c.Stderr = []string{"A=b"}, "/", &stderr
	out, err := RunLocal(t.Context(), c)
	if string(out) != "b\n/\n" || err != nil || stderr.String() != "working\n" {
		t.Errorf("out %q, stderr %q, %v", out, &stderr, err)
	}
	_, err = RunLocal(t.Context(), shell("echo no good >&2; exit 3"))
	if err == nil || !strings.HasSuffix(err.Error(), "exit status 3: no good") {
		t.Errorf("error %v", err)
	}
	if status, ok := errors.AsType[*exec.ExitError](err); !ok || status.ExitCode() != 3 {
		t.Errorf("error %v", err)
	}
	if _, err = RunLocal(t.Context(), Command{Name: "no-such-program-at-all"}); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = RunLocal(ctx, Command{Name: "sleep", Args: []string{"600"}})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

func TestErrorsRepeatTheEndOfStderr(t *testing.T) {
	err := failed(strings.Repeat("x", 10_000) + "the reason")
	if s := err.Error(); len(s) > 1200 || !strings.HasSuffix(s, "the reason") {
		t.Errorf("%d bytes", len(s))
	}
}
