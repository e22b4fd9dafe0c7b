package node

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/leaks"

	"github.com/edgelimit/edgelimit/node/rules"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// patience is how long a test waits for what should come at once, on a machine that is busy with other things.
const patience = time.Minute

// eventually looks every few milliseconds whether the condition holds, and fails the test if it does not in time.
func eventually(t *testing.T, within time.Duration, what string, holds func() bool) {
	t.Helper()
	ticker := time.NewTicker(3 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.After(within); !holds(); {
		select {
		case <-deadline:
			t.Fatalf("not within %v: %s", within, what)
		case <-ticker.C:
		}
	}
}

// logbook is a log that tests can read.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logbook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logbook) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// line reports whether one line of the log holds all the words.
func (b *logbook) line(words ...string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range strings.Lines(b.text.String()) {
		all := true
		for _, w := range words {
			all = all && strings.Contains(line, w)
		}
		if all {
			return true
		}
	}
	return false
}

func (b *logbook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// quiet is a configuration without doors and without gossip, that tests add to.
func quiet(rule string) Config {
	cfg := DefaultConfig()
	cfg.NodeID, cfg.Region = "a", "here"
	cfg.HTTP, cfg.Health = "", ""
	cfg.Logger = slog.New(slog.DiscardHandler)
	if rule != "" {
		cfg.RuleSet = ruleSet(rule)
	}
	return cfg
}

func ruleSet(text string) *rules.Set {
	set, err := rules.Parse("test.yaml", []byte(text))
	if err != nil {
		panic(err)
	}
	return set
}

// running is a node that runs until the test ends or stop is called.
type running struct {
	*Node
	stop func() error // returns what Run returned
}

// launch makes a node and runs it.
func launch(t *testing.T, cfg Config) *running {
	t.Helper()
	n, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	// Not the test's context: that ends for all nodes at once, and those that leave together wait for each other.
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	r := &running{n, sync.OnceValue(func() error {
		cancel()
		return <-ended
	})}
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Errorf("Run of %s: %v", cfg.NodeID, err)
		}
	})
	return r
}

// ready waits until the node serves.
func (r *running) ready(t *testing.T) *running {
	t.Helper()
	eventually(t, patience, "ready", func() bool { return r.Ready() == nil })
	return r
}

// web keeps no connection, so that none outlives its test.
var web = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}

// get asks a door and returns the status and the body.
func get(t *testing.T, addr, path string) (status int, body string) {
	t.Helper()
	resp, err := web.Get("http://" + addr + path)
	if err != nil {
		t.Fatal(err)
	}
	return slurp(t, resp)
}

func post(t *testing.T, addr, path, body string) (status int, answer string) {
	t.Helper()
	resp, err := web.Post("http://"+addr+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return slurp(t, resp)
}

func slurp(t *testing.T, resp *http.Response) (status int, body string) {
	t.Helper()
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// takeSome asks the node for so many requests of one identity and returns how many it allowed.
func takeSome(t *testing.T, n *Node, rule, identity string, count int) (allowed int) {
	t.Helper()
	for range count {
		d, err := n.Take(t.Context(), Request{Rule: rule, Identity: identity})
		if err != nil {
			t.Fatal(err)
		}
		if d.Allowed {
			allowed++
		}
	}
	return allowed
}

// spent is how much of its limit an identity has used up, as far as the node knows.
func spent(t *testing.T, n *Node, rule, identity string) uint64 {
	t.Helper()
	d, err := n.Take(t.Context(), Request{Rule: rule, Identity: identity, Peek: true})
	if err != nil {
		t.Fatal(err)
	}
	return d.Limit - d.Remaining
}

// keyFile writes a key file with new keys and returns its name.
func keyFile(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteKeyFile(&b); err != nil {
		t.Fatal(err)
	}
	return write(t, "cluster.key", b.String())
}

func write(t *testing.T, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	writeFile(t, path, text)
	return path
}

// freeAddr is an address of loopback whose port nobody listens on, neither on TCP nor on UDP.
func freeAddr(t *testing.T) string {
	t.Helper()
	for range 20 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := l.Addr().String()
		_ = l.Close()
		if isFree(addr) {
			return addr
		}
	}
	t.Fatal("found no free port")
	return ""
}

// isFree reports whether nobody listens at the address.
func isFree(addr string) bool {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	defer l.Close()
	p, err := net.ListenPacket("udp", addr)
	if err != nil {
		return false
	}
	return p.Close() == nil
}
