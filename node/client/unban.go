package client

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/edgelimit/edgelimit/node/rules"
)

// Unbanned is what an unban did. Its JSON is that of POST /api/unban.
type Unbanned struct {
	Lifted   int            // rules of which the node knew a ban
	Rules    []UnbannedRule // with a ban, that the request met
	Interval time.Duration  // within about that time the nodes follow that can be reached
}

// UnbannedRule is one of these rules.
type UnbannedRule struct {
	Rule       string
	Scope      string        // global, region or node: where the lift takes effect
	Banned     time.Duration // for how long the ban would have lasted yet; 0: the node knew of none
	RetryAfter time.Duration // for how long the limit itself denies yet: a request before that is banned again
}

// unbanReply is an Unbanned as it travels, times in milliseconds.
type unbanReply struct {
	Lifted   int               `json:"lifted"`
	Rules    *[]unbanReplyRule `json:"rules"` // nil: not the answer of a node
	Interval int64             `json:"interval_ms"`
}

type unbanReplyRule struct {
	Rule       string `json:"rule"`
	Scope      string `json:"scope"`
	Banned     int64  `json:"banned_ms"`
	RetryAfter int64  `json:"retry_after_ms"`
}

// UnmarshalJSON implements json.Unmarshaler.
func (u *Unbanned) UnmarshalJSON(b []byte) error {
	var r unbanReply
	if err := json.Unmarshal(b, &r); err != nil {
		return err
	}
	if r.Rules == nil {
		return errors.New("it does not say which rules were met")
	}
	*u = Unbanned{Lifted: r.Lifted, Interval: milliseconds(r.Interval)}
	for _, rule := range *r.Rules {
		u.Rules = append(u.Rules, UnbannedRule{rule.Rule, rule.Scope, milliseconds(rule.Banned),
			milliseconds(rule.RetryAfter)})
	}
	return nil
}

// MarshalJSON implements json.Marshaler.
func (u Unbanned) MarshalJSON() ([]byte, error) {
	met := []unbanReplyRule{}
	for _, rule := range u.Rules {
		met = append(met,
			unbanReplyRule{rule.Rule, rule.Scope, rule.Banned.Milliseconds(), rule.RetryAfter.Milliseconds()})
	}
	return json.Marshal(unbanReply{u.Lifted, &met, u.Interval.Milliseconds()})
}

// Unban lifts the bans of whom the request is about, in all rules that it meets and on all nodes. It is for the admin
// listener of a node, by default http://127.0.0.1:9101 on the node's own machine: the others do not serve it.
func (c *Client) Unban(ctx context.Context, req rules.Request) (u Unbanned, err error) {
	req = rules.Request{Domain: req.Domain, Descriptors: req.Descriptors, Rule: req.Rule, Identity: req.Identity}
	err = c.send(ctx, "/api/unban", req, &u)
	return u, err
}
