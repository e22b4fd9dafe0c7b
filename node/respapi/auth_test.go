package respapi

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// 20,000 wrong passwords in one go: the connection ends with the tenth, and the log says so once, with where they
// came from.
func TestWrongPasswordsEndTheConnection(t *testing.T) {
	var log strings.Builder
	s := New(newBank(), Options{Password: "right", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	got := converse(s, strings.Repeat(array("AUTH", "wrong"), 20_000), array("AUTH", "right"))
	if n := strings.Count(got, "WRONGPASS"); n != 10 || strings.Contains(got, "+OK") || s.Stats().WrongAuth != 10 {
		t.Errorf("%d answers, %d failures are counted", n, s.Stats().WrongAuth)
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "source=192.0.2.1 failures=1") {
		t.Errorf("logged %s", text)
	}
}

// A source that opens one connection after the other is not listened to after 30 wrong passwords; others are.
func TestASourceThatGuesses(t *testing.T) {
	s := New(newBank(), Options{Password: "right", Logger: slog.New(slog.DiscardHandler)})
	for range 3 {
		converse(s, strings.Repeat(array("HELLO", "3", "AUTH", "default", "wrong"), 10))
	}
	if got := converse(s, array("AUTH", "right")); !strings.HasPrefix(got,
		"-ERR too many wrong passwords from this address, try again in ") {
		t.Errorf("after 30: %s", got)
	}
	if s.logins.blocked(netip.MustParseAddr("192.0.2.2"), time.Now()) != 0 {
		t.Error("another source is blocked")
	}
	if s.Stats().WrongAuth != 31 {
		t.Errorf("%d failures are counted", s.Stats().WrongAuth)
	}
}

// An attempt comes back every two seconds. The log has a line a minute.
func TestLoginLimiter(t *testing.T) {
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, nil))
	var g loginLimiter
	source, now := netip.MustParseAddr("192.0.2.1"), noon
	for range maxFailures {
		if g.blocked(source, now) != 0 {
			t.Fatal("blocked too early")
		}
		g.failed(source, false, now, logger)
	}
	if wait := g.blocked(source, now); wait != failureRefill {
		t.Errorf("blocked for %v", wait)
	}
	g.failed(source, true, now, logger) // costs nothing more
	if g.blocked(source, now.Add(failureRefill-1)) == 0 || g.blocked(source, now.Add(failureRefill)) != 0 {
		t.Error("it is not listened to after two seconds")
	}
	g.failed(source, false, now.Add(time.Minute), logger)
	if text := log.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "failures=31") {
		t.Errorf("logged %s", text)
	}
}

// More sources than are told apart are one; those that calmed down make room.
func TestManyGuessers(t *testing.T) {
	var g loginLimiter
	at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}) }
	for i := range maxSources + maxFailures {
		g.failed(at(i), false, noon, slog.New(slog.DiscardHandler))
	}
	if len(g.sources) > maxSources+1 || g.blocked(at(maxSources+100), noon) == 0 || g.blocked(at(0), noon) != 0 {
		t.Errorf("%d sources", len(g.sources))
	}
	later := noon.Add(time.Hour)
	if g.failed(at(1), false, later, slog.New(slog.DiscardHandler)); len(g.sources) > 2 ||
		g.blocked(at(maxSources+100), later) != 0 {
		t.Errorf("%d sources after an hour", len(g.sources))
	}
}
