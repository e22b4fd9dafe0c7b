package client

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/edgelimit/edgelimit/node/rules"
)

// Unbanned is what an unban did. Its JSON is that of POST /api/unban, with times in milliseconds.
type Unbanned struct {
	Lifted   int            `json:"lifted"`      // rules of which the node knew a ban
	Rules    []UnbannedRule `json:"rules"`       // with a ban, that the request met
	Interval time.Duration  `json:"interval_ms"` // within about that time the nodes follow that can be reached
}

// UnbannedRule is one of these rules.
type UnbannedRule struct {
	Rule  string `json:"rule"`
	Scope string `json:"scope"` // global, region or node: where the lift takes effect
	// Banned is for how long the ban would have lasted yet; 0: the node knew of none.
	Banned time.Duration `json:"banned_ms"`
	// RetryAfter is for how long the limit itself denies yet: a request before that is banned again.
	RetryAfter time.Duration `json:"retry_after_ms"`
}

func (u *Unbanned) times() []*time.Duration {
	all := []*time.Duration{&u.Interval}
	for i := range u.Rules {
		all = append(all, &u.Rules[i].Banned, &u.Rules[i].RetryAfter)
	}
	return all
}

type plainUnbanned Unbanned // without methods

// UnmarshalJSON implements json.Unmarshaler.
func (u *Unbanned) UnmarshalJSON(b []byte) error {
	var r plainUnbanned
	if err := json.Unmarshal(b, &r); err != nil {
		return err
	}
	if r.Rules == nil {
		return errors.New("it does not say which rules were met")
	}
	*u = Unbanned(r)
	fromMilliseconds(u.times())
	return nil
}

// MarshalJSON implements json.Marshaler.
func (u Unbanned) MarshalJSON() ([]byte, error) {
	u.Rules = append([]UnbannedRule{}, u.Rules...)
	toMilliseconds(u.times())
	return json.Marshal(plainUnbanned(u))
}

// Unban lifts the bans of whom the request is about, in all rules that it meets and on all nodes. It is for the admin
// listener of a node, by default http://127.0.0.1:9101 on the node's own machine: the others do not serve it.
func (c *Client) Unban(ctx context.Context, req rules.Request) (u Unbanned, err error) {
	req = rules.Request{Domain: req.Domain, Descriptors: req.Descriptors, Rule: req.Rule, Identity: req.Identity}
	err = c.send(ctx, "/api/unban", req, &u)
	return u, err
}
