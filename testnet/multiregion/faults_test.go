package multiregion

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/docker"
	"github.com/edgelimit/edgelimit/testnet/docker/dockertest"
)

func TestPartitionAndHeal(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		began := time.Now()
		ok(t, l.net.Partition(t.Context(), "eu-west", Both))
		same(t, "cut off", l.cutOff(t), "eu-west-1", "eu-west-2")
		if took := time.Since(began); took < certainAfter || took > 2*certainAfter {
			t.Errorf("it was believed after %v", took)
		}
		ok(t, l.net.Partition(t.Context(), "us-east", Both)) // partitions add up
		same(t, "cut off", l.cutOff(t), "eu-west-1", "eu-west-2", "us-east-1", "us-east-2")
		ok(t, l.net.Partition(t.Context(), "us-east", Both)) // and may be made twice

		ok(t, l.net.Heal(t.Context()))
		same(t, "cut off", l.cutOff(t))
		c := l.Get("eu-west-2")
		if c.Networks[wanNetwork] != "10.77.100.22" {
			t.Errorf("it is back at %s", c.Networks[wanNetwork])
		}
		same(t, "names on the WAN", c.Aliases[wanNetwork], "eu-west-2", "eu-west-2.wan")
		ok(t, l.net.Heal(t.Context())) // there is nothing to heal
	})
}

// A cut that does not take hold is an error, not a scenario that proves nothing. Idle nodes are over a second stale at any time.
func TestPartitionThatLeaks(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		l.rest = 1200 * time.Millisecond
		for _, name := range []string{"eu-west-1", "us-east-2"} {
			l.leaky[name] = true
			fails(t, l.net.Partition(t.Context(), "eu-west", Both), "did not take hold", name+" heard of all others 1.2s ago")
			delete(l.leaky, name)
			ok(t, l.net.Heal(t.Context()))
		}
	})
}

// The membership outlives a cut that is short, so that it says nothing of whether anything gets through afterwards.
func TestHealThatDoesNotHeal(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		ok(t, l.net.Partition(t.Context(), "eu-west", Both))
		l.stuck["eu-west-1"] = true
		fails(t, l.net.Heal(t.Context()), "not together", "us-east-1 has not heard of some other node for 2")
		l.Fail = func(c docker.Command) error {
			if strings.Contains(c.String(), "network connect") {
				return errors.New("no such network")
			}
			return nil
		}
		ok(t, l.net.detach(t.Context(), mustNodes(t, l)))
		fails(t, l.net.Heal(t.Context()), "put ap-south-1 back on the WAN", "no such network")
	})
}

func mustNodes(t *testing.T, l *lab) []Node {
	t.Helper()
	nodes, err := l.net.Nodes(t.Context())
	ok(t, err)
	return nodes
}

func TestPartitionOneWay(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		ok(t, l.net.Partition(t.Context(), "eu-west", In))
		same(t, "deaf", l.deaf(t), "eu-west-1", "eu-west-2")
		if rules := l.Get("eu-west-1").Table; !strings.Contains(rules, "ip saddr { 10.77.100.11, 10.77.100.12, 10.77.100.31, 10.77.100.32 } counter drop") {
			t.Errorf("the rules are %q", rules)
		}
		nodes, _, err := l.net.Status(t.Context())
		ok(t, err)
		for _, n := range nodes {
			if n.Deaf != (n.Region == "eu-west") || n.Cut {
				t.Errorf("%s: deaf %v, cut %v", n.Name, n.Deaf, n.Cut)
			}
		}
		ok(t, l.net.Heal(t.Context()))
		same(t, "deaf", l.deaf(t))

		ok(t, l.net.Partition(t.Context(), "eu-west", Out))
		same(t, "deaf", l.deaf(t), "ap-south-1", "ap-south-2", "us-east-1", "us-east-2")
		if rules := l.Get("us-east-1").Table; !strings.Contains(rules, "ip saddr { 10.77.100.21, 10.77.100.22 } counter drop") {
			t.Errorf("the rules are %q", rules)
		}
	})
}

