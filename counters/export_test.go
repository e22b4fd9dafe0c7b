package counters

import "time"

// NewTiny returns a table whose shards hold a few pages each, so that they are soon full.
func NewTiny(origin Origin, pages int) *Table {
	return newTable(Config{Origin: origin}, (pages+1)*(pageWords*wordBytes+64)*20/19)
}

// Believed is the most that a slot is believed to count where the limit is known.
func Believed(l *Limit) uint64 { return believed * (l.max + l.refill) }

// ShardOf is the number of the shard that a key's cell is in, of a table without a seed.
func ShardOf(l *Limit, key Key) int { return int(hash(0, l.id, key) >> (64 - shardBits)) }

// BanShardOf is that of its ban, the key's own where the limit has none.
func BanShardOf(l *Limit, key Key) int {
	if l.ban == nil {
		return ShardOf(l, key)
	}
	return int(hash(0, l.ban.id, key) >> (64 - shardBits))
}

// Watched is what a table knows of the demand for a key.
type Watched struct {
	Own, Live, Frozen, Ghost float64
	Voices                   int
	Until, Summed            int64
}

// Watched returns what is known of the demand for a key, nil if nothing is.
func (t *Table) Watched(l *Limit, key Key) *Watched {
	h := hash(t.seed, l.id, key)
	s := t.shardOf(h)
	s.Lock()
	defer s.Unlock()
	ref := s.find(l.id, key, h)
	if ref == 0 || s.cell(ref).watch == 0 {
		return nil
	}
	w := s.memory.watch(s.cell(ref).watch)
	seen := &Watched{Own: float64(w.own), Live: float64(w.live), Frozen: float64(w.frozen), Until: w.until, Summed: w.summed}
	for voice := w.voices; voice != 0; voice = s.memory.voice(voice).next {
		seen.Voices++
	}
	if w.ghost != 0 {
		for _, n := range s.memory.ghost(w.ghost).counts {
			seen.Ghost += float64(n)
		}
	}
	return seen
}

// LongestFill is how long a bucket of the window may take to fill, in nanoseconds.
func LongestFill(window time.Duration) uint64 { return uint64(longestFill(window)) }
