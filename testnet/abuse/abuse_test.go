package abuse

import (
	"bytes"
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
	"github.com/edgelimit/edgelimit/node/envoy"
	"github.com/edgelimit/edgelimit/testnet/scrape"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestMain(m *testing.M) { testkit.MainWithoutLeaks(m) }

// smallOptions do not depend on the speed of the machine.
func smallOptions() Options {
	return Options{Rule: "per_ip", Idle: 300, Stalled: 200, Bodies: 10, Workers: 4, Rounds: 2, Clients: 2, Requests: 50,
		Watches: 250, ProbeTimeout: time.Minute, Timeout: time.Minute}
}

// launch runs a node until the test ends. Each of its listeners takes that many connections.
func launch(t *testing.T, connections int) Target {
	t.Helper()
	cfg := node.DefaultConfig()
	cfg.HTTP, cfg.RESP, cfg.GRPC, cfg.Health = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	cfg.Admin, cfg.Envoy = "", envoy.Service
	cfg.MaxConnections, cfg.Memory = connections, counters.MinMemory
	cfg.Logger = slog.New(slog.DiscardHandler)
	n, err := node.New(cfg)
	testkit.Must(t, err)
	testkit.Background(t, n.Run)
	return Target{HTTP: n.Addr("http"), RESP: n.Addr("resp"), GRPC: n.Addr("grpc"), Health: n.Addr("health")}
}

// A node survives hundreds of abusive connections: it answers every compliant client, refuses connections over its
// limit with an error reply, and releases all resources.
func TestNodeSurvivesAbuse(t *testing.T) {
	const connections = 100
	target := launch(t, connections)
	var phases []string
	o := smallOptions()
	report, err := Run(t.Context(), target, o, func(p Phase) { phases = append(phases, p.Name) })
	if err != nil || len(report.Broken) > 0 {
		t.Fatalf("%v; broken: %q", err, report.Broken)
	}
	want := []string{"alone", "idle", "idle, Redis protocol", "idle, probes", "hanging watches", "stalled",
		"long bodies", "nonsense", "streams reset", "afterwards"}
	if !slices.Equal(phases, want) {
		t.Errorf("phases %q", phases)
	}
	for _, p := range report.Phases {
		l := p.Compliant
		if want := (3*o.Clients + 1) * o.Requests; l.Answers != want || l.P99 <= 0 || l.Max < l.P99 {
			t.Errorf("%s: want %d answers: %+v", p.Name, want, l)
		}
		if p.Peak.Connections > 3*connections {
			t.Errorf("%s: %v connections", p.Name, p.Peak.Connections)
		}
	}
	for i, refusal := range map[int]string{1: refusalHTTP, 2: refusalRESP} {
		p := report.Phases[i]
		refused, all := 0, 0
		for outcome, n := range p.Outcomes {
			all += n
			if strings.HasPrefix(outcome, refusal) {
				refused += n
			}
		}
		// On a slow machine some are idle long enough to be evicted for others.
		if evicted := p.Outcomes["200 OK, "+closedLater]; all != o.Idle || refused+evicted < o.Idle-connections {
			t.Errorf("%s: %d of %d were refused with an error reply: %v", p.Name, refused, all, p.Outcomes)
		}
	}
	checkReport(t, &report, "ok: the node is alive", "idle, Redis protocol")
}

func checkReport(t *testing.T, r *Report, want ...string) {
	t.Helper()
	var text strings.Builder
	if err := r.Write(&text); err != nil {
		t.Error(err)
	}
	for _, w := range want {
		if !strings.Contains(text.String(), w) {
			t.Errorf("the report lacks %q:\n%s", w, &text)
		}
	}
}

// The report lists failed assertions, and a run against an address without a listener fails.
func TestBrokenAssertions(t *testing.T) {
	a := attack{name: "idle", refusal: refusalHTTP}
	p := Phase{
		Name:      "idle",
		Compliant: Latencies{Answers: 8, Failed: 2, Error: "EOF"},
		Outcomes:  map[string]int{closedAtOnce: 3, closedLater: 5},
	}
	r := Report{Phases: []Phase{p}, Broken: a.broken(p, false)}
	if len(r.Broken) != 3 {
		t.Errorf("broken: %q", r.Broken)
	}
	checkReport(t, &r, "BROKEN: idle: 2 of 10 requests", "last error: EOF", "BROKEN: idle: the node did not release",
		"BROKEN: idle: 3 connections were closed without an error reply", "\nbroken\n")
	addr := testkit.FreeAddr(t)
	if _, err := Run(t.Context(), Target{HTTP: addr, Health: addr}, smallOptions(), nil); err == nil {
		t.Error("no error without a listener")
	}
}

func TestOptions(t *testing.T) {
	o := DefaultOptions()
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
	err := (&Options{Idle: -1, Bodies: 2_000_000}).Validate()
	for _, want := range []string{"idle: -1", "bodies: 2000000", "workers: 0", "clients: 0", "requests: 0",
		"timeouts"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	if _, err := Run(t.Context(), Target{}, Options{}, nil); err == nil {
		t.Error("it runs with invalid options")
	}
}

func TestGauges(t *testing.T) {
	metrics, err := scrape.Parse(strings.NewReader(`# TYPE edgelimit_connections gauge
edgelimit_connections{door="http"} 3
edgelimit_connections{door="resp"} 4
edgelimit_connections{door="health"} 9
process_open_fds 12
go_goroutines 30
process_resident_memory_bytes 1.5e+07
`))
	if g, want := gaugesOf(metrics), (Gauges{7, 12, 30, 15e6}); g != want || err != nil {
		t.Errorf("%+v, %v", g, err)
	}
	if _, err := scrape.Parse(strings.NewReader("process_open_fds many\n")); err == nil {
		t.Error("many is no number")
	}
}

// Each stream is a ShouldRateLimit call and its reset.
func TestFrames(t *testing.T) {
	var out bytes.Buffer
	framer := http2.NewFramer(&out, &out)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	headers := requestHeaders()
	for _, stream := range []uint32{7, 9} {
		writeReset(framer, stream, headers)
		f, err := framer.ReadFrame()
		request, ok := f.(*http2.MetaHeadersFrame)
		if !ok || request.StreamID != stream {
			t.Fatalf("%v, %v, want the headers of stream %d", f, err, stream)
		}
		names := make(map[string]string)
		for _, f := range request.Fields {
			names[f.Name] = f.Value
		}
		if want := map[string]string{":method": "POST", ":scheme": "http", ":authority": "node",
			"content-type": "application/grpc", "te": "trailers",
			":path": "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"}; !maps.Equal(names, want) {
			t.Errorf("%v", names)
		}
		f, err = framer.ReadFrame()
		if reset, ok := f.(*http2.RSTStreamFrame); !ok || reset.StreamID != stream {
			t.Fatalf("%v, %v, want a reset of stream %d", f, err, stream)
		}
	}
}

// An HTTP/2 server reads all streams and resets, or closes the connection.
func TestResetStreams(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	s := &http.Server{
		Handler: http.NotFoundHandler(), Protocols: new(http.Protocols),
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
	}
	s.Protocols.SetUnencryptedHTTP2(true)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	defer func() {
		_ = s.Close()
		<-ended
	}()
	o := smallOptions()
	r := &run{opt: o, target: Target{GRPC: l.Addr().String()}}
	all := r.attacks()
	_, stop := all[slices.IndexFunc(all, func(a attack) bool { return a.name == "streams reset" })].start(t.Context())
	total := 0
	for outcome, n := range stop() {
		if total += n; outcome != "all streams reset" && outcome != closed {
			t.Errorf("%d: %s", n, outcome)
		}
	}
	if total != o.Workers*o.Rounds {
		t.Errorf("%d connections", total)
	}
}
