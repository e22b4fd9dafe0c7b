package sim

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// troubled is a run of two regions with a store each, which faults befall.
func troubled(t *testing.T, faults ...string) Options {
	t.Helper()
	o := DefaultOptions()
	o.Regions, o.Nodes, o.Limit, o.Window, o.Duration, o.Keys, o.Store = 2, 2, 300, 30*time.Second, 20*time.Second,
		10, true
	for _, text := range faults {
		f, err := ParseStoreFault(text)
		testkit.Must(t, err)
		o.StoreFaults = append(o.StoreFaults, f)
	}
	return o
}

// Each fault acts, is made good, and changes neither requests nor decisions by much.
func TestStoreFaultsAct(t *testing.T) {
	plain := run(t, troubled(t))
	if plain.Redis != nil {
		t.Errorf("without a fault the report has %+v", plain.Redis)
	}
	for fault, shows := range map[string]func(s *StoreReport) bool{
		"down@5s-15s":     func(s *StoreReport) bool { return s.Failed >= 36 && s.Failed <= 50 && s.SlotsLost == 0 },
		"mute@5s-15s":     func(s *StoreReport) bool { return s.Failed >= 28 && s.Failed <= 44 && s.SlotsLost == 0 },
		"slow@5s-15s":     func(s *StoreReport) bool { return s.Failed > 10 && s.SlotsLost == 0 },
		"twice@5s-15s":    func(s *StoreReport) bool { return s.Failed == 0 && s.SlotsLost == 0 },
		"flush@10s":       func(s *StoreReport) bool { return s.Failed == 0 && s.SlotsLost > 120 },
		"flush/2@10s":     func(s *StoreReport) bool { return s.Failed == 0 && s.SlotsLost > 60 && s.SlotsLost < 120 },
		"restart@10s":     func(s *StoreReport) bool { return s.Failed == 0 && s.SlotsLost > 120 },
		"stale@9s-12s":    func(s *StoreReport) bool { return s.Failed == 0 && s.SlotsLost > 50 && s.SlotsLost < 200 },
		"rewind/1@9s-12s": func(s *StoreReport) bool { return s.Failed == 0 && s.SlotsLost > 20 && s.SlotsLost < 150 },
		"flush@25s":       func(s *StoreReport) bool { return s.SlotsLost > 40 }, // after the last request
		// The answer that would tell of the loss is lost, and nothing rises any more.
		"flush@21s mute@21s-21.9s": func(s *StoreReport) bool { return s.Failed >= 4 && s.SlotsLost > 100 },
		"rewind@100ms-10s":         func(s *StoreReport) bool { return s.SlotsLost > 120 },
	} {
		t.Run(fault, func(t *testing.T) {
			r := run(t, troubled(t, strings.Fields(fault)...))
			if s := r.Redis; !r.OK || s == nil || s.SlotsMissing != 0 || s.SlotsTwice != 0 || s.RepairFlushes < 1 ||
				s.RepairFlushes > 2 ||
				s.RepairMillis <= 0 || s.RepairMillis > 2500 ||
				!shows(s) ||
				len(s.Faults) != len(strings.Fields(fault)) {
				t.Errorf("%v: %+v", r.Wrong, s)
			}
			if r.Offered != plain.Offered || r.NetPct < plain.NetPct-2 || r.NetPct > plain.NetPct+2 {
				t.Errorf("%d offered, net %g %%; without the fault %d, %g %%", r.Offered, r.NetPct, plain.Offered,
					plain.NetPct)
			}
		})
	}
}

// While a call of a slow store is under way the node goes on, and what it told takes effect also when nobody waits for
// it any more.
func TestSlowStoresTakeTime(t *testing.T) {
	o := troubled(t, "slow@0s-20s")
	h := noHooks()
	var c *cluster
	var ticksMeanwhile, late int
	asleep := make(map[*node]bool)
	h.store = func(s regions.Store) regions.Store {
		return watched{s, func(slots []counters.Slot, merge func() error) error {
			way := s.(*client)
			before := way.held()
			asleep[way.node] = true
			err := merge()
			asleep[way.node] = false
			if err == errNoAnswer && before.lacks(slotsOf(slots)) > 0 {
				c.after(slowest, func() {
					if way.held().lacks(way.unexpired(slotsOf(slots))) == 0 {
						late++
					}
				})
			}
			return err
		}}
	}
	h.ticked = func(n *node) {
		if asleep[n] {
			ticksMeanwhile++
		}
	}
	var err error
	if c, err = newCluster(o, h); err != nil {
		t.Fatal(err)
	}
	defer c.close()
	testkit.Must(t, c.offer(t.Context(), func(time.Duration) {}))
	if ticksMeanwhile < 20 || late < 10 {
		t.Errorf("%d intervals ended while a call was under way, and %d calls took effect after they had timed out",
			ticksMeanwhile, late)
	}
}

func slotsOf(slots []counters.Slot) holding {
	h := make(holding)
	h.add(slots)
	return h
}

// watched stands between a reconciler and its store.
type watched struct {
	regions.Store
	merge func(slots []counters.Slot, merge func() error) error
}

