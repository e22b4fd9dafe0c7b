package rows

import (
	"testing"

	"pgregory.net/rapid"
)

// someMeter is the id of a meter: a hash, of which no bits are zero by rule.
const someMeter = 0x9e3779b97f4a7c15

// tiny returns a store of one small shard, and meters of which some share bits. Some shards grow, in steps of all
// sizes. Others are full soon, so that lines lie far from their homes, behind the last home as well.
func tiny(t *rapid.T) (*Store, *Shard) {
	meters := new(Meters)
	for i := range 4 {
		meters[1+i] = someMeter * uint64(2*i+1)
	}
	least := rapid.IntRange(1, 30).Draw(t, "homes")
	sz := sizes{least, least, 1 + least/8, 1}
	if rapid.Bool().Draw(t, "grows") {
		sz.most, sz.part = least<<rapid.IntRange(1, 4).Draw(t, "doubles"), rapid.IntRange(1, 16).Draw(t, "part")
		if rapid.Bool().Draw(t, "has room") {
			sz.overflow = 400
		}
	}
	store := newStore(Config{Shards: 1, Seed: rapid.Uint64().Draw(t, "seed"), Meters: meters}, sz)
	return store, &store.shards[0]
}

// identity is what a line is found by.
type identity struct {
	meter uint16
	key   uint64
	kind  uint8
	rest  uint64 // 0 for a head
}

func drawIdentity(t *rapid.T) identity {
	id := identity{
		meter: rapid.Uint16Range(1, 4).Draw(t, "meter"), key: rapid.Uint64Range(0, 12).Draw(t, "key"),
		kind: rapid.Uint8Range(0, 2).Draw(t, "kind"),
	}
	if id.kind != Head {
		id.rest = rapid.Uint64Range(0, 2).Draw(t, "rest") << 40
	}
	return id
}

// line finds the line of an identity, nil if there is none.
func (s *Shard) line(t *Store, id identity) *Line {
	h := t.Hash(s.meters[id.meter], id.key)
	if id.kind == Head {
		return s.Head(h, s.meters[id.meter], id.key)
	}
	name := Name(id.meter, id.kind, id.rest)
	return s.Find(Sub(h, name), id.key, name)
}

func (s *Shard) insert(t *Store, id identity) *Line {
	h, name := t.Hash(s.meters[id.meter], id.key), Name(id.meter, id.kind, id.rest)
	if id.kind != Head {
		h = Sub(h, name)
	}
	return s.Insert(h, id.key, name)
}

func identityOf(l *Line) identity {
	id := identity{meter: l.Meter(), key: l.Key, kind: l.Kind()}
	if id.kind != Head {
		id.rest = l.Rest()
	}
	return id
}

// content is what a naive store has of a line.
type content struct {
	words [6]uint64
	rest  uint64 // of a head
	dirty bool
}

// A shard is a map, whatever is inserted, changed, marked and removed. The tiny ones are full, so that lines lie far
// from their homes, behind the last home as well.
func TestShardIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		store, s := tiny(t)
		naive := make(map[identity]content)
		t.Repeat(map[string]func(*rapid.T){
			"insert": func(t *rapid.T) { insertBoth(t, store, s, naive) },
			"change": func(t *rapid.T) { changeBoth(t, store, s, naive) },
			"remove": func(t *rapid.T) {
				id := drawIdentity(t)
				if l := s.line(store, id); l != nil {
					s.Remove(l)
					delete(naive, id)
				}
			},
			"victim": func(t *rapid.T) {
				pinned := rapid.Uint64Range(0, 12).Draw(t, "pinned")
				v := s.Victim(func(l *Line) uint64 {
					if l.Key == pinned {
						return Pinned
					}
					return l.Key
				})
				if v != nil && v.Key == pinned {
					t.Fatalf("the victim has the pinned key %d", pinned)
				}
				if v != nil {
					delete(naive, identityOf(v))
					s.Remove(v)
				}
			},
			"": func(t *rapid.T) { compare(t, store, s, naive) },
		})
	})
}

func insertBoth(t *rapid.T, store *Store, s *Shard, naive map[identity]content) {
	id := drawIdentity(t)
	if _, ok := naive[id]; ok {
		return
	}
	s.Grow()
	switch l := s.insert(store, id); {
	case l != nil:
		if s.Marked(l) || l.Words != [6]uint64{} {
			t.Fatalf("a new line has a mark, or words: %v", *l)
		}
		naive[id] = content{}
	case s.used < s.most && s.overflow > s.used:
		t.Fatalf("no room for a line beside %d, of at most %d", s.used, s.most)
	}
}

