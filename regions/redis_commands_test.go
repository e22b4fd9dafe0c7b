package regions_test

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// flushOnce has a node take the requests and flush once, and returns what that cost the server.
func flushOnce(
	t *testing.T, s *regionstest.Server, r *regions.Redis, origin counters.Origin, requests int,
) map[string]int {
	t.Helper()
	limit, err := counters.NewLimit(hour, 1<<30)
	testkit.Must(t, err)
	now := time.Now().UnixNano()
	table := counters.NewTable(counters.Config{Origin: origin, Memory: counters.MinMemory})
	cfg := regions.DefaultConfig()
	often(&cfg)
	rec, err := regions.NewReconciler(cfg, r, table)
	testkit.Must(t, err)
	for range requests {
		table.Take(limit, counters.Key(origin), 1, now) // an identity of its own
		if requests < 1000 || requests%100 == 0 {
			rec.Enqueue(table.DrainDirty(now).Slots)
		}
	}
	s.Do("CONFIG", "RESETSTAT")
	ctx, stop := context.WithCancel(t.Context())
	stop() // Run flushes once
	testkit.Must(t, rec.Run(ctx))
	calls := s.Calls()
	delete(calls, "config|resetstat")
	delete(calls, "hello")
	if got := loaded(t, r)[counters.Key(origin)]; got != uint64(requests) {
		t.Errorf("the store holds %d, want %d", got, requests)
	}
	return calls
}

// What a flush costs the server follows from how many slots changed, not from how many requests changed them.
func TestRedisCommandsPerFlush(t *testing.T) {
	t.Parallel()
	s := regionstest.StartRedis(t)
	r := open(t, patient(single(s)))
	flushOnce(t, s, r, 1, 1) // connects, and loads the script
	few, many := flushOnce(t, s, r, 2, 50), flushOnce(t, s, r, 3, 50_000)
	want := map[string]int{"evalsha": 1, "hgetall": 1, "hset": 1, "pexpire": 1, "pttl": 1, "get": 1, "info": 2,
		"time": 1}
	if !maps.Equal(few, want) || !maps.Equal(many, want) {
		t.Errorf("50 requests cost %v, 50,000 cost %v, want %v", few, many, want)
	}
}

// Redis forgets a slot after it can count no more, soon after, and not all at once.
func TestRedisExpiry(t *testing.T) {
	t.Parallel()
	s := regionstest.StartRedis(t)
	r := open(t, patient(single(s)))
	slots := batch(200, 1)
	mustMerge(t, r, slots...)
	ends := time.Unix(0, (thisHour+1)*int64(hour.Sub)+int64(hour.Window)).UnixMilli()
	times := make(map[string]bool)
	for _, name := range strings.Fields(strings.Trim(s.Do("KEYS", "el1:*/*"), "[]")) {
		at := s.Do("PEXPIRETIME", name)
		ms, err := strconv.ParseInt(at, 10, 64)
		if err != nil || ms < ends+2000 || ms > ends+10_000 {
			t.Errorf("%s expires %d ms after it counted last (%v), want 2 to 10 s", name, ms-ends, err)
		}
		times[at] = true
	}
	if len(times) < 150 {
		t.Errorf("200 keys expire at %d moments, want them spread", len(times))
	}
	// A slot from a far future does not stay for ever, and is no error.
	far := mine(7, 7, 1)
	far.Index = 1<<63 - 1
	mustMerge(t, r, far)
	for _, name := range strings.Fields(strings.Trim(s.Do("KEYS", "el1:*:9223372036854775807:*"), "[]")) {
		if ms, err := strconv.ParseInt(s.Do("PTTL", name), 10, 64); err != nil || ms > 3*time.Hour.Milliseconds() ||
			ms <= 0 {
			t.Errorf("a slot from a far future expires in %d ms (%v)", ms, err)
		}
	}
}

// What others keep in the same Redis is passed over, and so is what is no count.
func TestRedisIsShared(t *testing.T) {
	t.Parallel()
	s := regionstest.StartRedis(t)
	r := open(t, patient(single(s)))
	mine1 := mine(1, 1, 5)
	mustMerge(t, r, mine1)
	s.Do("SET", "el1:{000}:0000000000000001:1:1:1h0m0s/10", "no hash, and no meter")
	s.Do("HSET", "el1:{foo}:bar", "a", "b")
	s.Do("HSET", "other", "a", "b")
	name := strings.Fields(strings.Trim(s.Do("KEYS", fmt.Sprintf("el1:*:%d:*", thisHour)), "[]"))[0]
	s.Do("HSET", name, "no field of ours", "7", "AAAAAAAAAAI.1", "no count")
	if merged := mustMerge(t, r, mine1); merged.Before[0] != 5 || len(merged.Others) != 0 {
		t.Errorf("beside what is not ours: %+v", merged)
	}
	if got := loaded(t, r); len(got) != 1 || got[1] != 5 {
		t.Errorf("loaded %v, want key 1 at 5", got)
	}
	s.Do("HSET", name, "AAAAAAAAAAE.1", "garbage")
	if _, err := r.Merge(t.Context(), []counters.Slot{mine1}, wall()); err == nil ||
		!strings.Contains(err.Error(), "delete the key") {
		t.Errorf("garbage where the own count belongs: %v", err)
	}
}

// BenchmarkRedisMerge tells the server's time for a slot beside the client's.
func BenchmarkRedisMerge(b *testing.B) {
	for _, kind := range []string{"single", "cluster"} {
		for _, n := range []int{1, 512} {
			b.Run(fmt.Sprintf("%s/%d_slots", kind, n), func(b *testing.B) {
				var servers []*regionstest.Server
				var r *regions.Redis
				if kind == "single" {
					servers = []*regionstest.Server{regionstest.StartRedis(b)}
					r = open(b, patient(single(servers[0])))
				} else {
					c := regionstest.StartRedisCluster(b, 3)
					servers, r = c.Nodes, open(b, patient(cluster(c)))
				}
				slots := batch(n, 1)
				if _, err := r.Merge(b.Context(), slots, wall()); err != nil {
					b.Fatal(err)
				}
				for _, s := range servers {
					s.Do("CONFIG", "RESETSTAT")
				}
				b.ReportAllocs()
				merges := 0
				for b.Loop() {
					for i := range slots {
						slots[i].Count++
					}
					if _, err := r.Merge(b.Context(), slots, wall()); err != nil {
						b.Fatal(err)
					}
					merges++
				}
				total := 0
				for _, s := range servers {
					total += s.CommandMicros("evalsha")
				}
				b.ReportMetric(float64(total)*1000/float64(merges*n), "server-ns/slot")
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(merges*n), "ns/slot")
			})
		}
	}
}
