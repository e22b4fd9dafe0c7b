package httpapi

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/limits"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// listen serves the API on loopback and returns its address.
func listen(tb testing.TB, h http.Handler) string {
	tb.Helper()
	s := httptest.NewUnstartedServer(nil)
	s.Config = Server(h, nil)
	s.Start()
	tb.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

func TestTenMegabytes(t *testing.T) {
	l := always(allowedBurst)
	addr := listen(t, New(l, quiet()))
	const size = 10 << 20
	for _, path := range []string{"/v1/check", "/v1/check/batch", "/limiter/check"} {
		for name, length := range map[string]int64{"announced": size, "in chunks": -1} {
			t.Run(path+" "+name, func(t *testing.T) {
				r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+addr+path,
					io.LimitReader(zeros{}, size))
				testkit.Must(t, err)
				r.ContentLength = length
				r.Header.Set("Content-Type", "application/json")
				resp, err := http.DefaultClient.Do(r)
				testkit.Must(t, err)
				defer resp.Body.Close()
				wantProblemIn(t, resp.StatusCode, resp.Header, resp.Body, 413)
				// The next one is served, on this connection or on another.
				next, err := http.Post("http://"+addr+"/v1/check", "application/json",
					strings.NewReader(`{"rule":"r"}`))
				testkit.Must(t, err)
				next.Body.Close()
				if next.StatusCode != 200 {
					t.Errorf("afterwards: %d", next.StatusCode)
				}
			})
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// A client that asks first is told before it sends anything.
func TestExpectContinue(t *testing.T) {
	conn, err := net.Dial("tcp", listen(t, New(always(allowedBurst), quiet())))
	testkit.Must(t, err)
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n",
		10<<20)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	testkit.Must(t, err)
	wantProblemIn(t, resp.StatusCode, resp.Header, resp.Body, 413)
}

func TestConnectionSurvivesRefusals(t *testing.T) {
	conn, err := net.Dial("tcp", listen(t, New(always(allowedBurst), quiet())))
	testkit.Must(t, err)
	defer conn.Close()
	in := bufio.NewReader(conn)
	for _, tt := range []struct {
		path, body string
		status     int
	}{{"/v1/check", `{`, 400}, {"/nowhere", `{}`, 404}, {"/v1/check", `{"cost":-1}`, 400}, {"/v1/check", `{"rule":"r"}`,
		200}} {
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", tt.path, len(tt.body), tt.body)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("%s %s: %v", tt.path, tt.body, err)
		}
		io.Copy(io.Discard, resp.Body)
		if resp.StatusCode != tt.status {
			t.Errorf("%s %s: %d, want %d", tt.path, tt.body, resp.StatusCode, tt.status)
		}
	}
}

func TestBodyThatBreaksOff(t *testing.T) {
	for _, tt := range []struct {
		err    error
		status int
		detail string
	}{
		{io.ErrUnexpectedEOF, 400, "Content-Length"},
		{iotest.ErrTimeout, 400, "broke off"},
		{net.ErrClosed, 400, "broke off"},
		{fmt.Errorf("read: %w", errDeadline()), 408, "in time"},
	} {
		l := always(allowedBurst)
		r := httptest.NewRequest("POST", "/v1/check",
			io.MultiReader(strings.NewReader(`{"rule":`), iotest.ErrReader(tt.err)))
		r.ContentLength = 12
		w := httptest.NewRecorder()
		New(l, quiet()).ServeHTTP(w, r)
		if detail := wantProblem(t, w, tt.status); !strings.Contains(detail, tt.detail) || len(l.asked) != 0 {
			t.Errorf("%v: %q, asked %v", tt.err, detail, l.asked)
		}
	}
}

// errDeadline is what reading from a connection after its deadline says.
func errDeadline() error {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	a.SetReadDeadline(neverLater)
	_, err := a.Read(make([]byte, 1))
	return err
}

// A body that comes too slowly is given up at the server's deadline.
func TestSlowBody(t *testing.T) {
	s := httptest.NewUnstartedServer(nil)
	s.Config = Server(New(always(allowedBurst), quiet()), nil)
	s.Config.ReadTimeout = 50 * time.Millisecond
	s.Start()
	defer s.Close()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	testkit.Must(t, err)
	defer conn.Close()
	fmt.Fprint(conn, "POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\n\r\n{")
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	testkit.Must(t, err)
	wantProblemIn(t, resp.StatusCode, resp.Header, resp.Body, 408)
	if _, err := in.ReadByte(); err != io.EOF {
		t.Errorf("the connection is not closed: %v", err)
	}
}

func TestBodyInSmallPieces(t *testing.T) {
	l := always(allowedBurst)
	identity := strings.Repeat("i", 5000)
	r := httptest.NewRequest("POST", "/v1/check",
		iotest.OneByteReader(strings.NewReader(`{"rule":"r","identity":"`+identity+`"}`)))
	w := httptest.NewRecorder()
	New(l, quiet()).ServeHTTP(w, r)
	if w.Code != 200 || len(l.asked) != 1 || l.asked[0].Identity != identity {
		t.Errorf("status %d, asked %d", w.Code, len(l.asked))
	}
}

// Whatever a body holds, it costs at most 64 KiB and four times its length.
func TestDecodeBombs(t *testing.T) {
	fill := func(head, what, tail string, size int) string {
		n := (size - len(head) - len(tail)) / len(what)
		return head + strings.TrimSuffix(strings.Repeat(what, n), ",") + tail
	}
	h := New(bareLimiter{counters.Decision{Allowed: true}}, quiet())
	for _, tt := range []struct{ name, path, body string }{
		{"entries", "/v1/check", fill(`{"descriptors":[[`, "{},", "]]}", maxBody)},
		{"descriptors", "/v1/check", fill(`{"descriptors":[`, "[],", "]}", maxBody)},
		{"depth", "/v1/check", strings.Repeat("[", maxBody)},
		{"escapes", "/v1/check", fill(`{"identity":"`, `\u0000`, `"}`, maxBody)},
		{"names", "/v1/check", fill(`{"`, `\n`, `":1}`, maxBody)},
		{"lone surrogates", "/limiter/check", fill(`{"identity":"`, `\ud800`, `"}`, maxBody)},
		{"digits", "/v1/check", fill(`{"cost":`, "9", "}", maxBody)},
		{"checks", "/v1/check/batch", fill(`{"checks":[`, "0,", "]}", maxBatchBody)},
		{"a full batch of entries", "/v1/check/batch", fill(`{"checks":[`,
			`{"descriptors":[`+strings.TrimSuffix(strings.Repeat("[{},{},{},{},{},{},{},{}],", 32),
				",")+`]},`, "]}", maxBatchBody)},
		{"one long check", "/v1/check/batch", fill(`{"checks":[{"identity":"`, "x", `"}]}`, maxBatchBody)},
	} {
		// The least of some runs: buffers are used again, but the race detector has the pool lose some.
		spent, most := uint64(1<<63), uint64(64<<10+4*len(tt.body))
		var w *httptest.ResponseRecorder
		for range 50 {
			var before, after runtime.MemStats
			r := httptest.NewRequest("POST", tt.path, strings.NewReader(tt.body))
			w = httptest.NewRecorder()
			runtime.ReadMemStats(&before)
			h.ServeHTTP(w, r)
			runtime.ReadMemStats(&after)
			if spent = min(spent, after.TotalAlloc-before.TotalAlloc); spent <= most {
				break
			}
		}
		if spent > most {
			t.Errorf("%s: %d bytes allocated for %d, at most %d are allowed", tt.name, spent, len(tt.body), most)
		}
		if w.Code != 200 && w.Code != 400 {
			t.Errorf("%s: status %d", tt.name, w.Code)
		}
	}
}

// crowdedAPI returns an API with a budget of 64 KiB for bodies.
func crowdedAPI(l answer.Limiter) *api {
	a := New(l, quiet()).(*api)
	a.bodies = limits.NewBudget("http", "bodies", 64<<10, nil)
	return a
}

// held sends a request but for the last byte of its body, which the API waits for.
func held(t *testing.T, d *api, path, body string) (end func() *httptest.ResponseRecorder) {
	t.Helper()
	r, w := io.Pipe()
	rec, done := httptest.NewRecorder(), make(chan struct{})
	go func() {
		defer close(done)
		d.ServeHTTP(rec, httptest.NewRequest("POST", path, r))
	}()
	if _, err := io.WriteString(w, body[:len(body)-1]); err != nil {
		t.Fatal(err)
	}
	return func() *httptest.ResponseRecorder {
		_, _ = io.WriteString(w, body[len(body)-1:])
		_ = w.Close()
		<-done
		return rec
	}
}

// paddedCheck is a check of so many bytes.
func paddedCheck(size int) string {
	const check = `{"rule":"r"}`
	return strings.Repeat(" ", size-len(check)) + check
}

// Slow clients with long bodies take no more than the budget; short ones are served beside them, and all of them
// later.
func TestLongBodiesUnderWayAreBounded(t *testing.T) {
	d := crowdedAPI(bareLimiter{allowedBurst})
	var ends []func() *httptest.ResponseRecorder
	for range 2 { // 24 KiB each: steps of 4 and 8 KiB, counted twice
		ends = append(ends, held(t, d, "/v1/check", paddedCheck(10<<10)))
	}
	w := post(d, "/v1/check/batch", paddedCheck(10<<10))
	if detail := wantProblem(t, w, 503); !strings.Contains(detail, "try again in a second") {
		t.Errorf("detail %q", detail)
	}
	if h := w.Header(); h.Get("Retry-After") != "1" || h.Get("Connection") != "close" {
		t.Errorf("headers %v", h)
	}
	for _, size := range []int{100, freeBody - 1, freeBody} {
		if w := post(d, "/v1/check", paddedCheck(size)); w.Code != 200 {
			t.Errorf("%d bytes beside them: %d %s", size, w.Code, w.Body)
		}
	}
	for _, end := range ends {
		if w := end(); w.Code != 200 {
			t.Errorf("one that was under way: %d %s", w.Code, w.Body)
		}
	}
	if w := post(d, "/v1/check", paddedCheck(10<<10)); w.Code != 200 {
		t.Errorf("afterwards: %d %s", w.Code, w.Body)
	}
	if left := d.bodies.Left(); left != 64<<10 {
		t.Errorf("%d bytes are left in the end", left)
	}
}

// from is a source of requests.
type from struct{ netip.Addr }

func (f from) Source() netip.Addr { return f.Addr }

// A source whose long bodies fill its share leaves those of others alone.
func TestBodiesHaveAShare(t *testing.T) {
	d := crowdedAPI(bareLimiter{allowedBurst})
	send := func(source string) int {
		r := httptest.NewRequest("POST", "/v1/check", strings.NewReader(paddedCheck(10<<10)))
		w := httptest.NewRecorder()
		d.ServeHTTP(w, r.WithContext(limits.WithSource(t.Context(), from{netip.MustParseAddr(source)})))
		return w.Code
	}
	if got := send("192.0.2.1"); got != 200 {
		t.Errorf("%d while all is free", got)
	}
	greedy := netip.MustParseAddr("192.0.2.1")
	for d.bodies.Take(greedy, 1<<10) == "" {
	}
	if got := send("192.0.2.1"); got != 503 {
		t.Errorf("%d for one more of a source at its share", got)
	}
	d.bodies.Give(greedy, d.bodies.Held(greedy))
	if got := send("192.0.2.1"); got != 200 {
		t.Errorf("%d once it has given all back", got)
	}
	d.bodies = limits.NewBudget("http", "bodies", 128<<10, nil)
	for d.bodies.Take(greedy, 1<<10) == "" {
	}
	if got := send("192.0.2.2"); got != 200 {
		t.Errorf("%d for another source beside it", got)
	}
}

// Whatever becomes of a request, what it took of the budget comes back.
func TestBudgetComesBack(t *testing.T) {
	panics := &fake{answer: func(*rules.Request) ([]counters.Decision, error) { panic("a bug") }}
	for name, tt := range map[string]struct {
		l    answer.Limiter
		path string
		body io.Reader
	}{
		"answered": {always(allowedBurst), "/v1/check", strings.NewReader(paddedCheck(9000))},
		"broken off": {always(), "/v1/check", io.MultiReader(strings.NewReader(strings.Repeat(" ", 9000)),
			iotest.ErrReader(io.ErrUnexpectedEOF))},
		"too long": {always(), "/v1/check", strings.NewReader(paddedCheck(maxBody + 1))},
		"too much": {always(), "/v1/check/batch", strings.NewReader(paddedCheck(40 << 10))},
		"no JSON":  {always(), "/v1/check", strings.NewReader(strings.Repeat("[", 9000))},
		"a panic":  {panics, "/v1/check", strings.NewReader(paddedCheck(9000))},
	} {
		d := crowdedAPI(tt.l)
		func() {
			defer func() { _ = recover() }()
			d.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", tt.path, tt.body))
		}()
		if left := d.bodies.Left(); left != 64<<10 {
			t.Errorf("%s: %d bytes are left", name, left)
		}
	}
}

// watched notes what is left of the budget when a response is written.
type watched struct {
	http.ResponseWriter
	d    *api
	left int64
}

func (w *watched) Write(b []byte) (int, error) {
	w.left = w.d.bodies.Left()
	return w.ResponseWriter.Write(b)
}

// A long answer counts until the client has taken it, also where that is more than there is.
func TestLongAnswersCount(t *testing.T) {
	d := New(always(allowedBurst), quiet()).(*api)
	d.bodies = limits.NewBudget("http", "bodies", 40<<10, nil)
	w := &watched{ResponseWriter: httptest.NewRecorder(), d: d}
	body := `{"checks":[` + strings.TrimSuffix(strings.Repeat(`{"rule":"r"},`, 300), ",") + `]}`
	d.ServeHTTP(w, httptest.NewRequest("POST", "/v1/check/batch", strings.NewReader(body)))
	if w.ResponseWriter.(*httptest.ResponseRecorder).Code != 200 || w.left >= 40<<10-30<<10 {
		t.Errorf("while an answer to %d bytes is sent, %d bytes are left", len(body), w.left)
	}
	if left := d.bodies.Left(); left != 40<<10 {
		t.Errorf("%d bytes are left in the end", left)
	}
}
