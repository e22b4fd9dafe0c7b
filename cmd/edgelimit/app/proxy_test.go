package app

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// checkProxy runs the command proxy without any file in front of a server: it limits, it is small, and it ends in
// order.
func checkProxy(t *testing.T, binary string) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/noise" { // more than one response, which net/http logs
			conn, _, _ := http.NewResponseController(w).Hijack()
			fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
			return
		}
		fmt.Fprint(w, "shop ", r.RequestURI)
	}))
	defer upstream.Close()
	door := free(t)
	began := time.Now()
	p := start(t, binary, "proxy", "--listen", door, "--upstream", upstream.URL, "--health", free(t), "--admin", "")
	eventually(t, "ready", func() bool { return strings.Contains(p.said.String(), "msg=ready") })
	t.Logf("ready after %v", time.Since(began))
	checkSize(t, binary, p.cmd.Process.Pid)
	for i := range 7 {
		status, kind, answer, err := testkit.Fetch(web, "GET", "http://"+door+"/login?x=%zz", "")
		switch {
		case err != nil:
			t.Fatal(err)
		case i < 5 && (status != 200 || answer != "shop /login?x=%zz"):
			t.Errorf("request %d: %d %s", i+1, status, answer)
		case i >= 5 && (status != 429 || kind != "application/problem+json"):
			t.Errorf("request %d: %d %s", i+1, status, kind)
		}
	}
	if status, _, _, err := testkit.Fetch(web, "GET", "http://"+door+"/noise", ""); err != nil || status != 200 {
		t.Errorf("noise: %d, %v", status, err)
	}
	eventually(t, "the line of net/http", func() bool { return strings.Contains(p.said.String(), "Unsolicited") })
	for line := range strings.Lines(p.said.String()) {
		if !strings.HasPrefix(line, "time=") {
			t.Errorf("a line that is no record: %s", line)
		}
	}
	testkit.Must(t, p.cmd.Process.Signal(syscall.SIGTERM))
	if code := p.exit(t, patience); code != 0 {
		t.Errorf("exit status %d:\n%s", code, p.said.String())
	}
	runBinary(t, binary, "proxy").says(t, 2, "proxy.upstreams: none", "--upstream")
	runBinary(t, binary, "proxy", "--upstream", "shop:80").says(t, 2, `"shop:80": want http://host:port`)
}

// The flags of the command proxy go over its configuration file, which goes over its own defaults.
// The image sets EDGELIMIT_HTTP and EDGELIMIT_LISTEN alike: serve obeys the one, proxy the other.
func TestProxySettings(t *testing.T) {
	t.Setenv("EDGELIMIT_HTTP", ":8080")
	file := written(t, "c.yaml", "proxy: {listen: '127.0.0.1:1', upstreams: ['http://a'], retries: 3}\n")
	for _, test := range []struct {
		args     []string
		listen   string
		upstream string
		retries  int
	}{
		{[]string{"--upstream", "http://b"}, node.DefaultHTTP, "http://b", 1},
		{[]string{"--config", file}, "127.0.0.1:1", "http://a", 3},
		{[]string{"--config", file, "--listen", ":2", "--upstream", "http://c"}, ":2", "http://c", 3},
	} {
		cfg, err := proxyConfigured(t, test.args...)
		if err != nil || cfg.HTTP != "" || cfg.Proxy.Listen != test.listen || cfg.Proxy.Retries != test.retries ||
			len(cfg.Proxy.Upstreams) != 1 || cfg.Proxy.Upstreams[0] != test.upstream {
			t.Errorf("%v: %+v, %v", test.args, cfg.Proxy, err)
		}
	}
}
