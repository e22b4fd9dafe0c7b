package strict

import (
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// All who ask for the shape of a limit at once get the same one: the leases of a key hang on it.
func TestOneShapeForALimit(t *testing.T) {
	var s shapes
	for range 200 {
		l := newLimit(t, counters.TokenBucket, 1000, time.Hour)
		var all [8]*shape
		var asking sync.WaitGroup
		for i := range all {
			asking.Go(func() { all[i], _ = s.of(l) })
		}
		asking.Wait()
		for _, y := range all {
			if y == nil || y != all[0] {
				t.Fatalf("shapes %p and %p of one limit", all[0], y)
			}
		}
	}
}

// A key whose lease takes long to be used up is as busy as any other: it goes on with a lease.
func TestBusyKeyGoesOnLeasing(t *testing.T) {
	t.Parallel()
	s := open(t, single(regionstest.StartRedis(t)))
	l := newLimit(t, counters.FixedWindow, 1_000_000, 24*time.Hour)
	asks := ask(l, 1, 1)
	asks[0].Lease = 20
	mustTake(t, s, asks) // by itself
	mustTake(t, s, asks) // by a lease
	y, err := s.shapes.of(l)
	testkit.Must(t, err)
	k := leaseKey{y, 1}
	shard := s.leases.shard(k)
	shard.Lock()
	shard.key(k).seen = time.Now().Add(-time.Hour)
	shard.Unlock()
	for range 19 {
		mustTake(t, s, asks)
	}
	before := s.Stats()
	for range 20 {
		mustTake(t, s, asks)
	}
	if after := s.Stats(); after.Calls-before.Calls != 1 || after.Local-before.Local != 19 {
		t.Errorf("20 requests made %d calls, and %d were decided locally", after.Calls-before.Calls,
			after.Local-before.Local)
	}
}

// Permits that came back are used, although a request was denied before.
func TestPermitsCountMoreThanADenial(t *testing.T) {
	now := time.Now()
	l := newLimit(t, counters.FixedWindow, 10, time.Hour)
	e := &leasedKey{denied: 1, deniedTo: now.Add(time.Hour), grants: []*grant{{left: 2, until: now.Add(time.Hour)}}}
	asks := ask(l, 1, 2)
	if d, used, ok := e.local(&asks[0], now, now); !ok || !d.Allowed || used == nil {
		t.Errorf("%+v, %v by two permits", d, ok)
	}
	if d, _, ok := e.local(&asks[0], now, now); !ok || d.Allowed {
		t.Errorf("%+v, %v by none", d, ok)
	}
}

type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// What a server says of one key leaves the breaker closed for all others.
func TestRefusalsOfOneCall(t *testing.T) {
	for text, of := range map[refusal]bool{
		"TRYAGAIN Multiple keys request during rehashing of slot": true, "OOM command not allowed": true,
		"WRONGTYPE Operation": true, "ERR user_script:1: no": true, "VOID late": true,
		"LOADING Redis is loading": false, "READONLY You can't write": false, "CLUSTERDOWN The cluster is down": false,
	} {
		if isOfOneCall(text) != of {
			t.Errorf("%q is of one call: %v", text, !of)
		}
	}
}
