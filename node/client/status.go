package client

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/edgelimit/edgelimit/node/status"
)

// The methods below are for the admin listener of a node, as those about bans.

// maxStatus is the longest status that is read, in bytes: of 1000 rules and nodes it has 3 MB.
const maxStatus = 32 << 20

// Status returns what the node knows of itself and its cluster.
func (c *Client) Status(ctx context.Context) (s status.Status, err error) {
	err = c.get(ctx, "/api/status", nil, maxStatus, &s)
	if err == nil && s.Health == "" {
		err = c.notAdmin()
	}
	return s, err
}

// Top returns whom the node denied most, under a rule or with an empty name under any; at most n.
func (c *Client) Top(ctx context.Context, rule string, n int) ([]status.Denied, error) {
	q := url.Values{"n": {strconv.Itoa(n)}}
	if rule != "" {
		q.Set("rule", rule)
	}
	var reply struct{ Top []status.Denied }
	err := c.get(ctx, "/api/top", q, maxStatus, &reply)
	return reply.Top, err
}

// Inspect returns what the node knows of an identity under a rule.
func (c *Client) Inspect(ctx context.Context, rule, identity string) (in status.Inspection, err error) {
	err = c.get(ctx, "/api/inspect", url.Values{"rule": {rule}, "identity": {identity}}, maxStatus, &in)
	return in, err
}

// Settings returns the node's effective configuration.
func (c *Client) Settings(ctx context.Context) ([]status.Setting, error) {
	var reply struct{ Settings []status.Setting }
	err := c.get(ctx, "/api/config", nil, maxStatus, &reply)
	return reply.Settings, err
}

// Events returns the node's events after one, or with 0 all that it keeps.
func (c *Client) Events(ctx context.Context, since uint64) ([]status.Event, error) {
	var reply struct{ Events []status.Event }
	err := c.get(ctx, "/api/events", url.Values{"since": {strconv.FormatUint(since, 10)}}, maxStatus, &reply)
	return reply.Events, err
}

// FollowEvents calls f for each event of the node after one, and then for each that comes, until ctx ends, the node
// does, or f returns an error, which it returns. The HTTP client must not have a Timeout.
func (c *Client) FollowEvents(ctx context.Context, since uint64, f func(status.Event) error) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"/api/events", nil)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("Last-Event-ID", strconv.FormatUint(since, 10))
	resp, err := c.ask(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var e status.Event
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return fmt.Errorf("read the node's events: %w", err)
		}
		if err := f(e); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the node's events: %w", err)
	}
	return fmt.Errorf("the node ended the stream of events: %w", io.ErrUnexpectedEOF)
}

// Keys returns which gossip keys the nodes of the cluster have, as far as the node knows.
func (c *Client) Keys(ctx context.Context) ([]status.KeyHolder, error) {
	var reply struct{ Nodes []status.KeyHolder }
	err := c.get(ctx, "/api/keys", nil, maxAnswer, &reply)
	if err == nil && len(reply.Nodes) == 0 {
		err = c.notAdmin()
	}
	return reply.Nodes, err
}

// open asks for one of the node's paths. The caller closes the answer's body.
func (c *Client) open(ctx context.Context, path string, query url.Values) (*http.Response, error) {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+path, nil)
	if err != nil {
		return nil, err
	}
	return c.ask(r)
}

func (c *Client) notAdmin() error {
	return fmt.Errorf("%s does not answer like the admin listener of an edgelimit node", c.url)
}

// get asks for one of the node's paths, and reads the answer, of so many bytes at most, into reply.
func (c *Client) get(ctx context.Context, path string, query url.Values, most int64, reply any) error {
	resp, err := c.open(ctx, path, query)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err != nil {
		return fmt.Errorf("read the node's answer: %w", err)
	}
	if json.Unmarshal(body, reply) != nil {
		return c.stranger(resp)
	}
	return nil
}