// A restart makes a new network namespace; a one-way cut has to survive that.
func TestRestartInAOneWayCut(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		ok(t, l.net.Partition(t.Context(), "eu-west", In))
		ok(t, l.net.Kill(t.Context(), "eu-west-1"))
		same(t, "deaf", l.deaf(t), "eu-west-2")
		ok(t, l.net.Restart(t.Context(), "eu-west-1"))
		same(t, "deaf", l.deaf(t), "eu-west-1", "eu-west-2")
		ok(t, l.net.Restart(t.Context(), "us-east-1"))
		same(t, "deaf", l.deaf(t), "eu-west-1", "eu-west-2")
		_, err := l.net.Move(t.Context(), "eu-west-1")
		fails(t, err, "cut off", "heal first")
	})
}

func TestOneWayNeedsNft(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		l.Missing = []string{"nsenter"}
		fails(t, l.net.Partition(t.Context(), "eu-west", In), "apt-get install nftables")
		l.Missing = nil
		l.Fail = func(c docker.Command) error {
			if c.Name == "nsenter" {
				return &docker.CommandError{Command: c, Said: "nsenter: reassociate to namespace 'ns/net' failed: Operation not permitted", Err: errors.New("exit status 1")}
			}
			return nil
		}
		fails(t, l.net.Partition(t.Context(), "eu-west", Out), "root", "sudo")
		ok(t, l.net.Partition(t.Context(), "eu-west", Both)) // needs neither, and its heal does not either
		ok(t, l.net.Heal(t.Context()))
	})
}

func TestUnknownNames(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		ctx := t.Context()
		fails(t, l.net.Partition(ctx, "mars", Both), `"mars"`, "ap-south, eu-west, us-east")
		fails(t, l.net.Partition(ctx, "eu-west", "sideways"), `"sideways"`, "both, in or out")
		fails(t, l.net.Kill(ctx, "eu-west-3"), `"eu-west-3"`, "eu-west-1, eu-west-2, eu-west-redis")
		fails(t, l.net.FlushRedis(ctx, "mars"), `"mars-redis"`)
		_, err := l.net.Move(ctx, "eu-west-redis")
		fails(t, err, "eu-west-redis", "us-east-2")
		if !errors.Is(err, ErrUnknown) {
			t.Errorf("error %v", err)
		}
		l.Clear()
		for _, err := range []error{l.net.Kill(ctx, "eu-west-1"), l.net.Heal(ctx), l.net.Partition(ctx, "eu-west", Both)} {
			if !errors.Is(err, ErrNotUp) {
				t.Errorf("error %v", err)
			}
		}
		if told := l.Told("kill"); len(told) > 0 {
			t.Errorf("it was told %q", told)
		}
	})
}

func TestKillStopRestart(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		ctx := t.Context()
		ok(t, l.net.Kill(ctx, "us-east-1"))
		if c := l.Get("us-east-1"); c.State != "exited" || c.ExitCode != 137 {
			t.Errorf("%+v", c)
		}
		fails(t, l.net.Kill(ctx, "us-east-1"), "not running", "restart us-east-1")
		ok(t, l.net.Restart(ctx, "us-east-1"))
		if told := l.Told("docker stop"); len(told) > 0 {
			t.Errorf("it stops what does not run: %q", told)
		}
		ok(t, l.net.Restart(ctx, "us-east-1"))
		same(t, "stopped", l.Told("docker stop"), "docker stop id-us-east-1")
		ok(t, l.net.Stop(ctx, "us-east-1"))
		ok(t, l.net.Restart(ctx, "us-east-1"))
		l.Change("us-east-1", func(c *dockertest.Container) { c.IgnoresSIGTERM = true })
		fails(t, l.net.Stop(ctx, "us-east-1"), "137")
		l.Change("us-east-1", func(c *dockertest.Container) { c.FailsAtStarting = true })
		fails(t, l.net.Restart(ctx, "us-east-1"), "exit status 2", "what it said last")
	})
}

