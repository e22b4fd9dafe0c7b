package rulestore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestMain(m *testing.M) { testkit.MainWithoutLeaks(m) }

// open returns the store at a URL, until the test ends.
func open(t testing.TB, url string) *Store {
	t.Helper()
	cfg, err := regions.ParseRedisURL(url)
	testkit.Must(t, err)
	s, err := Open(cfg)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// ruleText is the text of rules that limit to so many an hour.
func ruleText(t testing.TB, most int) []byte {
	t.Helper()
	text, err := EncodeFiles([]rulefile.File{{Name: "rules.yaml", Data: fmt.Appendf(nil, `domain: test
descriptors: [{key: client, rate_limit: {name: per_client, unit: hour, requests_per_unit: %d}}]
`, most)}})
	testkit.Must(t, err)
	return text
}

// rulesOf is a version of such rules.
func rulesOf(t testing.TB, version uint64, most int) Document {
	t.Helper()
	d, err := NewDocument(ruleText(t, most), "alice", fmt.Sprintf("limit %d", most), time.Now())
	testkit.Must(t, err)
	d.Version.Version = version
	return d
}

// publish puts a version in force after whatever is.
func publish(t testing.TB, s *Store, k Kind, d Document) {
	t.Helper()
	before, err := s.Current(t.Context(), k)
	if err == nil {
		err = s.Publish(t.Context(), k, d, before)
	}
	testkit.Must(t, err)
}

func current(t testing.TB, s *Store) Document {
	t.Helper()
	d, err := s.Current(t.Context(), Rules)
	testkit.Must(t, err)
	return d
}

// storeSuite holds of every kind of Redis.
func storeSuite(t *testing.T, s *Store) {
	ctx := t.Context()
	if d := current(t, s); d.Version.Version != 0 {
		t.Fatalf("an empty store has %+v", d.Version)
	}
	first := rulesOf(t, 1, 10)
	publish(t, s, Rules, first)
	if d := current(t, s); d.Version != first.Version || string(d.Text) != string(first.Text) {
		t.Errorf("it has %+v", d.Version)
	}
	conflict := &ConflictError{}
	if err := s.Publish(ctx, Rules, rulesOf(t, 2, 20), Document{}); !errors.As(err, &conflict) ||
		conflict.InForce != 1 {
		t.Errorf("whoever has not seen version 1 publishes over it: %v", err)
	}
	if err := s.Publish(ctx, Rules, rulesOf(t, 1, 20), first); !errors.As(err, &conflict) {
		t.Errorf("another text takes a version's place: %v", err)
	}
	if err := s.Follow(ctx, Rules, first); err != nil {
		t.Errorf("the same version again: %v", err)
	}
	third := rulesOf(t, 3, 30)
	if err := s.Follow(ctx, Rules, third); err != nil {
		t.Error(err)
	}
	if err := s.Follow(ctx, Rules, rulesOf(t, 2, 20)); !errors.As(err, &conflict) || conflict.InForce != 3 {
		t.Errorf("an earlier version follows a later one: %v", err)
	}
	if err := s.Follow(ctx, Rules, rulesOf(t, 3, 40)); !errors.As(err, &conflict) {
		t.Errorf("another text follows: %v", err)
	}
	all, err := s.History(ctx, Rules)
	if err != nil || len(all) != 2 || all[0] != third.Version || all[1] != first.Version {
		t.Errorf("%+v, %v", all, err)
	}
	if d, err := s.Fetch(ctx, Rules, 1); err != nil || d.Version != first.Version {
		t.Errorf("%+v, %v", d.Version, err)
	}
	if _, err := s.Fetch(ctx, Rules, 2); !errors.Is(err, ErrNoVersion) {
		t.Errorf("a version that there is not: %v", err)
	}
	text, err := EncodeLimits([]Limit{{Rule: "test/client", Key: Hex(1), Identity: Hex(2), Max: 5, Window: "1h"}})
	testkit.Must(t, err)
	limits, err := NewDocument(text, "bob", "", time.Now())
	testkit.Must(t, err)
	publish(t, s, Limits, limits)
	if d, err := s.Current(ctx, Limits); err != nil || d.Version != limits.Version ||
		current(t, s).Version != third.Version {
		t.Errorf("%+v, %v", d.Version, err)
	}
}

func TestStore(t *testing.T) {
	t.Parallel()
	storeSuite(t, open(t, "redis://"+regionstest.StartRedis(t).Addr()))
}

func TestStoreInACluster(t *testing.T) {
	t.Parallel()
	c := regionstest.StartRedisCluster(t, 3)
	s := open(t, "redis+cluster://"+strings.Join(c.Addrs(), ","))
	storeSuite(t, s)
	followed(t, s)
}

func TestStoreBehindASentinel(t *testing.T) {
	t.Parallel()
	c := regionstest.StartSentinel(t)
	s := open(t, "redis+sentinel://"+c.Sentinel.Addr()+"/"+c.Name)
	storeSuite(t, s)
	followed(t, s)
	// Nodes only read: they may follow a replica, which gets the messages as well.
	followed(t, open(t, "redis://"+c.Replica.Addr()), s)
}

// Those who publish, and those who follow, need the rights that the document lists, and no others.
func TestStoreRights(t *testing.T) {
	t.Parallel()
	redis := regionstest.StartRedis(t)
	redis.Do("ACL", "SETUSER", "node", "on", ">node", "resetkeys", "%R~elrules1:*", "resetchannels",
		"&elrules1:*", "+mget", "+hstrlen", "+hget", "+subscribe", "+ping")
	redis.Do("ACL", "SETUSER", "pusher", "on", ">pusher", "~elrules1:*", "resetchannels", "&elrules1:*", "+mget",
		"+hstrlen", "+hget", "+hlen", "+hgetall", "+eval", "+get", "+set", "+hset", "+hdel", "+hkeys", "+publish")
	pusher, node := open(t, "redis://pusher:pusher@"+redis.Addr()), open(t, "redis://node:node@"+redis.Addr())
	storeSuite(t, pusher)
	followed(t, node, pusher)
	for _, err := range []error{
		node.Publish(t.Context(), Rules, rulesOf(t, 99, 1), current(t, node)),
		node.Follow(t.Context(), Limits, rulesOf(t, 99, 1)),
	} {
		if err == nil || !strings.Contains(err.Error(), "node/rules/REDIS.md") ||
			strings.Contains(err.Error(), "node:node") {
			t.Errorf("whoever may only read publishes: %v", err)
		}
	}
	redis.Do("ACL", "SETUSER", "pusher", "-publish")
	before := current(t, node)
	if err := pusher.Publish(t.Context(), Rules, rulesOf(t, 100, 1), before); err == nil ||
		current(t, node).Version != before.Version {
		t.Errorf("a version that nobody is notified of is in force: %v", err)
	}
}

// Of many that publish at once one wins each round, and the others learn which version did.
func TestPublishersRace(t *testing.T) {
	t.Parallel()
	s := open(t, "redis://"+regionstest.StartRedis(t).Addr())
	for round := range uint64(50) {
		before := current(t, s)
		var won atomic.Int64
		var racing sync.WaitGroup
		for i := range 4 {
			d := rulesOf(t, round+1, 100+i)
			racing.Go(func() {
				conflict := &ConflictError{}
				switch err := s.Publish(context.Background(), Rules, d, before); {
				case err == nil:
					won.Add(1)
				case !errors.As(err, &conflict) || conflict.InForce != round+1:
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		racing.Wait()
		if won.Load() != 1 || current(t, s).Version.Version != round+1 {
			t.Fatalf("round %d: %d won, version %d", round, won.Load(), current(t, s).Version.Version)
		}
	}
}

// The history is bounded in versions and in bytes, and always has what is in force.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	s := open(t, "redis://"+regionstest.StartRedis(t).Addr())
	for v := range uint64(110) {
		publish(t, s, Rules, rulesOf(t, v+1, int(v+1)))
	}
	all, err := s.History(t.Context(), Rules)
	if err != nil || len(all) != 100 || all[0].Version != 110 || all[99].Version != 11 {
		t.Fatalf("%d versions, %v", len(all), err)
	}
	large := []rulefile.File{{Name: "a", Data: []byte("domain: a\n#" + strings.Repeat("x", 15<<20))}}
	for v := range uint64(6) {
		text, err := EncodeFiles(large)
		testkit.Must(t, err)
		d, err := NewDocument(text, "a", "", time.Now())
		testkit.Must(t, err)
		d.Version.Version = 200 + v
		publish(t, s, Rules, d)
	}
	if all, err = s.History(t.Context(), Rules); err != nil || len(all) != 4 || all[0].Version != 205 {
		t.Errorf("%d versions of 15 MiB each, %v", len(all), err)
	}
	large[0].Data = append(large[0].Data, make([]byte, 2<<20)...)
	if _, err := EncodeFiles(large); err == nil {
		t.Error("a text of 17 MiB is taken")
	}
}

// Whatever Redis holds in the place of rules is refused with a reason, and is not read if it is too large.
func TestStoreOfGarbage(t *testing.T) {
	t.Parallel()
	redis := regionstest.StartRedis(t)
	s := open(t, "redis://"+redis.Addr())
	publish(t, s, Rules, rulesOf(t, 1, 10))
	good := redis.Do("GET", Rules.key(inForce))
	meta, text := redis.Do("HGET", Rules.key(versions), 1), redis.Do("HGET", Rules.key(texts), 1)
	for what, write := range map[string][]any{
		"no version":            {"SET", Rules.key(inForce), "x"},
		"a version of 0":        {"SET", Rules.key(inForce), "0" + good[1:]},
		"a huge version":        {"SET", Rules.key(inForce), "9999999999999999" + good[1:]},
		"another checksum":      {"SET", Rules.key(inForce), "1 " + strings.Repeat("0", 64)},
		"no text":               {"HDEL", Rules.key(texts), 1},
		"another text":          {"HSET", Rules.key(texts), 1, text + " "},
		"no description":        {"HDEL", Rules.key(versions), 1},
		"a description of JSON": {"HSET", Rules.key(versions), 1, "{}"},
		"an unknown key":        {"HSET", Rules.key(versions), 1, strings.Replace(meta, "{", `{"x":1,`, 1)},
		"a description of others": {"HSET", Rules.key(versions), 1, strings.Replace(meta, `"version":1`, `"version":2`,
			1)},
		"a long description":    {"HSET", Rules.key(versions), 1, meta + strings.Repeat(" ", maxMeta)},
		"an author that steers": {"HSET", Rules.key(versions), 1, strings.Replace(meta, "alice", `\u001b[2J`, 1)},
		"a text of 20 MiB":      {"HSET", Rules.key(texts), 1, strings.Repeat("x", 20<<20)},
		"a list": {"EVAL", "redis.call('DEL', KEYS[1]) redis.call('RPUSH', KEYS[1], 'x')", 1,
			Rules.key(texts)},
	} {
		redis.Do(write...)
		if d, err := s.Current(t.Context(), Rules); err == nil {
			t.Errorf("%s: it is taken as %+v", what, d.Version)
		} else if len(err.Error()) > 1000 || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%s: the error is %.2000q", what, err)
		}
		redis.Do("DEL", Rules.key(texts), Rules.key(versions))
		redis.Do("SET", Rules.key(inForce), good)
		redis.Do("HSET", Rules.key(texts), 1, text)
		redis.Do("HSET", Rules.key(versions), 1, meta)
		if _, err := s.Current(t.Context(), Rules); err != nil {
			t.Fatal(err)
		}
	}
}

// One hostile server of several does not use up the versions of all: it is reported until its key is deleted.
func TestAServerFarAhead(t *testing.T) {
	t.Parallel()
	first := open(t, "redis://"+regionstest.StartRedis(t).Addr())
	redis := regionstest.StartRedis(t)
	all := Servers{first, open(t, "redis://"+redis.Addr())}
	publish(t, first, Rules, rulesOf(t, 1, 10))
	publish(t, all[1], Rules, rulesOf(t, maxVersion-1, 66))
	push := func(most int) (Document, string) {
		e, err := all.Edit(t.Context(), Rules, 0)
		testkit.Must(t, err)
		d := rulesOf(t, 0, most)
		if e.InForce(t.Context(), d) {
			t.Fatal("it is in force")
		}
		e.Number(&d)
		testkit.Must(t, e.Publish(t.Context(), d))
		return d, all.Spread(t.Context(), Rules, d)[1].Error
	}
	if d, problem := push(20); d.Version.Version != 2 || !strings.Contains(problem, "delete its key") {
		t.Errorf("version %d, %q", d.Version.Version, problem)
	}
	redis.Do("DEL", Rules.key(inForce))
	if d, problem := push(30); d.Version.Version != 3 || problem != "" || current(t, all[1]).Version != d.Version {
		t.Errorf("without the key: version %d, %q", d.Version.Version, problem)
	}
	publish(t, all[1], Rules, rulesOf(t, 3+maxLead, 40))
	if d, problem := push(50); d.Version.Version != 4+maxLead || problem != "" {
		t.Errorf("after one that may be right: version %d, %q", d.Version.Version, problem)
	}

	redis.Do("SET", Rules.key(inForce), fmt.Sprintf("%d %s", uint64(maxVersion-1), strings.Repeat("0", 64)))
	damaged := all[1:]
	if _, err := damaged.Edit(t.Context(), Rules, 5+maxLead); err == nil ||
		!strings.Contains(err.Error(), "delete its key") {
		t.Errorf("a damaged version far ahead: %v", err)
	}
}
