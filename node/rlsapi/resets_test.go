package rlsapi_test

import (
	"testing"
	"testing/synctest"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"google.golang.org/grpc/test/bufconn"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// resetRequests begins requests on a connection and resets each at once, with its message before that if complete is
// set, until the node closes it. It returns how many were sent, at most n, and the node's last word.
func resetRequests(t *testing.T, l *bufconn.Listener, n int, complete bool) (sent int, goAway http2.ErrCode) {
	t.Helper()
	r := greet(t, l)
	last := make(chan http2.ErrCode)
	go func() {
		code := http2.ErrCodeNo
		for {
			frame, err := r.framer.ReadFrame()
			if err != nil {
				last <- code
				return
			}
			if g, ok := frame.(*http2.GoAwayFrame); ok {
				code = g.ErrCode
			}
		}
	}()
	for sent < n {
		stream := uint32(2*sent + 1)
		if r.tryBeginAt(stream, "/"+service+"/ShouldRateLimit", "") != nil ||
			complete && r.framer.WriteData(stream, true, make([]byte, 5)) != nil ||
			r.framer.WriteRSTStream(stream, http2.ErrCodeCancel) != nil {
			break
		}
		sent++
	}
	synctest.Wait()
	_ = r.Close()
	return sent, <-last
}

// However many connections reset requests as fast as they open them, with or without a message: beyond the budget the
// node closes each at its first reset, and says why. Ten seconds later it takes them again.
func TestAConnectionThatResetsIsClosed(t *testing.T) {
	for _, complete := range []bool{false, true} {
		testkit.VirtualTime(t, func(t *testing.T) {
			l := bufconn.Listen(1 << 10)
			serveOn(t, l)
			total := 0
			for range 100 {
				sent, code := resetRequests(t, l, 500, complete)
				if total += sent; sent < 500 && code != http2.ErrCodeEnhanceYourCalm {
					t.Errorf("after %d of this connection, %d in all: %v", sent, total, code)
				}
			}
			// What a client sends in 1 KiB that the connection buffers is not read any more.
			if total > 4096+100*50 {
				t.Errorf("%d requests were reset, complete: %v", total, complete)
			}
			_, err := rls.NewRateLimitServiceClient(through(t, l)).ShouldRateLimit(t.Context(), edge(d("a=b")))
			if err != nil {
				t.Errorf("another client: %v", err)
			}
			time.Sleep(10*time.Second + 1) // all timers of the budget fired before
			if sent, code := resetRequests(t, l, 500, complete); sent != 500 || code != http2.ErrCodeNo {
				t.Errorf("ten seconds later: %d, %v", sent, code)
			}
			time.Sleep(10 * time.Second)
		})
	}
}
