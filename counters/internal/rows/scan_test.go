package rows

import (
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// churn changes a shard between two parts of a scan. It remembers what was not there all the time.
type churn struct {
	store  *Store
	shard  *Shard
	stable map[identity]bool // there since the scan began, or until it removed them
	added  map[identity]bool // meanwhile
}

func (c *churn) step(t *rapid.T) {
	for range rapid.IntRange(0, 6).Draw(t, "changes") {
		id := drawIdentity(t)
		switch l := c.shard.line(c.store, id); {
		case l == nil:
			c.shard.Grow()
			c.shard.insert(c.store, id)
			c.added[id] = true
		case rapid.Bool().Draw(t, "remove"):
			c.shard.Remove(l)
			delete(c.stable, id)
		}
	}
}

func filled(t *rapid.T) *churn {
	store, s := tiny(t)
	c := &churn{store, s, make(map[identity]bool), make(map[identity]bool)}
	for range rapid.IntRange(0, 60).Draw(t, "inserts") {
		if id := drawIdentity(t); s.line(store, id) == nil {
			s.Grow()
			if s.insert(store, id) != nil {
				c.stable[id] = true
			}
		}
	}
	return c
}

// A scan visits what is there all the time once, and anything else at most once, whatever changes between its parts.
// Lines that it removes are gone.
func TestScanVisitsEachLineOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := filled(t)
		visits := make(map[identity]int)
		visit := func(l *Line) bool {
			id := identityOf(l)
			visits[id]++
			return id.key%3 == 0
		}
		var cursor Cursor
		for places := rapid.IntRange(1, 8).Draw(t, "places"); !c.shard.Scan(&cursor, places, visit); {
			c.step(t)
		}
		for id, n := range visits {
			if n > 1 {
				t.Fatalf("%+v was visited %d times", id, n)
			}
		}
		for id := range c.stable {
			if visits[id] == 0 {
				t.Fatalf("%+v was not visited", id)
			}
			if id.key%3 == 0 && !c.added[id] && c.shard.line(c.store, id) != nil {
				t.Fatalf("%+v was not removed", id)
			}
		}
		if cursor != (Cursor{}) {
			t.Fatalf("the scan is done, and the cursor is at %v", cursor)
		}
	})
}

// A drain visits what was marked before it once, and anything else at most once. What it visited has no mark, unless
// it was marked again since.
func TestDrainVisitsEachMarkOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := filled(t)
		marked := make(map[identity]bool)
		for id := range c.stable {
			if rapid.Bool().Draw(t, "marked") {
				marked[id] = true
				c.shard.Mark(c.shard.line(c.store, id))
			}
		}
		visits, again := make(map[identity]int), make(map[identity]bool)
		var cursor Cursor
		part := rapid.IntRange(1, 8).Draw(t, "part")
		for done := false; !done; {
			var lines []*Line
			lines, done = c.shard.Drain(&cursor, part, nil)
			for _, l := range lines {
				visits[identityOf(l)]++
			}
			if done {
				break
			}
			c.step(t)
			id := drawIdentity(t)
			if l := c.shard.line(c.store, id); l != nil {
				c.shard.Mark(l)
				again[id] = true
			}
		}
		for id, n := range visits {
			if n > 1 || !marked[id] && !again[id] {
				t.Fatalf("%+v was visited %d times", id, n)
			}
		}
		for id := range c.stable {
			if marked[id] && visits[id] == 0 {
				t.Fatalf("%+v was marked and not visited", id)
			}
			if !again[id] && c.shard.Marked(c.shard.line(c.store, id)) {
				t.Fatalf("%+v is still marked", id)
			}
		}
	})
}

// Several goroutines use a store at once: each finds the lines that are its own, and reads ahead without the lock.
func TestStoreIsSafeForConcurrentUse(t *testing.T) {
	store := New(Config{Bytes: 1 << 20, Shards: 4, Seed: 5, Meters: &Meters{1: someMeter}})
	var all sync.WaitGroup
	for worker := range uint64(4) {
		all.Go(func() {
			for i := range uint64(20_000) {
				key := worker<<32 | i%1000
				h := store.Hash(someMeter, key)
				s := store.Shard(h)
				touched(s.Touch(h))
				s.Lock()
				s.Grow()
				switch l := s.Head(h, someMeter, key); {
				case l == nil:
					if l = s.Insert(h, key, Name(1, Head, 0)); l == nil {
						t.Error("there is no room")
					} else if l.Words[0] = key; i%2 == 0 {
						s.Mark(l)
					}
				case l.Words[0] != key:
					t.Errorf("key %x has the words of %x", key, l.Words[0])
				case i%3 == 0:
					s.Remove(l)
				}
				s.Unlock()
			}
		})
	}
	all.Go(func() {
		var lines []*Line
		for range 50 {
			for i := range store.Shards() {
				s := &store.Shards()[i]
				var c Cursor
				for done := false; !done; {
					s.Lock()
					lines, done = s.Drain(&c, 64, lines[:0])
					for _, l := range lines {
						if l.Words[0] != l.Key {
							t.Errorf("key %x has the words of %x", l.Key, l.Words[0])
						}
					}
					s.Unlock()
				}
			}
		}
	})
	all.Wait()
}
