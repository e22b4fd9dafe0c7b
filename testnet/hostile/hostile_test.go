package hostile

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/testnet/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// fewer are options for a test: nothing in them depends on how fast the machine is.
func fewer() Options {
	return Options{Rule: "per_ip", Idle: 300, Stalled: 200, Bodies: 10, Workers: 4, Rounds: 2, Clients: 2, Requests: 50, Patience: time.Minute}
}

// launch runs a node with doors for so many connections each until the test ends.
func launch(t *testing.T, connections int) Target {
	t.Helper()
	cfg := node.DefaultConfig()
	cfg.HTTP, cfg.RESP, cfg.Health = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	cfg.MaxConnections, cfg.Memory = connections, counters.MinMemory
	cfg.Logger = slog.New(slog.DiscardHandler)
	n, err := node.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the node ended with %v", err)
		}
	})
	return Target{HTTP: n.Addr("http"), RESP: n.Addr("resp"), Health: n.Addr("health")}
}

// A node outlives what clients do to it in their hundreds: it answers every client that behaves, says to those that it has no room for that
// it has none, and gives back all that it took.
func TestANodeLives(t *testing.T) {
	const connections = 100
	target := launch(t, connections)
	var seen []string
	o := fewer()
	report, err := Run(t.Context(), target, o, func(p Phase) { seen = append(seen, p.Name) })
	if err != nil || len(report.Broken) > 0 {
		t.Fatalf("%v; broken: %q", err, report.Broken)
	}
	if want := []string{"alone", "idle", "idle, Redis protocol", "stalled", "long bodies", "nonsense", "afterwards"}; !slices.Equal(seen, want) {
		t.Errorf("phases %q", seen)
	}
	for _, p := range report.Phases {
		if got, want := p.Good.Answers, 2*o.Clients*o.Requests; got != want || p.Good.P99 <= 0 || p.Good.Max < p.Good.P99 {
			t.Errorf("%s: %d answers, want %d: %+v", p.Name, got, want, p.Good)
		}
		if p.Most.Connections > 2*connections {
			t.Errorf("%s: %v connections", p.Name, p.Most.Connections)
		}
	}
	for i, words := range map[int]string{1: refusedHTTP, 2: refusedRESP} {
		refused, all := 0, 0
		for fate, n := range report.Phases[i].Fates {
			all += n
			if strings.HasPrefix(fate, words) {
				refused += n
			}
		}
		if all != o.Idle || refused < o.Idle-connections {
			t.Errorf("%s: %d of %d were refused in words: %v", report.Phases[i].Name, refused, all, report.Phases[i].Fates)
		}
	}
	var text strings.Builder
	if err := report.Write(&text); err != nil || !strings.Contains(text.String(), "ok: it lives") || !strings.Contains(text.String(), "idle, Redis protocol") {
		t.Errorf("%v, the report is\n%s", err, &text)
	}
}

// What does not hold is told: here, that there is no node any more, and that connections are closed without a word.
func TestBrokenPromises(t *testing.T) {
	k := kind{name: "idle", words: refusedHTTP}
	p := Phase{Name: "idle", Good: Waits{Answers: 8, Failed: 2, Error: "EOF"}, Fates: map[string]int{closedAtOnce: 3, closedLater: 5}}
	broken := k.broken(p, false)
	for _, want := range []string{"idle: 2 of 10 requests", "the last one: EOF", "did not give back", "3 connections were closed without a word"} {
		if !strings.Contains(strings.Join(broken, "\n"), want) {
			t.Errorf("%q is not among %q", want, broken)
		}
	}
	r := Report{Phases: []Phase{p}, Broken: broken}
	var text strings.Builder
	if err := r.Write(&text); err != nil || !strings.HasSuffix(text.String(), "\nbroken\n") || strings.Count(text.String(), "BROKEN: ") != len(broken) {
		t.Errorf("%v, the report is\n%s", err, &text)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if _, err := Run(t.Context(), Target{HTTP: l.Addr().String(), Health: l.Addr().String()}, fewer(), nil); err == nil {
		t.Error("nobody listens, and that is no error")
	}
}

func TestOptions(t *testing.T) {
	o := DefaultOptions()
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
	err := (&Options{Idle: -1, Bodies: 2_000_000}).Validate()
	for _, want := range []string{"idle: -1", "bodies: 2000000", "workers: 0", "clients: 0", "requests: 0", "patience"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	if _, err := Run(t.Context(), Target{}, Options{}, nil); err == nil {
		t.Error("it runs with options that are invalid")
	}
}

func TestGauges(t *testing.T) {
	g, err := parseGauges(strings.NewReader("# HELP x y\nedgelimit_connections{door=\"http\"} 3\nedgelimit_connections{door=\"resp\"} 4\n" +
		"edgelimit_connections{door=\"health\"} 9\nprocess_open_fds 12\ngo_goroutines 30\nprocess_resident_memory_bytes 1.5e+07\n"))
	if want := (Gauges{7, 12, 30, 15e6}); g != want || err != nil {
		t.Errorf("%+v, %v", g, err)
	}
	if _, err := parseGauges(strings.NewReader("process_open_fds many\n")); err == nil {
		t.Error("many is no number")
	}
}

// What is sent to reset streams is HTTP/2, and a call of the rate limit service.
func TestFrames(t *testing.T) {
	var got []hpack.HeaderField
	if _, err := hpack.NewDecoder(4096, func(f hpack.HeaderField) { got = append(got, f) }).Write(fields()); err != nil {
		t.Fatal(err)
	}
	names := make(map[string]string)
	for _, f := range got {
		names[f.Name] = f.Value
	}
	if want := map[string]string{":method": "POST", ":scheme": "http", ":authority": "node", "content-type": "application/grpc", "te": "trailers",
		":path": "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"}; !maps.Equal(names, want) {
		t.Errorf("%v", names)
	}
	b := frame(frame(frame(nil, frameConfig, 0, 0, nil), frameHeaders, endHeaders, 7, fields()), frameReset, 0, 7, []byte{0, 0, 0, 8})
	framer := http2.NewFramer(io.Discard, bytes.NewReader(b))
	for _, want := range []struct {
		kind   http2.FrameType
		stream uint32
	}{{http2.FrameSettings, 0}, {http2.FrameHeaders, 7}, {http2.FrameRSTStream, 7}} {
		f, err := framer.ReadFrame()
		if err != nil || f.Header().Type != want.kind || f.Header().StreamID != want.stream {
			t.Fatalf("%v, %v, want %+v", f, err, want)
		}
	}
}

// Streams are reset against a server that speaks HTTP/2, which lives or hangs up.
func TestResetStreams(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.NotFoundHandler(), Protocols: new(http.Protocols), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	s.Protocols.SetUnencryptedHTTP2(true)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	defer func() {
		_ = s.Close()
		<-ended
	}()
	o := fewer()
	r := &run{opt: o, target: Target{GRPC: l.Addr().String()}}
	total := 0
	for fate, n := range r.reset(t.Context()) {
		if total += n; fate != "all streams reset" && fate != "closed by the node" {
			t.Errorf("%d: %s", n, fate)
		}
	}
	if total != o.Workers*o.Rounds {
		t.Errorf("%d connections", total)
	}
}
