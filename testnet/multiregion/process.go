package multiregion

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/testnet/docker"
)

// What follows takes the name of a node, as us-east-1, or of a Redis, as RedisName returns it.

// Kill ends a process at once, as kill -9 does. It stays dead until Restart.
func (t *Testnet) Kill(ctx context.Context, name string) error {
	c, err := t.running(ctx, name)
	if err != nil {
		return err
	}
	if err := t.engine.Kill(ctx, c.ID, "KILL"); err != nil {
		return err
	}
	_, err = t.awaitEnd(ctx, name)
	return err
}

// Stop asks a process to end, as SIGTERM does: a node drains, tells its last counts and leaves. A process that had to be killed after
// its grace period is an error.
func (t *Testnet) Stop(ctx context.Context, name string) error {
	c, err := t.running(ctx, name)
	if err != nil {
		return err
	}
	if err := t.engine.Stop(ctx, c.ID); err != nil {
		return err
	}
	code, err := t.awaitEnd(ctx, name)
	if err == nil && code != 0 {
		err = fmt.Errorf("%s ended with exit status %d; 137 is that it did not end by itself in time", name, code)
	}
	return err
}

// Pause stops a process where it is, with SIGSTOP, until Unpause: its sockets stay open, and nobody answers there. It is the signal
// and not the engine's freezer, because that is what hypervisors, debuggers and operators do to a process, and since a node that is
// paused behind the engine's back is found by its health check as well.
func (t *Testnet) Pause(ctx context.Context, name string) error {
	return t.signal(ctx, name, "STOP", true)
}

// Unpause lets a process go on, and returns when it answers and, if it is a node, is together with those it can reach.
func (t *Testnet) Unpause(ctx context.Context, name string) error {
	before := time.Now()
	if err := t.signal(ctx, name, "CONT", false); err != nil {
		return err
	}
	if err := t.awaitAnswer(ctx, name, time.Time{}); err != nil {
		return err
	}
	return t.awaitTogether(ctx, name, before)
}

func (t *Testnet) signal(ctx context.Context, name, signal string, stopped bool) error {
	c, err := t.running(ctx, name)
	if err != nil {
		return err
	}
	if err := t.engine.Kill(ctx, c.ID, signal); err != nil {
		return err
	}
	return t.await(ctx, "the signal "+signal+" did not take hold", func(ctx context.Context) ([]string, error) {
		is, err := t.engine.Stopped(ctx, &c)
		if err == nil && is != stopped {
			return []string{fmt.Sprintf("%s: stopped is %v", name, is)}, nil
		}
		return nil, err
	})
}

// Restart starts a process again, after stopping it in order if it runs. A node has a new incarnation then; a Redis has lost
// everything. It returns when the process answers and, for a node, when it is together with those it can reach.
func (t *Testnet) Restart(ctx context.Context, name string) error {
	c, err := t.find(ctx, name)
	if err != nil {
		return err
	}
	if c.Running() {
		if err := t.Stop(ctx, name); err != nil {
			return err
		}
	}
	before := time.Now()
	if err := t.engine.Start(ctx, c.ID); err != nil {
		return err
	}
	return t.settle(ctx, c, before)
}

// Move starts a node at another address of its region and of the WAN, as a scheduler does when it places it anew: in a container of
// its own, under the same name. Up moves it back. It is refused while the node's region is cut off. The compose file's variables
// have to be what they were for Up.
func (t *Testnet) Move(ctx context.Context, name string) (Node, error) {
	n, err := t.findNode(ctx, name)
	if err != nil {
		return n, err
	}
	nodes, err := t.Nodes(ctx)
	if err != nil {
		return n, err
	}
	switch rules, err := t.deafness(ctx, n); {
	case err != nil:
		return n, err
	case n.Sidecar:
		return n, fmt.Errorf("%s is a sidecar and stays where its service is", name)
	case n.Cut || rules != "":
		return n, fmt.Errorf("%s is cut off, and its new address would not be; heal first", name)
	}
	env, err := t.imageEnv(ctx)
	if err != nil {
		return n, err
	}
	variable := "EDGELIMIT_HOST_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	compose := t.compose
	compose.Env = append(env, fmt.Sprintf("%s=%d", variable, freeHost(nodes)))
	before := time.Now()
	if err := compose.Up(ctx, name); err != nil {
		return n, err
	}
	moved, err := t.findNode(ctx, name)
	if err != nil {
		return n, err
	}
	if moved.WAN == n.WAN || moved.LAN == n.LAN || moved.network.Addresses[wanNetwork] != moved.WAN {
		return moved, fmt.Errorf("%s was at %s and %s, and should be elsewhere, but is at %s and %s", name, n.LAN, n.WAN, moved.LAN, moved.WAN)
	}
	return moved, t.settle(ctx, moved.container, before)
}

