package netem

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	ms = time.Millisecond

	a1, a2 = "10.0.1.1:7946", "10.0.1.2:7946"
	b1, b2 = "10.0.2.1:7946", "10.0.2.2:7946"
	c1     = "10.0.3.1:7946"
)

// threeGroups returns perfect links with two endpoints in "a", two in "b" and one in "c".
func threeGroups(seed uint64) *Links {
	l := NewLinks(seed)
	for addr, group := range map[string]string{a1: "a", a2: "a", b1: "b", b2: "b", c1: "c"} {
		l.Register(addr, group)
	}
	return l
}

func wantCounts(t *testing.T, l *Links, want Counts) {
	t.Helper()
	if got := l.Counts(); got != want {
		t.Errorf("counts:\n got %+v\nwant %+v", got, want)
	}
}

func TestLinkValidate(t *testing.T) {
	for _, good := range []Link{{}, {Latency: time.Second, Jitter: ms, Loss: 1, Duplicate: 0.5, Reorder: 1}} {
		if err := good.Validate(); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
	err := Link{Latency: -1, Jitter: -1, Loss: 1.1, Duplicate: -0.1, Reorder: math.NaN()}.Validate()
	if err == nil {
		t.Fatal("a link with everything wrong is accepted")
	}
	for _, name := range []string{"latency", "jitter", "loss", "duplicate", "reorder"} {
		if !strings.Contains(err.Error(), name+" is ") {
			t.Errorf("%q is not among the problems: %v", name, err)
		}
	}
}

func TestSetRefusesWhatDoesNotValidate(t *testing.T) {
	bad := Link{Loss: 2}
	for name, set := range map[string]func(*Links){
		"Set":                 func(l *Links) { l.Set("a", "b", bad) },
		"SetDefaults within":  func(l *Links) { l.SetDefaults(bad, Link{}) },
		"SetDefaults between": func(l *Links) { l.SetDefaults(Link{}, bad) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			set(NewLinks(1))
		})
	}
}

func TestProbabilitiesHold(t *testing.T) {
	const packets = 10_000
	for _, test := range []struct {
		name string
		link Link
		seen func(Counts) uint64
		want float64
	}{
		{"loss", Link{Loss: 0.2}, func(c Counts) uint64 { return c.Lost }, 0.2},
		{"duplication", Link{Duplicate: 0.3}, func(c Counts) uint64 { return c.Duplicated }, 0.3},
		{"reordering", Link{Reorder: 0.1}, func(c Counts) uint64 { return c.Delayed }, 0.1},
		{"only what is not lost is duplicated", Link{Loss: 0.5, Duplicate: 0.5},
			func(c Counts) uint64 { return c.Duplicated }, 0.25},
		{"never", Link{Latency: ms}, func(c Counts) uint64 { return c.Lost + c.Duplicated + c.Delayed + c.Partitioned },
			0},
		{"always", Link{Loss: 1}, func(c Counts) uint64 { return c.Lost }, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := threeGroups(7)
			l.SetDefaults(Link{}, test.link)
			copies := uint64(0)
			for range packets {
				copies += uint64(len(l.send(a1, b1)))
			}
			counts := l.Counts()
			// Five standard deviations of 10,000 draws at one half.
			if got := float64(test.seen(counts)) / packets; math.Abs(got-test.want) > 0.025 {
				t.Errorf("happened to %.3f of the packets, want %.3f", got, test.want)
			}
			if counts.Sent != packets || copies != packets-counts.Lost+counts.Duplicated {
				t.Errorf("%d copies of %+v do not add up", copies, counts)
			}
		})
	}
}

