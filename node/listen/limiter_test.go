package listen

import (
	"math"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

func TestShareOfFiles(t *testing.T) {
	for _, tt := range []struct{ files, listeners, wanted, want int }{
		{20000, 1, 10000, 10000},
		{20000, 2, 10000, 9744},
		{20000, 2, 100, 100},
		{1024, 1, 10000, 512},
		{1024, 3, 10000, 170},
		{256, 2, 10000, 32}, // of few, a quarter
		{3, 2, 10000, 1},
		{math.MaxInt32, 2, 1_000_000, 1_000_000},
	} {
		if got := shareOf(tt.files, tt.listeners, tt.wanted); got != tt.want {
			t.Errorf("%d files, %d listeners, %d wanted: %d, want %d", tt.files, tt.listeners, tt.wanted, got, tt.want)
		}
	}
}

// fakeConn is a connection from an address.
type fakeConn struct {
	net.Conn
	from net.Addr
}

func (c fakeConn) RemoteAddr() net.Addr { return c.from }

// connFrom returns a TCP connection from a host, or one of a Unix socket if host is empty.
func connFrom(t *testing.T, host string) fakeConn {
	t.Helper()
	here, there := net.Pipe()
	t.Cleanup(func() { _ = there.Close() })
	if host == "" {
		return fakeConn{here, &net.UnixAddr{Net: "unix"}}
	}
	return fakeConn{here, net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(host), 9))}
}

func limiterOf(limits Limits) *limiter { return newLimiter(limits) }

// When a listener is nearly full, connections that are idle for long are closed in favor of new ones; those in use
// never are.
func TestIdleConnectionsAreEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiterOf(Limits{Max: 16, PerSource: 16, IdleAfter: 5 * time.Second})
		var in []*limitedConn
		for range 16 {
			c, _, _ := l.admit(connFrom(t, "192.0.2.1"), false)
			in = append(in, c)
		}
		if c, _, why := l.admit(connFrom(t, "192.0.2.2"), false); c != nil || why != listenerFull {
			t.Errorf("one too many: %v, %v", c, why)
		}
		in[3].busy.Store(true)
		time.Sleep(4 * time.Second)
		for _, c := range in[4:] {
			c.touch()
		}
		time.Sleep(time.Second)
		var evicted []*limitedConn
		for range 4 {
			if _, e, _ := l.admit(connFrom(t, "192.0.2.2"), false); e != nil {
				evicted = append(evicted, e)
			}
		}
		if len(evicted) != 3 {
			t.Fatalf("%d were closed, 3 were idle", len(evicted))
		}
		for _, e := range evicted {
			if e != in[0] && e != in[1] && e != in[2] {
				t.Error("one that was in use was closed")
			}
			_ = e.Close() // as its server does when it notices
		}
		if s := l.Stats(); s.Open != 16 || s.Evicted != 3 || s.RefusedFull != 2 {
			t.Errorf("%+v", s)
		}
	})
}

// A source that has its share gets a new connection for one of its own that is idle for long, also where a proxy
// forwards both. Those in use, and those of others, stay.
func TestASourceReplacesItsOwn(t *testing.T) {
	for _, forwarded := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := limiterOf(Limits{Max: 40, PerSource: 4, IdleAfter: 5 * time.Second})
			admit := func(from string) (c, evicted *limitedConn, why refusal) {
				if !forwarded {
					return l.admit(connFrom(t, from), false)
				}
				c, _, _ = l.admit(connFrom(t, "192.0.2.100"), true)
				c.client = connFrom(t, from).RemoteAddr()
				evicted, why = l.identify(c)
				return c, evicted, why
			}
			other, _, _ := admit("198.51.100.7")
			var in []*limitedConn
			for range 4 {
				c, _, _ := admit("192.0.2.1")
				in = append(in, c)
			}
			in[0].busy.Store(true)
			time.Sleep(4 * time.Second)
			in[1].touch()
			if _, evicted, why := admit("192.0.2.1"); evicted != nil || why != sourceAtShare {
				t.Errorf("forwarded %v: one too many while none is idle: %v", forwarded, why)
			}
			time.Sleep(2 * time.Second)
			for range 2 {
				if _, evicted, why := admit("192.0.2.1"); why != admitted || evicted != in[2] && evicted != in[3] {
					t.Errorf("forwarded %v: another one where two are idle: %v", forwarded, why)
				} else {
					_ = evicted.Close() // as its server does when it notices
				}
			}
			if _, evicted, why := admit("192.0.2.1"); evicted != nil || why != sourceAtShare {
				t.Errorf("forwarded %v: one too many where all idle ones are replaced: %v", forwarded, why)
			}
			s := l.Stats()
			if s.Open != 5 || s.Evicted != 2 || s.RefusedSource != 2 || l.share(in[0].source) != 4 || !l.conns[other] {
				t.Errorf("forwarded %v: %+v", forwarded, s)
			}
		})
	}
}

