package app

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// process is an edgelimit that runs by itself.
type process struct {
	cmd    *exec.Cmd
	said   testkit.Log
	ended  chan struct{}
	status error // once it has ended
}

func start(t *testing.T, binary string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(binary, args...), ended: make(chan struct{})}
	p.cmd.Stderr = &p.said
	testkit.Must(t, p.cmd.Start())
	go func() {
		p.status = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
	})
	return p
}

// exit waits for the end of the process and returns its exit status.
func (p *process) exit(t *testing.T, within time.Duration) int {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(within):
		t.Fatalf("it runs on after %v and says:\n%s", within, p.said.String())
	}
	if failed, ok := errors.AsType[*exec.ExitError](p.status); ok {
		return failed.ExitCode()
	} else if p.status != nil {
		t.Fatal(p.status)
	}
	return 0
}

// checkSize holds the promises to those who put a node beside each of their servers: an image below 30 MB, below 40 MiB
// resident when idle.
func checkSize(t *testing.T, binary string, pid int) {
	file, err := os.Stat(binary)
	if err != nil || file.Size() >= 30e6 {
		t.Errorf("a binary of %d bytes, %v", file.Size(), err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if errors.Is(err, fs.ErrNotExist) {
		return // not Linux
	}
	var kib int
	_, resident, _ := strings.Cut(string(status), "VmRSS:")
	if _, err := fmt.Sscan(resident, &kib); err != nil || kib <= 0 || kib >= 40<<10 {
		t.Errorf("%d KiB resident when idle, %v", kib, err)
	}
	t.Logf("%d bytes, %d KiB resident when idle", file.Size(), kib)
}

// runBinary runs the binary to its end.
func runBinary(t *testing.T, binary string, args ...string) result {
	t.Helper()
	p := &process{cmd: exec.CommandContext(t.Context(), binary, args...)}
	var out bytes.Buffer
	p.cmd.Stdout, p.cmd.Stderr = &out, &p.said
	err := p.cmd.Run()
	failed, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case ok:
		return result{failed.ExitCode(), out.String(), p.said.String()}
	case err != nil:
		t.Fatal(err)
	}
	return result{0, out.String(), p.said.String()}
}

var web = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}

