package httpapi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

const typicalBody = `{"domain":"edge","descriptors":[[{"key":"remote_address","value":"203.0.113.77"}],[{"key":"path","value":"/login"},{"key":"remote_address","value":"203.0.113.77"}]],"cost":1}`

// neverLater is a time that has passed.
var neverLater = time.Unix(1, 0)

// bareLimiter answers every request with one decision and costs nothing.
type bareLimiter struct{ d counters.Decision }

func (l bareLimiter) Decide(_ context.Context, _ *rules.Request, layers []counters.Decision) ([]counters.Decision, error) {
	return append(layers, l.d), nil
}

type closer struct{ io.Reader }

func (closer) Close() error { return nil }

// BenchmarkDoor is the cost of the door's own code.
func BenchmarkDoor(b *testing.B) {
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
}

// BenchmarkServed compares /v1/check with bare handlers behind the same server, over loopback, as seen by a client that
// costs as little as can be. The ratios are what counts: to a greeting, and to a handler that reads the same body.
func BenchmarkServed(b *testing.B) {
	hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, "hello\n")
	})
	check := New(bareLimiter{allowedBurst}, quiet())
	get := "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
	post := fmt.Sprintf("POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(typicalBody), typicalBody)
	b.Run("bare", func(b *testing.B) { roundTrips(b, hello, get) })
	b.Run("bare with a body", func(b *testing.B) { roundTrips(b, hello, post) })
	b.Run("check", func(b *testing.B) { roundTrips(b, check, post) })
}

func roundTrips(b *testing.B, h http.Handler, request string) {
	addr := listen(b, h)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			b.Error(err)
			return
		}
		defer conn.Close()
		length, err := roundTrip(conn, request)
		if err != nil {
			b.Error(err)
			return
		}
		// Every answer is as long as the first one.
		answer := make([]byte, length)
		for pb.Next() {
			if _, err := io.WriteString(conn, request); err != nil {
				b.Error(err)
				return
			}
			if _, err := io.ReadFull(conn, answer); err != nil || !strings.HasPrefix(string(answer[:12]), "HTTP/1.1 200") {
				b.Errorf("%v after %.12q", err, answer)
				return
			}
		}
	})
}

// roundTrip sends the first request of a connection and returns how long its answer is.
func roundTrip(conn net.Conn, request string) (int, error) {
	if _, err := io.WriteString(conn, request); err != nil {
		return 0, err
	}
	var read strings.Builder
	in := bufio.NewReader(io.TeeReader(conn, &read))
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return 0, err
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0, err
	}
	if resp.StatusCode != http.StatusOK || in.Buffered() > 0 {
		return 0, fmt.Errorf("status %d, %d bytes left over", resp.StatusCode, in.Buffered())
	}
	return read.Len(), nil
}
