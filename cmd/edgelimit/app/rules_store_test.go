package app

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/edgelimit/edgelimit/node/rulestore"
	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// hourly is a rule file with one rule of so many an hour.
func hourly(t *testing.T, most int) string {
	t.Helper()
	return ruleFile(t, fmt.Sprintf("domain: edge\ndescriptors:\n  - {key: remote_address, rate_limit: {name: per_ip, "+
		"unit: hour, requests_per_unit: %d}}\n", most))
}

func TestRulesPush(t *testing.T) {
	redis := regionstest.StartRedis(t)
	url := "--redis=redis://" + redis.Addr()
	edgelimit(t, "rules", "history", url).says(t, 0, "no rules have been published")
	edgelimit(t, "rules", "pull", url).says(t, 2, "no rules have been published")
	first, second := hourly(t, 100), hourly(t, 50)
	edgelimit(t, "rules", "push", first, url, "--dry-run").says(t, 0, "+ per_ip", "nothing was published",
		"in force: no version")
	if redis.Do("DBSIZE") != "0" {
		t.Error("--dry-run has written")
	}
	edgelimit(t, "rules", "push", ruleFile(t, invalidRules), url).says(t, 1, "1 problem", "not valid YAML")
	edgelimit(t, "rules", "push", "/nowhere.yaml", url).says(t, 2, "no such file")
	if redis.Do("DBSIZE") != "0" {
		t.Error("a push of what is not valid has written")
	}
	edgelimit(t, "rules", "push", first, url, "--author", "alice", "--message", "begin", "--if-version", "0").says(t, 0,
		"+ per_ip", "version 1 is published; before: no version")
	edgelimit(t, "rules", "push", first, url).says(t, 0, "no rule changes", "in force already: version 1 by alice")
	edgelimit(t, "rules", "push", second, url, "--if-version", "0").says(t, 1,
		"nothing was published: version 1 by alice", "(begin) is in force, not version 0")
	edgelimit(t, "rules", "push", second, url, "--author", "bob").says(t, 0,
		"~ per_ip (its counts are kept)", "version 2 is published; before: version 1 by alice")
	r := edgelimit(t, "rules", "push", first, url, "--json", "--dry-run")
	var answer published
	if err := json.Unmarshal([]byte(r.out), &answer); err != nil || answer.Version != 3 || answer.Published ||
		len(answer.Changes) != 1 || answer.Changes[0].Counts != "kept" {
		t.Errorf("%v: %s", err, r.out)
	}
	edgelimit(t, "rules", "rollback", "1", url, "--author", "eve").says(t, 0, "from 50 in 1 h", "to   100 in",
		"version 3 is published")
	edgelimit(t, "rules", "rollback", "99", url).says(t, 2, "no such version")
	edgelimit(t, "rules", "rollback", "x", url).says(t, 2, "want a number")
	edgelimit(t, "rules", "rollback", url).says(t, 2, "which version")
	edgelimit(t, "rules", "history", url).says(t, 0, "eve", "rollback to version 1", "bob", "alice", "begin")
	edgelimit(t, "rules", "history", url, "--json").says(t, 0, `"version": 3`, `"author": "bob"`)
	edgelimit(t, "rules", "pull", url).says(t, 0, "requests_per_unit: 100}")
	edgelimit(t, "rules", "pull", "2", url).says(t, 0, "requests_per_unit: 50}")
	edgelimit(t, "rules", "pull", "2", url, "--json").says(t, 0, `"rules.yaml"`, `"author": "bob"`)
	dir := filepath.Join(t.TempDir(), "new")
	edgelimit(t, "rules", "pull", url, "--out", dir).says(t, 0, "wrote 1 file")
	want, _ := os.ReadFile(first)
	if got, err := os.ReadFile(filepath.Join(dir, "rules.yaml")); err != nil || string(got) != string(want) {
		t.Errorf("it wrote %q, %v", got, err)
	}
	edgelimit(t, "rules", "pull", url, "--out", dir).says(t, 2, "exists already")
	edgelimit(t, "rules", "push", second, url, "--above", "500").says(t, 0, "version 501 is published")
	edgelimit(t, "rules", "push", second).says(t, 2, "say which Redis")
	edgelimit(t, "rules", "push", url).says(t, 2, "say which files")
	edgelimit(t, "rules", "push", second, url, "--message", strings.Repeat("x", 501)).says(t, 2, "the message has 501")
	edgelimit(t, "rules", "push", second, "--redis", "mysql://x").says(t, 2, "unknown scheme")

	config := nodeFile(t, "redis://"+redis.Addr(), "")
	edgelimit(t, "rules", "validate", "--config", config).says(t, 0, "valid: 1 rules")
	edgelimit(t, "rules", "history", "--config", config).says(t, 0, "501")
	edgelimit(t, "rules", "explain", "--rules", "redis://"+redis.Addr(), "remote_address=::1").says(t, 0,
		"50 in 1 h")
}

