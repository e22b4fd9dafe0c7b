package proxy

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/node/limits"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// connectionsOf counts a server's connections.
func connectionsOf(s *http.Server) (open, most *atomic.Int64) {
	open, most = new(atomic.Int64), new(atomic.Int64)
	s.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			if n := open.Add(1); n > most.Load() {
				most.Store(n)
			}
		case http.StateClosed, http.StateHijacked:
			open.Add(-1)
		}
	}
	return open, most
}

// heldBackend is an upstream whose requests for /held last until end is closed, by one for each path.
func heldBackend(t *testing.T, end chan struct{}) (url string, open, most *atomic.Int64) {
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			_ = http.NewResponseController(w).Flush()
			<-end
		}
	})}
	open, most = connectionsOf(s)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() { _ = s.Close(); serving.Wait() })
	return "http://" + l.Addr().String(), open, most
}

// from returns a client of HTTP/2 whose connections come from an address.
func from(t *testing.T, addr string) *http.Client {
	c := clientOf(t, true)
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}}
	c.Transport.(*http.Transport).DialContext = dialer.DialContext
	return c
}

// A source whose requests of HTTP/2 wait for a slow upstream takes its share of the connections to upstreams; others'
// requests are answered, and no more connections are open than the proxy may have.
func TestUpstreamConnectionsHaveAShare(t *testing.T) {
	end := make(chan struct{})
	upstream, opened, most := heldBackend(t, end)
	log := new(testkit.Log)
	budgets := limits.NewBudgets(nil, log.Logger())
	p := open(t, always(plenty), func(_ *Config, o *Options) { o.Connections, o.Budgets = 16, budgets }, upstream)
	greedy, other := from(t, "127.0.0.2"), from(t, "127.0.0.3")
	var refused, held int
	for range 40 {
		resp, err := greedy.Get(p.url + "/held")
		testkit.Must(t, err)
		defer resp.Body.Close()
		switch resp.StatusCode {
		case 200:
			held++
		case 503:
			refused++
		}
		if got := resp.Header.Get("Retry-After"); (resp.StatusCode == 503) != (got == "1") {
			t.Errorf("%d with Retry-After %q", resp.StatusCode, got)
		}
	}
	if held != 6 || refused != 34 {
		t.Errorf("%d are held and %d refused, want 6 and 34", held, refused)
	}
	for range 50 {
		r, err := http.NewRequestWithContext(t.Context(), "GET", p.url+"/", nil)
		testkit.Must(t, err)
		if resp, body := do(t, other, r); resp.StatusCode != 200 {
			t.Fatalf("another source gets %s %s", resp.Status, body)
		}
	}
	if p.Stats().Upstreams[0].Connects != 0 || !p.upstreams[0].up(time.Now()) {
		t.Error("the upstream is blamed")
	}
	close(end)
	testkit.Eventually(t, "nothing is held", func() bool { return p.connections.Left() == 12 })
	p.upstreams[0].transport.CloseIdleConnections()
	testkit.Eventually(t, "all are closed", func() bool { return opened.Load() == 0 })
	s := p.connections.Stats()
	if most.Load() > 16 || s.Refused[limits.AtShare] != 34 ||
		!log.HasLine("a budget has no room", "door=proxy", "budget=upstream_connections", "source=127.0.0.2") {
		t.Errorf("%d were open; %+v; the log is %s", most.Load(), s, log)
	}
}

// In any order of requests that share connections, a connection counts once, in the share of a source whose request it
// serves, and in nobody's while it serves none.
func TestConnectionsCountOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := limits.NewBudget("", "test", 1000, nil)
		source := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}) }
		type conn struct {
			*upstreamConn
			users  []int
			closed bool
		}
		var conns []*conn
		pick := func(t *rapid.T) *conn {
			if len(conns) == 0 {
				t.Skip()
			}
			return conns[rapid.IntRange(0, len(conns)-1).Draw(t, "connection")]
		}
		t.Repeat(map[string]func(*rapid.T){
			"dial": func(t *rapid.T) {
				s := rapid.IntRange(1, 3).Draw(t, "source")
				b.Take(source(s), 1)
				inner, _ := net.Pipe()
				conns = append(conns, &conn{upstreamConn: &upstreamConn{Conn: inner, budget: b, held: true,
					holder: source(s)}})
				if rapid.Bool().Draw(t, "wanted") {
					c := conns[len(conns)-1]
					c.begin(source(s))
					c.users = append(c.users, s)
				}
			},
			"begin": func(t *rapid.T) {
				c, s := pick(t), rapid.IntRange(1, 3).Draw(t, "source")
				if len(c.users) == 2 { // HTTP/1: the end of one may come late
					t.Skip()
				}
				c.begin(source(s))
				c.users = append(c.users, s)
			},
			"end": func(t *rapid.T) {
				c := pick(t)
				if len(c.users) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(c.users)-1).Draw(t, "request")
				c.end(source(c.users[i]))
				c.users = append(c.users[:i:i], c.users[i+1:]...)
			},
			"close": func(t *rapid.T) {
				c := pick(t)
				_ = c.Close()
				c.closed = true
			},
			"": func(t *rapid.T) {
				used, bySource := int64(0), make(map[netip.Addr]int64)
				for _, c := range conns {
					if c.held {
						used++
						bySource[c.holder]++
					}
					if c.held && (c.closed && len(c.users) == 0) || !c.held && !c.closed && len(c.users) > 0 {
						t.Fatalf("held: %v, closed: %v, users %v", c.held, c.closed, c.users)
					}
					if len(c.users) == 1 && c.held && c.holder != source(c.users[0]) {
						t.Fatalf("in the share of %v, of a request of source %d", c.holder, c.users[0])
					}
				}
				if b.Left() != 1000-used {
					t.Fatalf("%d left beside %d", b.Left(), used)
				}
				for s := range 4 {
					if b.Held(source(s)) != bySource[source(s)] {
						t.Fatalf("source %d holds %d, want %d", s, b.Held(source(s)), bySource[source(s)])
					}
				}
			},
		})
	})
}
