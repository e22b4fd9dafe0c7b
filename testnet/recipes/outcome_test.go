package recipes

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// answerField is the field by which a client chooses what the edgelimit of these tests answers: a status and
// X-RL-Decision, or a fault.
const answerField = "X-Answer"

// faults are answers that are none, by their bytes. The connection ends after them, or stays open if they end with
// three dots.
var faults = map[string]string{
	"reset": "", "frozen": "...", "half": "HTTP/1.1 200 OK\r\nX-RL-Deci", "slow": "HTTP/1.1 200 OK\r\nX-RL-Deci...",
	"garbage":    "SSH-2.0-OpenSSH_9.2p1\r\n\r\n",
	"too-large":  "HTTP/1.1 200 OK\r\nX-A: " + strings.Repeat("a", 11<<20) + "\r\nX-RL-Decision: allow\r\n\r\n",
	"bad-status": "HTTP/1.1 2oo OK\r\nX-RL-Decision: allow\r\n\r\n",
}

// anyEdgelimit answers each request as its answerField names until the test ends.
func (l *site) anyEdgelimit() (stop func()) {
	l.t.Helper()
	l.serve(l.at(portHealth), func(http.ResponseWriter, *http.Request) {})
	listener, err := net.Listen("tcp", l.at(portEdgelimit))
	testkit.Must(l.t, err)
	var conns sync.WaitGroup
	done := make(chan struct{})
	conns.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { answerAny(conn, done) })
		}
	})
	stop = sync.OnceFunc(func() {
		close(done)
		_ = listener.Close()
		conns.Wait()
	})
	l.t.Cleanup(stop)
	return stop
}

func answerAny(conn net.Conn, done chan struct{}) {
	defer conn.Close()
	go func() { <-done; _ = conn.Close() }()
	in := bufio.NewReader(conn)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		status, decision, _ := strings.Cut(r.Header.Get(answerField), " ")
		text, fault := faults[status]
		text, stays := strings.CutSuffix(text, "...")
		if fault {
			_, _ = io.WriteString(conn, text)
			if stays {
				<-done
			}
			return
		}
		fmt.Fprintf(conn, "HTTP/1.1 %s Status\r\nX-RL-Decision: %s\r\nContent-Length: 0\r\n\r\n", status, decision)
		if strings.HasPrefix(status, "1") {
			return // the proxy may wait for another one
		}
	}
}

// protocolClient sends requests through a proxy by one version of HTTP.
type protocolClient struct {
	t      *testing.T
	client *http.Client
	site   *site
	port   int
}

// clientsOf returns a client for each version of HTTP.
func clientsOf(l *site) map[string]protocolClient {
	clients := map[string]protocolClient{}
	for version, port := range map[string]int{"HTTP/1.1": portProxy, "HTTP/2": portHTTP2} {
		protocols := new(http.Protocols)
		protocols.SetHTTP1(version == "HTTP/1.1")
		protocols.SetUnencryptedHTTP2(version == "HTTP/2")
		transport := &http.Transport{Protocols: protocols}
		l.t.Cleanup(transport.CloseIdleConnections)
		clients[version] = protocolClient{l.t, &http.Client{Transport: transport, Timeout: patience}, l, port}
	}
	return clients
}

