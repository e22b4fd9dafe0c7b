package gossip

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// noted is a table that notes what a replica passes to it of its peers.
type noted struct {
	*counters.Table
	horizon   time.Duration
	near      int
	watermark map[counters.Origin]int64
}

func (n *noted) SetCluster(_ int, horizon time.Duration)  { n.horizon = horizon }
func (n *noted) SetRegion(peers int, _ time.Duration)     { n.near = peers }
func (n *noted) SetWatermark(o counters.Origin, at int64) { n.watermark[o] = at }

// noting is a replica of the region "here" with a table that notes.
func noting() (*Replica, *noted) {
	n := &noted{Table: counters.NewTable(counters.Config{Origin: 1, Memory: counters.MinMemory}),
		watermark: make(map[counters.Origin]int64)}
	r := NewReplica(1, 100*time.Millisecond, n)
	r.Describe(1, Node{Region: "here", Name: "self"})
	return r, n
}

// In a small cluster, a node that is much slower than most of its region hardly slows the others, and does not count as
// unreachable; a region that is far slows them.
func TestSlowPeersSlowFew(t *testing.T) {
	type peers map[string][]int // milliseconds to the nodes of a region
	for _, test := range []struct {
		peers peers
		want  int
	}{
		{nil, 0},
		{peers{"here": {40, 41, 900}}, 900 / 4},
		{peers{"here": {1, 1, 49}}, 49},
		{peers{"here": {1, 1}, "there": {900}}, 900},
		{peers{"here": {1, 1, 2, 900}, "there": {250, 260}}, 260},
		{peers{"here": {1, 1, 90, 91}}, 91}, // half of them: two sites
		{peers{"there": {900, 80}}, 900},
		{peers{"there": {80, 0, 0, 0}}, 80}, // 0: not measured yet
		{peers{"there": {80}, "beyond": {300, 290, 1100}}, 300},
	} {
		r, n := noting()
		o := counters.Origin(10)
		for region, ways := range test.peers {
			for _, way := range ways {
				o++
				join(r, o, region)
				if way > 0 {
					r.peers[o].srtt = 2*time.Duration(way)*time.Millisecond + r.interval/2
				}
			}
		}
		r.setCluster()
		for o, p := range r.peers {
			if way := r.usualWay(p); way+r.interval > counters.SilentAfter*n.horizon {
				t.Errorf("%v: node %d is unreachable, its counts take %v", test.peers, o, way)
			}
		}
		if want := r.interval + time.Duration(test.want)*time.Millisecond; n.horizon != want {
			t.Errorf("%v: the horizon is %v, want %v", test.peers, n.horizon, want)
		}
		if n.near != len(test.peers["here"]) {
			t.Errorf("%v: %d peers are near", test.peers, n.near)
		}
	}
}

// Of many times, the slowest tenth is not usual.
func TestUsualTimes(t *testing.T) {
	many := slices.Repeat([]time.Duration{2}, 27)
	for _, test := range []struct {
		times []time.Duration
		want  time.Duration
	}{
		{nil, 0}, {[]time.Duration{-5}, 0}, {[]time.Duration{4, 90, 8}, 90},
		{append(slices.Clone(many), 90, 90, 90), 2}, {append(slices.Clone(many[:20]), 90, 90, 90), 90},
	} {
		if got := usual(slices.Clone(test.times)); got != test.want {
			t.Errorf("%v usually take %v, want %v", test.times, got, test.want)
		}
	}
}

// The demand of nodes that crashed is forgotten, but not where a partition may hide them.
func TestWhoseDemandIsForgotten(t *testing.T) {
	const second = int64(time.Second)
	type node struct {
		region  string
		silent  int    // seconds
		is      string // "gone": no member any more; "left"; "new": nothing came yet
		forgets bool
	}
	sends, gone, crashed := node{"here", 1, "", false}, node{"here", 61, "gone", false}, node{"here", 61, "gone", true}
	there := func(n node) node { n.region = "there"; return n }
	newcomer := node{"there", 1, "new", false}
	for name, nodes := range map[string][]node{
		"one of four":                   {sends, sends, crashed},
		"for less than a minute":        {sends, sends, {"here", 59, "gone", false}},
		"still a member":                {sends, sends, {"here", 61, "", false}},
		"two of five":                   {sends, sends, crashed, crashed},
		"three of five":                 {sends, gone, gone, gone},
		"one of two":                    {gone},
		"beside one that left":          {sends, {"here", 61, "left", false}, crashed},
		"one of three there":            {there(sends), there(sends), there(crashed)},
		"one of two there":              {sends, sends, sends, there(sends), there(gone)},
		"all there":                     {sends, sends, sends, there(gone), there(gone)},
		"all there, and new ones start": {there(gone), newcomer, newcomer, newcomer},
	} {
		r, n := noting()
		now := frameTime
		want := make(map[counters.Origin]int64)
		for i, node := range nodes {
			o := counters.Origin(10 + i)
			join(r, o, node.region)
			h, seen := r.inbound[o], now-int64(node.silent)*second
			h.region, h.since, h.left = r.peers[o].region, seen, node.is == "left"
			if node.is != "new" {
				h.lastSeen, h.watermark, h.watermarkAt = seen, seen, seen
			}
			if node.is == "gone" {
				r.Leave(o, false)
			}
			if node.forgets {
				want[o] = now
			}
		}
		clear(n.watermark)
		if r.forgetDemands(now); !maps.Equal(n.watermark, want) {
			t.Errorf("%s: forgotten are %v, want %v", name, slices.Sorted(maps.Keys(n.watermark)),
				slices.Sorted(maps.Keys(want)))
		}
	}
}
