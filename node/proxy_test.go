package node

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// proxying launches a node with a proxy in front of a server, and a rule for each client.
func proxying(t *testing.T, rule string, h http.HandlerFunc) *running {
	t.Helper()
	return proxied(t, "rate_limit: {name: r, unit: hour, requests_per_unit: 10, "+rule+"}", h)
}

// proxied is proxying with all of the rule.
func proxied(t *testing.T, rule string, h http.HandlerFunc) *running {
	t.Helper()
	upstream := httptest.NewServer(h)
	t.Cleanup(upstream.Close)
	cfg := quiet(single(rule))
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
		testkit.Must(t, err)
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

// Five wrong passwords ban for an hour, also from the right one: at the reverse proxy, and at /v1/auth with reports.
func TestFailedLoginsBan(t *testing.T) {
	t.Parallel()
	const rule = "rate_limit: {name: r, unit: minute, requests_per_unit: 5, ban: 1h, charge_on: {status: [401]}}"
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wrong" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(upstream.Close)
	cfg := quiet(single(rule))
	cfg.HTTP, cfg.Proxy.Listen, cfg.Proxy.Upstreams = "127.0.0.1:0", "127.0.0.1:0", []string{upstream.URL}
	cfg.Requests.Domain, cfg.Requests.TrustedProxies = "test", []string{"127.0.0.1"}
	cfg.Requests.Descriptors = []actions.Descriptor{{{Key: "client", Source: "client"}}}
	n := launch(t, cfg).ready(t)
	proxy := func(path string) *http.Response {
		resp, err := web.Get("http://" + n.Addr("proxy") + path)
		testkit.Must(t, err)
		_ = resp.Body.Close()
		return resp
	}
	auth := func(path string) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+n.Addr("http")+"/v1/auth", nil)
		testkit.Must(t, err)
		req.Header.Set("X-Forwarded-For", "192.0.2.7")
		req.Header.Set("X-Forwarded-Uri", path)
		resp, err := web.Do(req)
		testkit.Must(t, err)
		_ = resp.Body.Close()
		if path == "/wrong" && resp.StatusCode == http.StatusOK {
			status, body := post(t, n.Addr("http"), "/v1/report", `{"domain":"test","descriptors":[[{"key":"client",
				"value":"192.0.2.7"}]],"response":{"status":401}}`)
			if status != http.StatusOK {
				t.Fatalf("a report: %d %s", status, body)
			}
			resp.StatusCode = http.StatusUnauthorized
		}
		return resp
	}
	for name, ask := range map[string]func(string) *http.Response{"proxy": proxy, "auth": auth} {
		for i := range 5 {
			if resp := ask("/right"); resp.StatusCode != http.StatusOK {
				t.Fatalf("%s: a right password after %d wrong ones: %s", name, i, resp.Status)
			}
			if resp := ask("/wrong"); resp.StatusCode != http.StatusUnauthorized {
				t.Fatalf("%s: wrong password %d: %s", name, i+1, resp.Status)
			}
		}
		for _, path := range []string{"/wrong", "/right"} {
			resp := ask(path)
			wait, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
			if resp.StatusCode != http.StatusTooManyRequests || wait < 3500 || wait > 4000 {
				t.Errorf("%s: %s after five wrong passwords: %s, retry after %d s, want an hour", name, path,
					resp.Status, wait)
			}
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
			testkit.Must(t, err)
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
		testkit.Must(t, err)
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
	testkit.Must(t, ask(testkit.Patience))
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

// shaping launches a node with a proxy in front of a server, and a queue for each client.
func shaping(t *testing.T, queue string, h http.HandlerFunc) *running {
	t.Helper()
	return proxied(t, "rate_limit: {name: r, algorithm: leaky_bucket, queue: true, "+queue+"}", h)
}

// waiting waits until so many requests are in the node's queues.
func waiting(t *testing.T, n *running, want int) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprintf("%d requests wait", want), func() bool {
		requests, _, _ := n.queued()
		return requests == want
	})
}

// nextWaits is how long the next request of the client would wait.
func nextWaits(t *testing.T, n *running) time.Duration {
	t.Helper()
	return take(t, n.Node, Request{Rule: "r", Identity: "127.0.0.1", Peek: true}).Delay
}

// Requests to the proxy never leave faster than the queue has it, and wait for no longer than max_wait.
func TestProxyShapes(t *testing.T) {
	t.Parallel()
	const requests, apart = 20, 30 * time.Millisecond
	arrived := make(chan time.Time, requests+20)
	n := shaping(t, "refill: {amount: 100, every: 3s}, max_wait: 600ms", func(http.ResponseWriter, *http.Request) {
		arrived <- time.Now()
	})
	began := time.Now()
	var all sync.WaitGroup
	var denied atomic.Int64
	for range requests + 20 {
		all.Go(func() {
			resp, err := web.Get("http://" + n.Addr("proxy"))
			if err != nil {
				t.Error(err)
				return
			}
			if _ = resp.Body.Close(); resp.StatusCode == http.StatusTooManyRequests {
				denied.Add(1)
			}
		})
	}
	all.Wait()
	close(arrived)
	passed := 0
	var times []time.Time
	for at := range arrived {
		times = append(times, at)
	}
	slices.SortFunc(times, time.Time.Compare) // the server may note them in another order
	for _, at := range times {
		if at.Sub(began) < time.Duration(passed)*apart {
			t.Errorf("request %d arrives after %v, want %v at least", passed, at.Sub(began),
				time.Duration(passed)*apart)
		}
		passed++
	}
	if passed < requests || passed+int(denied.Load()) != requests+20 {
		t.Errorf("%d pass and %d are denied of %d", passed, denied.Load(), requests+20)
	}
}

