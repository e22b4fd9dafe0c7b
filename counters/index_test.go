package counters

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// Keys that meet in one place, by the hash as everybody can compute it, are strewn as any others are where there is a
// seed.
func TestChosenKeysAreStrewn(t *testing.T) {
	l, err := NewLimit(NewMeter("r", SlidingWindow, time.Hour), 10)
	testkit.Must(t, err)
	r := rand.New(rand.NewPCG(1, 2))
	var chosen []Key
	for len(chosen) < 300 {
		if key := Key(r.Uint64()); hash(0, l.id, key)>>52 == 5 {
			chosen = append(chosen, key)
		}
	}
	const now = int64(1_800_000_000 * time.Second)
	// passed is how many places a search for one of the keys passes on average, among a few thousand others.
	passed := func(seed uint64, keys []Key) float64 {
		table := NewTable(Config{Origin: 1, Seed: seed, Memory: 4 * MinMemory})
		for range 10_000 {
			table.Take(l, Key(r.Uint64()), 1, now)
		}
		for _, key := range keys {
			table.Take(l, key, 1, now)
		}
		places, found := 0, 0
		for i := range table.shards {
			s := &table.shards[i]
			for at, e := range s.entries {
				if e == 0 {
					continue
				}
				for _, key := range keys {
					if ref := s.ref(e); s.cell(ref).key == key {
						found++
						places += s.distance(s.home(s.hashOf(ref)), at) + 1
					}
				}
			}
		}
		if found != len(keys) {
			t.Fatalf("of %d keys %d are held", len(keys), found)
		}
		return float64(places) / float64(found)
	}
	var random []Key
	for range chosen {
		random = append(random, Key(r.Uint64()))
	}
	usual := passed(1, random)
	if known := passed(0, chosen); known < 20*usual {
		t.Errorf("keys that are chosen pass %.1f places where the hash is known, others %.1f: they are not chosen well",
			known, usual)
	}
	for range 8 {
		if seeded := passed(r.Uint64(), chosen); seeded > 2*usual {
			t.Errorf("keys that are chosen pass %.1f places, others %.1f", seeded, usual)
		}
	}
}
