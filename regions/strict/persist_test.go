package strict

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// Races that go on while the servers change under them.

// persistent are 64 clients of the stores that ask until they are denied, however often they fail.
type persistent struct {
	t                         *testing.T
	stores                    []*Store
	asks                      []Ask
	admitted, failed, waiting atomic.Int64
	resume                    chan bool // after a failure clients wait until it is closed, and the breaker too
	clients                   sync.WaitGroup
}

// start starts the clients. After each request that is admitted they call then with how many have been.
func (p *persistent) start(then func(n int64)) {
	for i := range 64 {
		p.clients.Go(func() {
			s := p.stores[i%len(p.stores)]
			for {
				ds, _, err := s.Take(p.t.Context(), p.asks, nil)
				switch {
				case err == nil && !ds[0].Allowed:
					return
				case err == nil:
					then(p.admitted.Add(1))
				case !errors.Is(err, ErrUnavailable):
					p.t.Errorf("take: %v", err)
					return
				default:
					p.failed.Add(1)
					p.waiting.Add(1)
					<-p.resume
					awaitBreaker(p.t, s)
					p.waiting.Add(-1)
				}
			}
		})
	}
}

// awaitBreaker waits until the breaker is closed.
func awaitBreaker(t *testing.T, s *Store) {
	for deadline := time.Now().Add(testkit.Patience); s.Stats().Open; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Error("the breaker stays open")
			return
		}
	}
}

// admittedInAll is what was admitted once failed calls have been refunded, and all that is left is taken.
func (p *persistent) admittedInAll(direct *Store) int64 {
	p.t.Helper()
	p.clients.Wait()
	settle(p.t, p.stores...)
	for mustTake(p.t, direct, p.asks).Allowed {
		p.admitted.Add(1)
	}
	return p.admitted.Load()
}

// The master dies in the middle of a race, and its replica takes over: what the replica had not received passes again,
// and no more.
func TestFailoverInRace(t *testing.T) {
	for _, a := range []counters.Algorithm{counters.SlidingWindow, counters.SlidingLog, counters.TokenBucket} {
		for _, behind := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, replica behind: %v", a, behind), func(t *testing.T) {
				t.Parallel()
				for range *races {
					failoverInRace(t, a, behind)
				}
			})
		}
	}
}

func failoverInRace(t *testing.T, a counters.Algorithm, behind bool) {
	master, replica := regionstest.StartRedis(t, "--repl-diskless-sync-delay", "0"), regionstest.StartRedis(t)
	host, port, _ := net.SplitHostPort(master.Addr())
	replica.Do("REPLICAOF", host, port)
	master.Do("SET", "followed", "yes")
	testkit.Eventually(t, "the replica follows", func() bool { return master.Reply("1", "WAIT", 1, 1000) })
	proxy := newLossy(t, master.Addr(), 0)
	p := &persistent{t: t, asks: ask(raceLimit(t, a), 1, 1), resume: make(chan bool),
		stores: fourStores(t, regions.DefaultRedisConfig(proxy.Addr().String()), quick)}
	third, half, detached, killed := make(chan bool), make(chan bool), make(chan bool), make(chan bool)
	p.start(func(n int64) {
		switch n {
		case raced / 3:
			close(third)
		case raced / 2:
			close(half)
		}
		if n >= raced/3 {
			<-detached
		}
		if n >= raced*9/10 {
			<-killed
		}
	})
	<-third
	if behind { // from here on nothing is replicated
		replica.Do("REPLICAOF", "NO", "ONE")
	}
	close(detached)
	<-half
	master.Kill()
	close(killed)
	testkit.Eventually(t, "all clients wait", func() bool { return p.waiting.Load() == 64 })
	acknowledged := p.admitted.Load()
	replica.Do("REPLICAOF", "NO", "ONE")
	proxy.server.Store(replica.Addr())
	settle(t, p.stores...) // what was charged and never acknowledged is given back
	direct := open(t, single(replica))
	lost := acknowledged - raced + int64(mustTake(t, direct, ask(p.asks[0].Limit, 1, 0)).Remaining)
	close(p.resume)

	got := p.admittedInAll(direct)
	t.Logf("%d of %d acknowledged requests were not replicated; %d admitted in all; %d requests failed",
		lost, acknowledged, got, p.failed.Load())
	least, most := raced+lost, raced+lost
	if isBucket(a) { // a refund does not give back what was refilled meanwhile: what is left may be 477.99 tokens
		least, most = least-1, most+1
	}
	if got > most || got < least {
		t.Errorf("%d admitted, want %d and the %d that were lost", got, raced, lost)
	}
	if behind && lost < raced/10 {
		t.Errorf("only %d requests were lost: the race was over", lost)
	}
	closeAll(t, append(p.stores, direct))
}

// closeAll closes the stores of one of many races.
func closeAll(t *testing.T, stores []*Store) {
	t.Helper()
	for _, s := range stores {
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// A slot of a Redis Cluster moves to other nodes, back and forth, while a race is on for a key in it: exactly the limit
// is admitted.
func TestReshardingInRace(t *testing.T) {
	t.Parallel()
	cluster := regionstest.StartRedisCluster(t, 3)
	cfg := regions.DefaultRedisConfig(cluster.Addrs()...)
	cfg.Cluster = true
	for i, a := range algorithms {
		for n := range *races {
			key := counters.Key(n<<8 + i)
			p := &persistent{t: t, asks: ask(raceLimit(t, a), key, 1), resume: make(chan bool),
				stores: fourStores(t, cfg)}
			close(p.resume)
			reshardInRace(t, cluster, p)
			closeAll(t, p.stores)
		}
	}
	for _, redirect := range []string{"errorstat_ASK:", "errorstat_MOVED:"} {
		if !slices.ContainsFunc(cluster.Nodes, func(s *regionstest.Server) bool {
			return s.Reply(redirect, "INFO", "errorstats")
		}) {
			t.Errorf("no %s", redirect)
		}
	}
}

func reshardInRace(t *testing.T, cluster *regionstest.Cluster, p *persistent) {
	shape, err := shapeOf(p.asks[0].Limit)
	testkit.Must(t, err)
	state, tokens := shape.names(p.asks[0].Key)
	var move *regionstest.Move
	steps := []func(){
		func() { move = cluster.BeginMove(state) },
		func() { move.Keys(state, tokens) },
		func() { move.End() },
	}
	const part = raced / 10 // admitted between steps
	var due, done [9]chan bool
	for i := range due {
		due[i], done[i] = make(chan bool), make(chan bool)
	}
	p.start(func(n int64) {
		i := n/part - 1
		if i < 0 || i >= int64(len(due)) {
			return
		}
		if n%part == 0 {
			close(due[i])
		}
		if n%part > part/2 { // the next step is not due before this one is done
			<-done[i]
		}
	})
	for i := range due {
		<-due[i]
		steps[i%len(steps)]()
		close(done[i])
	}
	got := p.admittedInAll(open(t, p.stores[0].cfg.Redis))
	t.Logf("%v: %d admitted; %d requests failed", p.asks[0].Limit.Meter().Algorithm, got, p.failed.Load())
	if want := int64(raced); got != want {
		t.Errorf("%v: %d admitted, want %d", p.asks[0].Limit.Meter().Algorithm, got, want)
	}
}
