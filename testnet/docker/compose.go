package docker

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"strings"
)

// ErrNoCompose says that neither form of the compose command is there.
var ErrNoCompose = errors.New("neither \"docker compose\" nor docker-compose is installed; install one (Debian and Ubuntu: apt-get install docker-compose)")

// Compose is a compose project: a file, and the name under which its containers and networks run.
type Compose struct {
	Run     Runner
	File    string
	Project string
	// Dir is where the file's relative paths start.
	Dir string
	// Env is added to the environment in which the file is read, as NAME=VALUE.
	Env []string
	// Profiles are the optional parts that are wanted too.
	Profiles []string
	// Progress, if set, gets what compose says while it works.
	Progress io.Writer
}

// Up creates and starts the services given, or all. What runs already and has not changed is left alone, what has changed is
// created anew.
func (c *Compose) Up(ctx context.Context, services ...string) error {
	args := []string{"up", "--detach"}
	if len(services) > 0 {
		args = append(args, "--no-deps")
	}
	return c.compose(ctx, append(args, services...)...)
}

// Down stops and removes the project's containers and networks, those of its profiles included.
func (c *Compose) Down(ctx context.Context) error {
	return c.compose(ctx, "down", "--remove-orphans", "--timeout", "10")
}

func (c *Compose) compose(ctx context.Context, args ...string) error {
	front, err := c.command(ctx)
	if err != nil {
		return err
	}
	all := append(front[1:], "--project-name", c.Project, "--project-directory", c.Dir, "--file", c.File)
	for _, p := range c.Profiles {
		all = append(all, "--profile", p)
	}
	_, err = c.Run.Run(ctx, Command{Name: front[0], Args: append(all, args...), Dir: c.Dir, Env: c.Env, Progress: c.Progress})
	return explain(err)
}

// command is the form of the compose command that this machine has: the plugin, or the older program of its own.
func (c *Compose) command(ctx context.Context) ([]string, error) {
	_, err := c.Run.Run(ctx, Command{Name: "docker", Args: []string{"compose", "version"}})
	if err == nil {
		return []string{"docker", "compose"}, nil
	}
	if errors.Is(err, exec.ErrNotFound) {
		return nil, ErrNoDocker
	} else if ctx.Err() != nil {
		return nil, err
	}
	switch out, err := c.Run.Run(ctx, Command{Name: "docker-compose", Args: []string{"version", "--short"}}); {
	case errors.Is(err, exec.ErrNotFound):
		return nil, ErrNoCompose
	case err != nil:
		return nil, err
	case strings.HasPrefix(string(out), "1.") && olderThan128(string(out)):
		return nil, errors.New("docker-compose " + strings.TrimSpace(string(out)) + " is too old for profiles; 1.28 or later is needed")
	}
	return []string{"docker-compose"}, nil
}

// olderThan128 reports whether a version 1.x has no profiles.
func olderThan128(version string) bool {
	minor, _, _ := strings.Cut(strings.TrimPrefix(version, "1."), ".")
	return len(minor) < 2 || len(minor) == 2 && minor < "28"
}
