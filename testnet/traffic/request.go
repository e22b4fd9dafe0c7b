package traffic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// Target is a node that is asked.
type Target struct {
	Node, Region string
	URL          string // of its HTTP API, as http://127.0.0.1:8111, without a path
	Health       string // of its health listener, likewise, for Options.Balanced
}

// NewClient returns a client that keeps up to so many connections to each node, so that none is opened during a
// measurement.
func NewClient(connections int) *http.Client {
	return &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: connections, IdleConnTimeout: time.Minute, DisableCompression: true,
	}}
}

// check is the body of a request to /v1/check.
type check struct {
	Rule     string `json:"rule"`
	Identity string `json:"identity"`
	Cost     uint64 `json:"cost,omitempty"`
	Peek     bool   `json:"peek,omitempty"`
}

func (c check) body() []byte {
	body, err := json.Marshal(c)
	if err != nil {
		panic(err) // strings and numbers: it cannot fail
	}
	return body
}

// Answer is a node's answer for one identity.
type Answer struct {
	Allowed   bool   `json:"allowed"`
	Limit     uint64 `json:"limit"`
	Remaining uint64 `json:"remaining"`
	Degraded  bool   `json:"degraded"`
}

// Take asks a node to admit a cost.
func Take(ctx context.Context, client *http.Client, t Target, rule, identity string, cost uint64) (Answer, error) {
	return post(ctx, client, t, check{Rule: rule, Identity: identity, Cost: cost}.body())
}

// countsTimeout is how long a node may take to answer for all counts.
const countsTimeout = time.Second

// Counts asks a node for its count of each identity: how much of the window is used. The limit itself means that or
// more. It admits nothing.
func Counts(
	ctx context.Context, client *http.Client, t Target, rule string, identities []string,
) (map[string]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, countsTimeout)
	defer cancel()
	counts := make(map[string]uint64, len(identities))
	for _, identity := range identities {
		a, err := post(ctx, client, t, check{Rule: rule, Identity: identity, Peek: true}.body())
		if err != nil {
			return nil, err
		}
		counts[identity] = a.Limit - a.Remaining
	}
	return counts, nil
}

func post(ctx context.Context, client *http.Client, t Target, body []byte) (a Answer, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.URL+"/v1/check", bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return a, err
	}
	if resp.StatusCode != http.StatusOK {
		return a, fmt.Errorf("status %d", resp.StatusCode)
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return a, fmt.Errorf("answer: %w", err)
	}
	if a.Limit == 0 || a.Remaining > a.Limit {
		return a, fmt.Errorf("answer: %d of %d remaining: no such rule there", a.Remaining, a.Limit)
	}
	return a, nil
}

// unreached reports whether an error says that no connection was made.
func unreached(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// kind returns an error's cause, without the addresses and ports that make each one different.
func kind(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Op + ": " + op.Err.Error()
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err.Error()
}
