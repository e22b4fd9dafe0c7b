package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// waits returns how long it was between one attempt and the next.
func (s *server) waits() (all []time.Duration) {
	for i := 1; i < len(s.at); i++ {
		all = append(all, s.at[i].Sub(s.at[i-1]))
	}
	return all
}

// server answers each attempt as it is told, the last answer again and again, and notes what was sent.
type server struct {
	answers []string // "429", "429 7" with Retry-After, "broken"
	bodies  []string
	at      []time.Time
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	body := ""
	if r.Body != nil {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		body = string(b)
	}
	s.bodies, s.at = append(s.bodies, body), append(s.at, time.Now())
	status, after, _ := strings.Cut(s.answers[min(len(s.bodies), len(s.answers))-1], " ")
	if status == "broken" {
		return nil, errors.New("connection reset")
	}
	codes := map[string]int{"200": 200, "404": 404, "429": 429, "500": 500, "502": 502, "503": 503, "504": 504}
	h := http.Header{"Date": {"Sat, 21 Nov 2026 12:00:00 GMT"}}
	if after != "" {
		h.Set("Retry-After", after)
	}
	return &http.Response{StatusCode: codes[status], Header: h, Body: io.NopCloser(strings.NewReader(status))}, nil
}

func TestTransport(t *testing.T) { synctest.Test(t, testTransport) }

func testTransport(t *testing.T) {
	tests := []struct {
		name, method, body string
		answers            []string
		header             string
		sent               int
		waits              []time.Duration
		status             int // 0: an error
	}{
		{"at once", "GET", "", []string{"200"}, "", 1, nil, 200},
		{"not there", "GET", "", []string{"404"}, "", 1, nil, 404},
		{"failed", "GET", "", []string{"500"}, "", 1, nil, 500},
		{"full", "GET", "", []string{"429 2", "200"}, "", 2, []time.Duration{2050 * time.Millisecond}, 200},
		{"full, with a body", "POST", "hello", []string{"429 2", "429 2", "200"}, "", 3,
			[]time.Duration{2050 * time.Millisecond, 2100 * time.Millisecond}, 200},
		{"full, nobody says until when", "GET", "", []string{"429"}, "", 4,
			[]time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond}, 429},
		{"full, until a date", "GET", "", []string{"429 Sat, 21 Nov 2026 12:00:03 GMT", "200"}, "", 2,
			[]time.Duration{3050 * time.Millisecond}, 200},
		{"full, until a date that is past", "GET", "", []string{"429 Sat, 21 Nov 2026 11:00:03 GMT", "200"}, "", 2,
			[]time.Duration{50 * time.Millisecond}, 200},
		{"full, nonsense", "GET", "", []string{"429 soon", "200"}, "", 2, []time.Duration{50 * time.Millisecond}, 200},
		{"full, for longer than anybody waits", "GET", "", []string{"429 31", "200"}, "", 1, nil, 429},
		{"full, for 2^31 seconds", "GET", "", []string{"429 2147483648", "200"}, "", 1, nil, 429},
		{"full, for more than a duration", "GET", "", []string{"429 9223372037", "200"}, "", 1, nil, 429},
		{"full, for 10^20 seconds", "GET", "", []string{"429 100000000000000000000", "200"}, "", 1, nil, 429},
		{"away", "GET", "", []string{"503 1", "502", "504", "200"}, "", 4,
			[]time.Duration{1050 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond}, 200},
		{"away, may not be done twice", "POST", "x", []string{"503 1", "200"}, "", 1, nil, 503},
		{"away, may be done twice", "POST", "x", []string{"503 1", "200"}, "k", 2,
			[]time.Duration{1050 * time.Millisecond}, 200},
		{"broken", "PUT", "x", []string{"broken", "200"}, "", 2, []time.Duration{50 * time.Millisecond}, 200},
		{"broken, may not be done twice", "POST", "x", []string{"broken", "200"}, "", 1, nil, 0},
		{"broken for good", "GET", "", []string{"broken"}, "", 4,
			[]time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond}, 0},
	}
	for _, tt := range tests {
		s := &server{answers: tt.answers}
		tr := &Transport{Base: s, random: func() float64 { return 0.5 }}
		r, err := http.NewRequest(tt.method, "http://shop.example/", strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		if tt.header != "" {
			r.Header.Set("Idempotency-Key", tt.header)
		}
		resp, err := tr.RoundTrip(r)
		if (err != nil) != (tt.status == 0) || err == nil && resp.StatusCode != tt.status {
			t.Errorf("%s: %v, %v; want %d", tt.name, resp, err, tt.status)
		}
		waits := s.waits()
		if len(s.bodies) != tt.sent || !slices.Equal(waits, tt.waits) {
			t.Errorf("%s: sent %d times with waits %v; want %d, %v", tt.name, len(s.bodies), waits, tt.sent, tt.waits)
		}
		for _, body := range s.bodies {
			if body != tt.body {
				t.Errorf("%s: sent %q", tt.name, body)
			}
		}
		if err == nil {
			if b, err := io.ReadAll(resp.Body); err != nil || len(b) != 3 {
				t.Errorf("%s: the caller reads %q, %v", tt.name, b, err)
			}
		}
	}
}

