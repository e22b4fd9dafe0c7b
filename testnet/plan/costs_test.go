//go:build linux && !race

package plan

import (
	"bytes"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// cpuTime is what this process has used.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	testkit.Must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// agrees holds a constant against what something takes here: they may be a factor of five apart, as machines are. What
// it takes with the race detector says nothing about that.
func agrees(t *testing.T, what string, constant time.Duration, times int, do func()) {
	t.Helper()
	before := cpuTime(t)
	do()
	measured := (cpuTime(t) - before) / time.Duration(times)
	const most = 5
	t.Logf("%s: %v here, planned with %v", what, measured, constant)
	if measured > most*constant || constant > most*measured {
		t.Errorf("%s: %v here, planned with %v: more than %d times apart", what, measured, constant, most)
	}
}

// received is a memberlist's delegate that counts messages.
type received struct{ messages chan struct{} }

func (received) NodeMeta(int) []byte             { return nil }
func (received) GetBroadcasts(int, int) [][]byte { return nil }
func (received) LocalState(bool) []byte          { return nil }
func (received) MergeRemoteState([]byte, bool)   {}
func (r received) NotifyMsg([]byte)              { r.messages <- struct{}{} }

func TestMessagesCostWhatPlansAssume(t *testing.T) {
	messages := make(chan struct{})
	start := func(name string) *memberlist.Memberlist {
		cfg := memberlist.DefaultLANConfig()
		cfg.Name, cfg.BindAddr, cfg.BindPort, cfg.LogOutput = name, "127.0.0.1", 0, io.Discard
		cfg.SecretKey, cfg.EnableCompression, cfg.Delegate = bytes.Repeat([]byte{7}, 32), false, received{messages}
		m, err := memberlist.Create(cfg)
		testkit.Must(t, err)
		t.Cleanup(func() { testkit.Must(t, m.Shutdown()) })
		return m
	}
	sender, receiver := start("sender"), start("receiver")
	to := receiver.LocalNode()
	const count = 3000
	agrees(t, "a message sent and received", sendCost+receiveCost, count, func() {
		for range count {
			testkit.Must(t, sender.SendBestEffort(to, make([]byte, 300)))
			select {
			case <-messages:
			case <-time.After(testkit.Patience):
				t.Fatal("a message was lost on loopback")
			}
		}
	})
}

func TestCountsCostWhatPlansAssume(t *testing.T) {
	const keys = 100_000
	now := int64(1_800_000_000 * time.Second)
	table := func(origin counters.Origin) *counters.Table {
		return counters.NewTable(counters.Config{Origin: origin, Memory: 128 << 20})
	}
	limit, err := counters.NewLimit(counters.NewMeter("plan", counters.SlidingWindow, 10*time.Second), 1000)
	testkit.Must(t, err)
	a, b := table(1), table(2)
	agrees(t, "a decision", takeCost, keys, func() {
		for k := range keys {
			a.Take(limit, counters.Key(k+1)*0x9e3779b97f4a7c15, 1, now)
		}
	})
	slots := a.DrainDirty(now).Slots
	if len(slots) != keys {
		t.Fatalf("%d counts drained", len(slots))
	}
	for i := range slots {
		slots[i].Sender = 1
	}
	agrees(t, "a count merged", slotInCost, keys, func() {
		if n := b.Merge(slots, now); n != keys {
			t.Errorf("%d counts merged", n)
		}
	})
	bytes := float64(a.Stats().Bytes-table(3).Stats().Bytes) / keys
	if bytes > cellBytes || bytes < 0.9*cellBytes {
		t.Errorf("a key takes %g bytes, planned with %d", bytes, cellBytes)
	}
	if c := float64(b.Stats().Bytes-a.Stats().Bytes) / keys; c != slotBytes {
		t.Errorf("a count takes %g bytes more, planned with %d", c, slotBytes)
	}
}

// An owner drains what it adds up. What packing takes comes on top.
func TestSumsCostWhatPlansAssume(t *testing.T) {
	const keys, members = 20_000, 4
	now := int64(1_800_000_000 * time.Second)
	owner := counters.NewTable(counters.Config{Origin: 1, Memory: 128 << 20})
	o := counters.Owners{Regions: 1, Region: counters.NewSum(1 << 32)}
	for p := range counters.Partitions {
		o.Owned.Add(p)
	}
	owner.SetOwners(&o)
	meter := counters.NewMeter("plan", counters.SlidingWindow, 10*time.Second)
	for member := range counters.Origin(members) {
		owner.SetMember(member+2, true)
		slots := make([]counters.Slot, keys)
		for k := range slots {
			key := counters.Key(k+1) * 0x9e3779b97f4a7c15
			slots[k] = counters.Slot{Meter: &meter, Key: key, Index: meter.Index(now), Origin: member + 2,
				Sender: member + 2, Place: counters.Near, Count: 1}
		}
		owner.Merge(slots, now)
	}
	slots := make([]counters.Slot, keys*members)
	agrees(t, "a count added up", slotOutCost, keys*members, func() { slots = owner.DrainInto(slots, now).Slots })
	if len(slots) != keys*members {
		t.Errorf("%d sums drained", len(slots))
	}
}