// A node that comes back must be seen and heard by all, and hear them.
func TestRestartWaitsForTheOthers(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		l.alone["us-east-1"] = true
		fails(t, l.net.Restart(t.Context(), "us-east-1"), "not together", "us-east-1 sees 0 of 5 others")
		l.unready["us-east-1"] = "starting"
		fails(t, l.net.Restart(t.Context(), "us-east-1"), "does not answer", "starting")
		clear(l.unready)
		l.old["us-east-1"] = true
		fails(t, l.net.Restart(t.Context(), "us-east-1"), "does not answer", "it has been running since")
		// In a region that is cut off, only its own are to be seen.
		clear(l.alone)
		clear(l.old)
		ok(t, l.net.Partition(t.Context(), "us-east", Both))
		ok(t, l.net.Restart(t.Context(), "us-east-1"))
		same(t, "cut off", l.cutOff(t), "us-east-1", "us-east-2")
	})
}

func TestPause(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		ok(t, l.net.Pause(t.Context(), "us-east-1"))
		same(t, "signals", l.Told("kill"), "docker kill --signal STOP id-us-east-1")
		nodes, _, err := l.net.Status(t.Context())
		ok(t, err)
		for _, n := range nodes {
			if (n.Err != nil) != (n.Name == "us-east-1") || n.Err != nil && !strings.Contains(n.Err.Error(), "paused") {
				t.Errorf("%s: %v", n.Name, n.Err)
			}
		}
		ok(t, l.net.Partition(t.Context(), "us-east", Both)) // who is paused cannot say that he hears nobody
		ok(t, l.net.Heal(t.Context()))
		ok(t, l.net.Unpause(t.Context(), "us-east-1"))
		if l.Get("us-east-1").Paused {
			t.Error("it is still paused")
		}
		l.Change("us-east-1", func(c *dockertest.Container) { c.IgnoresSTOP = true })
		fails(t, l.net.Pause(t.Context(), "us-east-1"), "STOP did not take hold")
	})
}

func TestMove(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		var env []string
		l.Compose = func(h *dockertest.Host, verb string, services []string, c docker.Command) {
			if verb != "up" {
				return
			}
			same(t, "created anew", services, "us-east-1")
			env = c.Env
			h.Change("us-east-1", func(c *dockertest.Container) {
				c.Env = map[string]string{"EDGELIMIT_ADVERTISE_LAN": "10.77.3.101:7946", "EDGELIMIT_ADVERTISE_WAN": "10.77.100.101:7947"}
				c.Networks[wanNetwork] = "10.77.100.101"
				c.State = "exited"
			})
			h.Change("us-east-1", func(c *dockertest.Container) { c.State = "running" })
		}
		n, err := l.net.Move(t.Context(), "us-east-1")
		ok(t, err)
		if n.WAN != "10.77.100.101" || strings.Join(env, " ") != "EDGELIMIT_REDIS_IMAGE=edgelimit-testnet/redis:local EDGELIMIT_HOST_US_EAST_1=101" {
			t.Errorf("it is at %s, by %q", n.WAN, env)
		}
		l.Compose = nil
		_, err = l.net.Move(t.Context(), "eu-west-1")
		fails(t, err, "should be elsewhere")
		nodes, err := l.net.Nodes(t.Context())
		ok(t, err)
		if host := freeHost(nodes); host != 102 {
			t.Errorf("the next one is put at %d", host)
		}
		ok(t, l.net.Partition(t.Context(), "eu-west", Both))
		_, err = l.net.Move(t.Context(), "eu-west-1")
		fails(t, err, "cut off", "heal first")
	})
}

