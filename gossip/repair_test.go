package gossip_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
)

// What a mesh promises to nodes that are new, were away, or have lost more than is sent again.

// A newcomer that is informed counts all that members counted before it came. That takes it a few intervals.
func TestANewcomerIsInformedAtOnce(t *testing.T) {
	for _, test := range []struct {
		loss   float64
		within time.Duration
	}{{0, 300 * time.Millisecond}, {0.2, 3 * time.Second}} {
		t.Run(fmt.Sprint("loss ", test.loss), func(t *testing.T) {
			w := newMesh(t, 4, 100*time.Millisecond)
			w.takeAll(500, w.nodes...)
			w.agreed(time.Second)
			w.run(20 * time.Second)
			w.loss = test.loss
			n := w.add()
			w.until(test.within, "the newcomer is informed", func() bool { return n.replica.Informed() })
			if !w.knows(n) {
				t.Error("it is informed, and does not count all")
			}
			w.run(10 * time.Second)
			w.loss = 0
			w.run(5 * time.Second)
			w.wantRest()
		})
	}
}

// A newcomer counts what nodes admitted that are gone, also of one that is gone before the others have noticed.
func TestANewcomerCountsWhatNodesAdmittedThatAreGone(t *testing.T) {
	for _, test := range []struct {
		name          string
		graceful      bool
		noticed, late time.Duration // when the others take the node for gone, and when the newcomer comes
	}{
		{"it left", true, 0, time.Second},
		{"it failed", false, 0, time.Second},
		{"it failed, and nobody has noticed", false, 8 * time.Second, time.Second},
		{"it failed minutes ago", false, 0, 3 * time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newMesh(t, 4, 100*time.Millisecond)
			gone := w.nodes[0]
			w.takeAll(50, w.nodes...)
			w.agreed(time.Second)
			if test.graceful {
				w.stop(gone)
			} else {
				gone.up = false
			}
			if test.noticed == 0 {
				w.forget(gone, test.graceful)
			}
			w.run(test.late)
			n := w.add()
			if test.noticed > 0 {
				w.run(test.noticed - test.late)
				w.forget(gone, false)
			}
			w.until(time.Second, "the newcomer counts all", func() bool { return w.knows(n) })
		})
	}
}

// The last frame of a node that is killed reaches one member only. When a node comes, all others get to know it.
func TestOneMemberAloneKnowsWhatAKilledNodeAdmitted(t *testing.T) {
	for _, test := range []struct {
		name   string
		broken time.Duration // how long streams break
		later  time.Duration // how much later the newcomer ticks than the member that knows
	}{
		{"the newcomer is the first to send", 0, -30 * time.Millisecond},
		{"the newcomer is the last to send", 0, 30 * time.Millisecond},
		{"streams break at first", time.Second, 30 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newMesh(t, 4, 100*time.Millisecond)
			killed, knows := w.nodes[0], w.nodes[1]
			w.takeAll(1, w.nodes...)
			w.agreed(time.Second)
			w.take(killed, 1, 10)
			w.kill(killed, knows)
			w.run(time.Second)
			w.forget(killed, false)
			w.broken = test.broken > 0
			w.start(killed)
			killed.tickAt = knows.tickAt + int64(test.later)
			w.run(test.broken)
			w.broken = false
			w.agreed(6 * time.Second)
			w.run(5 * time.Second)
			w.wantRest()
		})
	}
}

// A node that starts may have from its store what another one lacks of a node that is gone. Nothing that members send
// to it is news then, and the other one gets to know all the same.
func TestANewcomerHasFromItsStoreWhatAMemberLacks(t *testing.T) {
	w := newMesh(t, 3, 100*time.Millisecond)
	gone, lacks, stores := w.nodes[0], w.nodes[1], w.nodes[2]
	w.take(gone, 1, 5)
	w.agreed(time.Second)
	w.cutOff(lacks)
	w.take(gone, 1, 10)
	w.run(time.Second)
	gone.up = false
	w.forget(gone, true)
	w.heal()
	store := stores.table.Snapshot(w.now, 10)
	n := w.add()
	n.tickAt = w.now // before it has read the store
	for _, other := range w.others(n) {
		other.tickAt = w.now + int64(30*time.Millisecond)
	}
	w.run(10 * time.Millisecond)
	n.table.Merge(store, w.now)
	w.agreed(6 * time.Second)
}

