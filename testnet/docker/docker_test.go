package docker_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/bubble"
	"github.com/edgelimit/edgelimit/testnet/docker"
	"github.com/edgelimit/edgelimit/testnet/docker/dockertest"
)

// answers is a Runner that gives each command line the answer which is written for it, and notes what it was told.
type answers struct {
	says map[string]string
	errs map[string]error
	told []docker.Command
}

func (a *answers) Run(_ context.Context, c docker.Command) ([]byte, error) {
	a.told = append(a.told, c)
	return []byte(a.says[c.String()]), a.errs[c.String()]
}

func (a *answers) lines() (lines []string) {
	for _, c := range a.told {
		lines = append(lines, c.String())
	}
	return lines
}

func failed(said string) error {
	return &docker.CommandError{Command: docker.Command{Name: "docker"}, Said: said, Err: errors.New("exit status 1")}
}

func TestCheckSaysWhatToDo(t *testing.T) {
	const version = "docker version --format {{.Server.Version}}"
	for _, test := range []struct {
		err, want error
		says      string
	}{
		{nil, nil, ""},
		{&exec.Error{Name: "docker", Err: exec.ErrNotFound}, docker.ErrNoDocker, "apt-get install docker.io"},
		{failed("Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"), docker.ErrNoDaemon, "systemctl start docker"},
		{failed("permission denied while trying to connect to the docker.sock"), docker.ErrNoAccess, "sudo"},
		{failed("client version 1.10 is too old"), nil, "too old"},
	} {
		err := docker.NewEngine(&answers{errs: map[string]error{version: test.err}}).Check(t.Context())
		if test.want != nil && !errors.Is(err, test.want) || test.says == "" && err != nil || test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
			t.Errorf("%v becomes %v, want %v and %q", test.err, err, test.want, test.says)
		}
	}
}

