package counters

import "time"

// NewTiny returns a table whose shards hold a few pages each, so that they are soon full.
func NewTiny(origin Origin, pages int) *Table {
	return newTable(origin, (pages+1)*(pageWords*wordBytes+64)*20/19)
}

// ShardOf is the number of the shard that a key's cell is in.
func ShardOf(l *Limit, key Key) int { return int(hash(l.id, key) >> (64 - shardBits)) }

// LongestFill is how long a bucket of the window may take to fill, in nanoseconds.
func LongestFill(window time.Duration) uint64 { return uint64(longestFill(window)) }
