package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
)

// Runner runs a command to its end and returns its standard output; Host is one.
type Runner interface {
	Run(ctx context.Context, c Command) (stdout []byte, err error)
}

// Engine is a Docker Engine, asked through the docker command. It is safe for concurrent use.
type Engine struct {
	run Runner
}

// NewEngine returns the engine that the docker command of the runner's machine speaks to.
func NewEngine(run Runner) *Engine { return &Engine{run} }

// Errors that say what to do before anything else can work.
var (
	ErrNoDocker = errors.New("the docker command is not installed; install Docker Engine 20.10 or later (Debian and Ubuntu: apt-get install docker.io)")
	ErrNoDaemon = errors.New("the Docker daemon does not answer; start it (systemctl start docker, or as root: dockerd >/var/log/dockerd.log 2>&1 &)")
	ErrNoAccess = errors.New("this user may not speak to the Docker daemon; join the group docker, or use sudo")
)

// Check reports what is missing for the engine to be used: ErrNoDocker, ErrNoDaemon, ErrNoAccess, or what the daemon said.
func (e *Engine) Check(ctx context.Context) error {
	_, err := e.docker(ctx, "version", "--format", "{{.Server.Version}}")
	return err
}

// docker runs a docker command and makes its commonest failures clear.
func (e *Engine) docker(ctx context.Context, args ...string) (string, error) {
	out, err := e.run.Run(ctx, Command{Name: "docker", Args: args})
	return strings.TrimSpace(string(out)), explain(err)
}

func explain(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, exec.ErrNotFound) {
		return ErrNoDocker
	}
	failed, ok := errors.AsType[*CommandError](err)
	switch {
	case !ok:
		return err
	case strings.Contains(failed.Said, "permission denied") && strings.Contains(failed.Said, "docker.sock"):
		return fmt.Errorf("%w: %s", ErrNoAccess, failed.Said)
	case strings.Contains(failed.Said, "Cannot connect to the Docker daemon"):
		return fmt.Errorf("%w: %s", ErrNoDaemon, failed.Said)
	}
	return err
}

// Container is a container as the engine describes it.
type Container struct {
	ID   string
	Name string
	// Labels are those of the container and of its image.
	Labels map[string]string
	// Env is its environment.
	Env map[string]string
	// State is created, running, paused, restarting, removing, exited or dead; Health starting, healthy, unhealthy or empty.
	State, Health string
	ExitCode      int
	// PID is its first process as this machine's kernel knows it; 0 while it does not run.
	PID int
	// NamespaceOf is the id of the container whose network it shares; empty: it has its own.
	NamespaceOf string
	// Addresses are its IPv4 addresses by network name. Those of a container that does not run are the ones it asked for.
	Addresses map[string]string
	// Published are the host:port of this machine by port of the container, as in 8080/tcp.
	Published map[string]string
}

// Running reports whether it runs.
func (c *Container) Running() bool { return c.State == "running" || c.State == "paused" }

// Containers returns those that carry the label, running or not, in no particular order. The label is name or name=value.
func (e *Engine) Containers(ctx context.Context, label string) ([]Container, error) {
	ids, err := e.docker(ctx, "ps", "--all", "--quiet", "--no-trunc", "--filter", "label="+label)
	if err != nil || ids == "" {
		return nil, err
	}
	out, err := e.docker(ctx, append([]string{"container", "inspect"}, strings.Fields(ids)...)...)
	if err != nil {
		return nil, err
	}
	var all []inspected
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		return nil, fmt.Errorf("read what docker inspect says: %w", err)
	}
	containers := make([]Container, len(all))
	for i := range all {
		containers[i] = all[i].container()
	}
	return containers, nil
}

// Kill sends a signal, as KILL or STOP, to the container's first process.
func (e *Engine) Kill(ctx context.Context, container, signal string) error {
	_, err := e.docker(ctx, "kill", "--signal", signal, container)
	return err
}

// Stop asks the container to end, kills it after its grace period, and waits.
func (e *Engine) Stop(ctx context.Context, container string) error {
	_, err := e.docker(ctx, "stop", container)
	return err
}

// Start starts a container that does not run.
func (e *Engine) Start(ctx context.Context, container string) error {
	_, err := e.docker(ctx, "start", container)
	return err
}

// Stopped reports whether the first process of a container that runs is stopped, as SIGSTOP does it.
func (e *Engine) Stopped(ctx context.Context, c *Container) (bool, error) {
	out, err := e.docker(ctx, "top", c.ID, "-o", "pid,stat")
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(out) { // there may be others: a health check, or whoever was started with exec
		if f := strings.Fields(line); len(f) == 2 && f[0] == strconv.Itoa(c.PID) {
			return strings.HasPrefix(f[1], "T"), nil
		}
	}
	return false, fmt.Errorf("docker top does not list process %d of %s", c.PID, c.Name)
}

// Exec runs a command in a container and returns what it prints.
func (e *Engine) Exec(ctx context.Context, container string, args ...string) (string, error) {
	return e.docker(ctx, append([]string{"exec", container}, args...)...)
}

// Logs are the last lines that a container said, standard error first.
func (e *Engine) Logs(ctx context.Context, container string, lines int) (string, error) {
	var said strings.Builder
	out, err := e.run.Run(ctx, Command{Name: "docker", Args: []string{"logs", "--tail", fmt.Sprint(lines), container}, Progress: &said})
	return strings.TrimSpace(said.String() + string(out)), explain(err)
}

// Connect puts a container on a network, at the address and under the further names given.
func (e *Engine) Connect(ctx context.Context, network, container, ip string, aliases ...string) error {
	args := []string{"network", "connect", "--ip", ip}
	for _, a := range aliases {
		args = append(args, "--alias", a)
	}
	_, err := e.docker(ctx, append(args, network, container)...)
	return err
}

// Disconnect takes a container off a network, whether it runs or not.
func (e *Engine) Disconnect(ctx context.Context, network, container string) error {
	_, err := e.docker(ctx, "network", "disconnect", network, container)
	return err
}

// HasImage reports whether the engine has an image of that name.
func (e *Engine) HasImage(ctx context.Context, name string) (bool, error) {
	out, err := e.docker(ctx, "images", "--quiet", name)
	return out != "", err
}

// ImageSize is how many bytes an image has.
func (e *Engine) ImageSize(ctx context.Context, name string) (int64, error) {
	out, err := e.docker(ctx, "image", "inspect", "--format", "{{.Size}}", name)
	if err != nil {
		return 0, err
	}
	var size int64
	if _, err := fmt.Sscan(out, &size); err != nil {
		return 0, fmt.Errorf("size of image %s: %q: %w", name, out, err)
	}
	return size, nil
}

// Build makes an image of a build context. What the builder says goes to progress.
func (e *Engine) Build(ctx context.Context, name, dockerfile, dir string, progress io.Writer) error {
	_, err := e.run.Run(ctx, Command{Name: "docker", Args: []string{"build", "--tag", name, "--file", dockerfile, dir}, Progress: progress})
	return explain(err)
}

// Pull fetches an image from its registry.
func (e *Engine) Pull(ctx context.Context, name string, progress io.Writer) error {
	_, err := e.run.Run(ctx, Command{Name: "docker", Args: []string{"pull", name}, Progress: progress})
	return explain(err)
}
