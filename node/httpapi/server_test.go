package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/rules"
)

func TestRefusalsOfRequests(t *testing.T) {
	const ok = `{"rule":"r"}`
	tests := []struct {
		name, method, path, contentType, body string
		status                                int
		detail                                string
	}{
		{"wrong path", "POST", "/v1/checks", "application/json", ok, 404, "use /v1/check"},
		{"path with a slash too many", "POST", "/v1/check/", "application/json", ok, 404, "use /v1/check"},
		{"path that only cleaned is right", "POST", "//v1/check", "application/json", ok, 404, "use /v1/check"},
		{"root", "GET", "/", "", "", 404, "use /v1/check"},
		{"wrong method", "GET", "/v1/check", "", "", 405, "POST"},
		{"wrong method, batch", "PUT", "/v1/check/batch", "application/json", `{"checks":[]}`, 405, "POST"},
		{"wrong method, short form", "DELETE", "/limiter/check", "", "", 405, "POST"},
		{"over the cap", "POST", "/v1/check", "application/json",
			`{"rule":"` + strings.Repeat("r", maxBody) + `"}`, 413, "longer than 65536 bytes"},
		{"over the cap, batch", "POST", "/v1/check/batch", "application/json",
			strings.Repeat(" ", maxBatchBody) + `{}`, 413, "longer than 1048576 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := always(counters.Decision{Allowed: true})
			r := httptest.NewRequest(tt.method, "/", strings.NewReader(tt.body))
			r.URL.Path = tt.path
			r.Header.Set("Content-Type", tt.contentType)
			w := httptest.NewRecorder()
			New(l, quiet()).ServeHTTP(w, r)
			if detail := wantProblem(t, w, tt.status); !strings.Contains(detail, tt.detail) {
				t.Errorf("detail %q does not say %q", detail, tt.detail)
			}
			if allow := w.Header().Get("Allow"); (tt.status == 405) != (allow == "POST") {
				t.Errorf("Allow: %q", allow)
			}
			if len(l.asked) != 0 {
				t.Errorf("the limiter was asked %v", l.asked)
			}
		})
	}
}

func TestAcceptedContentTypes(t *testing.T) {
	for _, contentType := range []string{"", "application/json", "Application/JSON", "application/json; charset=utf-8",
		"application/json;charset=\"utf-8\"",
		"application/x-www-form-urlencoded", "nonsense"} {
		r := httptest.NewRequest("POST", "/v1/check", strings.NewReader(`{"rule":"r"}`))
		r.Header.Set("Content-Type", contentType)
		w := httptest.NewRecorder()
		New(always(counters.Decision{Allowed: true}), quiet()).ServeHTTP(w, r)
		if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%q: status %d, Content-Type %q", contentType, w.Code, w.Header().Get("Content-Type"))
		}
	}
}

func TestErrorsOfTheLimiter(t *testing.T) {
	secret := errors.New("dial 10.1.2.3: a secret")
	tests := []struct {
		name   string
		err    error
		status int
		detail string
		logged bool
	}{
		{"unknown rule", fmt.Errorf("%w \"nope\"", rules.ErrUnknownRule), 404, `unknown rule "nope": use the name`,
			false},
		{"invalid", fmt.Errorf("%w: give an identity", rules.ErrInvalidRequest), 400, "give an identity", false},
		{
			"invalid at length",
			fmt.Errorf("%w: %s", rules.ErrInvalidRequest, strings.Repeat("\xff", 9999)),
			400,
			"invalid request: ?...",
			false,
		},
		{"the client left", fmt.Errorf("deciding: %w", context.Canceled), 503, "try again", false},
		{"too slow", context.DeadlineExceeded, 503, "try again", false},
		{"anything else", secret, 500, "see its log", true},
	}
	for _, tt := range tests {
		for _, path := range []string{"/v1/check", "/limiter/check"} {
			t.Run(tt.name+path, func(t *testing.T) {
				var log bytes.Buffer
				opt := quiet()
				opt.Logger = slog.New(slog.NewJSONHandler(&log, nil))
				w := post(New(failing(tt.err), opt), path, `{"identity":"i"}`)
				if strings.Contains(w.Body.String(), "secret") {
					t.Error("the node's own error went to the client")
				}
				detail := wantProblem(t, w, tt.status)
				if !strings.Contains(detail, tt.detail) || len(detail) > 2*maxDetail {
					t.Errorf("detail %q of %d bytes, want %q in it", detail, len(detail), tt.detail)
				}
				if logged := strings.Contains(log.String(), "secret"); logged != tt.logged {
					t.Errorf("logged: %v, want %v: %s", logged, tt.logged, &log)
				}
			})
		}
	}
}

func TestInvalidHeadersPanic(t *testing.T) {
	defer func() {
		err, _ := recover().(error)
		if err == nil {
			t.Fatal("New took invalid options")
		}
		for _, want := range []string{`"draft7" is unknown`, "legacy-delta and legacy-epoch", "draft11 is named twice",
			"off stands alone"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q is not among the problems:\n%v", want, err)
			}
		}
	}()
	New(always(), Options{Headers: []string{"draft7", answer.LegacyDelta, answer.LegacyEpoch, answer.Draft11,
		answer.Draft11, answer.HeadersOff}})
}

func TestCaps(t *testing.T) {
	h := New(always(counters.Decision{Allowed: true}), quiet())
	for _, tt := range []struct {
		path, body string
		size       int
		status     int
	}{
		{"/v1/check", `{"rule":"r"}`, maxBody, 200},
		{"/v1/check", `{"rule":"r"}`, maxBody + 1, 413},
		{"/limiter/check", `{"rule_id":1}`, maxBody + 1, 413},
		{"/v1/check/batch", `{"checks":[{"rule":"r"}]}`, maxBatchBody, 200},
		{"/v1/check/batch", `{"checks":[{"rule":"r"}]}`, maxBatchBody + 1, 413},
	} {
		w := post(h, tt.path, tt.body+strings.Repeat(" ", tt.size-len(tt.body)))
		if w.Code != tt.status {
			t.Errorf("%s with %d bytes: %d, want %d: %s", tt.path, tt.size, w.Code, tt.status, w.Body)
		}
	}
}

func TestServerLimits(t *testing.T) {
	h := http.NotFoundHandler()
	s := Server(h, nil)
	if s.Handler == nil || s.ErrorLog == nil {
		t.Errorf("handler %v, log %v", s.Handler, s.ErrorLog)
	}
	for _, limit := range []struct {
		name      string
		got, want time.Duration
	}{
		{"header", s.ReadHeaderTimeout, 2 * time.Second},
		{"read", s.ReadTimeout, 5 * time.Second},
		{"write", s.WriteTimeout, 10 * time.Second},
		{"idle", s.IdleTimeout, 2 * time.Minute},
	} {
		if limit.got != limit.want {
			t.Errorf("%s: %v, want %v", limit.name, limit.got, limit.want)
		}
	}
	if s.MaxHeaderBytes != 16<<10 {
		t.Errorf("headers: %d bytes", s.MaxHeaderBytes)
	}
	var log bytes.Buffer
	Server(h, slog.New(slog.NewTextHandler(&log, nil))).ErrorLog.Print("a complaint")
	if !strings.Contains(log.String(), `msg="http server" detail="a complaint"`) {
		t.Errorf("the server's log is %q", &log)
	}
}
