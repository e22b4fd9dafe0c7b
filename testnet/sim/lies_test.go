package sim

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// liar is a member with the key whose frames are well made, and lie.
type liar struct {
	t       *testing.T
	cluster *cluster
	origin  counters.Origin
	counts  []uint64 // what it tells of the first clients, in every sub-window
	demand  float32
	replica *gossip.Replica
	sent    int
}

// tells has the liar speak to each node at the end of its interval.
func (l *liar) tells(n *node) {
	now := l.cluster.clock(n)
	if l.replica == nil {
		l.replica = gossip.NewReplica(l.origin, l.cluster.opt.Interval,
			counters.NewTable(counters.Config{Origin: l.origin, Memory: counters.MinMemory}))
	}
	l.replica.Join(n.origin, now)
	m := l.cluster.limit.Meter()
	var d counters.Drained
	for client, count := range l.counts {
		d.Slots = append(
			d.Slots,
			counters.Slot{Meter: &m, Key: l.cluster.keys[client], Index: m.Index(now), Origin: l.origin, Birth: 1,
				Count: count, Demand: l.demand},
		)
	}
	for _, message := range l.replica.Tick(d, now) {
		if message.To != n.origin {
			continue
		}
		l.sent++
		if err := n.replica.Receive(message.Data, now); err != nil {
			l.t.Errorf("a frame of the liar's cannot be read: %v", err)
		}
	}
}

func lied(seed uint64) Options {
	o := DefaultOptions()
	o.Seed, o.Regions, o.Nodes, o.Limit, o.Load, o.Keys, o.Duration = seed, 2, 2, 200, 0.8, 2, 30*time.Second
	return o
}

// Counts that no node can have admitted change nothing: who keeps to the limit is served, what is admitted is counted,
// everywhere and no more, and all agree. That holds as well where they are told in the name of an honest node.
func TestLiesBeyondBeliefChangeNothing(t *testing.T) {
	for name, origin := range map[string]counters.Origin{"in its own name": 4711,
		"in the name of another": gossip.NewOrigin("node-0", 1)} {
		t.Run(name, func(t *testing.T) {
			l := &liar{t: t, origin: origin, counts: []uint64{1 << 63, math.MaxUint64}, demand: math.MaxFloat32}
			j, err := judged(lied(1), noHooks())
			testkit.Must(t, err)
			l.cluster = j.cluster
			ticked := j.cluster.hooks.ticked
			j.cluster.hooks.ticked = func(n *node) {
				if ticked(n); n.origin != origin && j.cluster.recorder.measured(j.cluster.now) {
					l.tells(n)
				}
			}
			r, err := j.play(t.Context())
			testkit.Must(t, err)
			if err := j.failure(); err != nil {
				t.Error(err)
			}
			if r.FalseRejections != 0 || r.Denied != 0 {
				t.Errorf("of %d requests within the limit %d are denied", r.Offered, r.Denied)
			}
			for _, n := range j.cluster.nodes {
				if s := n.table.Stats(); n.origin != origin &&
					(s.Implausible == 0 || s.LastImplausible.Origin != origin) {
					t.Errorf("node %d noticed nothing: %+v", n.place, s)
				}
			}
		})
	}
}

// A liar that tells what cannot be of one client, and of another a whole limit in every sub-window, which can: the
// other's requests are admitted up to half an even share of the limit at each node (I8), and without the first lie not
// at all.
func TestALiarLeavesTheFloor(t *testing.T) {
	for _, test := range []struct {
		name        string
		beyond      uint64
		least, most uint64 // admitted of the second client by a node, a window
	}{
		{"a liar who is found out", 1 << 50, 25, 28}, // 200/2/4; where it moves, the window is a tenth more
		{"a liar who is believed", 1, 0, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := lied(2)
			o.Load = 3
			got := make([]uint64, o.Total())
			l := &liar{t: t, origin: 4711, counts: []uint64{test.beyond, 200}}
			h := noHooks()
			h.ticked = l.tells
			var from, until int64 // between the bursts in which the floor is used up
			h.taken = func(n *node, client int, at int64, d counters.Decision) {
				if client == 1 && d.Allowed && at >= from && at < until {
					got[n.place]++
				}
			}
			c, err := newCluster(o, h)
			testkit.Must(t, err)
			l.cluster, from, until = c, c.startAt+int64(o.Window/2), c.startAt+int64(o.Window/2+2*o.Window)
			testkit.Must(t, c.offer(context.Background(), func(time.Duration) {}))
			for place, n := range got {
				if n < 2*test.least || n > 2*test.most {
					t.Errorf("node %d admits %d in two windows, want %d to %d in each", place, n, test.least, test.most)
				}
			}
		})
	}
}
