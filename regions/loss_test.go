package regions_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// lapses are the ways in which a store goes back to what it was.
var lapses = []struct {
	name  string
	lapse func(*testing.T, *regionstest.Faulty)
}{
	{"flushed", func(_ *testing.T, f *regionstest.Faulty) { f.Flush() }},
	{"restarted empty", func(_ *testing.T, f *regionstest.Faulty) { f.Restart() }},
	{"rolled back", func(t *testing.T, f *regionstest.Faulty) {
		testkit.Must(t, f.RollBack())
	}},
}

// Nothing is lost after two flushes, whether there is traffic to tell it by or not, and nothing is counted twice.
func TestStoreLosesData(t *testing.T) {
	for _, l := range lapses {
		for _, traffic := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, traffic %v", l.name, traffic), func(t *testing.T) {
				testkit.VirtualTime(t, func(t *testing.T) {
					f := regionstest.NewFaulty(embedded)
					var out *bytes.Buffer
					a, b := start(t, 1, f, func(c *regions.Config) { out = logged(c) }), start(t, 2, f, nil)
					a.take(&hour, keys(2000)...)
					b.take(&hour, keys(300)...)
					flushes(3)
					testkit.Must(t, f.Save())
					a.take(&hour, keys(900)...)
					b.take(&hour, 1)
					flushes(20)
					agree(t, f, a, b)

					l.lapse(t, f)
					if traffic {
						a.take(&hour, 5000) // which the store never received: nothing is lost of that
						b.take(&hour, 5000)
					}
					flushes(2)
					agree(t, f, a, b)
					flushes(20)
					for _, n := range []node{a, b} {
						if s := n.Reconciler.Stats(); s.Lost != 1 {
							t.Errorf("one loss was noticed %d times", s.Lost)
						}
					}
					f.Flush()
					flushes(3)
					if err := a.stop(); err != nil {
						t.Error(err)
					}
					if c := strings.Count(out.String(), "lost data"); c != 2 {
						t.Errorf("want one line about each of two losses, got %d:\n%s", c, out)
					}
				})
			})
		}
	}
}

// The answer that would have shown a loss is lost itself: what the call wrote is in the store again, and proves
// nothing.
func TestLossBehindALostAnswer(t *testing.T) {
	for _, l := range lapses {
		for name, hot := range map[string][]counters.Key{"quiet": nil, "some rise": keys(300)[200:],
			"all rise": keys(300)} {
			t.Run(l.name+", "+name, func(t *testing.T) {
				testkit.VirtualTime(t, func(t *testing.T) {
					f := regionstest.NewFaulty(embedded)
					n := start(t, 1, f, nil)
					n.take(&hour, keys(100)...)
					flushes(2)
					testkit.Must(t, f.Save())
					n.take(&hour, keys(300)...)
					flushes(2)
					l.lapse(t, f)
					f.Set(regionstest.AnswerLost)
					n.take(&hour, hot...)
					flushes(1)
					time.Sleep(2 * regions.DefaultConfig().Timeout)
					f.Set(regionstest.Works)
					time.Sleep(regions.DefaultConfig().Cooldown) // the first flush
					flushes(1)
					agree(t, f, n)
				})
			})
		}
	}
}

// relabelled answers under an epoch of the test's choosing.
type relabelled struct {
	regions.Store
	epoch atomic.Value
}

func (r *relabelled) Merge(ctx context.Context, slots []counters.Slot, now int64) (regions.Merged, error) {
	merged, err := r.Store.Merge(ctx, slots, now)
	merged.Epoch = r.epoch.Load().(string)
	return merged, err
}

// What a new store lacks need not be among the slots that it is sent: then the epoch alone gives it away.
func TestEpochAlone(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		s := &relabelled{Store: embedded()}
		n := start(t, 1, s, nil)
		lost, flushed := uint64(0), uint64(0)
		for _, step := range []struct {
			epoch string
			lost  bool
		}{{"", false}, {"a", false}, {"a", false}, {"", false}, {"a", false}, {"b", true}, {"b", false}, {"", false},
			{"a", true}} {
			s.epoch.Store(step.epoch)
			if lost == 0 && flushed == 0 {
				n.take(&hour, keys(1000)...)
			}
			flushes(3)
			stats := n.Reconciler.Stats()
			if step.lost {
				lost++
			}
			if stats.Lost != lost {
				t.Fatalf("epoch %q: %d losses, want %d", step.epoch, stats.Lost, lost)
			}
			if pushed := stats.Flushed-flushed >= 1000; pushed != (step.lost || flushed == 0) {
				t.Errorf("epoch %q: %d slots were told", step.epoch, stats.Flushed-flushed)
			}
			flushed = stats.Flushed
		}
	})
}

// The push that makes good a loss fails itself, half-way.
func TestFullPushIsTriedAgain(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		f := &failOnce{Faulty: regionstest.NewFaulty(embedded)}
		n := start(t, 1, f, nil)
		n.take(&hour, keys(3000)...)
		flushes(2)
		f.Flush()
		f.after.Store(5) // the probes and three chunks get through
		flushes(1)
		if s := n.Reconciler.Stats(); s.Failed != 1 || len(held(t, f.Faulty)) >= 3000 {
			t.Fatalf("the push did not fail half-way: %+v, the store holds %d slots", s, len(held(t, f.Faulty)))
		}
		flushes(2) // the back-off after one failure
		agree(t, f.Faulty, n)
		if s := n.Reconciler.Stats(); s.Lost != 1 {
			t.Errorf("one loss was noticed %d times", s.Lost)
		}
	})
}

// A flush that fails half-way keeps pending what it did not get to.
func TestFlushFailsHalfWay(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		f := &failOnce{Faulty: regionstest.NewFaulty(embedded)}
		n := start(t, 1, f, func(c *regions.Config) { c.Chunk = 10 })
		f.after.Store(3)
		n.take(&hour, keys(100)...)
		flushes(1)
		if s := n.Reconciler.Stats(); s.Pending != 80 || s.Flushed != 20 || s.Failed != 1 {
			t.Errorf("after two of ten chunks: %+v", s)
		}
		flushes(2)
		agree(t, f.Faulty, n)
	})
}

func TestLossIsMadeGoodByTheLastFlush(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		f := regionstest.NewFaulty(embedded)
		n := start(t, 1, f, nil)
		n.take(&hour, keys(3000)...)
		flushes(2)
		f.Flush()
		if err := n.stop(); err != nil {
			t.Error(err)
		}
		agree(t, f, n)
	})
}

// One call that fails at the wrong moment does not cost what the node counted last.
func TestTheLastFlushIsTriedAgain(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		f := &failOnce{Faulty: regionstest.NewFaulty(embedded)}
		n := start(t, 1, f, nil)
		n.take(&hour, keys(30)...)
		f.after.Store(1)
		began := time.Now()
		if err := n.stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the stop took %v", took)
		}
		agree(t, f.Faulty, n)
	})
}

// failOnce lets some calls through and fails the next.
type failOnce struct {
	*regionstest.Faulty
	after atomic.Int64 // counts down; nothing fails below zero
}

func (f *failOnce) Merge(ctx context.Context, slots []counters.Slot, now int64) (regions.Merged, error) {
	if f.after.Add(-1) == 0 {
		return regions.Merged{}, regionstest.ErrFault
	}
	return f.Faulty.Merge(ctx, slots, now)
}
