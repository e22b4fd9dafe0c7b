package cluster

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
)

func TestPartitionAndHeal(t *testing.T) {
	withCluster(t, func(t *testing.T, f *fakeCluster) {
		began := time.Now()
		ok(t, f.cluster.Partition(t.Context(), "eu-west", Both))
		same(t, "partitioned", f.partitioned(t), "eu-west-1", "eu-west-2")
		if took := time.Since(began); took < certainAfter || took > 2*certainAfter {
			t.Errorf("it was believed after %v", took)
		}
		ok(t, f.cluster.Partition(t.Context(), "us-east", Both)) // partitions add up
		same(t, "partitioned", f.partitioned(t), "eu-west-1", "eu-west-2", "us-east-1", "us-east-2")
		ok(t, f.cluster.Partition(t.Context(), "us-east", Both)) // and may be made twice

		ok(t, f.cluster.Heal(t.Context()))
		same(t, "partitioned", f.partitioned(t))
		c := f.Get("eu-west-2")
		if c.Networks[wanNetwork] != "10.77.100.22" {
			t.Errorf("it is back at %s", c.Networks[wanNetwork])
		}
		same(t, "names on the WAN", c.Aliases[wanNetwork], "eu-west-2", "eu-west-2.wan")
		ok(t, f.cluster.Heal(t.Context())) // there is nothing to heal
	})
}

// A partition that does not take hold is an error. Idle nodes are over a second stale at any time.
func TestPartitionThatLeaks(t *testing.T) {
	withCluster(t, func(t *testing.T, f *fakeCluster) {
		f.idleStaleness = 1200 * time.Millisecond
		for _, name := range []string{"eu-west-1", "us-east-2"} {
			f.leaky[name] = true
			fails(t, f.cluster.Partition(t.Context(), "eu-west", Both), "did not take hold",
				name+" received from all others 1.2s ago")
			delete(f.leaky, name)
			ok(t, f.cluster.Heal(t.Context()))
		}
	})
}

// The membership outlives a short partition, so complete membership does not prove that frames get through again.
func TestHealThatDoesNotHeal(t *testing.T) {
	withCluster(t, func(t *testing.T, f *fakeCluster) {
		ok(t, f.cluster.Partition(t.Context(), "eu-west", Both))
		f.mute["eu-west-1"] = true
		fails(t, f.cluster.Heal(t.Context()), "not together",
			"us-east-1 has received nothing from some other node for 2")
		f.Fail = func(c Command) error {
			if strings.Contains(c.String(), "network connect") {
				return errors.New("no such network")
			}
			return nil
		}
		ok(t, f.cluster.detach(t.Context(), mustNodes(t, f)))
		fails(t, f.cluster.Heal(t.Context()), "put ap-south-1 back on the WAN", "no such network")
	})
}

func mustNodes(t *testing.T, f *fakeCluster) []Node {
	t.Helper()
	nodes, err := f.cluster.Nodes(t.Context())
	ok(t, err)
	return nodes
}

func TestPartitionOneWay(t *testing.T) {
	withCluster(t, func(t *testing.T, f *fakeCluster) {
		ok(t, f.cluster.Partition(t.Context(), "eu-west", In))
		same(t, "dropping", f.dropping(t), "eu-west-1", "eu-west-2")
		rules := f.Get("eu-west-1").Table
		if !strings.Contains(rules, "saddr { 10.77.100.11, 10.77.100.12, 10.77.100.31, 10.77.100.32 } counter drop") {
			t.Errorf("the rules are %q", rules)
		}
		nodes, _, err := f.cluster.Status(t.Context())
		ok(t, err)
		for _, n := range nodes {
			if n.DropsInbound != (n.Region == "eu-west") || n.Partitioned {
				t.Errorf("%s: drops inbound %v, partitioned %v", n.Name, n.DropsInbound, n.Partitioned)
			}
		}
		ok(t, f.cluster.Heal(t.Context()))
		same(t, "dropping", f.dropping(t))

		ok(t, f.cluster.Partition(t.Context(), "eu-west", Out))
		same(t, "dropping", f.dropping(t), "ap-south-1", "ap-south-2", "us-east-1", "us-east-2")
		rules = f.Get("us-east-1").Table
		if !strings.Contains(rules, "ip saddr { 10.77.100.21, 10.77.100.22 } counter drop") {
			t.Errorf("the rules are %q", rules)
		}
	})
}