func TestDelaysStayInTheirRange(t *testing.T) {
	l := threeGroups(3)
	l.SetDefaults(Link{}, Link{Latency: 70 * ms, Jitter: 20 * ms, Reorder: 0.5})
	var plain, held int
	shortest, longest := time.Hour, time.Duration(0)
	for range 10_000 {
		before := l.Counts().Delayed
		d := l.send(a1, b1)[0]
		if l.Counts().Delayed > before {
			held++
			if d < 91*ms || d > 310*ms {
				t.Fatalf("held back until %v, want 91 to 310 ms", d)
			}
			continue
		}
		plain++
		shortest, longest = min(shortest, d), max(longest, d)
	}
	if plain == 0 || held == 0 {
		t.Fatalf("%d plain and %d held back, want both", plain, held)
	}
	if shortest < 70*ms || shortest > 71*ms || longest > 90*ms || longest < 89*ms {
		t.Errorf("delays from %v to %v, want to fill 70 to 90 ms", shortest, longest)
	}
	for range 1000 {
		if d := l.streamDelay(a1, b1); d < 70*ms || d > 90*ms {
			t.Fatalf("a stream is delayed by %v, want 70 to 90 ms", d)
		}
	}
}

func TestTheSeedDecides(t *testing.T) {
	draw := func(seed uint64) (fates [][]time.Duration) {
		l := threeGroups(seed)
		l.SetDefaults(Link{}, Link{Latency: ms, Jitter: ms, Loss: 0.2, Duplicate: 0.2, Reorder: 0.2})
		for range 200 {
			fates = append(fates, l.send(a1, b1))
		}
		return fates
	}
	if !reflect.DeepEqual(draw(1), draw(1)) {
		t.Error("the same seed draws differently")
	}
	if reflect.DeepEqual(draw(1), draw(2)) {
		t.Error("different seeds draw alike")
	}
}

func TestLinksLeadFromGroupToGroup(t *testing.T) {
	l := threeGroups(1)
	l.SetDefaults(Link{Latency: 1 * ms}, Link{Latency: 75 * ms})
	l.Set("a", "b", Link{Latency: 10 * ms})
	l.Set("c", "c", Link{Latency: 2 * ms})
	l.Register("late:1", "a")
	for _, test := range []struct {
		from, to string
		want     time.Duration
	}{
		{a1, a2, 1 * ms}, {a1, b1, 10 * ms}, {a2, b2, 10 * ms}, {b1, a1, 75 * ms}, {a1, c1, 75 * ms},
		{c1, "c", 75 * ms}, {c1, c1, 2 * ms},
		{"late:1", b1, 10 * ms},
		{"unknown:1", "unknown:2", 1 * ms}, {"unknown:1", a1, 75 * ms},
	} {
		if got := l.send(test.from, test.to); len(got) != 1 || got[0] != test.want {
			t.Errorf("%s to %s takes %v, want %v", test.from, test.to, got, test.want)
		}
	}
	l.Register(a1, "b")
	if got := l.send(a1, b1); got[0] != 1*ms {
		t.Errorf("after the move %s to %s takes %v, want 1ms", a1, b1, got)
	}
	if got, err := l.dialDelay(a2, b2); err != nil || got != 85*ms {
		t.Errorf("dialing there and back takes %v (%v), want 85ms", got, err)
	}
}

// TestPartitions checks every direction between the groups and "", the group of unregistered endpoints.
func TestPartitions(t *testing.T) {
	addrs := map[string]string{"a": a1, "b": b1, "c": c1, "": "unknown:1"}
	for _, test := range []struct {
		name   string
		do     func(*Links)
		parted string // the partitioned directions, "-" for ""
	}{
		{"nothing", func(*Links) {}, ""},
		{"one group", func(l *Links) { l.Partition("a") }, "ab ac a- ba ca -a"},
		{"two groups stay together", func(l *Links) { l.Partition("a", "b") }, "ac a- bc b- ca cb -a -b"},
		{"two partitions leave three sides", func(l *Links) { l.Partition("a"); l.Partition("b") },
			"ab ac a- ba bc b- ca cb -a -b"},
		{"of no group", func(l *Links) { l.Partition() }, ""},
		{"of a group without endpoints", func(l *Links) { l.Partition("nowhere") }, ""},
		{"one way", func(l *Links) { l.PartitionOneWay("a", "b") }, "ab"},
		{"one way and the other", func(l *Links) { l.PartitionOneWay("a", "b"); l.PartitionOneWay("b", "a") }, "ab ba"},
		{"a bridge", func(l *Links) { l.PartitionOneWay("a", "b"); l.PartitionOneWay("b", "a"); l.Partition("") },
			"ab ba a- -a b- -b c- -c"},
		{"inside a group", func(l *Links) { l.PartitionOneWay("a", "a") }, "aa"},
		{"healed", func(l *Links) { l.Partition("a"); l.PartitionOneWay("b", "c"); l.Heal() }, ""},
		{"healed and partitioned again", func(l *Links) { l.Partition("a"); l.Heal(); l.PartitionOneWay("b", "c") },
			"bc"},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := threeGroups(1)
			test.do(l)
			for from, fromAddr := range addrs {
				for to, toAddr := range addrs {
					way, back := short(from)+short(to), short(to)+short(from)
					want := strings.Contains(test.parted, way)
					if got := l.send(fromAddr, toAddr) == nil; got != want {
						t.Errorf("packets %s: partitioned %v, want %v", way, got, want)
					}
					if got := !l.arrives(fromAddr, toAddr); got != want {
						t.Errorf("delayed packets %s: partitioned %v, want %v", way, got, want)
					}
					_, err := l.dialDelay(fromAddr, toAddr)
					wantBoth := want || strings.Contains(test.parted, back)
					if got := errors.Is(err, ErrPartitioned); got != wantBoth {
						t.Errorf("dials %s: partitioned %v, want %v", way, got, wantBoth)
					}
				}
			}
		})
	}
}

