package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/status"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// observed is a node that answers what it is made of.
type observed struct {
	Bans
	Keys
	events *status.Events
	err    error
	asked  []any
}

func (o *observed) Status() status.Status {
	return status.Status{Node: "a\x1b<b>", Health: status.Healthy, Regions: []status.Region{{Members: []status.Member{
		{Node: "a"}, {Node: "b"}}}}}
}

func (o *observed) TopDenied(rule string, n int) ([]status.Denied, error) {
	o.asked = []any{rule, n}
	return []status.Denied{{Rule: "r"}}, o.err
}

func (o *observed) Inspect(_ context.Context, rule, identity string) (status.Inspection, error) {
	o.asked = []any{rule, identity}
	return status.Inspection{Node: "a"}, o.err
}

func (o *observed) Settings() ([]status.Setting, error) {
	return []status.Setting{{Name: "http", Value: json.RawMessage(`""`), From: "flag"}}, o.err
}

func (o *observed) Events() *status.Events { return o.events }

func newObserved() *observed { return &observed{events: status.NewEvents(time.UnixMicro(100))} }

func (o *observed) get(path string, change func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "http://127.0.0.1:7949"+path, nil)
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	unguarded(o).ServeHTTP(w, r)
	return w
}

var statusPaths = []string{"/api/status", "/api/members", "/api/top?rule=r%20x&n=5", "/api/events?since=0",
	"/api/inspect?rule=r&identity=%1B%3Cb%3E", "/api/config"}

func TestStatusAnswers(t *testing.T) {
	o := newObserved()
	o.events.Add(status.Event{Text: "x"})
	o.events.Add(status.Event{Text: "y"})
	for i, want := range []string{`"node":"a\u001b\u003cb\u003e"`, `{"members":[{"node":"a",`, `{"top":[{"rule":"r"`,
		`"text":"x"`, `"layers":null`, `{"settings":[{"name":"http","value":"","from":"flag"}]}`} {
		w := o.get(statusPaths[i], nil)
		if w.Code != 200 || !strings.Contains(w.Body.String(), want) || w.Header().Get("Cache-Control") != "no-store" ||
			w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %v %s", statusPaths[i], w.Code, w.Header(), w.Body)
		}
	}
	if got := fmt.Sprintf("%q", o.asked); got != `["r" "\x1b<b>"]` {
		t.Errorf("it asks for %s", got)
	}
	if w := o.get("/api/events?since=101", nil); strings.Contains(w.Body.String(), `"x"`) ||
		!strings.Contains(w.Body.String(), `"y"`) {
		t.Errorf("%s", w.Body)
	}
	if w := o.get("/api/events?since=102", nil); w.Body.String() != `{"events":[]}`+"\n" {
		t.Errorf("%s", w.Body)
	}
}

// What is no page of this node, and what asks for nothing sensible, learns nothing.
func TestStatusRefuses(t *testing.T) {
	for _, path := range statusPaths {
		for name, change := range map[string]func(*http.Request){
			"a name that leads here": func(r *http.Request) { r.Host = "evil.example:7949" },
			"POST by another page": func(r *http.Request) {
				r.Method = "POST"
				r.Header.Set("Origin", "http://evil.example")
			},
		} {
			if w := newObserved().get(path, change); w.Code != 403 {
				t.Errorf("%s, %s: %d %s", path, name, w.Code, w.Body)
			}
		}
		if w := newObserved().get(path, func(r *http.Request) { r.Method = "POST" }); w.Code != 405 {
			t.Errorf("POST %s: %d", path, w.Code)
		}
	}
	for _, path := range []string{"/api/top?n=0", "/api/top?n=1001", "/api/top?n=-1", "/api/top?n=x", "/api/inspect",
		"/api/inspect?rule=r", "/api/events?since=-1", "/api/events?since=99999999999999999999", "/api/events?since=x",
		"/api/events?since=9223372036854775807"} {
		if w := newObserved().get(path, nil); w.Code != 400 {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	for err, want := range map[error]int{
		rules.ErrUnknownRule: 404, rules.ErrInvalidRequest: 400, context.Canceled: 503,
	} {
		o := newObserved()
		o.err = err
		if o.get("/api/inspect?rule=r&identity=x", nil).Code != want || o.get("/api/top", nil).Code != want {
			t.Errorf("%v is not answered by %d", err, want)
		}
	}
}

// streamed opens a stream of a server, and returns its lines.
func streamed(t *testing.T, url, last string) (*http.Response, *bufio.Scanner) {
	t.Helper()
	r, _ := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	r.Header.Set("Accept", "text/event-stream")
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	return resp, lines
}

func nextData(t *testing.T, lines *bufio.Scanner) string {
	t.Helper()
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			return data
		}
	}
	t.Fatalf("the stream ended: %v", lines.Err())
	return ""
}

func TestStreams(t *testing.T) {
	o := newObserved()
	s := httptest.NewServer(unguarded(o))
	defer s.Close()
	for _, text := range []string{"x", "y"} {
		o.events.Add(status.Event{Text: text})
	}
	resp, lines := streamed(t, s.URL+"/api/events", "101")
	if kind := resp.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Errorf("it is %s", kind)
	}
	if data := nextData(t, lines); !strings.Contains(data, `"text":"y"`) {
		t.Errorf("after the event of x: %s", data)
	}
	o.events.Add(status.Event{Text: "z\nevent: forged"})
	if data := nextData(t, lines); !strings.Contains(data, `"text":"z\nevent: forged"`) {
		t.Errorf("it goes on with %s", data)
	}
	_, lines = streamed(t, s.URL+"/api/status", "")
	if data := nextData(t, lines); !strings.Contains(data, `"health":"ok"`) {
		t.Errorf("the status: %s", data)
	}
	o.events.Close() // a node that stops does not wait for its streams
	for lines.Scan() {
	}
}

// Streams are bounded; those whose readers go or read nothing block nobody and end.
func TestSlowAndManyStreams(t *testing.T) {
	o := newObserved()
	s := httptest.NewUnstartedServer(unguarded(o))
	s.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		_ = c.(*net.TCPConn).SetWriteBuffer(4 << 10)
		return ctx
	}
	s.Start()
	defer s.Close()
	address := strings.TrimPrefix(s.URL, "http://")
	var open []net.Conn
	for range maxStreams {
		c := testkit.Dial(t, address)
		_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
		_, _ = fmt.Fprintf(c, "GET /api/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
		if line, err := bufio.NewReaderSize(c, 16).ReadString(' '); err != nil || line != "HTTP/1.1 " {
			t.Fatalf("%q %v", line, err)
		}
		open = append(open, c)
	}
	if resp, _ := streamed(t, s.URL+"/api/events", ""); resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
		t.Errorf("one more: %s", resp.Status)
	}
	for i := range 50 { // nobody reads them, and they are many times what the connections hold
		o.events.Add(status.Event{Text: fmt.Sprint(i), Attrs: map[string]string{"x": strings.Repeat("x", 8<<10)}})
	}
	if w := o.get("/api/status", nil); w.Code != 200 {
		t.Errorf("a plain question beside them: %d", w.Code)
	}
	for _, c := range open {
		_ = c.Close()
	}
	testkit.Eventually(t, "places for streams again", func() bool {
		resp, _ := streamed(t, s.URL+"/api/events", "")
		_ = resp.Body.Close()
		return resp.StatusCode == 200
	})
	o.events.Close()
}
