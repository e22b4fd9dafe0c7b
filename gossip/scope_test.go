package gossip

import (
	"bytes"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// scoped returns a limit of a hundred of a scope, by its meter's rule.
func scoped(t *testing.T, s counters.Scope, region string) (*counters.Limit, map[string]*counters.Limit) {
	t.Helper()
	l, err := counters.LimitConfig{Meter: counters.NewMeter("edge/lab", counters.SlidingWindow, time.Minute), Max: 100,
		Scope: s, Region: region}.New()
	if err != nil {
		t.Fatal(err)
	}
	return l, map[string]*counters.Limit{l.Meter().Rule: l}
}

// keepers records SetCluster and SetRegion.
type keepers struct {
	Counts
	near, all   int
	soon, later time.Duration
}

func (k *keepers) SetRegion(peers int, horizon time.Duration)  { k.near, k.soon = peers, horizon }
func (k *keepers) SetMember(counters.Origin, bool)             {}
func (k *keepers) SetPlace(counters.Origin, counters.Place)    {}
func (k *keepers) SetCluster(peers int, horizon time.Duration) { k.all, k.later = peers, horizon }

// The table knows how many peers there are in its region and beyond it, and how long each of the two takes.
func TestWhoKeepsALimit(t *testing.T) {
	s := newSender(t)
	k := &keepers{Counts: s.counts}
	s.counts = k
	s.Join(8, s.now)
	s.Far(8)
	s.Join(9, s.now)
	s.Far(9)
	s.peers[7].srtt, s.peers[8].srtt, s.peers[9].srtt = 52*time.Millisecond, 200*time.Millisecond, 150*time.Millisecond
	s.tick(1)
	if k.near != 1 || k.all != 3 || k.soon != 101*time.Millisecond || k.later != 175*time.Millisecond {
		t.Errorf("%d in the region within %v, %d in all within %v; want 1 within 101ms, 3 within 175ms", k.near, k.soon,
			k.all, k.later)
	}
	s.Leave(7, true)
	if s.tick(1); k.near != 0 || k.all != 2 || k.soon != 100*time.Millisecond {
		t.Errorf("%d in the region within %v, %d in all", k.near, k.soon, k.all)
	}
	s.Far(77) // whom nobody knows
}

// A member of another region that was never heard may admit nothing of a limit that it does not share.
func TestAuditOfARegion(t *testing.T) {
	l, limits := scoped(t, counters.Region, "eu")
	start := int64(time.Hour)
	for _, far := range []bool{false, true} {
		m := l.Meter()
		r := auditorOf(m, l)
		r.Join(2, start)
		want := float64(l.Max())
		if far {
			r.Far(2)
			want = 0
		}
		r.Audit(limits, start)
		later := start + int64(10*time.Second)
		r.admits(l.Max(), later)
		if got := r.Audit(limits, later)[m.Rule]; got != want {
			t.Errorf("in another region: %v; it is in the bound with %v, want %v", far, got, want)
		}
	}
}

// No message says anything of a limit that a node keeps alone, and one that a region keeps is sent with its region.
func TestMessagesOfScopes(t *testing.T) {
	alone, _ := scoped(t, counters.Alone, "")
	table := counters.NewTable(counters.Config{Origin: 1, Region: "eu", Memory: counters.MinMemory})
	r := NewReplica(1, DefaultInterval, table)
	r.Join(2, frameTime)
	encoded := func(now int64) (all []byte) {
		for _, m := range r.Tick(table.DrainDirty(now), now) {
			all = append(all, m.Data...)
		}
		for _, m := range r.Flush(table.DrainEarly(now), now) {
			all = append(all, m.Data...)
		}
		return append(all, r.Snapshot(now)...)
	}
	now := frameTime
	for range 20 {
		now += 100 * ms
		for range 10 {
			table.Take(alone, testKey, 1, now)
		}
		if b := encoded(now); bytes.Contains(b, []byte("edge/lab")) {
			t.Fatalf("messages: %q", b)
		}
	}
	region, _ := scoped(t, counters.Region, "eu")
	table.Take(region, testKey, 1, now)
	if b := encoded(now + 100*ms); !bytes.Contains(b, []byte("edge/lab%@eu")) {
		t.Errorf("messages: %q", b)
	}
}

// A region's nodes keep its limit together, and those of another region have their own: each admits all of it, however
// the requests are spread, and holds no count of the other's.
func TestRegionsKeepLimitsApart(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := newTestCluster(t)
		l.twoRegions()
		homes := map[string][]string{"east": {"east/n1", "east/n2", "east/n3"}, "west": {"west/n4", "west/n5"}}
		limits := make(map[string]*counters.Limit)
		for region, names := range homes {
			limits[region], _ = scoped(t, counters.Region, region)
			for _, name := range names {
				l.nodes[name].table.Know([]*counters.Limit{limits[region]})
			}
		}
		admitted := make(map[string]int)
		for i := range 150 { // 0.3 s apart: each is known before the next one comes
			time.Sleep(300 * time.Millisecond)
			for region, names := range homes {
				if l.nodes[names[i%len(names)]].table.Take(limits[region], testKey, 1, time.Now().UnixNano()).Allowed {
					admitted[region]++
				}
			}
		}
		time.Sleep(time.Second)
		for region, names := range homes {
			if admitted[region] != 100 {
				t.Errorf("%s admitted %d of 100", region, admitted[region])
			}
			for _, name := range names {
				table, now := l.nodes[name].table, time.Now().UnixNano()
				if view, keys := table.View(limits[region], testKey, now), table.Stats().Keys; view != 100 ||
					keys != 1 {
					t.Errorf("%s counts %d of 100, and holds %d keys, want the one of its region", name, view, keys)
				}
			}
		}
	})
}