func TestRedis(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		ctx := t.Context()
		name := RedisName("eu-west")
		trouble := func() string {
			_, redises, err := l.net.Status(ctx)
			ok(t, err)
			for _, r := range redises {
				if r.Err != nil {
					return r.Region + ": " + r.Err.Error()
				}
			}
			return ""
		}
		ok(t, l.net.FlushRedis(ctx, "eu-west"))
		same(t, "redis-cli", l.Told("redis-cli"), "docker exec id-eu-west-redis redis-cli FLUSHALL")
		ok(t, l.net.Pause(ctx, name))
		same(t, "trouble", []string{trouble()}, "eu-west: no answer: it is paused")
		ok(t, l.net.Unpause(ctx, name))
		ok(t, l.net.Stop(ctx, name))
		same(t, "trouble", []string{trouble()}, "eu-west: it is not running (exited)")
		fails(t, l.net.FlushRedis(ctx, "eu-west"), "not running")
		ok(t, l.net.Restart(ctx, name))
		same(t, "trouble", []string{trouble()}, "")
		l.Host.Redis = func(*dockertest.Container, []string) string { return "LOADING" }
		fails(t, l.net.FlushRedis(ctx, "eu-west"), "LOADING")
		fails(t, l.net.Restart(ctx, name), "LOADING", "PING")
	})
}

func TestInterrupted(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		l.leaky["eu-west-1"] = true
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := l.net.Partition(ctx, "eu-west", Both)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
	})
}

// What Redis holds is read as the nodes write it: by origin, each slot once, whoever told it.
func TestRedisCounts(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		_, err := ensureKeyFile(l.net.compose.Dir)
		ok(t, err)
		t.Setenv("EDGELIMIT_TESTNET_RULES", mustAbs(t, "../compose/rules.yaml"))
		set, err := rules.Load(l.net.RulesFile())
		ok(t, err)
		rule := set.Rules()[0]
		key, err := l.net.key(rule, "alice")
		ok(t, err)
		held := "AAAAAAAAAAE.1\n5\nAAAAAAAAAAE~1\n7\nAAAAAAAAAAE.2\n1\nAAAAAAAAAAI~1\n3\n"
		l.Host.Redis = func(c *dockertest.Container, args []string) string {
			switch {
			case c.Name != RedisName("eu-west") || args[0] != "--raw":
				return "(error)"
			case args[1] == "KEYS" && args[2] == "el1:{*}:"+key+":*:"+rule.FullName:
				return "one\ntwo"
			case args[1] == "HGETALL" && args[2] == "one":
				return held
			case args[1] == "HGETALL" && args[2] == "two":
				return "AAAAAAAAAAE.1\n10"
			}
			return ""
		}
		counts, err := l.net.RedisCounts(t.Context(), "eu-west", rule, "alice")
		ok(t, err)
		if len(counts) != 2 || counts["AAAAAAAAAAE"] != 18 || counts["AAAAAAAAAAI"] != 3 {
			t.Errorf("it holds %v", counts)
		}
		for _, wrong := range []string{"AAAAAAAAAAE.1", "AAAAAAAAAAE.1\nmany"} {
			held = wrong
			if _, err := l.net.RedisCounts(t.Context(), "eu-west", rule, "alice"); err == nil {
				t.Errorf("%q is no error", wrong)
			}
		}
		ok(t, l.net.Stop(t.Context(), RedisName("eu-west")))
		_, err = l.net.RedisCounts(t.Context(), "eu-west", rule, "alice")
		fails(t, err, "not running")
	})
}

func mustAbs(t *testing.T, name string) string {
	t.Helper()
	abs, err := filepath.Abs(name)
	ok(t, err)
	return abs
}

func TestObservationReadsBoundsAndBreaker(t *testing.T) {
	var o Observation
	ok(t, o.read(strings.NewReader(`edgelimit_staleness_seconds 1
# TYPE edgelimit_over_admission_bound_ratio gauge
edgelimit_over_admission_bound_ratio{rule="x"} 0.25
edgelimit_over_admission_bound_ratio{rule="y"} 0.5
edgelimit_store_pending_slots 3
edgelimit_store_breaker_state 2
edgelimit_store_lost_total 4
`)))
	if o.Bounds["x"] != .25 || o.Bounds["y"] != .5 || o.Bound != .5 || o.Breaker != "half-open" || o.StorePending != 3 || o.StoreLost != 4 {
		t.Errorf("%+v", o)
	}
}
