package limits

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

var noon = time.Unix(1_700_000_000, 0)

// kind is a limit of so many per so many seconds; a window if slides, else a bucket.
type kind struct {
	most, seconds int64
	slides        bool
}

var errNone = errors.New("a limit of nothing")

func (k kind) limit() (*counters.Limit, error) {
	if k.most == 0 {
		return nil, errNone
	}
	algorithm := counters.TokenBucket
	if k.slides {
		algorithm = counters.SlidingWindow
	}
	meter := counters.NewMeter(fmt.Sprintf("%%test/%d/%d", k.most, k.seconds), algorithm,
		time.Duration(k.seconds)*time.Second)
	return counters.NewLimit(meter, uint64(k.most))
}

const most = 100

var ours, theirs = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")

func keeper(learn func([]*counters.Limit)) *Keeper[kind] {
	return NewKeeper(Options[kind]{Max: most, Limit: kind.limit, Learn: learn, API: "test",
		Logger: slog.New(slog.DiscardHandler)})
}

func charge(t *testing.T, k *Keeper[kind], of kind, from netip.Addr, now time.Time) *counters.Limit {
	t.Helper()
	l, err := k.Charge(of, from, now)
	testkit.Must(t, err)
	return l
}

// keeps reports whether a kind is kept: its limit is the same every time.
func keeps(t *testing.T, k *Keeper[kind], of kind) bool {
	t.Helper()
	one, err := k.Peek(of)
	other, err2 := k.Peek(of)
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	return one == other
}

func year(n int) kind { return kind{int64(n) + 1, 365 * 24 * 3600, false} }

func TestKeeper(t *testing.T) {
	k := keeper(nil)
	l := charge(t, k, kind{5, 60, false}, ours, noon)
	for _, after := range []time.Duration{0, time.Second, time.Minute} { // on trial, and proven
		if l.Max() != 5 || charge(t, k, kind{5, 60, false}, ours, noon.Add(after)) != l ||
			!keeps(t, k, kind{5, 60, false}) {
			t.Errorf("after %v the same kind is another limit", after)
		}
	}
	if charge(t, k, kind{6, 60, false}, ours, noon) == l || k.Len() != 2 {
		t.Errorf("%d limits are kept of two kinds", k.Len())
	}
	if _, err := k.Charge(kind{}, ours, noon); !errors.Is(err, errNone) || k.Len() != 2 {
		t.Errorf("of a kind that is wrong: %v, %d are kept", err, k.Len())
	}
	if _, err := k.Peek(kind{}); !errors.Is(err, errNone) {
		t.Errorf("a peek of a kind that is wrong: %v", err)
	}
}

// Peeks take no place, however many kinds they are of.
func TestPeeksKeepNothing(t *testing.T) {
	k := keeper(nil)
	for i := range 2 * most {
		if l, err := k.Peek(year(i)); err != nil || l.Max() != uint64(i+1) {
			t.Fatal(l, err)
		}
	}
	if k.Len() != 0 || k.Evicted() != 0 {
		t.Errorf("%d are kept", k.Len())
	}
}

// A source that floods the keeper with kinds pushes out its own: one of another source keeps its place though it is
// idle for an hour, and a new one finds one.
func TestAFloodPushesOutItself(t *testing.T) {
	k := keeper(nil)
	used := kind{7, 365 * 24 * 3600, true}
	l := charge(t, k, used, theirs, noon)
	charge(t, k, used, theirs, noon.Add(2*time.Second))
	for i := range 11 * most {
		charge(t, k, year(i), ours, noon.Add(time.Duration(i)*3*time.Second))
		if i%2 == 0 { // some are proven
			charge(t, k, year(i), ours, noon.Add(time.Duration(i)*3*time.Second+2*time.Second))
		}
	}
	now := noon.Add(time.Hour)
	if k.Len() != most || charge(t, k, used, theirs, now) != l {
		t.Errorf("the limit of another source lost its place, %d are kept", k.Len())
	}
	if charge(t, k, kind{8, 60, false}, theirs, now); !keeps(t, k, kind{8, 60, false}) || !keeps(t, k, used) {
		t.Error("a new limit of another source finds no place")
	}
	if k.Evicted() != 10*most+2 {
		t.Errorf("%d were evicted", k.Evicted())
	}
}

// Where there is one source, as one Envoy for everybody, what is in use keeps its place against kinds that come once.
func TestWhatIsInUseStays(t *testing.T) {
	k := keeper(nil)
	for i := range most / 2 {
		charge(t, k, year(i), ours, noon)
		charge(t, k, year(i), ours, noon.Add(time.Second))
	}
	for i := range 10 * most {
		charge(t, k, year(1000+i), ours, noon.Add(2*time.Second))
	}
	for i := range most / 2 {
		if !keeps(t, k, year(i)) {
			t.Fatalf("kind %d lost its place", i)
		}
	}
	for i := range most { // and where all are proven, the one that was charged least recently goes
		charge(t, k, year(2000+i), ours, noon.Add(time.Minute))
		charge(t, k, year(2000+i), ours, noon.Add(2*time.Minute))
		charge(t, k, year(0), ours, noon.Add(2*time.Minute))
	}
	if !keeps(t, k, year(0)) || keeps(t, k, year(1)) || k.Len() != most {
		t.Errorf("%d are kept, not those that were charged last", k.Len())
	}
}

