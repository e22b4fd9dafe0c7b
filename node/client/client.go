package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/rules"
)

// ErrNever says that a request asks for more than its limit ever admits: no wait helps.
var ErrNever = errors.New("no wait helps")

// Never as Answer.RetryAfter says the same.
const Never time.Duration = -1

// maxAnswer is the longest answer that is read, in bytes.
const maxAnswer = 1 << 20

// Client asks a node for decisions. It is safe for concurrent use.
type Client struct {
	url  string
	http *http.Client
}

// New returns a client of the node at a URL such as http://127.0.0.1:8080. Requests go through h; nil: one that waits 5
// s for an answer.
func New(url string, h *http.Client) *Client {
	if h == nil {
		h = &http.Client{Timeout: 5 * time.Second}
	}
	if !strings.Contains(url, "://") {
		url = "http://" + url
	}
	return &Client{strings.TrimSuffix(url, "/"), h}
}

// Answer is a node's decision on a request, that of the layer that governs. Its JSON is that of POST /v1/check, with
// times in milliseconds.
type Answer struct {
	Allowed    bool          `json:"allowed"`
	Rule       string        `json:"rule"` // the limit's; empty if none was met
	Limit      uint64        `json:"limit"`
	Remaining  uint64        `json:"remaining"`
	ResetAfter time.Duration `json:"reset_after_ms"`   // until the whole limit is there again
	RetryAfter time.Duration `json:"retry_after_ms"`   // until such a request would pass; Never: it would not
	Delay      time.Duration `json:"delay_ms"`         // how long an allowed request has to wait for its turn
	Mode       string        `json:"mode"`             // how the rule is enforced
	Degraded   bool          `json:"degraded"`         // the node cannot see the whole cluster
	Banned     bool          `json:"banned,omitempty"` // an earlier denied request has banned the client
}

func (a *Answer) times() []*time.Duration {
	return []*time.Duration{&a.ResetAfter, &a.RetryAfter, &a.Delay}
}

type plainAnswer Answer // without methods

// UnmarshalJSON implements json.Unmarshaler.
func (a *Answer) UnmarshalJSON(b []byte) error {
	var r struct {
		Allowed *bool `json:"allowed"` // nil: not the answer of a node
		plainAnswer
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return err
	}
	if r.Allowed == nil {
		return errors.New("it does not say whether the request is allowed")
	}
	*a = Answer(r.plainAnswer)
	a.Allowed = *r.Allowed
	fromMilliseconds(a.times())
	return nil
}

// MarshalJSON implements json.Marshaler.
func (a Answer) MarshalJSON() ([]byte, error) {
	toMilliseconds(a.times())
	return json.Marshal(plainAnswer(a))
}

// fromMilliseconds makes durations of numbers of milliseconds.
func fromMilliseconds(times []*time.Duration) {
	for _, d := range times {
		if *d = max(*d, Never); *d != Never {
			*d *= time.Millisecond
		}
	}
}

// toMilliseconds is the reverse of fromMilliseconds.
func toMilliseconds(times []*time.Duration) {
	for _, d := range times {
		if *d != Never {
			*d /= time.Millisecond
		}
	}
}

// checkRequest is a check as it travels.
type checkRequest struct {
	Domain      string    `json:"domain,omitempty"`
	Descriptors [][]entry `json:"descriptors,omitempty"`
	Rule        string    `json:"rule,omitempty"`
	Identity    string    `json:"identity,omitempty"`
	Cost        uint64    `json:"cost,omitempty"`
	Peek        bool      `json:"peek,omitempty"`
}

type entry struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Check asks whether a request may pass, and charges it if it may. An error means that there is no decision: the
// request is wrong, or the node could not be asked. What to do then is for the caller to say.
func (c *Client) Check(ctx context.Context, req rules.Request) (a Answer, err error) {
	err = c.send(ctx, "/v1/check", req, &a)
	return a, err
}

// Report charges what a request cost, once it is answered: req.Cost, 0 for 1. It is charged whatever room its limits
// have, each up to twice. The answer says what is left: whether a request of cost 1 would pass now. After an error it
// may have been charged, or not.
func (c *Client) Report(ctx context.Context, req rules.Request) (a Answer, err error) {
	err = c.send(ctx, "/v1/report", req, &a)
	return a, err
}

// send sends a request to one of the node's paths, and reads the answer into reply.
func (c *Client) send(ctx context.Context, path string, req rules.Request, reply json.Unmarshaler) error {
	q := checkRequest{Domain: req.Domain, Rule: req.Rule, Identity: req.Identity, Cost: req.Cost, Peek: req.Peek}
	q.Descriptors = entriesOf(req.Descriptors)
	return c.post(ctx, path, q, reply)
}

func entriesOf(descriptors [][]rules.Entry) (all [][]entry) {
	for _, entries := range descriptors {
		d := make([]entry, len(entries))
		for i, e := range entries {
			d[i] = entry(e)
		}
		all = append(all, d)
	}
	return all
}

// post sends a body to one of the node's paths, and reads the answer into reply.
func (c *Client) post(ctx context.Context, path string, q, reply any) error {
	body, err := json.Marshal(q)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := c.ask(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer)); err != nil {
		return fmt.Errorf("read the node's answer: %w", err)
	}
	if json.Unmarshal(body, reply) != nil {
		return c.stranger(resp)
	}
	return nil
}

// ask sends a request. The error is that of a response that refuses it, too; otherwise the caller closes the body.
func (c *Client) ask(r *http.Request) (*http.Response, error) {
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("ask the node (is 'edgelimit serve' running?): %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, c.refusal(resp)
	}
	return resp, nil
}

// refusal returns the problem that a response has.
func (c *Client) refusal(resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the node's answer: %w", err)
	}
	var problem struct{ Title, Detail string }
	if json.Unmarshal(body, &problem) == nil && problem.Title != "" {
		return fmt.Errorf("the node refused: %s: %s", problem.Title, problem.Detail)
	}
	return c.stranger(resp)
}

func (c *Client) stranger(resp *http.Response) error {
	return fmt.Errorf("%s does not answer like an edgelimit node: status %s", c.url, resp.Status)
}

// Wait asks until the request may pass, and then waits for its turn if it was told to. Between two attempts it waits as
// long as it was told, and up to an eighth more. The error is that of Check, of the context, or ErrNever.
func (c *Client) Wait(ctx context.Context, req rules.Request) error {
	for {
		a, err := c.Check(ctx, req)
		switch {
		case err != nil:
			return err
		case a.Allowed:
			return answer.Wait(ctx, a.Delay)
		case a.RetryAfter == Never:
			return fmt.Errorf("rule %s: %w", a.Rule, ErrNever)
		}
		if err := answer.Wait(ctx, a.RetryAfter+time.Duration(rand.Float64()*float64(a.RetryAfter)/8)); err != nil {
			return err
		}
	}
}
