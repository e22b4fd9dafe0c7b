package status

import (
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestEventsAreInOrder(t *testing.T) {
	e := NewEvents(time.UnixMicro(1000))
	_, added := e.Since(0)
	e.Add(Event{Text: "a"})
	select {
	case <-added:
	default:
		t.Error("nobody is notified of a new event")
	}
	e.Add(Event{Text: "b"})
	all, _ := e.Since(0)
	if len(all) != 2 || all[0].ID != 1001 || all[1].Text != "b" {
		t.Fatalf("%+v", all)
	}
	if later, _ := e.Since(all[0].ID); len(later) != 1 || later[0].Text != "b" {
		t.Errorf("%+v", later)
	}
	for _, id := range []uint64{all[1].ID, 1 << 62} {
		if none, _ := e.Since(id); len(none) != 0 {
			t.Errorf("after %d: %+v", id, none)
		}
	}
}

// A flood of one kind, quick or slow, pushes nothing else out; and the whole is bounded.
func TestEventsOfAFlood(t *testing.T) {
	for _, apart := range []time.Duration{time.Millisecond, 10 * time.Second} {
		e := NewEvents(time.Now())
		at := time.Unix(0, 0)
		e.Add(Event{Time: at, Text: "a region cannot be reached"})
		for range 3000 {
			at = at.Add(apart)
			e.Add(Event{Time: at, Text: "a ban was begun"})
		}
		all, _ := e.Since(0)
		if all[0].Text != "a region cannot be reached" || len(all) > 1+maxPerText {
			t.Errorf("%v apart: %d events, the first %+v", apart, len(all), all[0])
		}
		sum := 0
		for _, v := range all[1:] {
			sum += 1 + v.Repeated
		}
		if apart == time.Millisecond && sum != 3000 {
			t.Errorf("%d events are kept or counted, want 3000", sum)
		}
	}
	e := NewEvents(time.Now())
	for i := range 2 * maxEvents {
		e.Add(Event{Time: time.Unix(int64(i), 0), Text: fmt.Sprint(i)})
	}
	if all, _ := e.Since(0); len(all) != maxEvents || len(e.byText) != maxEvents ||
		all[0].Text != fmt.Sprint(maxEvents) {
		t.Errorf("%d events of %d texts, the first %+v", len(all), len(e.byText), all[0])
	}
}

// The log is the source, whatever level its own handler has; names that peers choose do no harm.
func TestHandler(t *testing.T) {
	e := NewEvents(time.Now())
	var out strings.Builder
	log := slog.New(e.Handler(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn})))
	log.Debug("not of interest")
	log.With("pool", "wan").WithGroup("g").Info("joined", "peer", "\x1b[2J\u202e<b>"+strings.Repeat("x", 1000))
	log.Error("broken", "why", io.EOF)
	all, _ := e.Since(0)
	if len(all) != 2 || all[0].Level != "info" || all[1].Level != "error" || all[1].Attrs["why"] != "EOF" ||
		all[0].Attrs["pool"] != "wan" {
		t.Fatalf("%+v", all)
	}
	if peer := all[0].Attrs["g.peer"]; !strings.HasPrefix(peer, "?[2J?<b>x") || len(peer) > maxValue+len("…") {
		t.Errorf("it says %q", peer)
	}
	if text := out.String(); strings.Contains(text, "joined") || !strings.Contains(text, "broken") {
		t.Errorf("the log has %s", text)
	}
}

// Those who are denied most are there among a million others, in bounded memory, and nothing is allocated for anybody.
func TestTopAmongAMillion(t *testing.T) {
	var top Top
	count := func(key uint64) { top.Count(key, "someone with quite a long name, longer than what is kept of it", 1) }
	count(1)
	others := uint64(testkit.Tenth(1_000_000))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range others {
		count(1000 + i)
		if i%20 == 0 {
			count(1)
		}
		if i%30 == 0 {
			count(2)
		}
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<10 {
		t.Errorf("a million identities allocate %d bytes", grown)
	}
	all := top.Most(100, 2)
	if len(all) != topKeys || all[0].Key != 1 || all[1].Key != 2 || len(all[0].Identity) > MaxIdentity {
		t.Fatalf("%d keys: %+v", len(all), all[:2])
	}
	for i, real := range []uint64{others/20 + 1, others/30 + 1} {
		if e := all[i]; e.Denials < real || e.Denials-e.Error > real {
			t.Errorf("key %d: %d less %d, it was %d", e.Key, e.Denials, e.Error, real)
		}
	}
}

func TestTopForgets(t *testing.T) {
	var top Top
	now := time.Now().UnixNano()
	if got := top.Most(5, now); len(got) != 0 {
		t.Errorf("nobody was denied, but %+v", got)
	}
	top.Count(1, "joe", now)
	top.Count(2, "", now)
	top.Count(1, "joe", now)
	later := now + int64(topSpan)
	top.Count(2, "", later)
	want := []Entry{{1, "joe", 2, 0}, {2, "", 2, 0}}
	if got := top.Most(5, later); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := top.Most(1, later); !slices.Equal(got, want[:1]) {
		t.Errorf("%+v", got)
	}
	if got := top.Most(5, later+int64(topSpan)); !slices.Equal(got, []Entry{{2, "", 1, 0}}) {
		t.Errorf("%+v", got)
	}
	for _, at := range []int64{later + 3*int64(topSpan), now - int64(time.Hour)} { // the clock was set back
		if got := top.Most(5, at); len(got) != 0 {
			t.Errorf("%+v", got)
		}
	}
}

// No denial is missing from the counts where many count at a time.
func TestTopConcurrently(t *testing.T) {
	var top Top
	var all sync.WaitGroup
	each := testkit.Tenth(100_000)
	for range 4 {
		all.Go(func() {
			for i := range each {
				top.Count(uint64(i%10), "x", 1)
				if i%1000 == 0 {
					_ = top.Most(10, 1)
				}
			}
		})
	}
	all.Wait()
	var sum uint64
	for _, e := range top.Most(10, 1) {
		sum += e.Denials - e.Error
	}
	if sum != uint64(4*each) {
		t.Errorf("%d denials, it counts %d", 4*each, sum)
	}
}

func BenchmarkTop(b *testing.B) {
	var top Top
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := uint64(0); pb.Next(); i++ {
			top.Count(i%topKeys, "x", 1)
		}
	})
}

// Whoever took the time just before the first denial, and asks after it, does not forget the denial.
func TestTopOutlivesLateReaders(t *testing.T) {
	var top Top
	now := int64(1e18)
	top.Count(7, "ann", now)
	if late := top.Most(9, now-1); len(late) != 1 {
		t.Errorf("a reader with an earlier time gets %+v", late)
	}
	top.Count(7, "ann", now-int64(time.Second))
	if all := top.Most(9, now); len(all) != 1 || all[0].Denials != 2 {
		t.Errorf("afterwards there is %+v", all)
	}
	if all := top.Most(9, now-int64(time.Hour)); len(all) != 0 {
		t.Errorf("after a step back by an hour there is %+v", all)
	}
}
