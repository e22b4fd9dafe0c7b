package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// fake is a limiter that answers what it was told to and remembers what it was asked.
type fake struct {
	answer func(req *rules.Request) ([]counters.Decision, error)

	mu       sync.Mutex
	asked    []rules.Request
	reported int // how many of them were reports
}

func (f *fake) Decide(_ context.Context, req *rules.Request, layers []counters.Decision) ([]counters.Decision, error) {
	if len(layers) != 0 {
		panic("layers of another request")
	}
	f.mu.Lock()
	f.asked = append(f.asked, cloneRequest(req))
	f.mu.Unlock()
	ds, err := f.answer(req)
	return append(layers, ds...), err
}

// cloneRequest copies a request in depth: the API may use its memory again.
func cloneRequest(req *rules.Request) rules.Request {
	c := *req
	c.Descriptors = nil
	for _, entries := range req.Descriptors {
		c.Descriptors = append(c.Descriptors, append([]rules.Entry{}, entries...))
	}
	return c
}

// Report has reports answered as checks are.
func (f *fake) Report(
	ctx context.Context, req *rules.Request, layers []counters.Decision,
) ([]counters.Decision, error) {
	f.mu.Lock()
	f.reported++
	f.mu.Unlock()
	return f.Decide(ctx, req, layers)
}

// reporting returns an API that takes reports.
func reporting(f *fake) http.Handler {
	opt := quiet()
	opt.Reporter = f
	return New(f, opt)
}

func always(ds ...counters.Decision) *fake {
	return &fake{answer: func(*rules.Request) ([]counters.Decision, error) { return ds, nil }}
}

func failing(err error) *fake {
	return &fake{answer: func(*rules.Request) ([]counters.Decision, error) { return nil, err }}
}

// quiet are options under which every answer is known in advance.
func quiet() Options {
	return Options{
		Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return time.Unix(1_700_000_000, 1) },
		Jitter: func() float64 { return 0 },
	}
}

func post(h http.Handler, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// verdictJSON is the response of /v1/check; rule is JSON, times are in milliseconds.
func verdictJSON(allowed bool, rule string, limit, remaining, reset, retry, delay int, mode string,
	degraded bool) string {
	return fmt.Sprintf(`{"allowed":%v,"rule":%s,"limit":%d,"remaining":%d,"reset_after_ms":%d,"retry_after_ms":%d,`+
		`"delay_ms":%d,"mode":%q,"degraded":%v}`, allowed, rule, limit, remaining, reset, retry, delay, mode, degraded)
}

// wantJSON holds a body against the JSON that it should be, whatever the spacing and the order of members.
func wantJSON(t *testing.T, got, want string) {
	t.Helper()
	if g, w := canonical(t, got), canonical(t, want); g != w {
		t.Errorf("body\n%s\nwant\n%s", g, w)
	}
}

func canonical(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	b, err := json.MarshalIndent(v, "", " ")
	testkit.Must(t, err)
	return string(b)
}

// wantProblem holds an answer against the shape of every refusal and returns its detail.
func wantProblem(t *testing.T, w *httptest.ResponseRecorder, status int) string {
	t.Helper()
	return wantProblemIn(t, w.Code, w.Header(), w.Body, status)
}

func wantProblemIn(t *testing.T, code int, header http.Header, body io.Reader, status int) string {
	t.Helper()
	if code != status {
		t.Errorf("status %d, want %d", code, status)
	}
	if got := header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type %q", got)
	}
	raw, err := io.ReadAll(body)
	testkit.Must(t, err)
	var p struct {
		Type, Title, Detail string
		Status              int
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	if p.Type != "about:blank" || p.Title != http.StatusText(status) || p.Status != status || p.Detail == "" {
		t.Errorf("problem %+v", p)
	}
	if !slices.Equal(header.Values("Ratelimit"), nil) {
		t.Error("a refusal tells of a limit")
	}
	return p.Detail
}