// Where probes come, a new connection always finds its place: its own source's where that has its share, else of the
// sources with the most connections the one that is idle the longest, else the oldest.
func TestProbesFindTheirPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiterOf(Limits{Max: 8, PerSource: 2, Evict: true})
		admit := func(host string) (c, evicted *limitedConn) {
			t.Helper()
			c, evicted, _ = l.admit(connFrom(t, host), false)
			if c == nil {
				t.Fatalf("%s is refused", host)
			}
			if !c.busy.Load() {
				t.Error("a new connection counts as idle")
			}
			c.busy.Store(false)
			time.Sleep(time.Millisecond)
			return c, evicted
		}
		probe, _ := admit("192.0.2.1")
		first, _ := admit("192.0.2.2")
		second, _ := admit("192.0.2.2")
		if _, e := admit("192.0.2.2"); e != first {
			t.Error("a source at its share takes another one's place, or a younger one's")
		}
		first.busy.Store(true)
		for _, host := range []string{"192.0.2.3", "192.0.2.3", "192.0.2.4", "192.0.2.4", "192.0.2.5"} {
			if _, e := admit(host); e != nil {
				t.Errorf("%s: one was closed although there is space", host)
			}
		}
		if _, e := admit("192.0.2.6"); e != second {
			t.Error("not the one that is idle the longest was closed")
		}
		for c := range l.conns {
			c.busy.Store(true)
		}
		if _, e := admit("192.0.2.7"); e == nil || e == probe || e.source.String() != "192.0.2.3" {
			t.Error("where all are in use, not the oldest of the sources with the most was closed")
		}
		if s := l.Stats(); s.Open != 8 || s.RefusedFull+s.RefusedSource != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// A source gets its share of the connections, and other sources get theirs. Exempt sources have no share.
func TestSourcesHaveAShare(t *testing.T) {
	exempt := func(a netip.Addr) bool { return a == netip.MustParseAddr("10.1.2.3") }
	for _, test := range []struct {
		first, second string // of one source
		want          int
	}{
		{"192.0.2.1", "::ffff:192.0.2.1", 10},
		{"2001:db8::1", "2001:db8::ffff:1", 10},
		{"10.1.2.3", "10.1.2.3", 40},
		{"", "", 40},
	} {
		l := limiterOf(Limits{Max: 40, PerSource: 10, Exempt: exempt, IdleAfter: 5 * time.Second})
		var in []*limitedConn
		for i := range 50 {
			c, evicted, _ := l.admit(connFrom(t, []string{test.first, test.second}[i%2]), false)
			if evicted != nil {
				t.Fatal("a connection that was in use was closed")
			}
			if c != nil {
				in = append(in, c)
			}
		}
		if len(in) != test.want {
			t.Errorf("%s: %d connections, want %d", test.first, len(in), test.want)
		}
		other, _, why := l.admit(connFrom(t, "198.51.100.7"), false)
		if (other != nil) != (test.want < 40) || other == nil && why != listenerFull {
			t.Errorf("%s: another source gets %v, %v", test.first, other, why)
		}
		for _, c := range in {
			_ = c.Close()
		}
		if other != nil {
			_ = other.Close()
		}
		if s := l.Stats(); s.Open != 0 || len(l.sources) != 0 || len(l.conns) != 0 ||
			s.RefusedSource+s.RefusedFull == 0 {
			t.Errorf("%s: when all have left: %+v, %v, %d", test.first, s, l.sources, len(l.conns))
		}
	}
}