// Nodes that agreed and were out of reach for a while agree again within a second where requests come, however many
// frames they lack. Otherwise it takes until the next beacon.
func TestOutOfReach(t *testing.T) {
	for _, test := range []struct {
		name      string
		lasts     time.Duration
		interval  time.Duration
		asked     bool // requests go on
		suspended bool // the node does nothing meanwhile
		within    time.Duration
		loss      float64 // of packets, from the heal on
	}{
		{"cut for 30 s", 30 * time.Second, 100 * time.Millisecond, true, false, time.Second, 0.05},
		{"cut for 30 s, at rest then", 30 * time.Second, 100 * time.Millisecond, false, false, 2 * time.Second, 0.05},
		{"suspended for 30 s", 30 * time.Second, 100 * time.Millisecond, true, true, time.Second, 0},
		{"suspended for 30 s, at rest then", 30 * time.Second, 100 * time.Millisecond, false, true, 2 * time.Second, 0},
		{"cut for 100 s", 100 * time.Second, 100 * time.Millisecond, true, false, time.Second, 0},
		{"cut for 100 s, at rest then", 100 * time.Second, 100 * time.Millisecond, false, false, time.Second, 0.05},
		{"more than 1024 frames", 11 * time.Second, 10 * time.Millisecond, true, false, 3 * time.Second, 0},
		{"more than 1024 frames, suspended", 11 * time.Second, 10 * time.Millisecond, true, true, 3 * time.Second, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newMesh(t, 4, test.interval)
			away := w.nodes[1]
			w.takeAll(100, w.nodes...)
			w.agreed(time.Second)
			if away.suspended = test.suspended; !test.suspended {
				w.cutOff(away)
			}
			ask := func() {
				for _, n := range w.nodes {
					if !n.suspended {
						w.take(n, counters.Key(1+w.rand.IntN(100)), 1)
					}
				}
				w.run(w.interval)
			}
			for end := w.now + int64(test.lasts); w.now < end; {
				ask()
			}
			w.heal()
			away.suspended, w.loss = false, test.loss
			healed := w.now
			if test.asked {
				for w.now < healed+int64(test.within) {
					ask()
				}
				w.agreed(2 * w.interval) // what has just been admitted
			} else {
				t.Log("agreed after", w.agreed(test.within))
			}
			w.loss = 0
			w.run(5 * time.Second)
			w.wantRest()
		})
	}
}

// When one node after the other restarts, no count is lost, and each counts all when it is informed.
func TestARollingRestartLosesNoCount(t *testing.T) {
	w := newMesh(t, 5, 100*time.Millisecond)
	w.loss = 0.05
	w.takeAll(100, w.nodes...)
	for range 2 {
		for _, n := range w.nodes {
			w.takeAll(20, w.nodes...)
			w.run(300 * time.Millisecond)
			w.stop(n)
			w.takeAll(20, w.others(n)...)
			w.run(500 * time.Millisecond)
			w.start(n)
			before := maps.Clone(w.admitted)
			w.until(time.Second, "it is informed", func() bool { return n.replica.Informed() })
			for key, want := range before {
				if got := n.table.View(w.limit, key, w.now); got < want {
					t.Fatalf("node %d counts %d of key %d, and %d were admitted", n.place, got, key, want)
				}
			}
		}
	}
	w.agreed(3 * time.Second)
	w.loss = 0
	w.run(15 * time.Second)
	w.wantRest()
}

// A member that gets nothing, and sends, is sent what it lacks now and then, and not in every interval.
func TestAMemberThatGetsNothing(t *testing.T) {
	w := newMesh(t, 2, 100*time.Millisecond)
	w.takeAll(20_000, w.nodes[0])
	w.agreed(2 * time.Second)
	bytes := func(deaf bool) (sent int) {
		n := w.add()
		w.cuts[[2]int{0, n.place}] = deaf
		for end := w.now + int64(20*time.Second); w.now < end; {
			w.run(meshStep)
			for _, p := range w.underWay {
				if p.from == w.nodes[0] && p.to == n {
					sent += len(p.m.Data)
				}
			}
		}
		return sent
	}
	usual, most := bytes(false), bytes(true)
	t.Logf("a member is sent %d kB, one that gets nothing %d kB", usual>>10, most>>10)
	if most > 25*usual {
		t.Errorf("it is sent %d bytes, %d times as many as others", most, most/usual)
	}
}

