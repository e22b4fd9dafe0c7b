package limits

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// sourceNumber returns one of many sources; 0 is the one without a share.
func sourceNumber(i int) netip.Addr {
	if i == 0 {
		return netip.Addr{}
	}
	return netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)})
}

// naive is the rule as the documents have it, over a list of what each source holds.
type naive struct {
	total int64
	held  map[int]int64
}

func (m *naive) used() (sum int64) {
	for _, n := range m.held {
		sum += n
	}
	return sum
}

// room holds n more, and then looks whether that breaks the rule.
func (m *naive) room(source int, n int64) Refusal {
	m.held[source] += n
	defer func() { m.held[source] -= n }()
	free := m.total - m.used()
	if source != 0 && m.held[source] > max(free, m.total/64, 1) {
		return AtShare
	}
	if free < 0 {
		return Full
	}
	return ""
}

// A budget does what the naive model does, in any order of calls. All sources together never hold more than the total,
// but for what is overdrawn; what nothing holds is forgotten.
func TestBudgetIsTheNaiveOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := naive{rapid.Int64Range(1, 300).Draw(t, "total"), make(map[int]int64)}
		b, overdrawn := NewBudget("", "test", m.total, nil), int64(0)
		draw := func() (int, int64) {
			return rapid.IntRange(0, 6).Draw(t, "source"), rapid.Int64Range(1, 1+m.total/4).Draw(t, "n")
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				s, n := draw()
				want := m.room(s, n)
				if got := b.Take(sourceNumber(s), n); got != want {
					t.Fatalf("%d for source %d of %+v: %q, want %q", n, s, m, got, want)
				}
				if want == "" {
					m.held[s] += n
				}
			},
			"give": func(*rapid.T) {
				s, n := draw()
				n = min(n, m.held[s])
				b.Give(sourceNumber(s), n)
				m.held[s] -= n
			},
			"overdraw": func(*rapid.T) {
				s, _ := draw()
				b.Overdraw(sourceNumber(s), 1)
				m.held[s]++
				overdrawn++
			},
			"": func(t *rapid.T) {
				maps.DeleteFunc(m.held, func(_ int, n int64) bool { return n == 0 })
				if b.used != m.used() || len(b.held) != len(m.held) || b.used > b.total+overdrawn {
					t.Fatalf("%d used by %v, want %+v", b.used, b.held, m)
				}
				for s, n := range m.held {
					if b.Held(sourceNumber(s)) != n {
						t.Fatalf("source %d holds %d, want %d", s, b.Held(sourceNumber(s)), n)
					}
				}
			},
		})
	})
}

// Sources that take all they can, one after the other and in any steps, leave 1/2^k of the total free, until that is
// less than the floor; whoever comes then still gets the floor.
func TestGreedySourcesLeaveRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Int64Range(64, 1<<20).Draw(t, "total")
		b := NewBudget("", "test", total, nil)
		for k, least := 1, total; least/2 > 2*total/floorShare; k++ {
			least /= 2
			step := rapid.Int64Range(1, 1+least/4).Draw(t, "step")
			for step > 0 {
				if b.Take(sourceNumber(k), step) != "" {
					step /= 2
				}
			}
			if b.Left() < least {
				t.Fatalf("%d sources leave %d of %d", k, b.Left(), total)
			}
			if why := b.Take(sourceNumber(1000), total/floorShare); why != "" {
				t.Fatalf("beside %d sources another one does not get the floor: %s", k, why)
			}
			b.Give(sourceNumber(1000), total/floorShare)
		}
	})
}

// Concurrent calls keep the total.
func TestBudgetIsSafe(t *testing.T) {
	b := NewBudget("", "test", 100, slog.New(slog.DiscardHandler))
	var calling sync.WaitGroup
	for g := range 8 {
		calling.Go(func() {
			for i := range 2000 {
				source := sourceNumber((g + i) % 5)
				if b.Take(source, int64(1+i%30)) == "" {
					if left := b.Left(); left < 0 || left > 100 {
						t.Errorf("%d are left", left)
					}
					b.Give(source, int64(1+i%30))
				}
			}
		})
	}
	calling.Wait()
	if s := b.Stats(); s.Used != 0 || len(b.held) != 0 {
		t.Errorf("after all: %+v, %v", s, b.held)
	}
}

// Refusals are counted by reason, and logged once a minute with the source, what it holds, and what to do.
func TestRefusalsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(testkit.Log)
		set := NewBudgets(netip.Addr.IsLoopback, log.Logger())
		b := set.New("http", "bodies", 100)
		alice, bob := set.Source(netip.MustParseAddr("2001:db8::1")), set.Source(netip.MustParseAddr("192.0.2.1"))
		for range 3 {
			b.Take(alice, 50)
		}
		if b.Take(set.Source(netip.MustParseAddr("::ffff:127.0.0.1")), 60) != Full || b.Take(bob, 25) != "" {
			t.Error("this machine has a share, or another source has none")
		}
		want := BudgetStats{"http", "bodies", 75, 100, 50, map[Refusal]uint64{Full: 1, AtShare: 2}}
		if got := set.All()[0].Stats(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%+v, want %+v", got, want)
		}
		time.Sleep(time.Minute)
		b.Take(bob, 26)
		if !log.HasLine("level=WARN", "a budget has no room", "door=http", "budget=bodies", "reason=source",
			"source=2001:db8::", "source_holds=50", "total=100", "trusted_proxies") ||
			!log.HasLine("source=192.0.2.1", "refused=3", "source_holds=25") || strings.Count(log.String(), "\n") != 2 {
			t.Errorf("the log is %s", log)
		}
	})
}

// A budget costs no memory on a request's way.
func TestBudgetsAllocateNothing(t *testing.T) {
	b, source := NewBudget("", "test", 100, nil), sourceNumber(7)
	if n := testing.AllocsPerRun(1000, func() {
		if b.Take(source, 1) == "" {
			b.Give(source, 1)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkBudget(b *testing.B) {
	budget, source := NewBudget("", "test", 100, nil), sourceNumber(7)
	b.ReportAllocs()
	for b.Loop() {
		if budget.Take(source, 1) == "" {
			budget.Give(source, 1)
		}
	}
}