// outcome returns what becomes of a request to which edgelimit answers as named.
func (c protocolClient) outcome(answer string) Outcome {
	c.t.Helper()
	r, err := http.NewRequest(http.MethodGet, fmt.Sprintf("http://%s:%d/a", c.site.host, c.port), nil)
	testkit.Must(c.t, err)
	r.Header.Set(answerField, answer)
	resp, err := c.client.Do(r)
	if err != nil {
		return Outcome(err.Error())
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	decision := resp.Header.Get("X-Got-Decision")
	switch passed := strings.HasPrefix(string(body), "application: "); {
	case err != nil:
		return Outcome(err.Error())
	case passed && decision == "unavailable":
		return Unavailable
	case passed && (decision == "allow" || decision == "shadow-deny"):
		return Passed
	case passed:
		return Outcome("passed with " + decision)
	case resp.StatusCode == http.StatusServiceUnavailable && strings.Contains(string(body), "about:blank"):
		return Stopped
	case resp.StatusCode == http.StatusBadRequest && strings.Contains(string(body), "about:blank"):
		return Unreadable
	}
	return Denied
}

// withHTTP2 are the changes that have a recipe listen for HTTP/2 without TLS as well.
var withHTTP2 = map[string][]string{
	"nginx":   {"listen 127.0.0.1:8088;", "listen 127.0.0.1:8088; listen 127.0.0.1:8089 http2;"},
	"haproxy": {"bind 127.0.0.1:8088", "bind 127.0.0.1:8088\n    bind 127.0.0.1:8089 proto h2"},
	"caddy": {"admin off", "admin off\n\tservers {\n\t\tprotocols h1 h2c\n\t}",
		"http://:8088 {", "http://:8088, http://:8089 {"},
}

// TestOutcomes has the real proxies ask an edgelimit that answers every status, with every decision and without, and
// fails in every way, over both versions of HTTP: OutcomeOf says what becomes of the request.
func TestOutcomes(t *testing.T) {
	for name, proxy := range realProxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open := newSite(t)
			open.application()
			open.anyEdgelimit()
			closed := open.sibling()
			proxy.start(open, withHTTP2[name]...)
			proxy.start(closed, append(slices.Clone(withHTTP2[name]), proxy.closed[:]...)...)
			for version, client := range clientsOf(open) {
				checkStatuses(t, name+" "+version, client, func(o Outcome) Outcome { return o })
			}
			for version, client := range clientsOf(closed) {
				checkStatuses(t, name+" "+version+", fail-closed", client, func(o Outcome) Outcome {
					if o == Unavailable {
						return Stopped
					}
					return o
				})
			}
		})
	}
}

// checkStatuses holds what becomes of a request at every status with every decision.
func checkStatuses(t *testing.T, name string, client protocolClient, expect func(Outcome) Outcome) {
	t.Helper()
	for status := 100; status < 600; status++ {
		decisions := []string{"", "allow", "deny"}
		if status%100 == 0 || status == http.StatusNotFound {
			decisions = append(decisions, "shadow-deny", "Allow", "allow, deny")
		}
		for _, decision := range decisions {
			got := client.outcome(fmt.Sprintf("%d %s", status, decision))
			wants := []Outcome{expect(OutcomeOf(status, decision))}
			if status < 200 { // then the connection ends
				wants = append(wants, expect(OutcomeOf(NoAnswer, "")))
			}
			if decision == "deny" && !slices.Contains(denials, status) { // no answer of edgelimit's
				wants = append(wants, Unreadable, Stopped)
			}
			if !slices.Contains(wants, got) {
				t.Errorf("%s: %d %q: %s, want %s", name, status, decision, got, wants)
			}
		}
	}
}

// denials are the statuses that edgelimit denies with.
var denials = []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests}

// TestFailures has edgelimit fail in every way behind the real proxies, with the recipes' own timeouts.
func TestFailures(t *testing.T) {
	for name, proxy := range realProxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newSite(t)
			l.recipeTimeouts = true
			l.application()
			stop := l.anyEdgelimit()
			proxy.start(l, withHTTP2[name]...)
			for version, client := range clientsOf(l) {
				for fault := range faults {
					got := client.outcome(fault)
					// nginx takes what is not HTTP for an answer of HTTP/0.9, which is 200 without a decision.
					if got != OutcomeOf(NoAnswer, "") && !(name == "nginx" && got == OutcomeOf(200, "")) {
						t.Errorf("%s, %s: %s", version, fault, got)
					}
				}
			}
			stop()
			for version, client := range clientsOf(l) {
				if got := client.outcome("refused"); got != OutcomeOf(NoAnswer, "") {
					t.Errorf("%s, refused: %s", version, got)
				}
			}
		})
	}
}
