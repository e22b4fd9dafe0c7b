package evasion

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/rules"
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
	// Plain is what they were charged under their plain values.
	Plain func() (map[string]uint64, error)
	// Any is how often they were charged, under whatever values.
	Any func() (map[string]uint64, error)
}

// MeterOf reads a node that serves its metrics.
func MeterOf(ctx context.Context, n *node.Node) Meter {
	return Meter{
		Plain: func() (map[string]uint64, error) { return plainCharges(ctx, n) },
		Any:   func() (map[string]uint64, error) { return anyCharges(ctx, n.Addr("health")) },
	}
}

// MeterAt reads a node in another process by its HTTP API and its metrics. Client is the address that the plain request
// comes from.
func MeterAt(ctx context.Context, api, health, client string) Meter {
	return Meter{
		Plain: func() (map[string]uint64, error) { return plainChargesAt(ctx, api, client) },
		Any:   func() (map[string]uint64, error) { return anyCharges(ctx, health) },
	}
}

// plainChargesAt asks for all layers at once.
func plainChargesAt(ctx context.Context, api, client string) (map[string]uint64, error) {
	type check struct {
		Domain   string `json:"domain"`
		Rule     string `json:"rule"`
		Identity string `json:"identity"`
		Peek     bool   `json:"peek"`
	}
	var asked struct {
		Checks []check `json:"checks"`
	}
	for _, l := range Layers() {
		if l.Source == "client" {
			l.Plain = client
		}
		asked.Checks = append(asked.Checks, check{"edge", l.Key, l.Plain, true})
	}
	body, err := json.Marshal(asked)
	if err != nil {
		return nil, err
	}
	url := "http://" + api + "/v1/check/batch"
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var answer struct {
		Results []struct {
			Remaining *uint64 `json:"remaining"`
		} `json:"results"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return nil, err
	}
	charges := map[string]uint64{}
	for i, l := range Layers() {
		if i >= len(answer.Results) || answer.Results[i].Remaining == nil {
			return nil, fmt.Errorf("%s: %s: no answer about layer %s", url, resp.Status, l.Key)
		}
		charges[l.Key] = Limit - *answer.Results[i].Remaining
	}
	return charges, nil
}

func plainCharges(ctx context.Context, n *node.Node) (map[string]uint64, error) {
	charges := map[string]uint64{}
	for _, l := range Layers() {
		d, err := n.Take(ctx, rules.Request{Domain: "edge", Rule: l.Key, Identity: l.Plain, Peek: true})
		if err != nil {
			return nil, err
		}
		charges[l.Key] = Limit - d.Remaining
	}
	return charges, nil
}

func anyCharges(ctx context.Context, health string) (map[string]uint64, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+health+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	charges := map[string]uint64{}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		series, value, _ := strings.Cut(lines.Text(), "} ")
		rule, ok := strings.CutPrefix(series, `edgelimit_decisions_total{outcome="allowed",rule="edge/`)
		if !ok {
			continue
		}
		total, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, err
		}
		charges[strings.TrimSuffix(rule, `"`)] = uint64(total)
	}
	return charges, lines.Err()
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
	for _, v := range append([]Variation{Plain()}, variations...) {
		plain, met := read(m.Plain), map[string]uint64(nil)
		if len(v.Loses) > 0 {
			met = read(m.Any)
		}
		out, err := send(v)
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
		for key, now := range read(m.Plain) {
			plain[key] = now - plain[key]
		}
		if met != nil {
			for key, now := range read(m.Any) {
				met[key] = now - met[key]
			}
		}
		for _, l := range Layers() {
			if slices.Contains(out.Removed, l.Key) {
				removed = append(removed, v.Name+" without "+l.Key)
				continue
			}
			if lost := slices.Contains(v.Loses, l.Key); !lost && plain[l.Key] == 0 || lost && met[l.Key] == 0 {
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

// Send sends bytes on a connection of their own, and returns the status of the answer.
func Send(addr string, request []byte) (status int, err error) { return SendFrom(nil, addr, request) }

// SendFrom is Send from an address of this machine; nil: any.
func SendFrom(from net.Addr, addr string, request []byte) (status int, err error) {
	dialer := net.Dialer{Timeout: patience, LocalAddr: from}
	conn, err := dialer.Dial("tcp", addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
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