// With as many sources as places, each has its turn.
func TestOneOfEachSource(t *testing.T) {
	k := keeper(nil)
	for i := range 2 * most {
		charge(t, k, year(i), netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), noon)
	}
	if k.Len() != most || k.Evicted() != most {
		t.Errorf("%d are kept, %d were evicted", k.Len(), k.Evicted())
	}
}

// Limits under which nothing counts any more go first, and are not called evicted. What a sliding window counts
// leaves it a sub-window late.
func TestExpiredLimitsGoFirst(t *testing.T) {
	k := keeper(nil)
	for i := range most {
		charge(t, k, kind{int64(i) + 1, 10, true}, ours, noon)
	}
	charge(t, k, kind{1, 10, true}, ours, noon.Add(2*time.Second)) // is proven
	charge(t, k, year(1), theirs, noon.Add(11999*time.Millisecond))
	if k.Evicted() != 1 || k.Len() != most {
		t.Errorf("after 10 s, a sub-window of 1 s and nearly another: %d were evicted", k.Evicted())
	}
	charge(t, k, year(2), theirs, noon.Add(12*time.Second))
	if k.Evicted() != 1 || k.Len() != 3 || !keeps(t, k, kind{1, 10, true}) {
		t.Errorf("%d are kept, %d were evicted", k.Len(), k.Evicted())
	}
	for i := range most - 3 {
		charge(t, k, kind{int64(i) + 1, 1, false}, ours, noon.Add(12*time.Second))
	}
	charge(t, k, year(3), theirs, noon.Add(time.Minute)) // the proven one goes as well
	if k.Evicted() != 1 || k.Len() != 3 || keeps(t, k, kind{1, 10, true}) {
		t.Errorf("%d are kept, %d were evicted", k.Len(), k.Evicted())
	}
}

// The first change is learned at once, those that follow it together.
func TestLearning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var learned []int
		k := keeper(func(all []*counters.Limit) {
			mu.Lock()
			defer mu.Unlock()
			learned = append(learned, len(all))
		})
		want := func(lens ...int) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(learned, lens) {
				t.Errorf("learned %v, want %v", learned, lens)
			}
		}
		for i := range 2 * most {
			charge(t, k, year(i), ours, time.Now())
		}
		time.Sleep(99 * time.Millisecond)
		synctest.Wait()
		want(1)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		want(1, most)
		time.Sleep(time.Second)
		charge(t, k, year(999), ours, time.Now())
		want(1, most, most)
	})
}

// The log says when a flood begins, and not more than once a minute.
func TestAFloodIsLogged(t *testing.T) {
	var log strings.Builder
	k := keeper(nil)
	k.opt.Logger = slog.New(slog.NewTextHandler(&log, nil))
	for i := range 3 * most {
		charge(t, k, year(i), ours, noon)
	}
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got,
		"api=test kept=100 source=192.0.2.1 of_source=100") {
		t.Errorf("logged %s", got)
	}
	charge(t, k, year(1000), ours, noon.Add(time.Minute))
	if got := log.String(); strings.Count(got, "\n") != 2 {
		t.Errorf("a minute later: %s", got)
	}
}

// Of those who ask for a new kind at once, all get the same limit.
func TestKeeperAtOnce(t *testing.T) {
	k := keeper(func([]*counters.Limit) {})
	var got [8][most]*counters.Limit
	var all sync.WaitGroup
	for i := range got {
		all.Go(func() {
			for j := range got[i] {
				got[i][j], _ = k.Charge(year(j), ours, noon)
			}
		})
	}
	all.Wait()
	for i := range got {
		if got[i] != got[0] || got[i][0] == nil {
			t.Fatalf("%d got others than the first", i)
		}
	}
}

func TestSourceOf(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1", "2001:db8:1:2:3::4": "2001:db8:1:2::",
		"fe80::1%eth0": "fe80::",
	} {
		if got := SourceOf(netip.MustParseAddr(addr)).String(); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
	if SourceOf(netip.Addr{}) != (netip.Addr{}) {
		t.Error("no address has a source")
	}
}

// To find a proven limit allocates nothing.
func TestAProvenLimitCostsNothing(t *testing.T) {
	k := keeper(nil)
	charge(t, k, year(0), ours, noon)
	now := noon.Add(2 * time.Second)
	charge(t, k, year(0), ours, now)
	if n := testing.AllocsPerRun(100, func() { _, _ = k.Charge(year(0), ours, now) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkFlood is what a kind costs that pushes out another.
func BenchmarkFlood(b *testing.B) {
	k := NewKeeper(Options[kind]{Max: 1024, Limit: kind.limit, API: "test", Logger: slog.New(slog.DiscardHandler)})
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		n++
		_, _ = k.Charge(year(n), ours, noon)
	}
}