func (s watched) Merge(ctx context.Context, slots []counters.Slot, now int64) (merged regions.Merged, err error) {
	copied := append([]counters.Slot(nil), slots...)
	err = s.merge(copied, func() (err error) {
		merged, err = s.Store.Merge(ctx, slots, now)
		return err
	})
	return merged, err
}

// A node that crashes while a call is under way ends there, and so does a run.
func TestCallsEndWithTheirNodes(t *testing.T) {
	o := troubled(t, "mute@0s-20s")
	for i := range 8 {
		from := time.Duration(i) * 2100 * time.Millisecond
		o.Crashes = append(o.Crashes, Outage{i % 4, from, from + 800*time.Millisecond})
	}
	h := noHooks()
	gone := 0
	h.store = func(s regions.Store) regions.Store {
		return watched{s, func(_ []counters.Slot, merge func() error) error {
			began := s.(*client).cluster.now
			err := merge()
			if s.(*client).cluster.now < began+int64(storeTimeout) && err != nil {
				gone++
			}
			return err
		}}
	}
	j, err := judged(o, h)
	testkit.Must(t, err)
	if _, err := j.play(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := j.failure(); err != nil {
		t.Error(err)
	}
	if gone == 0 {
		t.Error("no node crashed while a call was under way")
	}
}

// What stores promise can be broken, and is found out.
func TestStoreFaultsCatch(t *testing.T) {
	for _, test := range []struct {
		name   string
		faults []string
		breaks func(regions.Store) regions.Store
		want   []string
	}{
		{"a reconciler that tells what was added", []string{"flush@10s"}, func(s regions.Store) regions.Store {
			return &summing{s, make(map[slotID]uint64)}
		}, []string{"twice", "I3 truth"}},
		{"one that does not push again", []string{"flush@10s"},
			func(s regions.Store) regions.Store { return trusting{s} }, []string{"whole"}},
		{"one that does not after a failover", []string{"stale@5s-10s"},
			func(s regions.Store) regions.Store { return trusting{s} }, []string{"whole"}},
		{"one that forgets what found no answer", []string{"down@10s-12s"}, func(s regions.Store) regions.Store {
			return trusting{carefree{s}} // or it notices at the next probe
		}, []string{"whole"}},
		{"one that restores nothing of others", []string{"flush@12s"},
			func(s regions.Store) regions.Store { return selfish{s} }, []string{"whole"}},
		{"none", []string{"flush@10s", "stale@5s-10s", "down@10s-12s", "twice@0s-20s"},
			func(s regions.Store) regions.Store { return s }, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			o, h := troubled(t, test.faults...), noHooks()
			// so that there are counts of nodes that are gone
			o.Crashes = []Outage{{0, 8 * time.Second, 9 * time.Second}}
			h.store = test.breaks
			j, err := judged(o, h)
			testkit.Must(t, err)
			r, err := j.play(t.Context())
			testkit.Must(t, err)
			for _, want := range test.want {
				if j.wrong[want] == nil {
					t.Errorf("no violation of %q but %v", want, j.failure())
				}
			}
			if failed := j.failure() != nil; failed != (test.want != nil) || !r.OK != failed {
				t.Errorf("the report says %v, the checker %v", r.Wrong, j.failure())
			}
		})
	}
}

// summing tells the sum of all that it was ever told of a slot, as an INCRBY would.
type summing struct {
	regions.Store
	sums map[slotID]uint64
}

func (s *summing) Merge(ctx context.Context, slots []counters.Slot, now int64) (regions.Merged, error) {
	sums := append([]counters.Slot(nil), slots...)
	for i := range sums {
		id := identify(&sums[i])
		s.sums[id] += sums[i].Count
		sums[i].Count = s.sums[id]
	}
	return s.Store.Merge(ctx, sums, now)
}

// trusting never notices a loss.
type trusting struct{ regions.Store }

func (s trusting) Merge(ctx context.Context, slots []counters.Slot, now int64) (regions.Merged, error) {
	merged, err := s.Store.Merge(ctx, slots, now)
	for i := range merged.Before {
		merged.Before[i] = counters.MaxCount
	}
	merged.Epoch = ""
	return merged, err
}

// carefree takes a call that failed for one that did not.
type carefree struct{ regions.Store }

func (s carefree) Merge(ctx context.Context, slots []counters.Slot, now int64) (regions.Merged, error) {
	merged, err := s.Store.Merge(ctx, slots, now)
	if err != nil {
		merged = regions.Merged{Before: make([]uint64, len(slots))}
	}
	return merged, nil
}

// selfish restores nothing.
type selfish struct{ regions.Store }

func (selfish) Restore(context.Context, []counters.Slot, int64) error { return nil }

// A report says what is wrong with a store.
func TestStoreReportTellsWhatIsWrong(t *testing.T) {
	for _, test := range []struct {
		redis StoreReport
		want  string
	}{
		{StoreReport{RepairFlushes: -1, SlotsMissing: 7}, "lacked 7 slots"},
		{StoreReport{SlotsTwice: 3}, "more of 3 slots"},
		{StoreReport{RepairFlushes: 2}, ""},
	} {
		r := Report{Offered: 1, BoundHeld: true, Redis: &test.redis}
		r.judge()
		if got := fmt.Sprint(r.Wrong); r.OK != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%+v: %s", test.redis, got)
		}
	}
}
