package httpapi

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

const typicalBody = `{"domain":"edge","descriptors":[[{"key":"remote_address","value":"203.0.113.77"}],` +
	`[{"key":"path","value":"/login"},{"key":"remote_address","value":"203.0.113.77"}]],"cost":1}`

// neverLater is a time that has passed.
var neverLater = time.Unix(1, 0)

// bareLimiter answers every request with one decision and costs nothing.
type bareLimiter struct{ d counters.Decision }

func (l bareLimiter) Decide(
	_ context.Context, _ *rules.Request, layers []counters.Decision,
) ([]counters.Decision, error) {
	return append(layers, l.d), nil
}

type closer struct{ io.Reader }

func (closer) Close() error { return nil }

// BenchmarkAPI measures the API's own code; "make bench-doors" measures it beside a server.
func BenchmarkAPI(b *testing.B) {
	for name, tt := range map[string]struct {
		d    counters.Decision
		path string
	}{
		"allowed":     {allowedBurst, "/v1/check"},
		"denied":      {deniedBurst, "/v1/check"},
		"denied, 429": {deniedBurst, "/v1/check?status=1"},
	} {
		b.Run(name, func(b *testing.B) {
			h := New(bareLimiter{tt.d}, quiet())
			w := httptest.NewRecorder()
			body := strings.NewReader("")
			r := httptest.NewRequest("POST", tt.path, nil)
			b.ReportAllocs()
			for b.Loop() {
				body.Reset(typicalBody)
				r.Body, r.ContentLength = closer{body}, int64(len(typicalBody))
				w.Body.Reset()
				clear(w.Header())
				h.ServeHTTP(w, r)
			}
		})
	}
	b.Run("auth", func(b *testing.B) {
		h := authAPI(b, bareLimiter{allowedBurst})
		w := httptest.NewRecorder()
		r := authRequest(http.MethodGet, "")
		b.ReportAllocs()
		for b.Loop() {
			clear(w.Header())
			h.ServeHTTP(w, r)
		}
	})
}