// A client that hangs up while it waits frees its place and its turn, whatever it speaks, and whether its request has a
// body: nothing of it reaches the server.
func TestProxyNoticesWhoHangsUp(t *testing.T) {
	t.Parallel()
	var served atomic.Int64
	n := shaping(t, "unit: hour, requests_per_unit: 10", func(http.ResponseWriter, *http.Request) { served.Add(1) })
	if resp, err := web.Get("http://" + n.Addr("proxy")); err != nil || resp.Body.Close() != nil {
		t.Fatal(err)
	}
	before := nextWaits(t, n)
	if before == 0 || before > 6*time.Minute {
		t.Fatalf("the next waits for %v", before)
	}
	requests := map[string]string{
		"no body":     "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"a body":      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 16384\r\n\r\n" + strings.Repeat("x", 16384),
		"half a body": "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 5000),
	}
	for name, request := range requests {
		conn, err := net.Dial("tcp", n.Addr("proxy"))
		testkit.Must(t, err)
		_, _ = io.WriteString(conn, request)
		waiting(t, n, 1)
		if d := nextWaits(t, n); d < before {
			t.Errorf("%s: while it waits, the next does for %v", name, d)
		}
		_ = conn.Close()
		waiting(t, n, 0)
		if d := nextWaits(t, n); d > before {
			t.Errorf("%s: it has hung up, and the next waits for %v", name, d)
		}
	}
	h2 := &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	defer h2.CloseIdleConnections()
	unfinished, _ := io.Pipe()
	for _, body := range []io.Reader{nil, strings.NewReader("body"), unfinished} {
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, "POST", "http://"+n.Addr("proxy"), body)
		testkit.Must(t, err)
		ended := make(chan error, 1)
		go func() {
			_, err := h2.RoundTrip(r) //nolint:bodyclose // there is no response
			ended <- err
		}()
		waiting(t, n, 1)
		cancel()
		if <-ended == nil {
			t.Error("HTTP/2: it gets a response")
		}
		waiting(t, n, 0)
		if d := nextWaits(t, n); d > before {
			t.Errorf("HTTP/2: it has hung up, and the next waits for %v", d)
		}
	}
	if got := served.Load(); got != 1 {
		t.Errorf("%d requests reach the server, want 1", got)
	}
}

// A waiting request takes at most 64 KiB of heap and stack, whether it has a connection of its own and a body that was
// read ahead, or is one of many streams of HTTP/2.
func TestMemoryOfWaitingRequests(t *testing.T) {
	const first, requests, streams, most = 100, 400, 100, 64 << 10
	fields := strings.Repeat("x", 1000)
	for name, send := range map[string]func(net.Conn){
		"HTTP/1.1": func(conn net.Conn) {
			fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nX: %s\r\nContent-Length: 16384\r\n\r\n%s", fields,
				strings.Repeat("x", 16384))
		},
		"HTTP/2": func(conn net.Conn) {
			_, _ = io.WriteString(conn, http2.ClientPreface)
			framer := http2.NewFramer(conn, nil)
			_ = framer.WriteSettings()
			for i := range uint32(streams) {
				var block bytes.Buffer
				e := hpack.NewEncoder(&block)
				e.SetMaxDynamicTableSize(0)
				for _, f := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "x"},
					{":path", "/"}, {"x", fields}} {
					_ = e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
				}
				_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: block.Bytes(),
					EndStream: true, EndHeaders: true})
			}
		},
	} {
		n := shaping(t, "unit: hour, requests_per_unit: 1, burst: 100000", func(http.ResponseWriter, *http.Request) {})
		take(t, n.Node, Request{Rule: "r", Identity: "127.0.0.1"})
		hold := func(until int) int64 {
			for requests, _, _ := n.queued(); requests < until; {
				conn, err := net.Dial("tcp", n.Addr("proxy"))
				testkit.Must(t, err)
				t.Cleanup(func() { _ = conn.Close() })
				send(conn)
				if requests++; name == "HTTP/2" {
					requests += streams - 1
				}
			}
			waiting(t, n, until)
			return inUse()
		}
		before := hold(first)
		each := (hold(first+requests) - before) / requests
		t.Logf("%s: %d bytes each", name, each)
		if each > most {
			t.Errorf("%s: a waiting request takes %d bytes, want %d at most", name, each, most)
		}
	}
}

// inUse is the memory in use.
func inUse() int64 {
	var m runtime.MemStats
	for range 3 { // what pools and finalizers of other tests hold goes in several steps
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