// Frames of a node that is no member, and recordings of a member's, cause next to nothing to be sent.
func TestStrangersAndRecordingsCauseNothing(t *testing.T) {
	w := newMesh(t, 2, 100*time.Millisecond)
	a, b := w.nodes[0], w.nodes[1]
	w.takeAll(5000, a, b)
	var recorded [][]byte
	for end := w.now + int64(time.Second); w.now < end; {
		w.run(meshStep)
		for _, p := range w.underWay {
			if p.to == a {
				recorded = append(recorded, p.m.Data)
			}
		}
	}
	w.agreed(time.Second)
	stranger := &meshNode{place: 2, boot: 99, origin: gossip.NewOrigin("stranger", 99)}
	stranger.table = counters.NewTable(counters.Config{Origin: stranger.origin, Memory: w.memory})
	stranger.replica = gossip.NewReplica(stranger.origin, w.interval, stranger.table)
	stranger.replica.Join(a.origin, w.now)
	before := a.replica.Stats().BytesSent
	const intervals = 50
	for range intervals {
		for key := range counters.Key(500) {
			stranger.table.Take(w.limit, key+1, 1, w.now)
		}
		for _, m := range stranger.replica.Tick(stranger.table.DrainDirty(w.now), w.now) {
			w.deliver(a, m.Data)
		}
		for _, data := range recorded {
			w.deliver(a, data)
		}
		w.run(w.interval)
	}
	if sent := a.replica.Stats().BytesSent - before; sent > 200*intervals {
		t.Errorf("it sends %d bytes, %d for each interval", sent, sent/intervals)
	}
}

// The bound covers a surprise on both sides of a cut as soon as either side knows of the other's, also where the cut
// lasted for longer than frames are kept.
func TestTheBoundCoversALongCut(t *testing.T) {
	for _, interval := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond} {
		w := newMesh(t, 2, interval)
		limit, err := counters.NewLimit(counters.NewMeter("small", counters.SlidingWindow, time.Hour), 1000)
		if err != nil {
			t.Fatal(err)
		}
		limits := map[string]*counters.Limit{"small": limit}
		bound := make([]float64, 2)
		step := func(cost uint64) {
			for i, n := range w.nodes {
				n.table.Know([]*counters.Limit{w.limit, limit})
				if cost > 0 {
					n.table.Take(limit, 1, cost, w.now)
					w.take(n, 2, 1)
				}
				bound[i] = max(bound[i], n.replica.Audit(limits, w.now)["small"])
			}
			w.run(w.interval)
		}
		step(1)
		w.run(time.Second)
		w.cutOff(w.nodes[1])
		for end := w.now + int64(15*time.Second); w.now < end; {
			step(10)
		}
		w.heal()
		for range 3 * time.Second / interval {
			step(1)
		}
		for i, n := range w.nodes {
			if view := n.table.View(limit, 1, w.now); view <= 1900 {
				t.Fatalf("node %d counts %d after the cut, and each side admitted a thousand", i, view)
			} else if excess := float64(view - 1000); bound[i] < excess {
				t.Errorf("interval %v: the excess is %v, and the bound of node %d is %v", interval, excess, i,
					bound[i])
			}
		}
	}
}

// BenchmarkNewcomer is how long a newcomer takes to count what four members counted of so many keys, in virtual time,
// and how many bytes it gets until then.
func BenchmarkNewcomer(b *testing.B) {
	for _, keys := range []counters.Key{10_000, 100_000} {
		for _, restarted := range []bool{false, true} {
			b.Run(fmt.Sprintf("keys=%d,restarted=%t", keys, restarted), func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					w := newMesh(b, 0, 100*time.Millisecond)
					w.memory = 256 << 20
					for range 4 {
						w.add()
					}
					w.takeAll(keys, w.nodes...)
					w.agreed(5 * time.Second)
					for i := 0; restarted && i < len(w.nodes); i++ {
						w.stop(w.nodes[i])
						w.start(w.nodes[i])
						w.run(20 * time.Second)
					}
					n := w.add()
					b.StartTimer()
					took := w.until(time.Minute, "it counts all", func() bool { return w.knows(n) })
					b.ReportMetric(float64(took.Milliseconds()), "virtual-ms")
					b.ReportMetric(float64(n.received), "bytes")
				}
			})
		}
	}
}
