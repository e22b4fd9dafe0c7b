package evasion

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/client"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/scrape"
)

// Layer is one of the request's, with the value that it has in the plain request.
type Layer struct{ Key, Source, Plain string }

// Layers are those of the plain request.
func Layers() []Layer {
	return []Layer{
		{"remote_address", "client", Client},
		{"method", "method", "GET"},
		{"host", "host", "shop.example"},
		{"path", "path", "/tenants/acme/login"},
		{"api_key", "header X-Api-Key", "k1"},
		{"session", "cookie session", "s1"},
		{"token", "query token", "t1"},
		{"sub", "jwt sub", "ann"},
		{"tenant", "template /tenants/{tenant}/*", "acme"},
	}
}

// Requests are the settings that make the layers of a request. Proxies are those that are trusted.
func Requests(proxies ...string) actions.Config {
	cfg := actions.DefaultConfig()
	cfg.TrustedProxies, cfg.Descriptors = proxies, nil
	for _, l := range Layers() {
		cfg.Descriptors = append(cfg.Descriptors, actions.Descriptor{{Key: l.Key, Source: l.Source}})
	}
	return cfg
}

// Limit is how much each rule admits: more than the forms together.
const Limit = 1_000_000

// Rules are the rules that each layer meets, one for each key, with a counter for each value. None of them denies.
func Rules() string {
	var b strings.Builder
	b.WriteString("domain: edge\ndescriptors:\n")
	for _, l := range Layers() {
		fmt.Fprintf(&b,
			"- {key: %s, rate_limit: {name: %s, unit: year, requests_per_unit: %d, algorithm: fixed_window}}\n", l.Key,
			l.Key, Limit)
	}
	return b.String()
}

// Meter reads what the layers of a node with Rules were charged by now, by their keys.
type Meter struct {
	ctx     context.Context
	node    *client.Client
	metrics string // URL
	plain   string // the address that the plain request comes from
}

// MeterAt reads a node by its HTTP API and its metrics. addr is the address that the plain request
// comes from.
func MeterAt(ctx context.Context, api, health, addr string) Meter {
	return Meter{ctx, client.New(api, nil), "http://" + health + "/metrics", addr}
}

// Plain is what the layers were charged under their plain values.
func (m Meter) Plain() (map[string]uint64, error) {
	charges := map[string]uint64{}
	for _, l := range Layers() {
		if l.Source == "client" {
			l.Plain = m.plain
		}
		a, err := m.node.Check(m.ctx, rules.Request{Domain: "edge", Rule: l.Key, Identity: l.Plain, Peek: true})
		if err != nil {
			return nil, err
		}
		charges[l.Key] = Limit - a.Remaining
	}
	return charges, nil
}

// Any is how often the layers were charged, under whatever values.
func (m Meter) Any() (map[string]uint64, error) {
	metrics, err := scrape.Get(m.ctx, http.DefaultClient, m.metrics)
	charges := map[string]uint64{}
	for _, s := range metrics.Series("edgelimit_decisions_total") {
		if s.Labels["outcome"] == "allowed" {
			charges[strings.TrimPrefix(s.Labels["rule"], "edge/")] = uint64(s.Value)
		}
	}
	return charges, err
}

// Check sends the plain request and each variation with send, which returns the status of the answer, and holds what it
// charged against what the plain request charges: once in each layer, under the plain values. An answer of 400 or more
// is a denial. The meter's node has Rules.
func Check(t *testing.T, m Meter, variations []Variation, send func(Variation) (status int, err error)) {
	t.Helper()
	CheckBehind(t, m, variations, func(v Variation) (Outcome, error) {
		status, err := send(v)
		return Outcome{Status: status}, err
	})
}

// Outcome is what came of a variation behind a proxy.
type Outcome struct {
	Status int
	// Removed are the layers whose source the proxy removed: the application got a request without it, as if the client
	// had not sent it. These need not be charged.
	Removed []string
	Head    string // of the request that the application got
}

// CheckBehind is Check where a proxy stands before the application.
func CheckBehind(t *testing.T, m Meter, variations []Variation, send func(Variation) (Outcome, error)) {
	t.Helper()
	read := func(charges func() (map[string]uint64, error)) map[string]uint64 {
		now, err := charges()
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	var denied, removed []string
	plainAfter := read(m.Plain)
	for _, v := range append([]Variation{Plain()}, variations...) {
		plain, met := plainAfter, map[string]uint64(nil)
		if len(v.Loses) > 0 {
			met = read(m.Any)
		}
		out, err := send(v)
		plainAfter = read(m.Plain)
		switch {
		case err != nil:
			t.Errorf("%s: %v", v.Name, err)
			continue
		case out.Status >= http.StatusBadRequest && v.Name == Plain().Name:
			t.Fatalf("the plain request gets %d", out.Status)
		case out.Status >= http.StatusBadRequest:
			denied = append(denied, v.Name)
			continue
		}
		var metAfter map[string]uint64
		if len(v.Loses) > 0 {
			metAfter = read(m.Any)
		}
		for _, l := range Layers() {
			lost := slices.Contains(v.Loses, l.Key)
			switch {
			case slices.Contains(out.Removed, l.Key):
				removed = append(removed, v.Name+" without "+l.Key)
			case !lost && plainAfter[l.Key] == plain[l.Key], lost && metAfter[l.Key] == met[l.Key]:
				t.Errorf("%s: layer %s is not charged (under whatever value: %v)", v.Name, l.Key, lost)
			}
		}
	}
	t.Logf("%d variations, of which %d are denied: %q", len(variations), len(denied), denied)
	if len(removed) > 0 {
		t.Logf("the proxy removes: %q", removed)
	}
}

// patience is how long an answer may take on a busy machine.
const patience = 30 * time.Second

// connect connects from an address of this machine (nil: any), for as long as an answer may take.
func connect(from net.Addr, addr string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: patience, LocalAddr: from}
	conn, err := dialer.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// Send sends bytes on a connection of their own, and returns the status of the answer.
func Send(addr string, request []byte) (status int, err error) { return SendFrom(nil, addr, request) }

// SendFrom is Send from an address of this machine; nil: any.
func SendFrom(from net.Addr, addr string, request []byte) (status int, err error) {
	conn, err := connect(from, addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = conn.Write(request) // a server that has read enough may answer and close before it ends
	}()
	answers := bufio.NewReader(conn)
	resp, err := http.ReadResponse(answers, nil)
	for err == nil && resp.StatusCode == http.StatusContinue {
		resp, err = http.ReadResponse(answers, nil)
	}
	if err != nil {
		return 0, fmt.Errorf("no answer: %w", err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = conn.Close()
	<-written
	return resp.StatusCode, resp.Body.Close()
}