// The password comes from a file or the environment, and is never printed.
func TestRulesPushWithAPassword(t *testing.T) {
	redis := regionstest.StartRedis(t)
	redis.Do("ACL", "SETUSER", "pusher", "on", ">SECRET", "~*", "&*", "+@all")
	redis.Do("ACL", "SETUSER", "default", "off")
	file := filepath.Join(t.TempDir(), "password")
	testkit.Must(t, os.WriteFile(file, []byte("SECRET\n"), 0o600))
	url, rules := "--redis=redis://pusher@"+redis.Addr(), hourly(t, 1)
	edgelimit(t, "rules", "push", rules, url, "--password-file", file).says(t, 0, "version 1")
	edgelimit(t, "rules", "history", url).says(t, 2, "has no password")
	t.Setenv("EDGELIMIT_REDIS_PASSWORD", "SECRET")
	edgelimit(t, "rules", "history", url).says(t, 0, "1 ")
	t.Setenv("EDGELIMIT_REDIS_PASSWORD", "SECRET2")
	wrong := edgelimit(t, "rules", "history", url)
	wrong.says(t, 2, "check the user and the password")
	inURL := edgelimit(t, "rules", "push", rules, "--redis=redis://pusher:SECRET2@"+redis.Addr())
	if all := wrong.out + wrong.err + inURL.out + inURL.err; strings.Contains(all, "SECRET") {
		t.Errorf("it prints the password: %s", all)
	}
}

// Each region's Redis is pushed to. One that cannot be reached is named, and the same push completes it later; a first
// that cannot be reached decides nothing.
func TestRulesPushToRegions(t *testing.T) {
	us, eu := regionstest.StartRedis(t), regionstest.StartRedis(t)
	to := []string{"--redis", "redis://" + us.Addr(), "--redis", "redis://" + eu.Addr()}
	push := func(file string) result { return edgelimit(t, append([]string{"rules", "push", file}, to...)...) }
	first, second := hourly(t, 100), hourly(t, 50)
	push(first).says(t, 0, "version 1 is published", eu.Addr()+": has it")
	eu.Kill()
	push(second).says(t, 1, "version 2 is published", eu.Addr(),
		"version 2 is not everywhere: run the same command again")
	eu.Restart(regionstest.Empty)
	push(second).says(t, 0, "in force already: version 2", eu.Addr()+": has it")
	edgelimit(t, "rules", "pull", "--redis", "redis://"+eu.Addr()).says(t, 0, "requests_per_unit: 50}")
	us.Kill()
	push(first).says(t, 2, "nothing was published")
	edgelimit(t, "rules", "pull", "--redis", "redis://"+eu.Addr()).says(t, 0, "requests_per_unit: 50}")
	us.Restart(regionstest.Empty) // it has lost all: the new version is later than that of the others
	push(first).says(t, 0, "version 3 is published")
	edgelimit(t, "rules", "pull", "--redis", "redis://"+eu.Addr()).says(t, 0, "requests_per_unit: 100}")
}

// Of several pushes at once each takes effect or learns who was first; none is lost in silence.
func TestRulesPushesRace(t *testing.T) {
	redis := regionstest.StartRedis(t)
	url := "--redis=redis://" + redis.Addr()
	const rounds = 5
	for round := range rounds {
		var racing sync.WaitGroup
		var won, refused atomic.Int64
		var files []string
		for i := range 3 {
			files = append(files, hourly(t, 1000+10*round+i))
		}
		for i, file := range files {
			racing.Go(func() {
				r := edgelimit(t, "rules", "push", file, url, "--author", fmt.Sprint("p", i), "--message", "round")
				switch {
				case r.code == 0 && strings.Contains(r.out, "is published"):
					won.Add(1)
				case r.code == 1 && strings.Contains(r.err, "nothing was published: version ") &&
					strings.Contains(r.err, " by p") && strings.Contains(r.err, "(round) came first"):
					refused.Add(1)
				default:
					t.Errorf("%+v", r)
				}
			})
		}
		racing.Wait()
		if won.Load() == 0 || won.Load()+refused.Load() != 3 {
			t.Errorf("round %d: %d won, %d were refused", round, won.Load(), refused.Load())
		}
	}
}

