package load

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

	"github.com/edgelimit/edgelimit/testnet/record"
)

// check is the body of /v1/check.
type check struct {
	Rule     string `json:"rule"`
	Identity string `json:"identity"`
	Cost     uint64 `json:"cost,omitempty"`
	Peek     bool   `json:"peek,omitempty"`
}

// Answer is what a node says of one identity.
type Answer struct {
	Allowed   bool   `json:"allowed"`
	Limit     uint64 `json:"limit"`
	Remaining uint64 `json:"remaining"`
	Degraded  bool   `json:"degraded"`
}

// Counted is how much of the window the node takes as used; the limit itself means that or more.
func (a Answer) Counted() uint64 { return a.Limit - a.Remaining }

// Take asks a node to admit a cost.
func Take(ctx context.Context, client *http.Client, t Target, rule, identity string, cost uint64) (Answer, error) {
	return ask(ctx, client, t, check{Rule: rule, Identity: identity, Cost: cost})
}

// Peek asks a node what it counts, which leaves no trace.
func Peek(ctx context.Context, client *http.Client, t Target, rule, identity string) (Answer, error) {
	return ask(ctx, client, t, check{Rule: rule, Identity: identity, Peek: true})
}

func ask(ctx context.Context, client *http.Client, t Target, c check) (Answer, error) {
	body, err := json.Marshal(c)
	if err != nil {
		return Answer{}, err
	}
	return post(ctx, client, t, body)
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

// prepare makes the bodies once.
func (g *generator) prepare() {
	for _, s := range g.options.Streams {
		body, err := json.Marshal(check{Rule: g.options.Rule, Identity: s.Identity})
		if err != nil {
			panic(err) // strings: it cannot fail
		}
		g.bodies = append(g.bodies, body)
	}
}

// try asks one target. reached is false when nothing can have come to it.
func (g *generator) try(j job, target int) (d record.Decision, reached bool) {
	t := g.options.Targets[target]
	// Not the run's context: what was sent is to be answered, or given up in its time.
	ctx, cancel := context.WithTimeout(context.Background(), g.options.Timeout)
	defer cancel()
	d = record.Decision{Node: t.Node, Region: t.Region, Identity: g.options.Streams[j.stream].Identity, Cost: 1}
	d.Sent = time.Now().UnixNano()
	a, err := post(ctx, g.options.Client, t, g.bodies[j.stream])
	d.Done = max(d.Sent, time.Now().UnixNano())
	if err != nil {
		d.Error = kind(err)
		op, ok := errors.AsType[*net.OpError](err)
		return d, !ok || op.Op != "dial"
	}
	d.Allowed, d.Limit, d.Remaining = a.Allowed, a.Limit, a.Remaining
	return d, true
}

// kind is what an error is about, without the addresses and ports that make each one different.
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
