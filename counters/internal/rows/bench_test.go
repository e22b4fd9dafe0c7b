package rows

import (
	"math/rand/v2"
	"testing"
	"time"
)

// million is a store with a million heads, at a load of three quarters.
func million(b *testing.B) (*Store, []uint64) {
	store := New(Config{Bytes: 86 << 20, Shards: 64, Seed: 1, Meters: &Meters{1: someMeter}})
	keys := make([]uint64, 1<<20)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range keys {
		keys[i] = r.Uint64()
		h := store.Hash(someMeter, keys[i])
		store.Shard(h).Grow()
		if store.Shard(h).Insert(h, keys[i], Name(1, Head, 0)) == nil {
			b.Fatal("there is no room")
		}
	}
	return store, keys
}

// BenchmarkHead finds one of a million heads: the next one at once, or only when the last is known.
func BenchmarkHead(b *testing.B) {
	store, keys := million(b)
	for name, dependent := range map[string]uint64{"independent": 0, "dependent": 1} {
		b.Run(name, func(b *testing.B) {
			i, wait := uint64(0), uint64(0)
			for b.Loop() {
				i = i*0xd1342543de82ef95 + 1 + wait
				key := keys[i>>44]
				h := store.Hash(someMeter, key)
				s := store.Shard(h)
				s.Lock()
				wait = (s.Head(h, someMeter, key).Name - 1) & dependent
				s.Unlock()
			}
		})
	}
}

// BenchmarkRemoveAndInsert removes a head of a million, and adds it again.
func BenchmarkRemoveAndInsert(b *testing.B) {
	store, keys := million(b)
	i := uint64(0)
	for b.Loop() {
		i = i*0xd1342543de82ef95 + 1
		key := keys[i>>44]
		h := store.Hash(someMeter, key)
		s := store.Shard(h)
		s.Lock()
		s.Remove(s.Head(h, someMeter, key))
		s.Insert(h, key, Name(1, Head, 0))
		s.Unlock()
	}
}

// BenchmarkDrain drains a million heads of which a tenth is marked, in parts of 256 lines, and reports how long the
// longest part held its shard, in the drain in which that was shortest: other programs interrupt some.
func BenchmarkDrain(b *testing.B) {
	store, keys := million(b)
	longest, sum := time.Hour, uint64(0)
	var lines []*Line
	var done bool
	for b.Loop() {
		b.StopTimer()
		for _, key := range keys[:len(keys)/10] {
			h := store.Hash(someMeter, key)
			s := store.Shard(h)
			s.Mark(s.Head(h, someMeter, key))
		}
		b.StartTimer()
		longest = min(longest, byParts(store, func(s *Shard, c *Cursor) bool {
			lines, done = s.Drain(c, 256, lines[:0])
			for _, l := range lines {
				sum += l.Key
			}
			return done
		}))
	}
	touched(sum)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(keys)/10), "ns/key")
	b.ReportMetric(float64(longest.Microseconds()), "us-longest")
}

// BenchmarkScan scans a million heads in parts of 1024 places.
func BenchmarkScan(b *testing.B) {
	store, keys := million(b)
	longest := time.Hour
	for b.Loop() {
		longest = min(longest, byParts(store, func(s *Shard, c *Cursor) bool {
			return s.Scan(c, 1024, func(*Line) bool { return false })
		}))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(keys)), "ns/key")
	b.ReportMetric(float64(longest.Microseconds()), "us-longest")
}

// byParts calls part for each shard until it is done, and returns how long the longest part took.
func byParts(store *Store, part func(s *Shard, c *Cursor) (done bool)) (longest time.Duration) {
	for i := range store.Shards() {
		s := &store.Shards()[i]
		var c Cursor
		for done := false; !done; {
			start := time.Now()
			s.Lock()
			done = part(s, &c)
			s.Unlock()
			longest = max(longest, time.Since(start))
		}
	}
	return longest
}

// touched keeps the compiler from leaving reads out.
//
//go:noinline
func touched(uint64) {}
