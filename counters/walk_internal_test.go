package counters

import (
	"math/rand/v2"
	"testing"
	"time"
)

// walked is a table with long shards, and a limit whose meter it knows.
func walked(t testing.TB) (*Table, *Limit) {
	t.Helper()
	l, err := NewLimit(NewMeter("r", FixedWindow, time.Hour), 100)
	if err != nil {
		t.Fatal(err)
	}
	return NewTiny(1, 60), l
}

const walkTime = int64(1e18)

// A walk that cells come and go beside misses none that is there all the time, and comes to none twice.
func TestAWalkMissesNothing(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 3))
		table, l := walked(t)
		s := &table.shards[5]
		next := Key(0)
		add := func(n int) {
			for n > 0 && s.keys < s.maxKeys*9/10 {
				if next++; table.shardOf(hash(0, l.id, next)) == s {
					table.Take(l, next, 1, walkTime)
					n--
				}
			}
		}
		add(1500 + r.IntN(2000))
		there := make(map[Key]bool) // all the time
		for _, e := range s.entries {
			if e != 0 {
				there[s.cell(s.ref(e)).key] = true
			}
		}
		visits, parts := make(map[Key]int), 0
		var w walk
		for done := false; !done; parts++ {
			before, entries := w.left, 0
			done = w.part(s, func(ref uint32) int {
				visits[s.cell(ref).key]++
				entries++
				return r.IntN(3)
			})
			if entries > 2*walkWork || before-w.left > 2*walkWork && !done && before > 0 {
				t.Fatalf("seed %d: a part has %d entries of the index, and %d cells", seed, before-w.left, entries)
			}
			for range r.IntN(200) { // removals close gaps
				i := r.IntN(len(s.entries))
				if e := s.entries[i]; e != 0 {
					delete(there, s.cell(s.ref(e)).key)
					table.remove(s, s.ref(e), s.cell(s.ref(e)))
				}
			}
			add(r.IntN(200))
		}
		for key := range there {
			if visits[key] != 1 {
				t.Errorf("seed %d: %d visits of a cell that was there all the time", seed, visits[key])
			}
		}
		for key, n := range visits {
			if n > 1 {
				t.Errorf("seed %d: %d visits of key %d", seed, n, key)
			}
		}
		if parts < 3 || len(there) < 300 {
			t.Errorf("seed %d: %d parts, %d cells are left", seed, parts, len(there))
		}
	}
}

// Whatever cells hold, a part ends after so many entries and slots.
func TestAPartOfAWalkIsShort(t *testing.T) {
	table, l := walked(t)
	m := l.Meter()
	for key := range Key(200 * shards) {
		var slots []Slot
		for origin := range Origin(30) {
			slots = append(slots, Slot{Meter: &m, Key: key, Index: m.Index(walkTime), Origin: 2 + origin, Count: 1})
		}
		table.Merge(slots, walkTime)
	}
	longest, total := 0, 0
	for i := range table.shards {
		var w walk
		for done := false; !done; {
			slots := 0
			count := func(s *shard, c *cell, _ *meterState, _ instant) int {
				n := s.remotesOf(c)
				slots += n
				return n
			}
			done = table.livePart(&table.shards[i], &w, walkTime, count)
			longest, total = max(longest, slots), total+slots
		}
	}
	if total < 100*30*shards || longest > walkWork+10*30 {
		t.Errorf("%d slots, %d of them under one lock", total, longest)
	}
}

// BenchmarkPartOfAWalk is how long a snapshot keeps a shard locked: for a part of it, and for all of it at once. The
// shard is that of a table of 64 MiB whose keys a hundred and twenty peers counted.
func BenchmarkPartOfAWalk(b *testing.B) {
	l, err := NewLimit(NewMeter("r", FixedWindow, time.Hour), 100)
	if err != nil {
		b.Fatal(err)
	}
	table, m := NewTiny(1, 250), l.Meter()
	s := &table.shards[5]
	for key, n := Key(0), 0; n < 480; key++ {
		if table.shardOf(hash(0, l.id, key)) != s {
			continue
		}
		n++
		for origin := range Origin(120) {
			table.Merge([]Slot{{Meter: &m, Key: key, Index: m.Index(walkTime), Origin: 2 + origin, Count: 1}}, walkTime)
		}
	}
	view := func(s *shard, c *cell, m *meterState, at instant) int {
		return s.countSlots(c, m) + int(s.view(c, m, at))
	}
	b.Run("part", func(b *testing.B) {
		var w walk
		for b.Loop() {
			table.livePart(s, &w, walkTime, view)
		}
	})
	b.Run("shard", func(b *testing.B) {
		for b.Loop() {
			var w walk
			for !table.livePart(s, &w, walkTime, view) {
			}
		}
	})
}
