package regions_test

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// id is what makes two slots the same.
type id struct {
	meter  counters.Meter
	key    counters.Key
	index  int64
	origin counters.Origin
	birth  uint32
}

func identify(s counters.Slot) id { return id{*s.Meter, s.Key, s.Index, s.Origin, s.Birth} }

// table is as little of a counters.Table as a reconciler needs.
type table struct {
	mu    sync.Mutex
	own   counters.Origin
	slots map[id]counters.Slot
}

func newTable(own counters.Origin) *table { return &table{own: own, slots: make(map[id]counters.Slot)} }

func (t *table) Merge(slots []counters.Slot, _ int64) (novel int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range slots {
		if s.Origin != t.own && s.Count > t.slots[identify(s)].Count {
			t.slots[identify(s)] = s
			novel++
		}
	}
	return novel
}

func (t *table) Own(now int64) []counters.Slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	var own []counters.Slot
	for _, s := range t.slots {
		if s.Origin == t.own && live(&s, now) {
			own = append(own, s)
		}
	}
	return own
}

func (t *table) Origin() counters.Origin { return t.own }

// Snapshot returns slots of the largest counts.
func (t *table) Snapshot(now int64, limit int) []counters.Slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []counters.Slot
	for _, s := range t.slots {
		if live(&s, now) {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b counters.Slot) int { return cmp.Compare(b.Count, a.Count) })
	return all[:min(limit, len(all))]
}

func live(s *counters.Slot, now int64) bool {
	return (s.Index+1)*int64(s.Meter.Sub)+int64(s.Meter.Window) >= now
}

// admit counts one more for each key, and returns the slots that rose.
func (t *table) admit(m *counters.Meter, keys ...counters.Key) []counters.Slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	var rose []counters.Slot
	for _, key := range keys {
		s := counters.Slot{Meter: m, Key: key, Index: m.Index(time.Now().UnixNano()), Origin: t.own, Birth: 1}
		s.Count = t.slots[identify(s)].Count + 1
		t.slots[identify(s)] = s
		rose = append(rose, s)
	}
	return rose
}

func (t *table) counts() map[id]uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := make(map[id]uint64)
	for at, s := range t.slots {
		counts[at] = s.Count
	}
	return counts
}

// node is a table with a reconciler that runs.
type node struct {
	*table
	*regions.Reconciler
	stop func() error // ends Run and returns its error
}

func start(t *testing.T, origin counters.Origin, store regions.Store, change func(*regions.Config)) node {
	t.Helper()
	cfg := regions.DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	tab := newTable(origin)
	r, err := regions.NewReconciler(cfg, store, tab)
	testkit.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	n := node{tab, r, sync.OnceValue(func() error { cancel(); return <-ended })}
	t.Cleanup(func() { _ = n.stop() })
	return n
}

// take admits and offers at once, as a node does at every tick.
func (n node) take(m *counters.Meter, keys ...counters.Key) { n.Enqueue(n.admit(m, keys...)) }

func embedded() regions.Store { return regions.NewEmbedded(0, time.Now) }

var (
	hour        = counters.NewMeter("per_hour", counters.SlidingWindow, time.Hour)
	nineSeconds = counters.NewMeter("nine", counters.SlidingWindow, 9*time.Second)
)

func keys(n int) []counters.Key {
	out := make([]counters.Key, n)
	for i := range out {
		out[i] = counters.Key(i)
	}
	return out
}

// held is what a faulty store holds in truth.
func held(t *testing.T, f *regionstest.Faulty) map[id]uint64 {
	t.Helper()
	slots, err := f.Slots()
	testkit.Must(t, err)
	counts := make(map[id]uint64)
	for _, s := range slots {
		if _, twice := counts[identify(s)]; twice {
			t.Errorf("the store holds a slot twice: %+v", s)
		}
		counts[identify(s)] = s.Count
	}
	return counts
}

// agree fails unless the store holds exactly what the tables own: nothing lost, nothing counted twice.
func agree(t *testing.T, f *regionstest.Faulty, nodes ...node) {
	t.Helper()
	want := make(map[id]uint64)
	for _, n := range nodes {
		for _, s := range n.Own(time.Now().UnixNano()) {
			want[identify(s)] = s.Count
		}
	}
	got := held(t, f)
	if maps.Equal(got, want) {
		return
	}
	lost, surplus := 0, 0
	for at, count := range want {
		if got[at] < count {
			lost++
		}
	}
	for at, count := range got {
		if want[at] < count {
			surplus++
		}
	}
	t.Errorf("the store and the tables disagree: of %d slots %d are lost, %d hold too much", len(want), lost, surplus)
}

// interval is the longest time between two flushes.
var interval = regions.DefaultConfig().Interval

// flushes lets as many flushes pass while the store answers.
func flushes(n int) {
	time.Sleep(time.Duration(n) * interval)
	synctest.Wait()
}

// logged collects what a reconciler logs.
func logged(c *regions.Config) *bytes.Buffer {
	var out bytes.Buffer
	c.Log = slog.New(slog.NewTextHandler(&out, nil)) // written to by Run alone
	return &out
}