// An interrupted push says what to do, and leaves nothing half done.
func TestRulesPushInterrupted(t *testing.T) {
	redis := regionstest.StartRedis(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := edgelimitReading(t, ctx, strings.NewReader(""), "rules", "push", hourly(t, 1), "--redis=redis://"+redis.Addr())
	if r.code == 0 || redis.Do("DBSIZE") != "0" {
		t.Errorf("%+v", r)
	}
	r.says(t, 2, "interrupted")
}

func TestLimits(t *testing.T) {
	redis, keys := regionstest.StartRedis(t), filepath.Join(t.TempDir(), "cluster.key")
	url, key := "--redis=redis://"+redis.Addr(), "--key-file="+keys
	edgelimit(t, "keygen", "--out", keys).says(t, 0)
	edgelimit(t, "limits", "list", url).says(t, 0, "no identity has a limit of its own")
	edgelimit(t, "limits", "set", "per_ip", "192.0.2.1", "500/min", url, key).says(t, 2, "no rules have been published")
	file := ruleFile(t, validRules+"  - {key: plan, rate_limit: {name: plan, algorithm: token_bucket, unit: minute, "+
		"requests_per_unit: 5}}\n  - key: tenant\n    descriptors: [{key: user, rate_limit: {name: user, unit: "+
		"minute, requests_per_unit: 7}}]\n  - {key: free, rate_limit: {name: free, unlimited: true}}\n")
	edgelimit(t, "rules", "push", file, url).says(t, 0, "version 1")
	set := func(args ...string) result {
		return edgelimit(t, append([]string{"limits", "set", url, key, "--author", "ann"}, args...)...)
	}
	set("per_ip", "192.0.2.1", "500/min", "--for", "24h", "--note", "a guest").says(t, 0, "per_ip for ",
		"500 in 1 min until ", "its counts are kept")
	set("plan", "gold", "50/min").says(t, 0, "it is counted anew")
	set("user", "tenant=a,user=b", "70/min").says(t, 0, "user for ", "counts are kept")
	set("user", "b", "70/min").says(t, 1, "write the identity as KEY=VALUE")
	set("free", "x", "70/min").says(t, 1, "unlimited")
	set("nobody", "x", "70/min").says(t, 1, "unknown rule")
	set("per_ip", "192.0.2.1", "many").says(t, 2, "want NUMBER/WINDOW")
	set("per_ip", "192.0.2.1", "5/min", "--for", "-1h").says(t, 2, "--for")
	set("per_ip", "192.0.2.1", "9999999999999999/min").says(t, 1, "above")
	set("per_ip", "192.0.2.1", "5/min", "--note", "a\x1b[2J").says(t, 2, "cannot be printed")
	list := edgelimit(t, "limits", "list", url)
	list.says(t, 0, "per_ip", "500 in 1 min", "ann", "a guest", "plan", "for good")
	if strings.Contains(list.out+redis.Do("HGETALL", "elrules1:{rules}:limits:texts"), "192.0.2.1") {
		t.Error("the identity is in Redis")
	}
	edgelimit(t, "limits", "list", "plan", url, "--json").says(t, 0, `"max": 50`, `"window": "1m"`)
	explain := []string{"rules", "explain", "--rules", "redis://" + redis.Addr(), "--rule", "per_ip", "--identity"}
	edgelimit(t, append(explain, "192.0.2.1", key)...).says(t, 0,
		"which has an override: 500 in 1 min by sliding_window until")
	if r := edgelimit(t, append(explain, "192.0.2.2", key)...); strings.Contains(r.out, "which has an override") {
		t.Error(r.out)
	}
	// A push that takes the rule away says that the override has no effect.
	edgelimit(t, "rules", "push", hourly(t, 5), url, "--dry-run").says(t, 0, "warning: override of rule \"edge/plan\"",
		"no such rule")
	edgelimit(t, "limits", "unset", "per_ip", "192.0.2.1", url, key).says(t, 0, "removed: per_ip")
	edgelimit(t, "limits", "unset", "per_ip", "192.0.2.1", url, key).says(t, 1, "has no override")
	var answer struct{ Limits []struct{ Key string } }
	r := edgelimit(t, "limits", "list", "plan", url, "--json")
	if err := json.Unmarshal([]byte(r.out), &answer); err != nil || len(answer.Limits) != 1 {
		t.Fatalf("%v: %s", err, r.out)
	}
	edgelimit(t, "limits", "unset", "plan", "--key", answer.Limits[0].Key, url).says(t, 0, "removed: plan")
	edgelimit(t, "limits", "unset", "plan", url).says(t, 2, "an identity or its --key")
	edgelimit(t, "limits", "set", "plan", "x", "5/min", "--redis=redis://redis.test").says(t, 2, "--key-file")
	edgelimit(t, "limits", "set", "plan", "x", "5/min", "--redis=redis://redis.test", "--key-file=none").says(t, 2,
		"--key-file none if the nodes have none, with a Redis on loopback")
	// Without a word about the key the override might have no effect: nothing is published.
	for _, command := range [][]string{{"set", "per_ip", "192.0.2.7", "5/min"}, {"unset", "per_ip", "192.0.2.7"}} {
		edgelimit(t, append(append([]string{"limits"}, command...), url)...).says(t, 2, "by which --key-file the nodes")
	}
	edgelimit(t, "limits", "list", url).says(t, 0, "user ")
	edgelimit(t, "limits", "set", "per_ip", "192.0.2.7", "5/min", url, "--key-file=none").says(t, 0, "5 in 1 min")
	edgelimit(t, append(explain, "192.0.2.7", "--key-file=none")...).says(t, 0, "which has an override: 5 in 1 min")
	if r := edgelimit(t, "limits", "list", url, key); strings.Count(r.out, "no effect: set with another key") != 1 {
		t.Errorf("one of the limits is hashed without a key: %s", r.out)
	}
}

// Of many limits that are set at once none is lost.
func TestLimitsSetAtOnce(t *testing.T) {
	redis := regionstest.StartRedis(t)
	url := "--redis=redis://" + redis.Addr()
	edgelimit(t, "rules", "push", hourly(t, 5), url).says(t, 0)
	var racing sync.WaitGroup
	for i := range 8 {
		racing.Go(func() {
			edgelimit(t, "limits", "set", "per_ip", fmt.Sprint("192.0.2.", i), "9/hour", url,
				"--key-file=none").says(t, 0, "9 in 1 h")
		})
	}
	racing.Wait()
	if r := edgelimit(t, "limits", "list", url); strings.Count(r.out, "9 in 1 h") != 8 {
		t.Error(r.out)
	}
}

// A region with other rules under a later version, or the same one, gets those that are pushed.
func TestRulesPushToRegionsThatDiffer(t *testing.T) {
	us, eu := regionstest.StartRedis(t), regionstest.StartRedis(t)
	first, second := hourly(t, 100), hourly(t, 999)
	for _, above := range []string{"0", "7"} {
		edgelimit(t, "rules", "push", first, "--redis", "redis://"+us.Addr()).says(t, 0)
		edgelimit(t, "rules", "push", second, "--redis", "redis://"+eu.Addr(), "--above", above).says(t, 0)
		edgelimit(t, "rules", "push", first, "--redis", "redis://"+us.Addr(), "--redis",
			"redis://"+eu.Addr()).says(t, 0, "is published", eu.Addr()+": has it")
		edgelimit(t, "rules", "pull", "--redis", "redis://"+eu.Addr()).says(t, 0, "requests_per_unit: 100}")
	}
}

// A push says if a region took another version meanwhile.
func TestSpreadReportsOtherRules(t *testing.T) {
	us, eu := regionstest.StartRedis(t), regionstest.StartRedis(t)
	edgelimit(t, "rules", "push", hourly(t, 100), "--redis", "redis://"+us.Addr()).says(t, 0)
	edgelimit(t, "rules", "push", hourly(t, 999), "--redis", "redis://"+eu.Addr(), "--above", "7").says(t, 0)
	s := &ruleStores{}
	for _, addr := range []string{us.Addr(), eu.Addr()} {
		store, err := rulestore.Open(regions.DefaultRedisConfig(addr))
		testkit.Must(t, err)
		s.all = append(s.all, store)
	}
	defer s.close()
	d, err := s.all[0].Current(t.Context(), rulestore.Rules)
	testkit.Must(t, err)
	all, err := s.spread(t.Context(), rulestore.Rules, d)
	if err == nil || !strings.Contains(all[1].Error, "other rules than version 1") {
		t.Errorf("%+v, %v", all, err)
	}
}

// Garbage in the place of the overrides holds up no rules; in the place of the rules --above replaces it.
func TestRulesPushOverGarbage(t *testing.T) {
	redis := regionstest.StartRedis(t)
	url := "--redis=redis://" + redis.Addr()
	redis.Do("SET", "elrules1:{rules}:limits:current", "x")
	edgelimit(t, "rules", "push", hourly(t, 1), url).says(t, 0, "version 1 is published")
	redis.Do("SET", "elrules1:{rules}:rules:current", "x")
	edgelimit(t, "rules", "push", hourly(t, 2), url).says(t, 2, "nothing was published", "--above N replaces it")
	edgelimit(t, "rules", "push", hourly(t, 2), url, "--above", "5").says(t, 0, "version 6 is published")
	edgelimit(t, "rules", "pull", url).says(t, 0, "requests_per_unit: 2}")
}
