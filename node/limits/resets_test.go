package limits

import (
	"log/slog"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// resetAll has a connection reset requests until it may not go on, and returns how many it reset before.
func resetAll(r Resets, c *ResetsOf, source netip.Addr) (n int) {
	for r.Reset(c, source) {
		n++
	}
	return n
}

// A source may reset its share within ten seconds, however many connections it opens, and as many as it lets the node
// answer; the others keep theirs.
func TestResetsHaveAShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(testkit.Log)
		set := NewBudgets(nil, log.Logger())
		r := NewResets(set, "grpc")
		greedy, other := netip.MustParseAddr("192.0.2.66"), netip.MustParseAddr("198.51.100.7")
		if n := resetAll(r, new(ResetsOf), greedy); n != maxResets/2 {
			t.Errorf("one source resets %d, want half of %d", n, maxResets)
		}
		answered := new(ResetsOf)
		for range 3 * maxAnswered {
			answered.Answered()
		}
		if n := resetAll(r, new(ResetsOf), greedy); n != 0 {
			t.Errorf("its next connection resets %d", n)
		}
		if n := resetAll(r, answered, greedy); n != maxAnswered {
			t.Errorf("a connection whose answers it took resets %d, want %d", n, maxAnswered)
		}
		if n := resetAll(r, new(ResetsOf), other); n < maxResets/floorShare {
			t.Errorf("another source resets %d beside it", n)
		}
		if s := set.All()[0].Stats(); s.Refused[AtShare] != 4 || s.Door != "grpc" || s.Name != "resets" {
			t.Errorf("%+v", s)
		}
		if !log.HasLine("a budget has no room", `so="connections that reset requests are closed"`,
			"source=192.0.2.66") {
			t.Errorf("the log is %s", log)
		}
		time.Sleep(resetsWithin)
		synctest.Wait()
		if n := resetAll(r, new(ResetsOf), greedy); n != maxResets/2 {
			t.Errorf("ten seconds later it resets %d", n)
		}
		time.Sleep(resetsWithin)
	})
}

// A client that gives up fewer requests than it lets the node answer never loses its connection.
func TestResetsOfAProxyWithTimeouts(t *testing.T) {
	b := NewBudgets(nil, slog.New(slog.DiscardHandler))
	r, c, source := NewResets(b, "grpc"), new(ResetsOf), netip.MustParseAddr("192.0.2.1")
	for i := range 100 * maxResets {
		if i%2 == 0 {
			c.Answered()
		} else if !r.Reset(c, source) {
			t.Fatalf("closed at request %d", i)
		}
	}
	if held := b.All()[0].Held(source); held != 0 {
		t.Errorf("it holds %d", held)
	}
}
