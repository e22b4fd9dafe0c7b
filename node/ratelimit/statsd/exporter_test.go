package statsd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestMain(m *testing.M) { testkit.MainWithoutLeaks(m) }

// totals are counters.
type totals map[string]uint64

func (c totals) each(f func(name string, total uint64)) {
	for _, name := range slices.Sorted(maps.Keys(c)) {
		f(name, c[name])
	}
}

func exporter(network, addr string, c totals, change func(*Config)) *Exporter {
	cfg := DefaultConfig()
	cfg.Network, cfg.Address = network, addr
	if change != nil {
		change(&cfg)
	}
	return New(cfg, Source{Counters: c.each}, slog.New(slog.DiscardHandler))
}

// overTCP returns what an exporter sends to a server at one time.
func overTCP(t *testing.T, l net.Listener, e *Exporter) string {
	t.Helper()
	received := make(chan string, 1)
	var server sync.WaitGroup
	server.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			received <- err.Error()
			return
		}
		defer conn.Close()
		text, _ := io.ReadAll(conn)
		received <- string(text)
	})
	e.send()
	server.Wait()
	return <-received
}

func listen(t *testing.T, addr string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// The lines are those that envoyproxy/ratelimit sends over TCP with EXTRA_TAGS=env:prod,dc:x, byte for byte.
func TestSendsWhatHasGrown(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	c := totals{"ratelimit.service.config_load_success": 1, "ratelimit.service.config_load_error": 0}
	e := exporter("tcp", l.Addr().String(), c, func(cfg *Config) {
		cfg.Tags = map[string]string{"env": "prod", "dc": "x", "empty": ""}
	})
	const first = "ratelimit.service.config_load_success.__dc=x.__env=prod:1|c\n"
	if got := overTCP(t, l, e); got != first {
		t.Errorf("sent %q, want %q", got, first)
	}
	c["ratelimit.service.config_load_error"], c["ratelimit.service.config_load_success"] = 7, 3
	const second = "ratelimit.service.config_load_error.__dc=x.__env=prod:7|c\n" +
		"ratelimit.service.config_load_success.__dc=x.__env=prod:2|c\n"
	if got := overTCP(t, l, e); got != second {
		t.Errorf("sent %q, want %q", got, second)
	}
	e.send()                                       // nothing has grown: nobody is connected to
	c["ratelimit.service.config_load_success"] = 2 // it was gone, and began again
	const third = "ratelimit.service.config_load_success.__dc=x.__env=prod:2|c\n"
	if got := overTCP(t, l, e); got != third {
		t.Errorf("sent %q, want %q", got, third)
	}
}

// Counters that are gone take no memory for long.
func TestForgetsCountersThatAreGone(t *testing.T) {
	conn, c := udp(t), totals{"a": 1, "b": 1, "c": 1}
	e := exporter("udp", conn.LocalAddr().String(), c, nil)
	e.send()
	delete(c, "a")
	delete(c, "b")
	c["c"] = 2
	e.send()
	if len(e.sent) != 1 || e.sent["c"] != 2 {
		t.Errorf("it keeps %v", e.sent)
	}
}

// receive returns the packets of one sending over UDP, of which there are n.
func receive(t *testing.T, conn net.PacketConn, n int) (packets []string) {
	t.Helper()
	buf := make([]byte, 1<<16)
	testkit.Must(t, conn.SetReadDeadline(time.Now().Add(testkit.Patience)))
	for range n {
		size, _, err := conn.ReadFrom(buf)
		testkit.Must(t, err)
		packets = append(packets, string(buf[:size]))
	}
	return packets
}

func udp(t *testing.T) net.PacketConn {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	testkit.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// DogStatsD has tags behind the value.
func TestDatadog(t *testing.T) {
	conn := udp(t)
	c := totals{"a.total_hits": 2, "b": 1}
	exporter("udp", conn.LocalAddr().String(), c, func(cfg *Config) {
		cfg.Datadog, cfg.Tags = true, map[string]string{"env": "prod", "dc": "a.b:c|d\n"}
	}).send()
	const want = "a.total_hits:2|c|#dc:a_b_c_d_,env:prod\nb:1|c|#dc:a_b_c_d_,env:prod"
	if got := receive(t, conn, 1)[0]; got != want {
		t.Errorf("sent %q, want %q", got, want)
	}
}

func TestPacketsFitAFrame(t *testing.T) {
	conn, c := udp(t), make(totals)
	for i := range 200 {
		c[fmt.Sprintf("%03d.%s", i, strings.Repeat("x", 50))] = uint64(i) + 1
	}
	long := strings.Repeat("y", 2000) // has a packet of its own
	c[long] = 5
	exporter("udp", conn.LocalAddr().String(), c, nil).send()
	got, perPacket := make(map[string]bool), packetSize/len("000."+strings.Repeat("x", 50)+":000|c\n")
	for _, packet := range receive(t, conn, (200+perPacket-1)/perPacket+1) {
		lines := strings.Split(packet, "\n")
		if len(packet) > packetSize && len(lines) > 1 {
			t.Errorf("a packet has %d bytes in %d lines", len(packet), len(lines))
		}
		for _, line := range lines {
			got[line] = true
		}
	}
	for name, total := range c {
		if !got[fmt.Sprintf("%s:%d|c", name, total)] {
			t.Errorf("%.60s was not sent", name)
		}
	}
}

// What a server did not get it gets when it is back, once.
func TestNothingIsLostWhileTheServerIsAway(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	addr := l.Addr().String()
	c := totals{"a": 1}
	var log bytes.Buffer
	e := exporter("tcp", addr, c, nil)
	e.log = slog.New(slog.NewTextHandler(&log, nil))
	if got := overTCP(t, l, e); got != "a:1|c\n" {
		t.Fatalf("sent %q", got)
	}
	_ = l.Close()
	for range 3 {
		c["a"]++
		e.send()
	}
	if lines := strings.Count(log.String(), "could not be sent"); lines != 1 {
		t.Errorf("%d lines in a minute: %s", lines, log.String())
	}
	c["b"] = 2
	if got := overTCP(t, listen(t, addr), e); got != "a:3|c\nb:2|c\n" {
		t.Errorf("sent %q when the server was back", got)
	}
}

// failing is a connection on which the second packet fails.
type failing struct {
	net.Conn
	packets int
}

func (f *failing) Write(b []byte) (int, error) {
	if f.packets++; f.packets == 2 {
		return 0, errors.New("broken")
	}
	return len(b), nil
}

func (f *failing) SetWriteDeadline(time.Time) error { return nil }
func (f *failing) Close() error                     { return nil }

// Of a sending that broke off, only what was not sent is sent again.
func TestOnlyWhatWasNotSentIsSentAgain(t *testing.T) {
	l, c := listen(t, "127.0.0.1:0"), make(totals)
	for i := range 90 {
		c[fmt.Sprintf("%02d%s", i, strings.Repeat("x", 43))] = 1 // 50 bytes a line, 28 lines a packet
	}
	e := exporter("tcp", l.Addr().String(), c, nil)
	e.out.conn = new(failing)
	e.send()
	lines := strings.Count(overTCP(t, l, e), "\n")
	if lines != 90-28 {
		t.Errorf("%d of 90 lines were sent again, want all but the 28 of the first packet", lines)
	}
}

// The last counts are sent when Run ends, and those before in time.
func TestRunSendsInTimeAndAtItsEnd(t *testing.T) {
	conn := udp(t)
	var mu sync.Mutex
	c := totals{"a": 1}
	cfg := DefaultConfig()
	cfg.Network, cfg.Address, cfg.Interval = "udp", conn.LocalAddr().String(), 100*time.Millisecond
	e := New(cfg, Source{Counters: func(f func(name string, total uint64)) {
		mu.Lock()
		defer mu.Unlock()
		c.each(f)
	}}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { e.Run(ctx) })
	if got := receive(t, conn, 1)[0]; got != "a:1|c" {
		t.Errorf("sent %q", got)
	}
	cancel()
	running.Wait()
	e.cfg.Interval = time.Hour
	c["a"] = 5
	running.Go(func() { e.Run(ctx) }) // ctx has ended
	running.Wait()
	if got := receive(t, conn, 1)[0]; got != "a:4|c" {
		t.Errorf("at the end it sent %q", got)
	}
}

func TestConfigIsValidated(t *testing.T) {
	for _, tc := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Address = "localhost" }, "address:"},
		{func(c *Config) { c.Address = "localhost:" }, "address:"},
		{func(c *Config) { c.Network = "unix" }, "network:"},
		{func(c *Config) { c.Interval = 0 }, "interval:"},
		{func(c *Config) { c.Tags = map[string]string{"": "x"} }, "tags:"},
		{func(c *Config) { c.Address = "localhost:8125" }, ""},
	} {
		cfg := DefaultConfig()
		tc.change(&cfg)
		err := cfg.Validate()
		if (err == nil) != (tc.want == "") || err != nil && !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %q", cfg, err, tc.want)
		}
	}
}