// What the engine is told, word for word.
func TestCommandLines(t *testing.T) {
	a := new(answers)
	e := docker.NewEngine(a)
	ctx := t.Context()
	for _, err := range []error{
		e.Kill(ctx, "c", "STOP"), e.Stop(ctx, "c"), e.Start(ctx, "c"), e.Disconnect(ctx, "n", "c"), e.Connect(ctx, "n", "c", "192.0.2.1", "a", "b"),
		e.Build(ctx, "i", "f", "d", io.Discard), e.Pull(ctx, "i", io.Discard),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	_, _ = e.Exec(ctx, "c", "redis-cli", "PING")
	_, _ = e.Logs(ctx, "c", 5)
	want := []string{"docker kill --signal STOP c", "docker stop c", "docker start c", "docker network disconnect n c",
		"docker network connect --ip 192.0.2.1 --alias a --alias b n c", "docker build --tag i --file f d", "docker pull i",
		"docker exec c redis-cli PING", "docker logs --tail 5 c"}
	if !slices.Equal(a.lines(), want) {
		t.Errorf("got  %q\nwant %q", a.lines(), want)
	}
}

const inspected = `[{"Id":"abc","Name":"/net_a_1","State":{"Status":"running","Pid":42,"ExitCode":0,"Health":{"Status":"healthy"}},
"Config":{"Labels":{"l":"v"},"Env":["A=1","B=x=y"]},
"HostConfig":{"NetworkMode":"net_lan","PortBindings":{"8080/tcp":[{"HostIp":"127.0.0.1","HostPort":"8111"}]}},
"NetworkSettings":{"Ports":{"8080/tcp":[{"HostIp":"127.0.0.1","HostPort":"8111"}],"7946/udp":null},
"Networks":{"net_lan":{"IPAddress":"10.0.0.1","IPAMConfig":{"IPv4Address":"10.0.0.1"}},"net_wan":{"IPAddress":"10.1.0.1","IPAMConfig":null}}}},
{"Id":"def","Name":"/net_b_1","State":{"Status":"exited","Pid":0,"ExitCode":137},"Config":{"Labels":null,"Env":null},
"HostConfig":{"NetworkMode":"container:abc","PortBindings":{"9100/tcp":[{"HostIp":"127.0.0.1","HostPort":"9113"}]}},
"NetworkSettings":{"Ports":{},"Networks":{"net_lan":{"IPAddress":"","IPAMConfig":{"IPv4Address":"10.0.0.2"}}}}}]`

func TestContainers(t *testing.T) {
	a := &answers{says: map[string]string{
		"docker ps --all --quiet --no-trunc --filter label=x=y": "abc\ndef\n", "docker container inspect abc def": inspected,
	}}
	got, err := docker.NewEngine(a).Containers(t.Context(), "x=y")
	if err != nil || len(got) != 2 {
		t.Fatalf("%d containers, %v", len(got), err)
	}
	one, two := got[0], got[1]
	if one.Name != "net_a_1" || one.PID != 42 || one.Health != "healthy" || !one.Running() || one.Env["B"] != "x=y" || one.Labels["l"] != "v" ||
		one.NamespaceOf != "" || one.Addresses["net_wan"] != "10.1.0.1" || one.Published["8080/tcp"] != "127.0.0.1:8111" || len(one.Published) != 1 {
		t.Errorf("%+v", one)
	}
	if two.Running() || two.ExitCode != 137 || two.NamespaceOf != "abc" || two.Addresses["net_lan"] != "10.0.0.2" || two.Published["9100/tcp"] != "127.0.0.1:9113" {
		t.Errorf("one that ended is still known by what it asked for: %+v", two)
	}
	none, err := docker.NewEngine(new(answers)).Containers(t.Context(), "x=y")
	if len(none) != 0 || err != nil {
		t.Errorf("%v, %v", none, err)
	}
}

// A health check that runs at the moment has a process in the container, too.
func TestStopped(t *testing.T) {
	for top, want := range map[string]bool{"PID STAT\n7 R\n42 Tsl": true, "PID STAT\n42 Ssl\n43 T": false} {
		got, err := docker.NewEngine(&answers{says: map[string]string{"docker top c -o pid,stat": top}}).Stopped(t.Context(), &docker.Container{ID: "c", PID: 42})
		if got != want || err != nil {
			t.Errorf("%q: %v, %v", top, got, err)
		}
	}
	if _, err := docker.NewEngine(new(answers)).Stopped(t.Context(), &docker.Container{ID: "c", PID: 42}); err == nil {
		t.Error("a process that is not listed is no error")
	}
}

func TestImageSize(t *testing.T) {
	a := &answers{says: map[string]string{"docker image inspect --format {{.Size}} i": "123\n"}}
	if size, err := docker.NewEngine(a).ImageSize(t.Context(), "i"); size != 123 || err != nil {
		t.Errorf("%d, %v", size, err)
	}
	if _, err := docker.NewEngine(a).ImageSize(t.Context(), "j"); err == nil {
		t.Error("no size is no error")
	}
}

func TestComposeForms(t *testing.T) {
	const tail = " --project-name p --project-directory /d --file f --profile x up --detach --no-deps s"
	for _, test := range []struct {
		missing   []string
		says, err string // of docker-compose version, and of docker compose version
		want      string // the last command line, or part of the error
	}{
		{says: "", want: "docker compose" + tail},
		{says: "1.29.2", err: "docker: 'compose' is not a docker command.", want: "docker-compose" + tail},
		{says: "2.26.1", err: "unknown command", want: "docker-compose" + tail},
		{says: "1.27.4", err: "unknown command", want: "too old"},
		{says: "1.9.0", err: "unknown command", want: "too old"},
		{missing: []string{"docker-compose"}, err: "unknown command", want: "apt-get install docker-compose"},
		{missing: []string{"docker", "docker-compose"}, want: docker.ErrNoDocker.Error()},
	} {
		a := &answers{says: map[string]string{"docker-compose version --short": test.says + "\n"}, errs: make(map[string]error)}
		if test.err != "" {
			a.errs["docker compose version"] = failed(test.err)
		}
		for line, name := range map[string]string{"docker compose version": "docker", "docker-compose version --short": "docker-compose"} {
			if slices.Contains(test.missing, name) {
				a.errs[line] = &exec.Error{Name: name, Err: exec.ErrNotFound}
			}
		}
		c := docker.Compose{Run: a, File: "f", Project: "p", Dir: "/d", Profiles: []string{"x"}, Env: []string{"A=1"}}
		err := c.Up(t.Context(), "s")
		last := a.told[len(a.told)-1]
		if ok := last.String() == test.want && err == nil || err != nil && strings.Contains(err.Error(), test.want); !ok {
			t.Errorf("%+v: told %q, error %v", test, last.String(), err)
		}
		if err == nil && (last.Dir != "/d" || !slices.Equal(last.Env, []string{"A=1"})) {
			t.Errorf("in %q with %q", last.Dir, last.Env)
		}
	}
}

func TestHostRun(t *testing.T) {
	var progress bytes.Buffer
	out, err := docker.Host{}.Run(t.Context(), docker.Command{Name: "sh", Args: []string{"-c", "echo $A; pwd; echo working >&2"}, Env: []string{"A=b"}, Dir: "/", Progress: &progress})
	if string(out) != "b\n/\n" || err != nil || progress.String() != "working\n" {
		t.Errorf("out %q, progress %q, %v", out, &progress, err)
	}
	_, err = docker.Host{}.Run(t.Context(), docker.Command{Name: "sh", Args: []string{"-c", "echo no good >&2; exit 3"}})
	failure, ok := errors.AsType[*docker.CommandError](err)
	if !ok || failure.Said != "no good" || !strings.Contains(err.Error(), "exit status 3: no good") {
		t.Errorf("error %v", err)
	}
	if status, ok := errors.AsType[*exec.ExitError](err); !ok || status.ExitCode() != 3 {
		t.Errorf("error %v", err)
	}
	if _, err = (docker.Host{}).Run(t.Context(), docker.Command{Name: "no-such-program-at-all"}); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err = (docker.Host{}).Run(ctx, docker.Command{Name: "sleep", Args: []string{"600"}}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

func TestErrorsRepeatTheEndOfWhatWasSaid(t *testing.T) {
	err := failed(strings.Repeat("x", 10_000) + "the reason")
	if s := err.Error(); len(s) > 1200 || !strings.HasSuffix(s, "the reason") {
		t.Errorf("%d bytes", len(s))
	}
}

// The fake of other packages' tests is held to what package docker reads.
func TestFakeHost(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := &dockertest.Host{Images: []string{"i"}}
		h.Add(&dockertest.Container{ID: "1", Name: "a", Labels: map[string]string{"l": "v"}, State: "running", PID: 5,
			Networks: map[string]string{"n": "10.0.0.1"}, Aliases: map[string][]string{}, Ports: map[string]string{"80/tcp": "127.0.0.1:81"}})
		e := docker.NewEngine(h)
		all, err := e.Containers(t.Context(), "l=v")
		if err != nil || len(all) != 1 || all[0].Addresses["n"] != "10.0.0.1" || all[0].Published["80/tcp"] != "127.0.0.1:81" {
			t.Fatalf("%+v, %v", all, err)
		}
		if err := e.Kill(t.Context(), "1", "STOP"); err != nil {
			t.Error(err)
		}
		if stopped, err := e.Stopped(t.Context(), &all[0]); !stopped || err != nil {
			t.Errorf("stopped %v, %v", stopped, err)
		}
		if err := errors.Join(e.Disconnect(t.Context(), "n", "1"), e.Connect(t.Context(), "n", "1", "10.0.0.9", "x")); err != nil {
			t.Error(err)
		}
		if c := h.Get("a"); c.Networks["n"] != "10.0.0.9" || !slices.Equal(c.Aliases["n"], []string{"x"}) {
			t.Errorf("%+v", c)
		}
		if there, err := e.HasImage(t.Context(), "other"); there || err != nil {
			t.Errorf("%v, %v", there, err)
		}
	})
}
