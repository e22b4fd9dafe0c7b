package strict

import (
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// Many clients of several nodes race for one limit.

var (
	tries = flag.Int("tries", 4000, "tries of each race for a limit of 1,000")
	races = flag.Int("races", 1, "races for each algorithm, cost and lease")
)

const raced = 1000 // the limit

// raceLimit returns a limit of 1,000 that gives nothing back while a race lasts.
func raceLimit(t testing.TB, a counters.Algorithm) *counters.Limit {
	if isBucket(a) {
		l, err := counters.LimitConfig{Meter: counters.NewMeter("r", a, 240*time.Hour), Max: raced, Refill: 1}.New()
		testkit.Must(t, err)
		return l
	}
	return newLimit(t, a, raced, 240*time.Hour)
}

// race has 64 clients of the stores ask for a key, so many times in all, and returns the cost that was admitted. Each
// has its part of the tries: a store that knows of a denial would use up those of all others within milliseconds.
func race(t *testing.T, stores []*Store, l *counters.Limit, key counters.Key, cost, lease uint64, tries int) uint64 {
	t.Helper()
	const clientCount = 64
	var admitted atomic.Int64
	var clients sync.WaitGroup
	for i := range clientCount {
		clients.Go(func() {
			s := stores[i%len(stores)]
			asks := ask(l, key, cost)
			asks[0].Lease = lease
			for range (tries + clientCount - 1 - i) / clientCount {
				ds, _, err := s.Take(t.Context(), asks, nil)
				if err != nil {
					t.Errorf("take: %v", err)
					return
				}
				if ds[0].Allowed {
					admitted.Add(int64(cost))
				}
			}
		})
	}
	clients.Wait()
	return uint64(admitted.Load())
}

func fourStores(t *testing.T, redis regions.RedisConfig, changes ...func(*Config)) (stores []*Store) {
	for range 4 {
		stores = append(stores, open(t, redis, changes...))
	}
	return stores
}

// Exactly the limit is admitted; with leases never more, nearly all of it, and the rest once they have ended.
func TestRace(t *testing.T) {
	server := regionstest.StartRedis(t)
	stores := fourStores(t, single(server))
	key := counters.Key(0)
	for _, a := range algorithms {
		for _, cost := range []uint64{1, 7} {
			for _, lease := range []uint64{0, 20} {
				t.Run(fmt.Sprintf("%v of %d, lease %d", a, cost, lease), func(t *testing.T) {
					for range *races {
						key++
						l, began := raceLimit(t, a), time.Now()
						got := race(t, stores, l, key, cost, lease, *tries)
						want := raced / cost * cost
						took := time.Since(began)
						if got > want || lease == 0 && got < want || got < want*97/100 {
							t.Errorf("%d admitted, want %d", got, want)
						}
						settle(t, stores...) // leases that were not used up are given back
						late := uint64(0)
						for one := ask(l, key, cost); mustTake(t, stores[0], one).Allowed; {
							late += cost
						}
						if all := got + late; all > want || all < want-cost || all < want && !isBucket(a) {
							t.Errorf("%d admitted after leases had ended, %d in all, want %d", late, all, want)
						}
						t.Logf("%d admitted of %d in %v, %d after leases had ended", got, want, took, late)
					}
				})
			}
		}
	}
}