// TestTransportEndsWithItsCaller: nobody waits for a caller who has gone, and a body that cannot be had again is sent
// once.
func TestTransportEndsWithItsCaller(t *testing.T) { synctest.Test(t, testTransportEndsWithItsCaller) }

func testTransportEndsWithItsCaller(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := &server{answers: []string{"429 1"}}
	tr := &Transport{Base: s}
	time.AfterFunc(time.Second, cancel)
	r, err := http.NewRequestWithContext(ctx, "GET", "http://shop.example/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := tr.RoundTrip(r); !errors.Is(err, context.Canceled) || len(s.bodies) != 1 {
		t.Errorf("%v, %v after %d attempts", resp, err, len(s.bodies))
	}
	r, err = http.NewRequest("POST", "http://shop.example/", io.MultiReader(strings.NewReader("once")))
	if err != nil {
		t.Fatal(err)
	}
	s.bodies = nil
	if resp, err := tr.RoundTrip(r); err != nil || resp.StatusCode != 429 || len(s.bodies) != 1 {
		t.Errorf("%v, %v after %d attempts", resp, err, len(s.bodies))
	}
}

// TestTransportReturnsBeforeTheDeadline: where the context ends before the next attempt, the caller has the answer at
// once, with its body. A deadline after it changes nothing.
func TestTransportReturnsBeforeTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			timeout  time.Duration
			answer   string
			attempts int
			status   int
		}{
			{300 * time.Millisecond, "429 5", 1, 429},
			{5 * time.Second, "429 5", 1, 429},
			{7 * time.Second, "429 5", 2, 200},
			{300 * time.Millisecond, "503 5", 1, 503},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
			s, start := &server{answers: []string{c.answer, "200"}}, time.Now()
			r, err := http.NewRequestWithContext(ctx, "GET", "http://shop.example/", nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := (&Transport{Base: s}).RoundTrip(r)
			if err != nil || resp.StatusCode != c.status || len(s.bodies) != c.attempts {
				t.Errorf("%s within %v: %v, %v after %d attempts", c.answer, c.timeout, resp, err, len(s.bodies))
			} else if b, err := io.ReadAll(resp.Body); err != nil || len(b) != 3 {
				t.Errorf("%s within %v: the caller reads %q, %v", c.answer, c.timeout, b, err)
			}
			if waited := time.Since(start); c.attempts == 1 && waited != 0 {
				t.Errorf("%s within %v: returned after %v, want at once", c.answer, c.timeout, waited)
			}
			cancel()
		}
	})
}

// TestBackoffSpreads: with full jitter waits lie anywhere between nothing and a time that doubles, up to the longest.
func TestBackoffSpreads(t *testing.T) {
	for attempt, most := range []time.Duration{100, 200, 400, 800, 1600, 3200, 5000, 5000} {
		most *= time.Millisecond
		for _, drawn := range []float64{0, 0.25, 0.999} {
			tr := &Transport{Longest: 5 * time.Second, random: func() float64 { return drawn }}
			if got, ok := tr.pause(nil, attempt+1); !ok || got != time.Duration(drawn*float64(most)) {
				t.Errorf("after attempt %d, %v of %v: %v", attempt+1, drawn, most, got)
			}
		}
	}
	if got := backoff(1<<40, time.Minute); got != time.Minute {
		t.Errorf("after very many attempts: %v", got)
	}
}