// Every node has to name what is blocked, seen from its side.
func TestBlock(t *testing.T) {
	for _, test := range []struct {
		protocol           Protocol
		way                Direction
		inside, outside    string // what nodes report
		inDrops, outDrops  bool
		forgotten, wantErr string // by a node
	}{
		{UDP, Both, "udp_both", "udp_both", true, true, "", ""},
		{UDP, In, "udp_from", "udp_to", true, false, "", ""},
		{UDP, Out, "udp_to", "udp_from", false, true, "", ""},
		{TCP, Both, "tcp_to", "tcp_to", true, true, "", ""},
		{UDP, In, "udp_from", "udp_to", true, false, "us-east-2", "us-east-2 reports no udp_to"},
		{UDP, "sideways", "", "", false, false, "", "both, in or out"},
		{TCP, In, "", "", false, false, "", "tcp in both directions"},
		{"sctp", Both, "", "", false, false, "", "want udp"},
	} {
		t.Run(string(test.protocol)+" "+string(test.way)+test.forgotten, func(t *testing.T) {
			withCluster(t, func(t *testing.T, f *fakeCluster) {
				for _, n := range mustNodes(t, f) {
					if f.blocks[n.Name] = test.outside; n.Region == "eu-west" {
						f.blocks[n.Name] = test.inside
					}
				}
				delete(f.blocks, test.forgotten)
				err := f.cluster.Block(t.Context(), "eu-west", test.protocol, test.way)
				if test.wantErr != "" {
					fails(t, err, test.wantErr)
				} else {
					ok(t, err)
				}
				for name, drops := range map[string]bool{"eu-west-1": test.inDrops, "us-east-1": test.outDrops} {
					if rules := f.Get(name).Table; drops != strings.Contains(rules,
						"wan meta l4proto "+string(test.protocol)+" ip saddr { 10.77.100.") {
						t.Errorf("the rules of %s are %q", name, rules)
					}
				}
				ok(t, f.cluster.Heal(t.Context()))
				same(t, "dropping", f.dropping(t))
			})
		})
	}
	withCluster(t, func(t *testing.T, f *fakeCluster) {
		fails(t, f.cluster.Block(t.Context(), "mars", UDP, Both), `"mars"`, "ap-south, eu-west, us-east")
	})
}

// A restart makes a new network namespace; a one-way partition has to survive that.
func TestRestartInAOneWayPartition(t *testing.T) {
	withCluster(t, func(t *testing.T, f *fakeCluster) {
		ok(t, f.cluster.Partition(t.Context(), "eu-west", In))
		ok(t, f.cluster.Kill(t.Context(), "eu-west-1"))
		same(t, "dropping", f.dropping(t), "eu-west-2")
		ok(t, f.cluster.Restart(t.Context(), "eu-west-1"))
		same(t, "dropping", f.dropping(t), "eu-west-1", "eu-west-2")
		ok(t, f.cluster.Restart(t.Context(), "us-east-1"))
		same(t, "dropping", f.dropping(t), "eu-west-1", "eu-west-2")
		_, err := f.cluster.Move(t.Context(), "eu-west-1")
		fails(t, err, "partitioned", "heal first")
	})
}