// The whole thing as its users have it: a binary, ports, signals, exit statuses.
func TestEndToEnd(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "edgelimit")
	if out, err := exec.CommandContext(t.Context(), "make", "-C", "../../..", "build",
		"BIN="+binary).CombinedOutput(); err != nil {
		t.Fatalf("make build: %v\n%s", err, out)
	}
	door, health, gossip, envoy := free(t), free(t), free(t), free(t)
	p := start(t, binary, "serve", "--node-id", "e2e", "--http", door, "--health", health, "--gossip", gossip, "--grpc",
		envoy, "--join", "no-such-host.invalid", "--join", "127.0.0.1:1")
	eventually(t, "ready", func() bool {
		status, _, _, err := testkit.Fetch(web, "GET", "http://"+health+"/readyz", "")
		return err == nil && status == 200
	})

	t.Run("version", func(t *testing.T) {
		described, err := exec.Command("git", "describe", "--tags", "--always", "--dirty").Output()
		if want := "edgelimit " + strings.TrimSpace(string(described)) + " ("; err == nil {
			runBinary(t, binary, "--version").says(t, 0, want)
		}
	})
	t.Run("is small", func(t *testing.T) { checkSize(t, binary, p.cmd.Process.Pid) })
	t.Run("reverse proxy", func(t *testing.T) { checkProxy(t, binary) })
	t.Run("limits", func(t *testing.T) { checkLimits(t, binary, "http://"+door, "http://"+health) })
	leaves := checkEnvoy(t, envoy)
	t.Run("nonsense", func(t *testing.T) { checkNonsense(t, "http://"+door) })
	t.Run("10 MB", func(t *testing.T) { checkHugeBody(t, door) })
	t.Run("rubbish to gossip", func(t *testing.T) { checkGossipRubbish(t, p, gossip) })
	t.Run("seeds that do not answer", func(t *testing.T) {
		eventually(t, "warnings of both seeds", func() bool {
			said := p.said.String()
			return strings.Contains(said, "does not resolve") && strings.Contains(said, "no-such-host.invalid") &&
				strings.Contains(said, "does not answer")
		})
	})
	t.Run("another node at the same address", func(t *testing.T) {
		runBinary(t, binary, "serve", "--http", door, "--health", "").says(t, 2, "edgelimit: http: "+door+" is in use",
			"choose another with --http")
		upstream := []string{"--upstream", "http://127.0.0.1:1", "--health", "", "--admin", ""}
		runBinary(t, binary, append([]string{"proxy", "--listen", door}, upstream...)...).
			says(t, 2, "edgelimit: proxy.listen: "+door+" is in use", "edgelimit proxy: --listen")
		file := written(t, "c.yaml",
			"{http: '', health: '', admin: '', proxy: {listen: '"+door+"', upstreams: ['http://127.0.0.1:1']}}\n")
		runBinary(t, binary, "serve", "--config", file).
			says(t, 2, "edgelimit: proxy.listen: "+door+" is in use", "choose another with proxy.listen")
	})
	t.Run("broken rules", func(t *testing.T) {
		file := written(t, "broken.yaml",
			"domain: edge\ndescriptors:\n  - key: client\n    rate_limit: {unit: fortnight, requests_per_unit: -1}\n")
		r := runBinary(t, binary, "serve", "--rules", file)
		r.says(t, 2, "edgelimit: "+file+":4:", "fortnight", file+":4:")
		if strings.Contains(r.err, "panic") || strings.Contains(r.err, "msg=ready") {
			t.Errorf("it says %s", r.err)
		}
	})
	t.Run("still there", func(t *testing.T) { // after all of that
		if status, _, answer, err := testkit.Fetch(web, "POST", "http://"+door+"/v1/check",
			`{"rule":"per_ip","identity":"192.0.2.99"}`); status != 200 ||
			err != nil {
			t.Errorf("%d %s %v", status, answer, err)
		}
	})
	t.Run("SIGHUP", func(t *testing.T) { checkHangup(t, binary) })
	t.Run("socket activation", func(t *testing.T) { checkActivation(t, binary) })
	t.Run("forged socket activation", func(t *testing.T) { checkForgedActivation(t, binary) })
	t.Run("linger", func(t *testing.T) { checkLinger(t, binary) })
	t.Run("rules in Redis", func(t *testing.T) { checkRulesInRedis(t, binary) })
	// Clusters spend most of their time waiting for each other.
	t.Run("clusters", func(t *testing.T) {
		for name, check := range map[string]func(*testing.T, string){"of processes": checkCluster,
			"one node answers about all": checkStatus, "the operator's guide": checkGuide} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				check(t, binary)
			})
		}
	})
	t.Run("SIGTERM", func(t *testing.T) {
		testkit.Must(t, p.cmd.Process.Signal(syscall.SIGTERM))
		leaves(t)
		if code := p.exit(t, 10*time.Second); code != 0 {
			t.Errorf("exit status %d; it says:\n%s", code, p.said.String())
		}
		if said := p.said.String(); !strings.Contains(said, "msg=stopping") ||
			strings.Count(said, "msg=stopped") != 1 || strings.Contains(said, "panic") ||
			strings.Contains(said, "edgelimit:") {
			t.Errorf("it says:\n%s", said)
		}
		if r := runBinary(t, binary, "check", "--url", "http://"+door, "--rule", "per_ip", "--identity",
			"x"); r.code != 2 {
			t.Errorf("it still answers: %+v", r)
		}
	})
}

