package respapi

import (
	"bufio"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestMain(m *testing.M) { testkit.MainWithoutLeaks(m) }

// patience is how long a test waits for what should come at once, on a machine that is busy with other things.
const patience = 30 * time.Second

// bank is a limiter with a table and a clock of its own.
type bank struct {
	table *counters.Table
	debts *counters.Debts
	now   atomic.Int64
}

var seed = maphash.MakeSeed()

func newBank() *bank {
	b := &bank{table: counters.NewTable(counters.Config{Origin: 1, Memory: counters.MinMemory})}
	var err error
	if b.debts, err = counters.NewDebts(b.table, "%bank", b.table.Know); err != nil {
		panic(err)
	}
	b.now.Store(1_700_000_000_000_000_000)
	return b
}

func (b *bank) TakeDebt(identity []byte, charge, capacity time.Duration) counters.Decision {
	return b.debts.Take(counters.Key(maphash.Bytes(seed, identity)), charge, capacity, b.now.Load())
}

func (b *bank) GiveBack(identity []byte, amount, capacity time.Duration) (time.Duration, bool) {
	return b.debts.GiveBack(counters.Key(maphash.Bytes(seed, identity)), amount, capacity, b.now.Load())
}

// fixed is a limiter that always decides the same.
type fixed counters.Decision

func (f fixed) TakeDebt([]byte, time.Duration, time.Duration) counters.Decision {
	return counters.Decision(f)
}

func (fixed) GiveBack([]byte, time.Duration, time.Duration) (time.Duration, bool) { return 0, true }

func quiet() Options { return Options{Logger: slog.New(slog.DiscardHandler)} }

// script is a connection of which all that the client says is known beforehand: what each read returns, and then the
// end. It keeps what is written.
type script struct {
	net.Conn
	reads   []string
	written strings.Builder
	writes  int
}

func (s *script) Read(b []byte) (int, error) {
	if len(s.reads) == 0 {
		return 0, io.EOF
	}
	n := copy(b, s.reads[0])
	if s.reads[0] = s.reads[0][n:]; s.reads[0] == "" {
		s.reads = s.reads[1:]
	}
	return n, nil
}

func (s *script) Write(b []byte) (int, error) {
	s.writes++
	return s.written.Write(b)
}

func (*script) SetReadDeadline(time.Time) error  { return nil }
func (*script) SetWriteDeadline(time.Time) error { return nil }
func (*script) Close() error                     { return nil }
func (*script) RemoteAddr() net.Addr             { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1} }

// converse has a server answer a client that says all this, and returns the replies.
func converse(s *Server, said ...string) string {
	conn := &script{reads: said}
	c := newSession(s, conn)
	c.serve()
	s.remove(c)
	return conn.written.String()
}

// array writes a command as clients do.
func array(words ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b.String()
}

// readReply reads one reply and returns it in words: 1, "text", +OK, -ERR ..., [1 2], {"a": 1}, null. It takes nothing
// but what the protocol allows.
func readReply(in *bufio.Reader) (string, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	text, ok := strings.CutSuffix(line, "\r\n")
	if !ok || text == "" || strings.ContainsAny(text, "\r") {
		return "", fmt.Errorf("no line of the protocol: %q", line)
	}
	switch kind, rest := text[0], text[1:]; kind {
	case '+', '-':
		return text, nil
	case '_':
		return "null", nil
	case ':', '$', '*', '%':
		n, err := strconv.Atoi(rest)
		if err != nil {
			return "", err
		}
		return readLong(in, kind, n)
	}
	return "", fmt.Errorf("no reply of the protocol: %q", line)
}

func readLong(in *bufio.Reader, kind byte, n int) (string, error) {
	switch {
	case kind == ':':
		return strconv.Itoa(n), nil
	case kind == '$' && n == -1:
		return "null", nil
	case n < 0:
		return "", errors.New("a negative length")
	case kind == '$':
		b := make([]byte, n+2)
		if _, err := io.ReadFull(in, b); err != nil {
			return "", err
		}
		if string(b[n:]) != "\r\n" {
			return "", fmt.Errorf("no end of a string: %q", b)
		}
		return strconv.Quote(string(b[:n])), nil
	case kind == '%':
		n *= 2
	}
	items := make([]string, n)
	for i := range items {
		var err error
		if items[i], err = readReply(in); err != nil {
			return "", err
		}
	}
	if kind == '%' {
		return "{" + strings.Join(items, " ") + "}", nil
	}
	return "[" + strings.Join(items, " ") + "]", nil
}

// replies reads all replies.
func replies(t testing.TB, text string) (all []string) {
	t.Helper()
	in := bufio.NewReader(strings.NewReader(text))
	for {
		r, err := readReply(in)
		if errors.Is(err, io.EOF) && in.Buffered() == 0 {
			return all
		}
		if err != nil {
			t.Fatalf("%v in %q", err, text)
		}
		all = append(all, r)
	}
}

// running is a server on loopback that ends with the test.
type running struct {
	*Server
	addr string
}

func serve(t testing.TB, l Limiter, opt Options) *running {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	s := New(l, opt)
	serveOn(t, s, listener)
	return &running{s, listener.Addr().String()}
}

func serveOn(t testing.TB, s *Server, l net.Listener) {
	t.Helper()
	var done sync.WaitGroup
	done.Go(func() {
		if err := s.Serve(l); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(func() {
		_ = s.Close()
		done.Wait()
	})
}

// connection is a client's side of a connection.
type connection struct {
	net.Conn
	t  testing.TB
	in *bufio.Reader
}

func (r *running) dial(t testing.TB) *connection {
	t.Helper()
	conn, err := net.Dial("tcp", r.addr)
	testkit.Must(t, err)
	return talk(t, conn)
}

func talk(t testing.TB, conn net.Conn) *connection {
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return &connection{conn, t, bufio.NewReader(conn)}
}

func (d *connection) send(text string) {
	d.t.Helper()
	if _, err := io.WriteString(d, text); err != nil {
		d.t.Fatal(err)
	}
}

func (d *connection) expect(want ...string) {
	d.t.Helper()
	for _, w := range want {
		if got, err := readReply(d.in); err != nil || got != w {
			d.t.Fatalf("reply %s, %v, want %s", got, err, w)
		}
	}
}

// ended waits for the end of the connection, before which nothing comes.
func (d *connection) ended() {
	d.t.Helper()
	if rest, err := io.ReadAll(d.in); len(rest) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		d.t.Fatalf("in place of the end came %q, %v", rest, err)
	}
}
