package listen

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/edgelimit/edgelimit/node/limits"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// framed is a connection of HTTP/2 on which frames are written by hand.
type framed struct {
	*http2.Framer
	conn   net.Conn
	stream uint32 // the newest
}

func dialFramed(t *testing.T, l *Listener, from string) *framed {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := dialer.DialContext(t.Context(), "tcp", l.Addr().String())
	testkit.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(testkit.Patience))
	_, err = io.WriteString(conn, http2.ClientPreface)
	testkit.Must(t, err)
	f := &framed{Framer: http2.NewFramer(conn, conn), conn: conn}
	testkit.Must(t, f.WriteSettings())
	return f
}

// get begins a request.
func (f *framed) get(t *testing.T, path string) {
	t.Helper()
	f.stream += 2
	if f.stream == 2 {
		f.stream = 1
	}
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, h := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}, {":path", path}} {
		testkit.Must(t, e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1], Sensitive: true}))
	}
	testkit.Must(t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: f.stream, BlockFragment: block.Bytes(),
		EndHeaders: true, EndStream: true}))
}

// ended reads until the newest request has its answer, or returns why the connection ended before.
func (f *framed) ended() error {
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return err
		}
		h := frame.Header()
		if h.StreamID == f.stream && h.Flags.Has(http2.FlagDataEndStream) {
			return nil
		}
	}
}

// closesWithin reads until the connection ends or the time is over.
func (f *framed) closesWithin(d time.Duration) bool {
	_ = f.conn.SetReadDeadline(time.Now().Add(d))
	_, err := io.Copy(io.Discard, f.conn)
	timeout := net.Error(nil)
	return !errors.As(err, &timeout) || !timeout.Timeout()
}

// A connection that resets more requests of HTTP/2 than it lets the listener answer is closed once its source has reset
// its share; neither one that took its answers, nor one of another source.
func TestAConnectionThatResetsIsClosed(t *testing.T) {
	log := new(testkit.Log)
	l, err := Open(Setting{Name: "http", Addr: "127.0.0.1:0"}, Limits{Max: 100, PerSource: 100,
		Budgets: limits.NewBudgets(nil, log.Logger())}, log.Logger())
	testkit.Must(t, err)
	held := make(chan struct{})
	s := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			held <- struct{}{}
			<-r.Context().Done()
		}
	}), Protocols: new(http.Protocols)}
	s.Protocols.SetUnencryptedHTTP2(true)
	l.UseHTTP(s, 0)
	l.Start(func(string, error) {})
	t.Cleanup(func() { l.Stop(0, testkit.Patience) })
	for name, c := range map[string]struct {
		from     string
		answered int
		closes   bool
	}{
		"it resets only":    {"127.0.0.2", 0, true},
		"it has answers":    {"127.0.0.2", 2, false},
		"it is another one": {"127.0.0.3", 0, false},
	} {
		f := dialFramed(t, l, c.from)
		for range c.answered {
			f.get(t, "/")
			testkit.Must(t, f.ended())
		}
		closed := false
		for tries := 0; !closed && (c.closes && tries < 30 || tries == 0); tries++ { // late resets do not count
			for greedy := new(limits.ResetsOf); l.resets.Reset(greedy, netip.MustParseAddr("127.0.0.2")); {
			}
			f.get(t, "/held")
			<-held
			testkit.Must(t, f.WriteRSTStream(f.stream, http2.ErrCodeCancel))
			closed = c.closes && f.closesWithin(time.Second)
		}
		if !c.closes {
			f.get(t, "/")
			closed = f.ended() != nil
		}
		if closed != c.closes {
			t.Errorf("%s: closed: %v", name, closed)
		}
		_ = f.conn.Close()
	}
	if !log.HasLine("a budget has no room", "door=http", "budget=resets", "source=127.0.0.2") {
		t.Errorf("the log is %s", log)
	}
}

// A request of HTTP/2 whose client has reset it before its turn is not handled.
func TestAResetRequestIsNotHandled(t *testing.T) {
	handled := 0
	l := serving(t, 10, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { handled++ }))
	defer l.Abandon()
	conn := &limitedConn{limiter: l.limiter}
	ctx, cancel := context.WithCancel(limits.WithSource(t.Context(), conn))
	defer cancel()
	for range 2 {
		r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
		r.ProtoMajor = 2
		l.Server.(*http.Server).Handler.ServeHTTP(httptest.NewRecorder(), r)
		cancel()
	}
	if handled != 1 {
		t.Errorf("%d of 2 requests were handled, and one was reset", handled)
	}
}