// A node that starts where the WAN is cut knows that it does not see the others, but of a limit of its region nothing
// can be missing. It may know who they are, from a node that has not given them up yet: then they count once they have
// been silent for neverSeen.
func TestCutWANLeavesTheRegionsBound(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		l := newTestCluster(t)
		l.twoRegions()
		l.links.Partition("west")
		l.kill("west/n5")
		n := l.start("west/n5")
		limit, limits := scoped(t, counters.Region, "west")
		limits["edge/lab"] = l.limit
		l.within(10*time.Second, "its own region", func() string {
			if len(n.Members()) == 0 {
				return "it sees nobody"
			}
			return ""
		})
		time.Sleep(neverSeen + time.Second)
		age, complete := n.Staleness()
		knowsFar := false
		for _, p := range n.Peers() {
			if p.Region != "west" {
				knowsFar = true
			} else if p.Pool == "" || p.Age > 2*time.Second {
				t.Errorf("of its own region it knows %+v", p)
			}
		}
		if complete && (!knowsFar || age < neverSeen) {
			t.Errorf("it believes that it sees the whole cluster as it was %v ago", age)
		}
		if anywhere, inRegion := n.Blind(); !anywhere && !knowsFar || inRegion {
			t.Errorf("it may lack nodes: %v, of its own region: %v", anywhere, inRegion)
		}
		n.Audit(limits, nil)
		n.table.Take(l.limit, testKey, 1, time.Now().UnixNano())
		time.Sleep(time.Second)
		switch got := n.Audit(limits, nil); {
		case got["edge/lab"] < float64(l.limit.Max()):
			t.Errorf("the bound over all regions is %v, those beyond the cut may admit %v", got["edge/lab"],
				l.limit.Max())
		case got[limit.Meter().Rule] != 0:
			t.Errorf("the bound of the region is %v", got[limit.Meter().Rule])
		}
	})
}

// The first node of a region reaches the cluster over the WAN: it is alone in its region only, though its seeds there
// do not answer. Without the WAN, or with nobody in it, nobody knows who else admits.
func TestAlone(t *testing.T) {
	const nobody = "10.9.9.9:7946"
	testkit.VirtualTime(t, func(t *testing.T) {
		l := newTestCluster(t)
		l.start("east/n1")
		cases := map[string]struct {
			change             change
			anywhere, inRegion bool
		}{
			"west/n1": {func(c *Config) { c.LAN.Seeds = []string{nobody} }, false, true},
			"mid/n1":  {func(c *Config) { c.LAN.Seeds, c.WAN.Seeds = []string{nobody}, nil }, true, true},
			"up/n1":   {func(c *Config) { c.LAN.Seeds, c.WAN.Seeds = nil, []string{nobody} }, true, false},
			"down/n1": {func(c *Config) { c.LAN.Seeds, c.WAN.Seeds = nil, nil }, false, false},
		}
		for name, c := range cases {
			n := l.start(name, c.change)
			time.Sleep(10 * time.Second)
			if anywhere, inRegion := n.Alone(); anywhere != c.anywhere || inRegion != c.inRegion {
				t.Errorf("%s knows nobody of the cluster: %v, of its region: %v", name, anywhere, inRegion)
			}
		}
	})
}
