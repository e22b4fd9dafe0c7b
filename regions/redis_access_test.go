package regions_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/certs"
	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/regions/regionstest"
)

const secret = "correct-horse"

func TestRedisPassword(t *testing.T) {
	t.Parallel()
	s := regionstest.StartRedis(t, "--requirepass", secret)
	for _, c := range []struct {
		password string
		says     []string // of the error; none: it works
	}{
		{"", []string{"NOAUTH", "configure a password"}},
		{"wrong-horse", []string{"WRONGPASS", "check the user and the password"}},
		{secret, nil},
	} {
		cfg := patient(single(s))
		cfg.Password = c.password
		_, err := open(t, cfg).Merge(t.Context(), []counters.Slot{mine(1, 1, 1)}, wall())
		if c.says == nil && err != nil {
			t.Errorf("with the right password: %v", err)
		}
		for _, say := range c.says {
			if err == nil || !strings.Contains(err.Error(), say) || strings.Contains(err.Error(), "horse") {
				t.Errorf("password %q: %v, want %q and no password", c.password, err, say)
			}
		}
	}
}

// rights are those that DESIGN.md says are needed.
var rights = []string{
	"~el1:*", "+evalsha", "+script|load", "+hgetall", "+hset", "+pexpire", "+pttl", "+time", "+scan", "+info",
	"+get", "+set",
}

// everyCall makes every kind of call, those that only a fault brings about among them.
func everyCall(ctx context.Context, r *regions.Redis, forget func()) error {
	forget()
	for _, count := range []uint64{0, 1} {
		merged, err := r.Merge(ctx, []counters.Slot{mine(1, 1, count)}, wall())
		if err != nil {
			return err
		}
		if merged.Time.IsZero() {
			return fmt.Errorf("it is not told the time, see regions/DESIGN.md")
		}
	}
	merged, err := r.Merge(ctx, nil, wall())
	if err != nil {
		return err
	}
	if merged.Epoch == "" {
		return fmt.Errorf("no epoch")
	}
	if err := r.Restore(ctx, []counters.Slot{mine(2, 1, 1)}, wall()); err != nil {
		return err
	}
	return r.Load(ctx, wall(), func([]counters.Slot) {})
}

// The rights that are documented are enough, and each of them is needed.
func TestRedisRights(t *testing.T) {
	t.Parallel()
	s := regionstest.StartRedis(t)
	for without := range append([]string{"nothing"}, rights...) {
		s.Do("FLUSHALL")
		granted := slices.Clone(rights)
		lacks := "nothing"
		if without > 0 {
			lacks = rights[without-1]
			granted = slices.Delete(granted, without-1, without)
		}
		user := fmt.Sprintf("edge%d", without)
		args := []any{"ACL", "SETUSER", user, "on", ">" + secret}
		for _, right := range granted {
			args = append(args, right)
		}
		s.Do(args...)
		cfg := patient(single(s))
		cfg.Username, cfg.Password = user, secret
		err := everyCall(t.Context(), open(t, cfg), func() { s.Do("SCRIPT", "FLUSH") })
		switch {
		case without == 0 && err != nil:
			t.Errorf("with the rights documented: %v; ACL LOG: %s", err, s.Do("ACL", "LOG"))
		case without > 0 && err == nil:
			t.Errorf("without %s everything works: it is not needed", lacks)
		case without > 0 && !strings.Contains(err.Error(), "regions/DESIGN.md"):
			t.Errorf("without %s: %v, want to be told of the rights", lacks, err)
		}
	}
}

// A user from before the time was asked for has no right to it, and loses nothing else.
func TestRedisWithoutTheTime(t *testing.T) {
	t.Parallel()
	s := regionstest.StartRedis(t)
	args := []any{"ACL", "SETUSER", "edge", "on", ">" + secret}
	for _, right := range rights {
		if right != "+time" {
			args = append(args, right)
		}
	}
	s.Do(args...)
	cfg := patient(single(s))
	cfg.Username, cfg.Password = "edge", secret
	r := open(t, cfg)
	mustMerge(t, r, mine(1, 1, 5))
	if merged := mustMerge(t, r, mine(1, 1, 7)); merged.Before[0] != 5 || !merged.Time.IsZero() {
		t.Errorf("without the right to the time: %+v", merged)
	}
}

func TestRedisClusterRights(t *testing.T) {
	t.Parallel()
	c := regionstest.StartRedisCluster(t, 3)
	args := []any{"ACL", "SETUSER", "edge", "on", ">" + secret, "+cluster|slots"}
	for _, right := range rights {
		args = append(args, right)
	}
	for _, s := range c.Nodes {
		s.Do(args...)
	}
	cfg := patient(cluster(c))
	cfg.Username, cfg.Password = "edge", secret
	err := everyCall(t.Context(), open(t, cfg), func() {
		for _, s := range c.Nodes {
			s.Do("SCRIPT", "FLUSH")
		}
	})
	if err != nil {
		t.Errorf("with the rights documented: %v", err)
		for _, s := range c.Nodes {
			t.Log(s.Do("ACL", "LOG"))
		}
	}
}

func TestRedisTLS(t *testing.T) {
	t.Parallel()
	s := regionstest.StartRedisTLS(t)
	good := certs.Client{CAFile: s.CAFile, CertFile: s.CertFile, KeyFile: s.KeyFile}
	for _, c := range []struct {
		name   string
		change func(*certs.Client)
		says   string // of the error; empty: it works
	}{
		{"good", func(*certs.Client) {}, ""},
		{"the certificate's other name", func(c *certs.Client) { c.ServerName = "redis.test" }, ""},
		{"a name that it does not have", func(c *certs.Client) { c.ServerName = "redis.example" },
			"not redis.example"},
		{"an authority that signed nothing", func(c *certs.Client) { c.CAFile = s.StrangerFile },
			"unknown authority"},
		{"the system's authorities", func(c *certs.Client) { c.CAFile = "" }, "x509"},
		// the server hangs up, sometimes before it has said why
		{"no client certificate", func(c *certs.Client) { c.CertFile, c.KeyFile = "", "" }, "merge into redis"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, chosen := patient(single(s.Server)), good
			c.change(&chosen)
			var err error
			if cfg.TLS, err = chosen.Config(); err != nil {
				t.Fatal(err)
			}
			_, err = open(t, cfg).Merge(t.Context(), []counters.Slot{mine(1, 1, 1)}, wall())
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
	if _, err := open(t, patient(single(s.Server))).Merge(t.Context(), []counters.Slot{mine(1, 1, 1)},
		wall()); err == nil {
		t.Error("a server that speaks TLS only answered without")
	}
}
