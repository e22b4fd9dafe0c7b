package listen

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// abusers are how many connections the abuse test opens and keeps: as many as clients may have.
const abusers = 10_000

// Connections that say nothing, half a request, or nothing after a request, as many as there may be and as fast as they
// can be opened, from dozens of sources, do not keep out a probe from elsewhere: each is answered while they come,
// and once they stand, half of them within their second on the busiest machine.
func TestProbesBesideAFlood(t *testing.T) {
	limits := ProbeLimits()
	limits.Exempt = nil // all sources of this test are of loopback
	l, err := Open(Setting{Name: "health", Addr: "127.0.0.1:0"}, limits, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l.UseHTTP(&http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok\n")
	})}, 0)
	l.Start(func(string, error) {})
	t.Cleanup(func() { l.Stop(0, testkit.Patience) })

	flooded := make(chan struct{})
	t.Cleanup(flood(t, l.Addr().String(), flooded))
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: testkit.Patience}
	var took []time.Duration // once the flood stands
	during := 0
	for after := 0; after < 50; {
		select {
		case <-flooded:
			after++
		default:
		}
		began := time.Now()
		status, _, answer, err := testkit.Fetch(web, "GET", "http://"+l.Addr().String()+"/livez", "")
		if status != http.StatusOK || err != nil {
			t.Fatalf("probe %d: %d %s %v", during+after, status, answer, err)
		}
		if after > 0 {
			took = append(took, time.Since(began))
		} else {
			during++
		}
	}
	slices.Sort(took)
	t.Logf("%d probes while the flood came; once it stood, the median of %d took %v, the slowest %v; %+v", during,
		len(took), took[len(took)/2], took[len(took)-1], l.Stats())
	if during == 0 {
		t.Error("no probe was answered while the flood came")
	}
	if took[len(took)/2] > time.Second {
		t.Errorf("half of the probes took longer than %v", took[len(took)/2])
	}
	if s := l.Stats(); s.Evicted < abusers/2 || s.Open > maxProbes {
		t.Errorf("the abuse did not fill the listener: %+v", s)
	}
}

// flood opens connections from dozens of sources and keeps them until close; flooded is closed once all are open.
func flood(t *testing.T, addr string, flooded chan<- struct{}) (closeAll func()) {
	t.Helper()
	payloads := []string{"", "GET /livez HTTP/1.1\r\nHost: no", "GET /livez HTTP/1.1\r\nHost: node\r\n\r\n"}
	const workers = 8
	conns := make([][]net.Conn, workers)
	var opening sync.WaitGroup
	for w := range workers {
		opening.Go(func() {
			for i := range abusers / workers {
				from, err := net.ResolveTCPAddr("tcp", fmt.Sprintf("127.1.%d.%d:0", w+1, i%8+1))
				if err != nil {
					t.Error(err)
					return
				}
				conn, err := (&net.Dialer{LocalAddr: from, Timeout: testkit.Patience}).Dial("tcp", addr)
				if err != nil {
					t.Errorf("connection %d: %v", i, err)
					return
				}
				conns[w] = append(conns[w], conn)
				_, _ = io.WriteString(conn, payloads[i%len(payloads)]) // it may be evicted already
			}
		})
	}
	go func() {
		opening.Wait()
		close(flooded)
	}()
	return func() {
		opening.Wait()
		for _, all := range conns {
			for _, conn := range all {
				_ = conn.Close()
			}
		}
	}
}