func short(group string) string {
	if group == "" {
		return "-"
	}
	return group
}

func TestPartitionsResetStreams(t *testing.T) {
	l := threeGroups(1)
	resets := make(map[string]int)
	ended := make(map[string]func())
	for _, s := range []struct{ from, to string }{{a1, a2}, {a1, b1}, {b1, a1}, {b1, c1}, {a2, c1}} {
		name := s.from + " " + s.to
		end, err := l.track(s.from, s.to, func() {
			resets[name]++
			l.Counts() // must not find the lock taken
			ended[name]()
		})
		if err != nil {
			t.Fatal(err)
		}
		ended[name] = end
	}
	expect := func(when string, want map[string]int) {
		t.Helper()
		if !reflect.DeepEqual(resets, want) {
			t.Errorf("%s resets:\n got %v\nwant %v", when, resets, want)
		}
	}
	ended[a2+" "+c1]()
	l.PartitionOneWay("b", "a")
	expect("partition one way", map[string]int{a1 + " " + b1: 1, b1 + " " + a1: 1})
	l.Partition("c")
	l.Partition("a")
	expect("after two partitions", map[string]int{a1 + " " + b1: 1, b1 + " " + a1: 1, b1 + " " + c1: 1})
	if _, err := l.track(a1, b1, func() {}); !errors.Is(err, ErrPartitioned) {
		t.Errorf("opening a stream across the partition: %v, want ErrPartitioned", err)
	}
	wantCounts(t, l, Counts{Reset: 3, Refused: 1})
	l.Heal()
	if _, err := l.track(a1, b1, func() {}); err != nil {
		t.Errorf("opening a stream after the heal: %v", err)
	}
}

func TestLinksUnderConcurrentUse(t *testing.T) {
	l := threeGroups(1)
	l.SetDefaults(Link{}, Link{Loss: 0.1, Duplicate: 0.1, Reorder: 0.1})
	addrs := []string{a1, a2, b1, b2, c1}
	var wg sync.WaitGroup
	for i, from := range addrs {
		wg.Go(func() {
			for n := range 500 {
				to := addrs[(i+n)%len(addrs)]
				for range l.send(from, to) {
					if l.arrives(from, to) {
						l.countDelivery(nil)
					}
				}
				if ended, err := l.track(from, to, func() {}); err == nil {
					ended()
				}
			}
		})
	}
	wg.Go(func() {
		for n := range 200 {
			l.Partition("a")
			l.PartitionOneWay("b", "c")
			l.Register(fmt.Sprint("10.0.4.1:", n), "c")
			l.Set("a", "c", Link{Latency: ms})
			l.Heal()
			l.Counts()
		}
	})
	wg.Wait()
	c := l.Counts()
	if c.Sent != 2500 || c.Sent+c.Duplicated != c.Delivered+c.Lost+c.Partitioned {
		t.Errorf("the books do not balance: %+v", c)
	}
}
