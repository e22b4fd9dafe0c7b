package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The methods below take the name of a node, as us-east-1, or of a Redis, as RedisName returns it.

// Kill ends a process at once, as kill -9 does. It stays dead until Restart.
func (c *Cluster) Kill(ctx context.Context, name string) error {
	_, err := c.end(ctx, name, "kill", "--signal", "KILL")
	return err
}

// Stop asks a process to end, as SIGTERM does: a node drains, sends its last counts and leaves. A process that had to
// be killed after its grace period is an error.
func (c *Cluster) Stop(ctx context.Context, name string) error {
	code, err := c.end(ctx, name, "stop")
	if err == nil && code != 0 {
		err = fmt.Errorf("%s ended with exit status %d; 137 means that it did not end by itself in time", name, code)
	}
	return err
}

// end runs a docker command that ends the process, and returns its exit status.
func (c *Cluster) end(ctx context.Context, name string, command ...string) (exitCode int, err error) {
	ctr, err := c.findRunning(ctx, name)
	if err != nil {
		return 0, err
	}
	if _, err := c.docker(ctx, append(command, ctr.ID)...); err != nil {
		return 0, err
	}
	err = c.await(ctx, name+" did not end", func(ctx context.Context) ([]string, error) {
		ctr, err := c.find(ctx, name)
		exitCode = ctr.State.ExitCode
		if err == nil && ctr.running() {
			return []string{"it is " + ctr.State.Status}, nil
		}
		return nil, err
	})
	return exitCode, err
}

// Pause stops a process with SIGSTOP until Unpause: its sockets stay open, and nobody answers. It uses the signal and
// not the engine's freezer, because that is what hypervisors, debuggers and operators do, and because the health check
// then finds the node unhealthy.
func (c *Cluster) Pause(ctx context.Context, name string) error {
	return c.signalAndVerify(ctx, name, "STOP", true)
}

// Unpause lets a process go on. It returns when the process answers and, if it is a node, exchanges frames with those
// it can reach.
func (c *Cluster) Unpause(ctx context.Context, name string) error {
	before := time.Now()
	if err := c.signalAndVerify(ctx, name, "CONT", false); err != nil {
		return err
	}
	if err := c.awaitAnswer(ctx, name, time.Time{}); err != nil {
		return err
	}
	return c.awaitTogether(ctx, name, before)
}

func (c *Cluster) signalAndVerify(ctx context.Context, name, signal string, want bool) error {
	ctr, err := c.findRunning(ctx, name)
	if err != nil {
		return err
	}
	if err := c.signal(ctx, &ctr, signal); err != nil {
		return err
	}
	return c.await(ctx, "the signal "+signal+" did not take hold", func(ctx context.Context) ([]string, error) {
		stopped, err := c.stopped(ctx, &ctr)
		if err == nil && stopped != want {
			return []string{fmt.Sprintf("%s: stopped is %v", name, stopped)}, nil
		}
		return nil, err
	})
}

// Restart starts a process again, after stopping it in order if it runs. A node has a new incarnation then; a Redis has
// lost everything. It returns when the process answers and, if it is a node, exchanges frames with those it can reach.
func (c *Cluster) Restart(ctx context.Context, name string) error {
	ctr, err := c.find(ctx, name)
	if err != nil {
		return err
	}
	if ctr.running() {
		if err := c.Stop(ctx, name); err != nil {
			return err
		}
	}
	before := time.Now()
	if _, err := c.docker(ctx, "start", ctr.ID); err != nil {
		return err
	}
	return c.awaitStart(ctx, name, before)
}

