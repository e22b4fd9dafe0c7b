package node

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// proxying launches a node with a proxy in front of a server, and a rule for each client.
func proxying(t *testing.T, rule string, h http.HandlerFunc) *running {
	t.Helper()
	upstream := httptest.NewServer(h)
	t.Cleanup(upstream.Close)
	cfg := quiet(single("rate_limit: {name: r, unit: hour, requests_per_unit: 10, " + rule + "}"))
	cfg.Proxy.Listen, cfg.Proxy.Upstreams = "127.0.0.1:0", []string{upstream.URL}
	cfg.Requests.Domain = "test"
	cfg.Requests.Descriptors = []actions.Descriptor{{{Key: "client", Source: "client"}}}
	return launch(t, cfg).ready(t)
}

// Ten wrong passwords, then no more reach the server; right ones are not counted, and clients see what is left.
func TestProxyChargesFailedLogins(t *testing.T) {
	t.Parallel()
	n := proxying(t, "charge_on: {status: [401]}", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wrong" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	ask := func(path string) *http.Response {
		resp, err := web.Get("http://" + n.Addr("proxy") + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp
	}
	for i := range 10 {
		if resp := ask("/right"); resp.StatusCode != http.StatusOK {
			t.Fatalf("a right password after %d wrong ones: %s", i, resp.Status)
		}
		resp := ask("/wrong")
		if left := resp.Header.Get("X-RateLimit-Remaining"); resp.StatusCode != http.StatusUnauthorized ||
			left != string(rune('9'-i)) {
			t.Fatalf("wrong password %d: %s, %q left", i+1, resp.Status, left)
		}
	}
	for _, path := range []string{"/wrong", "/right"} {
		if resp := ask(path); resp.StatusCode != http.StatusTooManyRequests {
			t.Errorf("%s after ten wrong passwords: %s", path, resp.Status)
		}
	}
}

// The attack: clients that hang up before the answer, or break the body off, do not try for free.
func TestProxyChargesWhoHangsUp(t *testing.T) {
	t.Parallel()
	for _, request := range []string{
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody",
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\nZZ\r\n",
	} {
		var tries atomic.Int64
		arrived := make(chan struct{}, 100)
		n := proxying(t, "charge_on: {status: [401]}", func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadFull(r.Body, make([]byte, 4))
			tries.Add(1)
			arrived <- struct{}{}
			if _, err := io.Copy(io.Discard, r.Body); err == nil {
				<-r.Context().Done()
			}
		})
		testkit.Eventually(t, "ten tries are charged", func() bool {
			conn, err := net.Dial("tcp", n.Addr("proxy"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, request)
			answered := make(chan string, 1)
			go func() {
				b := make([]byte, 64)
				read, _ := conn.Read(b)
				answered <- string(b[:read])
			}()
			select {
			case <-arrived:
				return false
			case line := <-answered:
				return strings.Contains(line, " 429 ")
			}
		})
		if got := tries.Load(); got > 12 { // one more may arrive while the one before is being charged
			t.Errorf("%q: %d tries reach the server, want 10", request, got)
		}
	}
}

// The cost in a header is for the proxy alone; bytes are charged with the end of the body.
func TestProxyChargesCosts(t *testing.T) {
	t.Parallel()
	for rule, left := range map[string]string{
		"cost_from: header X-RL-Cost": "3", "cost_from: response_bytes": "6",
		"cost_from: header X-RL-Cost, charge_on: {status: [5xx]}": "10",
	} {
		n := proxying(t, rule, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-RL-Cost", "7")
			_, _ = io.WriteString(w, "body")
		})
		resp, err := web.Get("http://" + n.Addr("proxy") + "/")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if leaks := resp.Header.Get("X-RL-Cost") != ""; leaks != (rule == "cost_from: response_bytes") {
			t.Errorf("%s: the client gets %v", rule, resp.Header)
		}
		want := map[string]uint64{"3": 7, "6": 4, "10": 0}[left]
		testkit.Eventually(t, rule+" is charged", func() bool { return spent(t, n.Node, "r", "127.0.0.1") == want })
	}
}

// A request that waits in a queue and is given up charges no response and holds no place.
func TestProxyWithdrawsWhoLeavesTheQueue(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer upstream.Close()
	cfg := quiet(`domain: test
descriptors:
  - {key: client, rate_limit: {name: r, unit: hour, requests_per_unit: 10, charge_on: {status: [401]}}}
  - {key: path, value: /slow, rate_limit: {unit: hour, requests_per_unit: 10, algorithm: gcra, queue: true}}
`)
	cfg.Proxy.Listen, cfg.Proxy.Upstreams = "127.0.0.1:0", []string{upstream.URL}
	cfg.Requests.Domain = "test"
	cfg.Requests.Descriptors = []actions.Descriptor{{{Key: "client", Source: "client"}},
		{{Key: "path", Source: "path"}}}
	n := launch(t, cfg).ready(t)
	ask := func(limit time.Duration) error {
		c := &http.Client{Timeout: limit, Transport: web.Transport}
		resp, err := c.Get("http://" + n.Addr("proxy") + "/slow")
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	}
	if err := ask(testkit.Patience); err != nil {
		t.Fatal(err)
	}
	if ask(200*time.Millisecond) == nil {
		t.Error("the second request does not wait")
	}
	testkit.Eventually(t, "nothing is under way", func() bool {
		n.pending.Lock()
		defer n.pending.Unlock()
		return len(n.pending.counts) == 0
	})
	if got := spent(t, n.Node, "r", "127.0.0.1"); got != 0 {
		t.Errorf("%d are charged", got)
	}
}
