package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

// answering is a door whose /json says what it is told to, and notes what it is asked.
func answering(allowed bool, err error) (h http.Handler, asked *[]string) {
	asked = new([]string)
	opt := quiet()
	opt.Envoy = func(_ context.Context, body []byte) ([]byte, bool, error) {
		*asked = append(*asked, string(body))
		return []byte(`{"overallCode":"OK"}`), allowed, err
	}
	return New(always(), opt), asked
}

func TestEnvoy(t *testing.T) {
	for allowed, status := range map[bool]int{true: 200, false: 429} {
		h, asked := answering(allowed, nil)
		w := post(h, "/json", `{"domain":"edge"}`)
		if w.Code != status || w.Body.String() != `{"overallCode":"OK"}` || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("allowed %v: %d %s %v", allowed, w.Code, w.Body, w.Header())
		}
		if len(*asked) != 1 || (*asked)[0] != `{"domain":"edge"}` {
			t.Errorf("asked %q", *asked)
		}
	}
}

// What is no request of Envoy's is refused as at the other paths, and nobody is asked.
func TestEnvoyRefuses(t *testing.T) {
	h, asked := answering(true, nil)
	for body, status := range map[string]int{"": 400, "{": 400, "\xff": 400, strings.Repeat("[", 40) + strings.Repeat("]", 40): 400,
		`"` + strings.Repeat("x", DefaultMaxBody) + `"`: 413} {
		wantProblem(t, post(h, "/json", body), status)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/json", nil))
	wantProblem(t, w, 405)
	if len(*asked) != 0 {
		t.Errorf("asked %q", *asked)
	}
	wantProblem(t, post(New(always(), quiet()), "/json", `{}`), 404)
	for err, status := range map[error]int{fmt.Errorf("%w: no domain", rules.ErrInvalidRequest): 400, context.DeadlineExceeded: 503, errors.New("secret"): 500} {
		h, _ := answering(false, err)
		wantProblem(t, post(h, "/json", `{}`), status)
	}
}

// Append says what Write does.
func TestHeadersAppend(t *testing.T) {
	for _, families := range [][]string{nil, {Draft11}, {LegacyEpoch}, {HeadersOff}} {
		h, err := NewHeaders(families, quiet().Now, quiet().Jitter)
		if err != nil {
			t.Fatal(err)
		}
		for _, layers := range [][]counters.Decision{nil, {{Allowed: true}}, {allowedBurst}, {allowedBurst, {Rule: "never", RetryAfter: counters.Never}}, {{Rule: "x", RetryAfter: 1e9}}} {
			written := make(http.Header)
			retryAfter := h.Write(written, layers)
			fields, again := h.Append([]Field{{"First", "1"}}, layers)
			if again != retryAfter || fields[0] != (Field{"First", "1"}) || len(fields) != 1+len(written) {
				t.Errorf("%v: %v and %d, want %v and %d", layers, fields, again, written, retryAfter)
			}
			for _, f := range fields[1:] {
				if got := written[f.Name]; len(got) != 1 || got[0] != f.Value {
					t.Errorf("%v: %s is %q, want %q", layers, f.Name, f.Value, got)
				}
			}
		}
	}
}

func TestDenialIsWhatWriteDenialWrites(t *testing.T) {
	layers := []counters.Decision{{Rule: "x", Limit: 5, RetryAfter: 1e9}}
	w := httptest.NewRecorder()
	WriteDenial(w, layers, 2)
	if got := string(Denial(layers, 2)); got != w.Body.String() || w.Header().Get("Content-Type") != ProblemType {
		t.Errorf("%s, want %s", got, w.Body)
	}
}