// checkLimits asks for the sample rules' login, 5 in 10 s, with the command, and for the rest over HTTP.
func checkLimits(t *testing.T, binary, url, health string) {
	for i := range 7 {
		want, word := 0, "allowed by login"
		if i >= 5 {
			want, word = 1, "denied by login"
		}
		r := runBinary(t, binary, "check", "--url", url, "path=/login,remote_address=192.0.2.1")
		if r.says(t, want, word); r.err != "" {
			t.Errorf("a decision is no error: %q", r.err)
		}
	}
	r := runBinary(t, binary, "check", "--url", url, "--rule", "no-such-rule")
	if r.says(t, 2, "edgelimit: the node refused"); r.out != "" {
		t.Errorf("without a decision it prints %q", r.out)
	}
	status, kind, answer, err := testkit.Fetch(web, "POST", url+"/v1/check?status=1",
		`{"rule":"login","identity":"192.0.2.1"}`)
	if status != 429 || kind != "application/problem+json" ||
		!strings.Contains(answer, `"violated-policies":["login"]`) ||
		err != nil {
		t.Errorf("%d %s %s %v", status, kind, answer, err)
	}
	_, _, metrics, err := testkit.Fetch(web, "GET", health+"/metrics", "")
	testkit.Must(t, err)
	const rule = `rule="login"`
	// 256 MiB for the counters, a tenth of that, and 96 MiB
	for _, line := range []string{"go_gc_gomemlimit_bytes 3.95942297e+08",
		`edgelimit_decisions_total{outcome="allowed",` + rule + `} 5`, `edgelimit_decisions_total{outcome="denied",` +
			rule + `} 3`} {
		if !strings.Contains(metrics, line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
}

func checkNonsense(t *testing.T, url string) {
	for _, test := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"POST", "/v1/check", `{"rule":`, 400, "not JSON"},
		{"POST", "/v1/check", `{"rule":"per_ip","identity":7}`, 400, "identity"},
		{"POST", "/v1/check", "\xff\xfe", 400, "UTF-8"},
		{"POST", "/v1/check", "", 400, "empty"},
		{"POST", "/v1/check", "{}", 400, "invalid request"},
		{"POST", "/v1/check", strings.Repeat("[", 50_000), 400, "a check is an array"},
		{"POST", "/v1/check/batch", `{"checks":` + strings.Repeat("[", 50_000), 400, "deep"},
		{"POST", "/v1/check", `{"rule":"no-such-rule","identity":"x"}`, 404, "unknown rule"},
		{"POST", "/v1/check/batch", `{"checks":1}`, 400, ""},
		{"GET", "/v1/check", "", 405, "POST"},
		{"POST", "/etc/passwd", "{}", 404, "/v1/check"},
	} {
		status, kind, answer, err := testkit.Fetch(web, test.method, url+test.path, test.body)
		if err != nil || status != test.status || kind != "application/problem+json" ||
			!strings.Contains(answer, test.says) {
			t.Errorf("%s %s %.30q: %d %s %q %v, want %d and %q", test.method, test.path, test.body, status, kind,
				answer, err, test.status, test.says)
		}
	}
}

// checkHugeBody sends 10 MB, announced and not, and reads the answer whatever becomes of the rest.
func checkHugeBody(t *testing.T, addr string) {
	const size = 10 << 20
	for name, header := range map[string]string{"announced": fmt.Sprintf("Content-Length: %d", size),
		"chunked": "Transfer-Encoding: chunked"} {
		conn, err := net.Dial("tcp", addr)
		testkit.Must(t, err)
		_ = conn.SetDeadline(time.Now().Add(patience))
		var sending sync.WaitGroup
		sending.Go(func() { // until the node has had enough
			fmt.Fprintf(conn, "POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n%s\r\n\r\n",
				header)
			if name == "chunked" {
				fmt.Fprintf(conn, "%x\r\n", size)
			}
			_, _ = io.Copy(conn, strings.NewReader(strings.Repeat(" ", size)))
		})
		answer := make([]byte, 1024)
		n, err := conn.Read(answer)
		if !strings.HasPrefix(string(answer[:n]), "HTTP/1.1 413 ") ||
			!strings.Contains(string(answer[:n]), "application/problem+json") {
			t.Errorf("%s: %q, %v", name, answer[:n], err)
		}
		_ = conn.Close()
		sending.Wait()
	}
}