func changeBoth(t *rapid.T, store *Store, s *Shard, naive map[identity]content) {
	id := drawIdentity(t)
	l := s.line(store, id)
	if l == nil {
		return
	}
	c := content{dirty: rapid.Bool().Draw(t, "mark") || s.Marked(l)}
	for i := range c.words {
		c.words[i] = rapid.Uint64().Draw(t, "word")
	}
	if id.kind == Head {
		c.rest = rapid.Uint64Range(0, 1<<RestBits-1).Draw(t, "rest of the head")
		l.Name = Name(id.meter, Head, c.rest)
	}
	if l.Words = c.words; c.dirty {
		s.Mark(l)
	}
	naive[id] = c
}

// compare holds that all lines of the naive store are found as they are, no others are there, and every line can be
// found: between its home and itself no line is free.
func compare(t *rapid.T, store *Store, s *Shard, naive map[identity]content) {
	if s.Used() != len(naive) {
		t.Fatalf("%d lines, want %d", s.Used(), len(naive))
	}
	for id, c := range naive {
		l := s.line(store, id)
		if l == nil {
			t.Fatalf("%+v is not found", id)
		}
		got := content{words: l.Words, dirty: s.Marked(l)}
		if id.kind == Head {
			got.rest = l.Rest()
		}
		if got != c {
			t.Fatalf("%+v is %+v, want %+v", id, got, c)
		}
	}
	seen := 0
	for i := range s.last + 1 {
		l := s.at(i)
		if l.free() {
			if *l != (Line{}) || s.marked(i) {
				t.Fatalf("the free line %d is not empty: %v", i, *l)
			}
			continue
		}
		if seen++; s.line(store, identityOf(l)) != l {
			t.Fatalf("%+v, at %d, is not found there", identityOf(l), i)
		}
	}
	if seen != len(naive) || !s.at(s.last).free() {
		t.Fatalf("%d places are used, want %d, and the last one is to be free", seen, len(naive))
	}
}

// However many lines come at once, growth catches up with them: a step for every two.
func TestGrowthCatchesUp(t *testing.T) {
	store := newStore(Config{Shards: 1, Seed: 1, Meters: &Meters{1: someMeter}}, sizes{1024, 2048, overflow, growPart})
	s := store.Shard(0)
	key := uint64(0)
	insert := func() {
		key++
		s.Insert(store.Hash(someMeter, key), key, Name(1, Head, 0))
	}
	for ; s.split == 0; insert() {
		s.Grow()
	}
	const lines = 20
	left := func() uint64 { return s.split * s.homes >> 33 } // homes that are not doubled yet
	before := left()
	for range lines {
		insert()
	}
	if s.Grow(); before-left() < lines/linesPerStep*uint64(s.part) {
		t.Errorf("%d homes were doubled for %d lines", before-left(), lines)
	}
}

// A key of one line takes at most 84 bytes of a large store.
func TestAKeyTakesFewBytes(t *testing.T) {
	const bytes = 64 << 20
	store := New(Config{Bytes: bytes, Shards: 64, Seed: 1, Meters: &Meters{1: someMeter}})
	keys := 0
	for key := uint64(0); ; key++ {
		h := store.Hash(someMeter, key)
		s := store.Shard(h)
		s.Grow()
		if s.Used() == s.Limit() || s.Insert(h, key, Name(1, Head, 0)) == nil {
			continue
		}
		if keys++; int(s.homes) == s.sizes.most && keys == 64*s.limit {
			break
		}
		if key > 4*bytes/lineBytes {
			t.Fatalf("only %d of %d lines could be used", keys, 64*s.limit)
		}
	}
	if each := float64(bytes) / float64(keys); each > 84 {
		t.Errorf("a key takes %.1f bytes", each)
	}
}

// A store takes memory as lines come: at most 160 bytes a line beyond what it begins with, whatever it may take.
func TestAStoreTakesMemoryAsLinesCome(t *testing.T) {
	const lines = 500_000
	store := New(Config{Bytes: 1 << 30, Shards: 64, Seed: 1, Meters: &Meters{1: someMeter}})
	first := store.Bytes()
	if first > 64*2*leastHomes*lineBytes {
		t.Errorf("an empty store takes %d bytes", first)
	}
	for key := range uint64(lines) {
		h := store.Hash(someMeter, key)
		s := store.Shard(h)
		s.Grow()
		if s.Insert(h, key, Name(1, Head, 0)) == nil {
			t.Fatalf("there is no room for line %d", key)
		}
		if key%1000 > 0 {
			continue
		}
		if got := store.Bytes(); got > first+int(key)*160 {
			t.Fatalf("%d lines take %d bytes", key+1, got)
		}
	}
	found := 0
	for key := range uint64(lines) {
		h := store.Hash(someMeter, key)
		if store.Shard(h).Head(h, someMeter, key) != nil {
			found++
		}
	}
	if found != lines {
		t.Errorf("%d lines of %d are left", found, lines)
	}
}
