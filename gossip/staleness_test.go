package gossip

import (
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// What a node knows of another one of its region is at most three intervals old, in 99 intervals of 100: as long as
// nothing is lost, be there little to tell or so much that it is spread over the interval.
func TestStalenessWithinARegion(t *testing.T) {
	for _, keys := range []int{1, 9000} { // 9000 are more frames for two peers than leave at once
		if keys > 1 && testkit.Enabled {
			continue // it computes for half a minute
		}
		testkit.VirtualTime(t, func(t *testing.T) {
			l := newTestCluster(t)
			l.loss(0)
			for _, name := range []string{"east/n1", "east/n2", "east/n3"} {
				l.start(name, func(c *Config) { c.WAN = nil })
			}
			l.within(wholeWithin, "a fresh cluster", l.sees(l.all()...))
			var ages []time.Duration
			for i := range 70 {
				time.Sleep(DefaultInterval)
				now := time.Now().UnixNano()
				for _, name := range l.all() {
					for key := range keys {
						l.nodes[name].table.Take(l.limit, counters.Key(key)*0x9e3779b97f4a7c15, 1, now)
					}
				}
				if i < 20 { // who has just come is known, and reachable, within a second or so
					continue
				}
				for _, m := range l.nodes["east/n2"].Members() {
					if ages = append(ages, m.Age); m.Idle {
						t.Errorf("%s has requests, and is taken to be idle", m.NodeID)
					}
				}
			}
			slices.Sort(ages)
			if p99 := ages[len(ages)*99/100]; p99 > 3*DefaultInterval {
				t.Errorf("%d keys: 99 of 100 ages are at most %v, want %v", keys, p99, 3*DefaultInterval)
			} else {
				t.Logf("%d keys: median %v, p99 %v", keys, ages[len(ages)/2], p99)
			}
		})
	}
}

// A peer that says it has no requests is idle, until it says otherwise or cannot be heard.
func TestIdlePeers(t *testing.T) {
	m := counters.NewMeter("r", counters.SlidingWindow, time.Minute)
	r := auditor{
		Replica: NewReplica(1, 100*time.Millisecond,
			counters.NewTable(counters.Config{Origin: 1, Memory: counters.MinMemory})),
		meter: &m,
	}
	r.Join(7, frameTime)
	at := func(after int64) int64 { return frameTime + after*ms }
	want := func(now int64, idle bool) {
		t.Helper()
		if p := r.Peers(now)[0]; p.Idle != idle {
			t.Errorf("after %v it is idle: %v", time.Duration(now-frameTime), p.Idle)
		}
	}
	want(at(10), false) // nothing is known of it
	r.frame(snapshot, 0, 0, group{demand: 0}, at(20), at(20))
	want(at(20), false)
	r.frame(beacon, 0, 0, group{demand: 0}, at(100), at(100))
	want(at(1100), true)
	// requests came, and none was admitted
	r.frame(beacon, 0, 100*time.Millisecond, group{demand: 5}, at(1200), at(1201))
	want(at(1300), false)
	r.frame(data, 1, 200*time.Millisecond, group{demand: 5}, at(1300), at(1301))
	want(at(1301), false)
	r.frame(beacon, 0, 0, group{demand: 0}, at(1000), at(1400)) // old
	want(at(1400), false)
	r.frame(beacon, 1, 0, group{demand: 0}, at(1500), at(1501))
	want(at(2500), true)
	want(at(4600), false)
}