// freeHost is a last byte that no node's addresses have: above 100, where the compose file puts nobody.
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

// FlushRedis makes the Redis of a region forget everything.
func (t *Testnet) FlushRedis(ctx context.Context, region string) error {
	c, err := t.running(ctx, RedisName(region))
	if err != nil {
		return err
	}
	out, err := t.redis(ctx, c, "FLUSHALL")
	if err == nil && out != "OK" {
		err = fmt.Errorf("%s answers %q to FLUSHALL", RedisName(region), out)
	}
	return err
}

// redis asks a Redis with the command of its own image.
func (t *Testnet) redis(ctx context.Context, c docker.Container, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return t.engine.Exec(ctx, c.ID, append([]string{"redis-cli"}, args...)...)
}

// running returns the container of a service that runs.
func (t *Testnet) running(ctx context.Context, name string) (docker.Container, error) {
	c, err := t.find(ctx, name)
	if err == nil && !c.Running() {
		err = fmt.Errorf("%s is not running (%s); start it: go run ./testnet restart %s", name, c.State, name)
	}
	return c, err
}

func (t *Testnet) awaitEnd(ctx context.Context, name string) (exitCode int, err error) {
	err = t.await(ctx, name+" did not end", func(ctx context.Context) ([]string, error) {
		c, err := t.find(ctx, name)
		exitCode = c.ExitCode
		if err == nil && c.Running() {
			return []string{"it is " + c.State}, nil
		}
		return nil, err
	})
	return exitCode, err
}

// settle waits until what was started anew answers and, if it is a node, is together with those it can reach.
func (t *Testnet) settle(ctx context.Context, c docker.Container, startedAfter time.Time) error {
	name := c.Labels[serviceLabel]
	if c.Labels[roleLabel] == "node" {
		if err := t.deafenAgain(ctx, name); err != nil {
			return err
		}
	}
	if err := t.awaitAnswer(ctx, name, startedAfter); err != nil {
		return err
	}
	return t.awaitTogether(ctx, name, startedAfter)
}

// awaitTogether waits for the others of a node. While a one-way cut is in force there is no telling whom it should see.
func (t *Testnet) awaitTogether(ctx context.Context, name string, since time.Time) error {
	nodes, err := t.Nodes(ctx)
	if err != nil || !slices.ContainsFunc(nodes, func(n Node) bool { return n.Name == name }) {
		return err
	}
	for _, n := range nodes {
		if rules, err := t.deafness(ctx, n); err != nil || rules != "" {
			return err
		}
	}
	return t.awaitNews(ctx, name+" is back, but the nodes are not together", since)
}

// awaitAnswer waits until a process answers that was started after the time given, for a node that it is ready.
func (t *Testnet) awaitAnswer(ctx context.Context, name string, startedAfter time.Time) error {
	return t.await(ctx, name+" does not answer", func(ctx context.Context) (lack []string, err error) {
		c, err := t.find(ctx, name)
		if err != nil {
			return nil, err
		}
		if !c.Running() {
			said, _ := t.engine.Logs(ctx, c.ID, 5)
			return nil, fmt.Errorf("%s ended at once with exit status %d: %s", name, c.ExitCode, said)
		}
		if c.Labels[roleLabel] == "redis" {
			if out, err := t.redis(ctx, c, "PING"); err != nil || out != "PONG" {
				lack = append(lack, fmt.Sprintf("it says %q to PING, %v", out, err))
			}
			return lack, nil
		}
		n, err := t.findNode(ctx, name)
		if err != nil {
			return nil, err
		}
		switch o, err := t.Observe(ctx, n); {
		case err != nil:
			lack = append(lack, err.Error())
		case o.NotReady != "":
			lack = append(lack, "it is not ready: "+o.NotReady)
		case o.Started.Before(startedAfter.Add(-clockGrain)):
			lack = append(lack, fmt.Sprintf("it has been running since %v", o.Started))
		}
		return lack, nil
	})
}

// clockGrain is how far off the start of a process can seem: the kernel counts it in ticks since the boot, whose time it rounds.
const clockGrain = 2 * time.Second
