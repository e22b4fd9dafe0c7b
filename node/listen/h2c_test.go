package listen

import (
	"net/http"
	"testing"

	"github.com/edgelimit/edgelimit/node/httpapi"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// A request of HTTP/2 without TLS makes its connection busy, so that none takes its place; once it has ended the
// connection is idle.
func TestHTTP2WithoutTLSIsTracked(t *testing.T) {
	began, end := make(chan struct{}), make(chan struct{})
	l := open(t, 4)
	s := httpapi.Server(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(began)
		<-end
	}), l.log)
	s.Protocols = new(http.Protocols)
	s.Protocols.SetUnencryptedHTTP2(true)
	l.UseHTTP(s, 0)
	l.Start(func(string, error) {})
	t.Cleanup(func() { l.Stop(0, testkit.Patience) })
	busy := func() (n int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for c := range l.conns {
			if c.busy.Load() {
				n++
			}
		}
		return n
	}
	tr := &http.Transport{Protocols: s.Protocols}
	t.Cleanup(tr.CloseIdleConnections)
	answered := make(chan error, 1)
	go func() {
		resp, err := (&http.Client{Transport: tr}).Get("http://" + l.Addr().String())
		if err == nil {
			_ = resp.Body.Close()
		}
		answered <- err
	}()
	<-began
	if n := busy(); n != 1 {
		t.Errorf("%d connections are busy, want 1", n)
	}
	close(end)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	testkit.Eventually(t, "the connection is idle", func() bool { return busy() == 0 && l.Stats().Open == 1 })
}