func TestOneWayNeedsNft(t *testing.T) {
	withCluster(t, func(t *testing.T, f *fakeCluster) {
		f.Missing = []string{"nsenter"}
		fails(t, f.cluster.Partition(t.Context(), "eu-west", In), "apt-get install nftables")
		f.Missing = nil
		f.Fail = func(c Command) error {
			if c.Name == "nsenter" {
				return failed("nsenter: reassociate to namespace 'ns/net' failed: Operation not permitted")
			}
			return nil
		}
		fails(t, f.cluster.Partition(t.Context(), "eu-west", Out), "root", "sudo")
		ok(t, f.cluster.Partition(t.Context(), "eu-west", Both)) // needs neither, and its heal does not either
		ok(t, f.cluster.Heal(t.Context()))
	})
}

func TestUnknownNames(t *testing.T) {
	withCluster(t, func(t *testing.T, f *fakeCluster) {
		ctx := t.Context()
		fails(t, f.cluster.Partition(ctx, "mars", Both), `"mars"`, "ap-south, eu-west, us-east")
		fails(t, f.cluster.Partition(ctx, "eu-west", "sideways"), `"sideways"`, "both, in or out")
		fails(t, f.cluster.Kill(ctx, "eu-west-3"), `"eu-west-3"`, "eu-west-1, eu-west-2, eu-west-redis")
		fails(t, f.cluster.FlushRedis(ctx, "mars"), `"mars-redis"`)
		_, err := f.cluster.Move(ctx, "eu-west-redis")
		fails(t, err, "eu-west-redis", "us-east-2")
		if !errors.Is(err, ErrUnknown) {
			t.Errorf("error %v", err)
		}
		f.Clear()
		for _, err := range []error{f.cluster.Kill(ctx, "eu-west-1"), f.cluster.Heal(ctx),
			f.cluster.Partition(ctx, "eu-west", Both)} {
			if !errors.Is(err, ErrNotUp) {
				t.Errorf("error %v", err)
			}
		}
		if commands := f.Commands("kill"); len(commands) > 0 {
			t.Errorf("it ran %q", commands)
		}
	})
}

func TestKillStopRestart(t *testing.T) {
	withCluster(t, func(t *testing.T, f *fakeCluster) {
		ctx := t.Context()
		ok(t, f.cluster.Kill(ctx, "us-east-1"))
		if c := f.Get("us-east-1"); c.State != "exited" || c.ExitCode != 137 {
			t.Errorf("%+v", c)
		}
		fails(t, f.cluster.Kill(ctx, "us-east-1"), "not running", "restart us-east-1")
		ok(t, f.cluster.Restart(ctx, "us-east-1"))
		if commands := f.Commands("docker stop"); len(commands) > 0 {
			t.Errorf("it stops what does not run: %q", commands)
		}
		ok(t, f.cluster.Restart(ctx, "us-east-1"))
		same(t, "stopped", f.Commands("docker stop"), "docker stop id-us-east-1")
		ok(t, f.cluster.Stop(ctx, "us-east-1"))
		ok(t, f.cluster.Restart(ctx, "us-east-1"))
		f.Change("us-east-1", func(c *fakeContainer) { c.IgnoresSIGTERM = true })
		fails(t, f.cluster.Stop(ctx, "us-east-1"), "137")
		f.Change("us-east-1", func(c *fakeContainer) { c.FailsAtStarting = true })
		fails(t, f.cluster.Restart(ctx, "us-east-1"), "exit status 2", "its last lines")
	})
}

// All nodes must see a node that comes back, and exchange frames with it.
func TestRestartWaitsForTheOthers(t *testing.T) {
	withCluster(t, func(t *testing.T, f *fakeCluster) {
		f.alone["us-east-1"] = true
		fails(t, f.cluster.Restart(t.Context(), "us-east-1"), "not together", "us-east-1 sees 0 of 5 others")
		f.unready["us-east-1"] = "starting"
		fails(t, f.cluster.Restart(t.Context(), "us-east-1"), "does not answer", "starting")
		clear(f.unready)
		f.old["us-east-1"] = true
		fails(t, f.cluster.Restart(t.Context(), "us-east-1"), "does not answer", "it has been running since")
		// In a partitioned region, a node can see only its own region.
		clear(f.alone)
		clear(f.old)
		ok(t, f.cluster.Partition(t.Context(), "us-east", Both))
		ok(t, f.cluster.Restart(t.Context(), "us-east-1"))
		same(t, "partitioned", f.partitioned(t), "us-east-1", "us-east-2")
	})
}

