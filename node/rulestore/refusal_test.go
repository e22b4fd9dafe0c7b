package rulestore

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// synced returns a source that looks at a store when the test says so.
func synced(t *testing.T, s *Store, dir string) (f *follower, look func()) {
	t.Helper()
	f = &follower{}
	f.Source = NewSource(s, SourceOptions{Identity: fingerprint, Poll: never, Dir: dir, Logger: f.log.Logger()})
	return f, func() {
		f.sync(t.Context(), testkit.Patience, f.loaded)
		f.report()
	}
}

// stat returns a number that a Redis counts.
func stat(t *testing.T, redis *regionstest.Server, section, form string) int {
	t.Helper()
	m := regexp.MustCompile(form).FindStringSubmatch(redis.Do("INFO", section))
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(m[1])
	testkit.Must(t, err)
	return n
}

// A text that is not what its head says is fetched once a minute, not at each look; once repaired it comes in force.
func TestGarbageIsNotFetchedAtEachLook(t *testing.T) {
	t.Parallel()
	redis := regionstest.StartRedis(t)
	s := open(t, "redis://"+redis.Addr())
	publish(t, s, Rules, rulesOf(t, 5, 50))
	good := redis.Do("HGET", Rules.key(texts), "5")
	const size = 1 << 20
	redis.Do("HSET", Rules.key(texts), "5", strings.Repeat("x", size))
	f, look := synced(t, s, "")
	before := stat(t, redis, "stats", `total_net_output_bytes:(\d+)`)
	for range 10 {
		look()
		if !f.hasProblem("not what was published")() && !f.hasProblem("SHA-256 differ")() {
			t.Fatalf("the problems are %q", f.Status().Problems)
		}
	}
	if sent := stat(t, redis, "stats", `total_net_output_bytes:(\d+)`) - before; sent > 2*size {
		t.Errorf("10 looks at a text of %d bytes fetched %d bytes", size, sent)
	}
	redis.Do("HSET", Rules.key(texts), "5", good)
	f.Source.refused[Rules][0].until = time.Now() // a minute later
	look()
	if f.limit(0) != 50 || len(f.Status().Problems) > 0 {
		t.Errorf("%d is in force: %q", f.limit(0), f.Status().Problems)
	}
}

// Garbage in the place of one document does not hold up the other.
func TestGarbageOfOneDocument(t *testing.T) {
	t.Parallel()
	redis := regionstest.StartRedis(t)
	s := open(t, "redis://"+redis.Addr())
	redis.Do("SET", Limits.key(inForce), "x")
	f, look := synced(t, s, "")
	publish(t, s, Rules, rulesOf(t, 1, 10))
	look()
	if f.limit(0) != 10 || !f.hasProblem("no edgelimit has written")() {
		t.Errorf("%d is in force: %q", f.limit(0), f.Status().Problems)
	}
}

// However many messages arrive, a node looks at the store 20 times a second.
func TestMessagesArePaced(t *testing.T) {
	t.Parallel()
	redis := regionstest.StartRedis(t)
	f := follow(t, "redis://"+redis.Addr(), "", never)
	testkit.Eventually(t, "it is subscribed", func() bool { return f.Status().Subscribed })
	const form = `cmdstat_mget:calls=(\d+)`
	before, began := stat(t, redis, "commandstats", form), time.Now()
	for range 300 {
		redis.Do("PUBLISH", channel, "x")
	}
	looks := stat(t, redis, "commandstats", form) - before
	if most := int(time.Since(began)/(50*time.Millisecond)) + 3; looks > most {
		t.Errorf("it looked %d times in %v, want at most %d", looks, time.Since(began), most)
	}
}

// The reason of a refusal is that of the version, whatever the store held in between.
func TestRefusalKeepsItsReason(t *testing.T) {
	t.Parallel()
	redis := regionstest.StartRedis(t)
	s := open(t, "redis://"+redis.Addr())
	publish(t, s, Rules, rulesOf(t, 5, 50))
	f, look := synced(t, s, "")
	look()
	bad, err := NewDocument([]byte(`{"files":[{"name":"r.yaml","text":"domain: [\n"}]}`), "mallory", "", time.Now())
	testkit.Must(t, err)
	bad.Version.Version = 6
	publish(t, s, Rules, bad)
	look()
	head := redis.Do("GET", Rules.key(inForce))
	redis.Do("DEL", Rules.key(inForce))
	look()
	redis.Do("SET", Rules.key(inForce), head)
	look()
	if !f.hasProblem("version 6 by mallory")() || f.hasProblem("holds no rules")() {
		t.Errorf("the problems are %q", f.Status().Problems)
	}
}

// A version that could not be put in force is not taken for one that is: no copy is written, and it is tried again.
func TestVersionThatCannotBeEnforced(t *testing.T) {
	t.Parallel()
	redis, dir := regionstest.StartRedis(t), t.TempDir()
	s := open(t, "redis://"+redis.Addr())
	publish(t, s, Rules, rulesOf(t, 1, 10))
	f, look := synced(t, s, dir)
	look()
	files := f.files
	f.files = []rulefile.File{{Name: "r.yaml", Data: []byte("domain: [")}}
	publish(t, s, Limits, limitsOf(t, 1, fingerprint, map[counters.Key]uint64{7: 70}))
	look()
	if _, err := os.Stat(Limits.copyName(dir)); err == nil || f.have[Limits].version != 0 || f.limit(7) != 10 ||
		!f.hasProblem("could not be put in force")() {
		t.Errorf("%v, %+v, %q", err, f.have, f.Status().Problems)
	}
	f.files = files
	f.Source.refused[Limits][0].until = time.Now() // a minute later
	look()
	if f.limit(7) != 70 || len(f.Status().Problems) > 0 {
		t.Errorf("%d is in force: %q", f.limit(7), f.Status().Problems)
	}
}

// The text of a hundredth of the overrides that there may be has a hundredth of what REDIS.md states.
func TestSizeOfAllOverrides(t *testing.T) {
	until := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	for note, want := range map[string][2]int{"": {18, 20}, strings.Repeat("n", 32): {22, 24}} {
		list := make([]Limit, maxLimits/100)
		for i := range list {
			list[i] = Limit{Rule: "edge/remote_address", Key: Hex(uint64(i) * 0x9e3779b97f4a7c15),
				Identity: Hex(fingerprint), Max: 500, Window: "1m0s", Until: &until, Set: until, Author: "alice",
				Note: note}
		}
		text, err := EncodeLimits(list)
		testkit.Must(t, err)
		t.Logf("note of %d bytes: %.1f MB", len(note), float64(len(text))/1e4)
		if n := len(text); n < want[0]*1e4 || n > want[1]*1e4 {
			t.Errorf("note of %d bytes: %.1f MB, want %v", len(note), float64(n)/1e4, want)
		}
	}
}
