package cluster

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// Errors that say what to install or start first.
var (
	ErrNoDocker = errors.New("the docker command is not installed; install Docker Engine 20.10 or later " +
		"(Debian and Ubuntu: apt-get install docker.io)")
	ErrNoDaemon = errors.New("the Docker daemon does not answer; start it " +
		"(systemctl start docker, or as root: dockerd >/var/log/dockerd.log 2>&1 &)")
	ErrNoAccess  = errors.New("this user may not speak to the Docker daemon; join the group docker, or use sudo")
	ErrNoCompose = errors.New("neither \"docker compose\" nor docker-compose is installed; install one " +
		"(Debian and Ubuntu: apt-get install docker-compose)")
)

// checkEngine reports what is missing for the engine to be used: ErrNoDocker, ErrNoDaemon, ErrNoAccess, or the daemon's
// own error.
func (c *Cluster) checkEngine(ctx context.Context) error {
	_, err := c.docker(ctx, "version", "--format", "{{.Server.Version}}")
	return err
}

// docker runs a docker command and explains its commonest failures.
func (c *Cluster) docker(ctx context.Context, args ...string) (string, error) {
	out, err := c.run(ctx, Command{Name: "docker", Args: args})
	return strings.TrimSpace(string(out)), explain(err)
}

// dockerShowing is docker for what takes long: the user sees its progress.
func (c *Cluster) dockerShowing(ctx context.Context, args ...string) error {
	_, err := c.run(ctx, Command{Name: "docker", Args: args, Stderr: c.progress})
	return explain(err)
}

func explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, exec.ErrNotFound):
		return ErrNoDocker
	case strings.Contains(err.Error(), "permission denied") && strings.Contains(err.Error(), "docker.sock"):
		return fmt.Errorf("%w: %w", ErrNoAccess, err)
	case strings.Contains(err.Error(), "Cannot connect to the Docker daemon"):
		return fmt.Errorf("%w: %w", ErrNoDaemon, err)
	}
	return err
}

// compose runs a compose command on the project, with the profiles and variables given.
func (c *Cluster) compose(ctx context.Context, profiles, env []string, args ...string) error {
	front, err := c.composeCommand(ctx)
	if err != nil {
		return err
	}
	file, stdin := composePath(c.root), ""
	if c.wide {
		file = "-"
		if stdin, err = c.wideText(); err != nil {
			return err
		}
	}
	all := append(front[1:], "--project-name", Project, "--project-directory", c.root, "--file", file)
	for _, p := range profiles {
		all = append(all, "--profile", p)
	}
	_, err = c.run(ctx,
		Command{Name: front[0], Args: append(all, args...), Dir: c.root, Env: env, Stdin: stdin,
			Stderr: c.progress})
	return explain(err)
}

// composeUp creates and starts the services given, or all. It recreates those that changed and leaves the others alone.
func (c *Cluster) composeUp(ctx context.Context, env []string, services ...string) error {
	args := []string{"up", "--detach", "--no-build"}
	if len(services) > 0 {
		args = append(args, "--no-deps")
	}
	return c.compose(ctx, c.profiles, env, slices.Concat(args, services)...)
}

// composeCommand returns the form of the compose command that this machine has: the plugin, or the older program.
func (c *Cluster) composeCommand(ctx context.Context) ([]string, error) {
	_, err := c.run(ctx, Command{Name: "docker", Args: []string{"compose", "version"}})
	switch {
	case err == nil:
		return []string{"docker", "compose"}, nil
	case errors.Is(err, exec.ErrNotFound):
		return nil, ErrNoDocker
	case ctx.Err() != nil:
		return nil, err
	}
	version, err := c.run(ctx, Command{Name: "docker-compose", Args: []string{"version", "--short"}})
	if errors.Is(err, exec.ErrNotFound) {
		err = ErrNoCompose
	}
	if minor := 0; err == nil {
		if _, scanErr := fmt.Sscanf(string(version), "1.%d", &minor); scanErr == nil && minor < 29 {
			err = fmt.Errorf("docker-compose %s is too old for one-shot services; 1.29 or later is needed",
				strings.TrimSpace(string(version)))
		}
	}
	return []string{"docker-compose"}, err
}
