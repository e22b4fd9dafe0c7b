package gossip

import (
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// archive is a table that holds so many slots of others, as far as a snapshot tells.
type archive struct {
	noOwners
	meter *counters.Meter
	slots int
}

func (a archive) Snapshot(now int64, limit int) (slots []counters.Slot) {
	for i := range min(a.slots, limit) {
		key := counters.Key(i+2) * 0x9e3779b97f4a7c15
		slots = append(slots, counters.Slot{Meter: a.meter, Key: key, Index: a.meter.Index(now), Origin: 3, Count: 1})
	}
	return slots
}

// sinceOf notes since when the slots of key 1 are sent to be, and when they are sent.
type sinceOf struct {
	noOwners
	complete, at []int64
}

func (s *sinceOf) MergeRises(slots []counters.Slot, _ int64, _ *counters.Rises) int {
	for _, slot := range slots {
		if slot.Key == 1 {
			s.complete, s.at = append(s.complete, slot.CompleteThrough), append(s.at, slot.SentAt)
		}
	}
	return len(slots)
}

func (*sinceOf) Snapshot(int64, int) []counters.Slot { return nil }

// A snapshot as large as one that had to leave keys out may have left any out: what comes after it may be news of long
// ago, and bears no CompleteThrough. After one that holds all, what comes is as late as the snapshot.
func TestTruncatedSnapshotHasNoWatermark(t *testing.T) {
	m := counters.NewMeter("r", counters.TokenBucket, time.Hour)
	now := frameTime - frameTime%int64(time.Hour)
	for _, c := range []struct {
		name  string
		slots int
		whole bool
	}{
		{"nothing to send", 0, true},
		{"a small one", 1000, true},
		{"as many slots as a snapshot holds", snapshotSlots, false},
	} {
		ear := &sinceOf{}
		sender, auditor := NewReplica(1, 100*time.Millisecond,
			archive{meter: &m, slots: c.slots}), NewReplica(2, 100*time.Millisecond, ear)
		sender.Join(2, now)
		auditor.Join(1, now)
		send := func(at int64, slots ...counters.Slot) (size int) {
			for _, msg := range sender.Tick(counters.Drained{Slots: slots}, at) {
				if err := auditor.Receive(msg.Data, at); err != nil {
					t.Fatalf("%s: %v", c.name, err)
				}
				size = max(size, len(msg.Data))
			}
			return size
		}
		size := send(now)
		if size > maxSnapshot/2 == c.whole {
			t.Fatalf("%s: a snapshot of %d bytes", c.name, size)
		}
		slot := counters.Slot{Meter: &m, Key: 1, Index: m.Index(now), Origin: 1, Count: 6}
		later := now + int64(time.Minute)
		send(later, slot)
		slot.Count++
		send(later+int64(time.Second), slot) // nor what comes after that
		if at := []int64{later, later + int64(time.Second)}; !slices.Equal(ear.at, at) {
			t.Errorf("%s: the slots are sent at %d, want %d", c.name, ear.at, at)
		}
		want := []int64{now, later}
		if !c.whole {
			want = []int64{0, 0}
		}
		if len(ear.complete) != 2 || ear.complete[0] != want[0] || ear.complete[1] != want[1] {
			t.Errorf("%s, %d bytes at %d: the slots that follow are told to be since %d, want %d", c.name, size, now,
				ear.complete, want)
		}
	}
}

func (archive) SetWatermark(counters.Origin, int64) {}

func (*sinceOf) SetWatermark(counters.Origin, int64) {}

func (archive) SetSumWatermarks(counters.Sum, counters.PartitionSet, int64)  {}
func (*sinceOf) SetSumWatermarks(counters.Sum, counters.PartitionSet, int64) {}

func (archive) SetCluster(int, time.Duration)             {}
func (*sinceOf) SetCluster(int, time.Duration)            {}
func (archive) SetMember(counters.Origin, bool)           {}
func (*sinceOf) SetMember(counters.Origin, bool)          {}
func (archive) SetPlace(counters.Origin, counters.Place)  {}
func (*sinceOf) SetPlace(counters.Origin, counters.Place) {}
func (archive) SetRegion(int, time.Duration)              {}
func (*sinceOf) SetRegion(int, time.Duration)             {}
