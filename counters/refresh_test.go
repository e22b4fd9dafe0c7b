package counters

import (
	"testing"
	"time"
)

// Whatever is asked for while a refresh goes on, each partition is gone through once, and as a whole.
func TestRefreshGoesThroughEachPartitionOnce(t *testing.T) {
	table := NewTable(Config{Origin: 1, Memory: 4 << 20})
	limit, err := NewLimit(NewMeter("r", SlidingWindow, time.Hour), 100)
	if err != nil {
		t.Fatal(err)
	}
	const now = int64(1_800_000_000_000_000_000)
	for k := range Key(8 * Partitions) {
		if !table.Take(limit, k, 1, now).Allowed {
			t.Fatalf("key %d is denied", k)
		}
	}
	table.DrainDirty(now)
	only := func(p int) (s PartitionSet) {
		s.Add(p)
		return s
	}
	sent, in := make(map[Key]int), make(map[Key]int) // how often, and the shard
	drain := func() {
		for i := range table.shards {
			for _, slot := range table.drainShard(&table.shards[i], nil, 0, now) {
				sent[slot.Key]++
				in[slot.Key] = i
			}
		}
	}
	table.Refresh(only(5))
	table.refreshSome(shards / 2)
	drain()
	table.Refresh(PartitionSet{})
	table.Refresh(only(9))
	table.refreshSome(shards/2 + 1)
	drain()
	if table.Refreshed() || table.refresh.partitions != only(9) {
		t.Errorf("left to go through: %b, want partition 9", table.refresh.partitions)
	}
	table.refreshSome(shards)
	drain()
	if !table.Refreshed() {
		t.Errorf("left to go through: %b", table.refresh.partitions)
	}
	first := map[int]int{5: 0, 9: shards / 2} // where each began, in the middle of a shard for all it knows
	for k := range Key(8 * Partitions) {
		want := 0
		if shard, asked := first[k.Partition()]; asked && in[k] == shard {
			want = 2
		} else if asked {
			want = 1
		}
		if sent[k] != want {
			t.Errorf("a key of partition %d in shard %d was sent %d times, want %d", k.Partition(), in[k], sent[k],
				want)
		}
	}
}