// Move starts a node at another address of its region and of the WAN, as a scheduler does that places it anew: in a new
// container, under the same name. Up moves it back. Move refuses while the node's region is partitioned. The compose
// file's variables have to be those of Up.
func (c *Cluster) Move(ctx context.Context, name string) (Node, error) {
	n, err := c.findNode(ctx, name)
	if err != nil {
		return n, err
	}
	switch rules, err := c.dropRules(ctx, n); {
	case err != nil:
		return n, err
	case n.Sidecar:
		return n, fmt.Errorf("%s is a sidecar and stays where its service is", name)
	case n.Partitioned || rules != "":
		return n, fmt.Errorf("%s is partitioned, and its new address would not be; heal first", name)
	}
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return n, err
	}
	env, err := c.imageEnv(ctx)
	if err != nil {
		return n, err
	}
	host := fmt.Sprintf("EDGELIMIT_HOST_%s=%d", strings.ToUpper(strings.ReplaceAll(name, "-", "_")), freeHost(nodes))
	before := time.Now()
	if err := c.composeUp(ctx, append(env, host), name); err != nil {
		return n, err
	}
	moved, err := c.findNode(ctx, name)
	if err != nil {
		return n, err
	}
	if moved.WAN == n.WAN || moved.LAN == n.LAN || moved.network.address(wanNetwork) != moved.WAN {
		return moved, fmt.Errorf("%s was at %s and %s, and should be elsewhere, but is at %s and %s", name, n.LAN,
			n.WAN, moved.LAN, moved.WAN)
	}
	return moved, c.awaitStart(ctx, name, before)
}

// freeHost returns a last byte that no node's addresses have: above 100, where the compose file puts none.
func freeHost(nodes []Node) int {
	taken := make(map[string]bool)
	for _, n := range nodes {
		taken[n.WAN[strings.LastIndex(n.WAN, ".")+1:]] = true
	}
	host := 101
	for taken[fmt.Sprint(host)] {
		host++
	}
	return host
}

// awaitStart waits until a process that was started anew answers and, if it is a node, exchanges frames with those it
// can reach.
func (c *Cluster) awaitStart(ctx context.Context, name string, startedAfter time.Time) error {
	if n, err := c.findNode(ctx, name); err == nil && !n.Sidecar {
		if err := c.restoreDrop(ctx, n); err != nil {
			return err
		}
	}
	if err := c.awaitAnswer(ctx, name, startedAfter); err != nil {
		return err
	}
	return c.awaitTogether(ctx, name, startedAfter)
}

// awaitTogether waits until a node exchanges frames with the others; a Redis does not. During a one-way partition it
// does not wait: nothing says then whom the node should see.
func (c *Cluster) awaitTogether(ctx context.Context, name string, since time.Time) error {
	nodes, err := c.Nodes(ctx)
	if err != nil || !slices.ContainsFunc(nodes, func(n Node) bool { return n.Name == name }) {
		return err
	}
	for _, n := range nodes {
		if rules, err := c.dropRules(ctx, n); err != nil || rules != "" {
			return err
		}
	}
	return c.awaitExchange(ctx, name+" is back, but the nodes are not together", since)
}

// awaitAnswer waits until a process answers that was started after the time given; for a node, until it is ready.
func (c *Cluster) awaitAnswer(ctx context.Context, name string, startedAfter time.Time) error {
	return c.await(ctx, name+" does not answer", func(ctx context.Context) (missing []string, err error) {
		ctr, err := c.find(ctx, name)
		if err != nil {
			return nil, err
		}
		if !ctr.running() {
			logs, _ := c.lastLines(ctx, ctr, 5)
			return nil, fmt.Errorf("%s ended at once with exit status %d: %s", name, ctr.State.ExitCode, logs)
		}
		if ctr.role() == "redis" {
			if err := c.pingRedis(ctx, &ctr); err != nil {
				missing = append(missing, err.Error())
			}
			return missing, nil
		}
		n, err := c.findNode(ctx, name)
		if err != nil {
			return nil, err
		}
		switch o, err := c.Observe(ctx, n); {
		case err != nil:
			missing = append(missing, err.Error())
		case o.NotReady != "":
			missing = append(missing, "it is not ready: "+o.NotReady)
		case o.Started.Before(startedAfter.Add(-startError)):
			missing = append(missing, fmt.Sprintf("it has been running since %v", o.Started))
		}
		return missing, nil
	})
}

// startError is the error of a process's start time: the kernel counts it in ticks since the boot, whose time it
// rounds.
const startError = 2 * time.Second