func checkGossipRubbish(t *testing.T, p *process, addr string) {
	for _, network := range []string{"udp", "tcp"} {
		conn, err := net.Dial(network, addr)
		testkit.Must(t, err)
		if _, err := conn.Write([]byte("\x07\xf3\x19 this is no gossip at all \xff\x00")); err != nil {
			t.Error(err)
		}
		_ = conn.Close()
	}
	eventually(t, "a warning", func() bool {
		return strings.Contains(p.said.String(), "level=WARN msg=memberlist") &&
			strings.Contains(p.said.String(), "pool=lan")
	})
}

// checkCluster has two processes share a key file and their counts; a third with another key stays outside.
func checkCluster(t *testing.T, binary string) {
	key, other := filepath.Join(t.TempDir(), "cluster.key"), filepath.Join(t.TempDir(), "other.key")
	runBinary(t, binary, "keygen", "--out", key).says(t, 0)
	runBinary(t, binary, "keygen", "--out", other).says(t, 0)
	rules := written(t, "rules.yaml", `domain: edge
descriptors:
  - {key: remote_address, rate_limit: {name: per_ip, unit: minute, requests_per_unit: 100}}
  - {key: login, rate_limit: {name: login, window: 1s, requests_per_unit: 1, ban: 1h}}
`)
	seed, operators := free(t), free(t)
	doors, admin := make(map[string]string), map[string]string{"b": operators}
	var outside *process
	for id, file := range map[string]string{"a": key, "b": key, "stranger": other} {
		gossip := seed
		if id != "a" {
			gossip = free(t)
		}
		doors[id] = free(t)
		p := start(t, binary, "serve", "--node-id", id, "--http", doors[id], "--health", "", "--key-file", file,
			"--gossip", gossip, "--join", seed, "--interval", "50ms", "--rules", rules, "--admin", admin[id])
		if id == "stranger" {
			outside = p
		}
	}
	left := func(id string) string {
		_, _, answer, err := testkit.Fetch(web, "POST", "http://"+doors[id]+"/v1/check",
			`{"rule":"per_ip","identity":"192.0.2.1","peek":true}`)
		if err != nil {
			return ""
		}
		_, rest, _ := strings.Cut(answer, `"remaining":`)
		rest, _, _ = strings.Cut(rest, ",")
		return rest
	}
	for id := range doors {
		eventually(t, id+" answers", func() bool { return left(id) == "100" })
	}
	for range 30 {
		if status, _, _, err := testkit.Fetch(web, "POST", "http://"+doors["a"]+"/v1/check",
			`{"rule":"per_ip","identity":"192.0.2.1"}`); status != 200 ||
			err != nil {
			t.Fatal(status, err)
		}
	}
	eventually(t, "counts taken at a are seen at b", func() bool { return left("b") == "70" })
	eventually(
		t, "the stranger says why it is alone",
		func() bool { return strings.Contains(outside.said.String(), "does not answer") },
	)
	if got := left("stranger"); got != "100" {
		t.Errorf("a node with another key sees the counts: %s left", got)
	}

	// A ban that began at a is lifted at b, for both.
	login := func(id string, flags ...string) result {
		return runBinary(
			t,
			binary,
			append([]string{"check", "--url", "http://" + doors[id], "--rule", "login", "--identity",
				"joe"}, flags...)...)
	}
	login("a").says(t, 0)
	login("a")
	eventually(t, "the ban at b", func() bool {
		return strings.Contains(login("b", "--peek").out, "try again in 59 min")
	})
	runBinary(t, binary, "bans", "remove", "--descriptor", "login=joe", "--url", operators).says(t, 0,
		"login: lifted, of 59 min",
		"lifted on 1 of 1 rules", "within 50 ms")
	eventually(t, "no ban at a", func() bool { return login("a", "--peek").code == 0 })
	runBinary(t, binary, "bans", "remove", "logni", "joe", "--url", operators).says(t, 2,
		`did you mean "login"?`)
}
