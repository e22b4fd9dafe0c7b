package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// container is what docker container inspect reports, as far as it is used.
type container struct {
	ID    string `json:"Id"`
	Name  string
	State struct {
		Status   string // created, running, paused, restarting, removing, exited or dead
		Pid      int    // of its first process, to this machine's kernel; 0 while it does not run
		ExitCode int
		Health   struct{ Status string } // starting, healthy, unhealthy or empty
	}
	Config struct {
		Labels map[string]string
		Env    []string
		Image  string
	}
	HostConfig struct {
		NetworkMode  string
		PortBindings map[string][]struct{ HostIP, HostPort string }
	}
	NetworkSettings struct {
		Networks map[string]struct {
			IPAddress  string
			IPAMConfig struct{ IPv4Address string }
		}
	}
}

func (c *container) running() bool { return c.State.Status == "running" || c.State.Status == "paused" }

// service is the name of its service in the compose file, as us-east-1; role is node, sidecar, redis, shop,
// key or prometheus.
func (c *container) service() string { return c.Config.Labels[serviceLabel] }
func (c *container) role() string    { return c.Config.Labels[roleLabel] }
func (c *container) region() string  { return c.Config.Labels[regionLabel] }

// env returns a variable of its environment.
func (c *container) env(name string) string {
	for _, pair := range c.Config.Env {
		if value, ok := strings.CutPrefix(pair, name+"="); ok {
			return value
		}
	}
	return ""
}

// address returns its IPv4 address on a network: while it does not run, the one that it asked for.
func (c *container) address(network string) string {
	n := c.NetworkSettings.Networks[network]
	return cmp.Or(n.IPAddress, n.IPAMConfig.IPv4Address)
}

// url returns where a port of the container, as 8080/tcp, is published on this machine; empty: nowhere.
func (c *container) url(port string) string {
	bindings := c.HostConfig.PortBindings[port]
	if len(bindings) == 0 {
		return ""
	}
	return "http://" + net.JoinHostPort(bindings[0].HostIP, bindings[0].HostPort)
}

// containers returns all of the project, running or not, in no particular order.
func (c *Cluster) containers(ctx context.Context) ([]container, error) {
	ids, err := c.docker(ctx, "ps", "--all", "--quiet", "--no-trunc", "--filter", "label="+projectLabel+"="+Project)
	if err != nil || ids == "" {
		return nil, err
	}
	out, err := c.docker(ctx, append([]string{"container", "inspect"}, strings.Fields(ids)...)...)
	if err != nil {
		return nil, err
	}
	var all []container
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		return nil, fmt.Errorf("parse docker inspect: %w", err)
	}
	return all, nil
}

// signal sends a signal, as KILL or STOP, to the container's first process.
func (c *Cluster) signal(ctx context.Context, ctr *container, name string) error {
	_, err := c.docker(ctx, "kill", "--signal", name, ctr.ID)
	return err
}

// stopped reports whether the first process of a running container is stopped, as SIGSTOP does it.
func (c *Cluster) stopped(ctx context.Context, ctr *container) (bool, error) {
	out, err := c.docker(ctx, "top", ctr.ID, "-o", "pid,stat")
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(out) { // others may be listed: a health check, or what exec started
		if f := strings.Fields(line); len(f) == 2 && f[0] == strconv.Itoa(ctr.State.Pid) {
			return strings.HasPrefix(f[1], "T"), nil
		}
	}
	return false, fmt.Errorf("docker top does not list process %d of %s", ctr.State.Pid, ctr.Name)
}

// Logs returns the last lines that a service has written, standard error first.
func (c *Cluster) Logs(ctx context.Context, name string) (string, error) {
	ctr, err := c.find(ctx, name)
	if err != nil {
		return "", err
	}
	return c.lastLines(ctx, ctr, 10_000)
}

func (c *Cluster) lastLines(ctx context.Context, ctr container, lines int) (string, error) {
	var stderr strings.Builder
	out, err := c.run(ctx, Command{Name: "docker", Args: []string{"logs", "--tail", strconv.Itoa(lines), ctr.ID},
		Stderr: &stderr})
	return strings.TrimSpace(stderr.String() + string(out)), explain(err)
}