func TestPause(t *testing.T) {
	withCluster(t, func(t *testing.T, f *fakeCluster) {
		ok(t, f.cluster.Pause(t.Context(), "us-east-1"))
		same(t, "signals", f.Commands("kill"), "docker kill --signal STOP id-us-east-1")
		nodes, _, err := f.cluster.Status(t.Context())
		ok(t, err)
		for _, n := range nodes {
			if (n.Err != nil) != (n.Name == "us-east-1") || n.Err != nil && !strings.Contains(n.Err.Error(), "paused") {
				t.Errorf("%s: %v", n.Name, n.Err)
			}
		}
		ok(t, f.cluster.Partition(t.Context(), "us-east", Both)) // a paused node cannot report its staleness
		ok(t, f.cluster.Heal(t.Context()))
		ok(t, f.cluster.Unpause(t.Context(), "us-east-1"))
		if f.Get("us-east-1").Paused {
			t.Error("it is still paused")
		}
		f.Change("us-east-1", func(c *fakeContainer) { c.IgnoresSTOP = true })
		fails(t, f.cluster.Pause(t.Context(), "us-east-1"), "STOP did not take hold")
	})
}

func TestMove(t *testing.T) {
	withCluster(t, func(t *testing.T, f *fakeCluster) {
		var env []string
		f.Compose = func(e *fakeEngine, verb string, services []string, c Command) {
			if verb != "up" {
				return
			}
			same(t, "created anew", services, "us-east-1")
			env = c.Env
			e.Change("us-east-1", func(c *fakeContainer) {
				c.Env = map[string]string{"EDGELIMIT_ADVERTISE_LAN": "10.77.3.101:7946",
					"EDGELIMIT_ADVERTISE_WAN": "10.77.100.101:7947"}
				c.Networks[wanNetwork] = "10.77.100.101"
				c.State = "exited"
			})
			e.Change("us-east-1", func(c *fakeContainer) { c.State = "running" })
		}
		n, err := f.cluster.Move(t.Context(), "us-east-1")
		ok(t, err)
		same(t, "variables", env, "EDGELIMIT_REDIS_IMAGE=edgelimit-testnet/redis:local", "EDGELIMIT_HOST_US_EAST_1=101")
		if n.WAN != "10.77.100.101" {
			t.Errorf("it is at %s", n.WAN)
		}
		f.Compose = nil
		_, err = f.cluster.Move(t.Context(), "eu-west-1")
		fails(t, err, "should be elsewhere")
		nodes, err := f.cluster.Nodes(t.Context())
		ok(t, err)
		if host := freeHost(nodes); host != 102 {
			t.Errorf("the next one is put at %d", host)
		}
		ok(t, f.cluster.Partition(t.Context(), "eu-west", Both))
		_, err = f.cluster.Move(t.Context(), "eu-west-1")
		fails(t, err, "partitioned", "heal first")
	})
}

func TestRedis(t *testing.T) {
	withCluster(t, func(t *testing.T, f *fakeCluster) {
		ctx := t.Context()
		name := RedisName("eu-west")
		trouble := func() string {
			_, redises, err := f.cluster.Status(ctx)
			ok(t, err)
			for _, r := range redises {
				if r.Error != "" {
					return r.Region + ": " + r.Error
				}
			}
			return ""
		}
		ok(t, f.cluster.FlushRedis(ctx, "eu-west"))
		same(t, "redis-cli", f.Commands("redis-cli"), "docker exec id-eu-west-redis redis-cli FLUSHALL")
		ok(t, f.cluster.Pause(ctx, name))
		same(t, "trouble", []string{trouble()}, "eu-west: no answer: it is paused")
		ok(t, f.cluster.Unpause(ctx, name))
		ok(t, f.cluster.Stop(ctx, name))
		same(t, "trouble", []string{trouble()}, "eu-west: it is not running (exited)")
		fails(t, f.cluster.FlushRedis(ctx, "eu-west"), "not running")
		ok(t, f.cluster.Restart(ctx, name))
		same(t, "trouble", []string{trouble()}, "")
		f.Redis = func(*fakeContainer, []string) string { return "LOADING" }
		fails(t, f.cluster.FlushRedis(ctx, "eu-west"), "LOADING")
		fails(t, f.cluster.Restart(ctx, name), "LOADING", "PING")
	})
}

func TestInterrupted(t *testing.T) {
	withCluster(t, func(t *testing.T, f *fakeCluster) {
		f.leaky["eu-west-1"] = true
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := f.cluster.Partition(ctx, "eu-west", Both)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
	})
}

// What Redis holds is read as the nodes write it: by origin, each slot once, whoever wrote it.
func TestRedisCounts(t *testing.T) {
	withCluster(t, func(t *testing.T, f *fakeCluster) {
		_, err := f.cluster.key(t.Context(), new(rules.Rule), "alice")
		fails(t, err, keyService)
		f.Add(&fakeContainer{ID: "id-key", Name: keyService, State: "exited", Labels: labels(keyService, "", "key")})
		t.Setenv("EDGELIMIT_TESTNET_RULES", mustAbs(t, "../compose/rules"))
		set, err := rulefile.Load(f.cluster.Rules())
		ok(t, err)
		rule := set.Rules()[0]
		key, err := f.cluster.key(t.Context(), rule, "alice")
		ok(t, err)
		held := "AAAAAAAAAAE.1\n5\nAAAAAAAAAAE~1\n7\nAAAAAAAAAAE.2\n1\nAAAAAAAAAAI~1\n3\n"
		f.Redis = func(c *fakeContainer, args []string) string {
			switch {
			case c.Name != RedisName("eu-west") || args[0] != "--raw":
				return "(error)"
			case args[1] == "EVAL" && args[4] == "el1:{*}:"+key+":*:"+rule.FullName:
				return held + "\nAAAAAAAAAAE.1\n10\n\n"
			}
			return ""
		}
		counts, err := f.cluster.RedisCounts(t.Context(), "eu-west", rule, "alice")
		ok(t, err)
		if len(counts) != 2 || counts["AAAAAAAAAAE"] != 18 || counts["AAAAAAAAAAI"] != 3 {
			t.Errorf("it holds %v", counts)
		}
		for _, wrong := range []string{"AAAAAAAAAAE.1", "AAAAAAAAAAE.1\nmany"} {
			held = wrong
			if _, err := f.cluster.RedisCounts(t.Context(), "eu-west", rule, "alice"); err == nil {
				t.Errorf("%q is no error", wrong)
			}
		}
		ok(t, f.cluster.Stop(t.Context(), RedisName("eu-west")))
		_, err = f.cluster.RedisCounts(t.Context(), "eu-west", rule, "alice")
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
	ok(t, parse(&o, `edgelimit_staleness_seconds 1
# TYPE edgelimit_over_admission_bound_ratio gauge
edgelimit_over_admission_bound_ratio{rule="x"} 0.25
edgelimit_over_admission_bound_ratio{rule="y"} 0.5
edgelimit_store_pending_slots 3
edgelimit_store_breaker_state 2
edgelimit_store_lost_total 4
`))
	if o.Bounds["x"] != .25 || o.Bounds["y"] != .5 || o.Bound != .5 || o.Breaker != "half-open" ||
		o.StorePending != 3 || o.StoreLost != 4 {
		t.Errorf("%+v", o)
	}
}
