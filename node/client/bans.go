package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/edgelimit/edgelimit/node/bans"
	"github.com/edgelimit/edgelimit/node/rules"
)

// The methods about bans are for the admin listener of a node, by default http://127.0.0.1:7949 on the node's own
// machine: the others do not serve it.

// BanRequest says whom to ban, or whose bans to remove: by rule and identity, which of a rule that counts addresses may
// be a prefix; by rule and key, as a list of bans has it; or by descriptors.
type BanRequest struct {
	Domain      string          `json:"domain,omitempty"`
	Descriptors [][]rules.Entry `json:"-"`
	Rule        string          `json:"rule,omitempty"`
	Identity    string          `json:"identity,omitempty"`
	Key         string          `json:"key,omitempty"`

	// For bans to add:
	For    time.Duration `json:"-"` // in whole milliseconds
	Reason string        `json:"reason,omitempty"`
	Force  bool          `json:"force,omitempty"` // whatever the prefix holds
}

// MarshalJSON implements json.Marshaler.
func (r BanRequest) MarshalJSON() ([]byte, error) {
	type plain BanRequest // without methods
	travels := struct {
		plain
		Descriptors [][]entry `json:"descriptors,omitempty"`
		For         int64     `json:"for_ms,omitempty"`
	}{plain: plain(r), Descriptors: entriesOf(r.Descriptors), For: r.For.Milliseconds()}
	return json.Marshal(travels)
}

// AddedBans are the bans that a request began.
type AddedBans struct {
	Bans     []bans.Ban    `json:"bans"`
	Warnings []string      `json:"warnings"`    // what may not have been meant
	Interval time.Duration `json:"interval_ms"` // within about that time the nodes follow that can be reached
}

// UnmarshalJSON implements json.Unmarshaler.
func (a *AddedBans) UnmarshalJSON(b []byte) error {
	type plain AddedBans // without methods
	if err := json.Unmarshal(b, (*plain)(a)); err != nil {
		return err
	}
	if a.Bans == nil {
		return errors.New("it does not say which bans began")
	}
	fromMilliseconds([]*time.Duration{&a.Interval})
	return nil
}

// MarshalJSON implements json.Marshaler.
func (a AddedBans) MarshalJSON() ([]byte, error) {
	type plain AddedBans // without methods
	toMilliseconds([]*time.Duration{&a.Interval})
	return json.Marshal(plain(a))
}

// RemovedBans is what a removal of bans did. Its JSON is that of POST /api/bans/remove, with times in milliseconds.
type RemovedBans struct {
	Lifted   int           `json:"lifted"`      // rules of which the node knew a ban
	Rules    []RemovedBan  `json:"rules"`       // with bans, that the request met
	Interval time.Duration `json:"interval_ms"` // within about that time the nodes follow that can be reached
}

// RemovedBan is one of these rules.
type RemovedBan struct {
	Rule  string `json:"rule"`
	Scope string `json:"scope"` // global, region or node: where the lift takes effect
	// Banned is for how long the ban would have lasted yet; 0: the node knew of none.
	Banned time.Duration `json:"banned_ms"`
	// RetryAfter is for how long the limit itself denies yet: a request before that may be banned again.
	RetryAfter time.Duration `json:"retry_after_ms"`
	// Around are prefixes with manual bans, which still hold.
	Around []string `json:"around"`
}

func (u *RemovedBans) times() []*time.Duration {
	all := []*time.Duration{&u.Interval}
	for i := range u.Rules {
		all = append(all, &u.Rules[i].Banned, &u.Rules[i].RetryAfter)
	}
	return all
}

type plainRemoved RemovedBans // without methods

// UnmarshalJSON implements json.Unmarshaler.
func (u *RemovedBans) UnmarshalJSON(b []byte) error {
	var r plainRemoved
	if err := json.Unmarshal(b, &r); err != nil {
		return err
	}
	if r.Rules == nil {
		return errors.New("it does not say which rules were met")
	}
	*u = RemovedBans(r)
	fromMilliseconds(u.times())
	return nil
}

// MarshalJSON implements json.Marshaler.
func (u RemovedBans) MarshalJSON() ([]byte, error) {
	u.Rules = append([]RemovedBan{}, u.Rules...)
	toMilliseconds(u.times())
	return json.Marshal(plainRemoved(u))
}

// AddBan begins bans of whom the request is about, in all limited rules that it meets and on all nodes.
func (c *Client) AddBan(ctx context.Context, req BanRequest) (a AddedBans, err error) {
	err = c.post(ctx, "/api/bans", req, &a)
	return a, err
}

// RemoveBans ends the bans of whom the request is about, in all rules that it meets and on all nodes.
func (c *Client) RemoveBans(ctx context.Context, req BanRequest) (u RemovedBans, err error) {
	err = c.post(ctx, "/api/bans/remove", req, &u)
	return u, err
}

// ListBans calls f for each ban in force of a rule, or with an empty name of all rules, as they arrive, until f returns
// an error, which it returns.
func (c *Client) ListBans(ctx context.Context, rule string, f func(bans.Ban) error) error {
	q := url.Values{}
	if rule != "" {
		q.Set("rule", rule)
	}
	resp, err := c.open(ctx, "/api/bans", q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	dec := json.NewDecoder(resp.Body)
	for _, want := range []json.Token{json.Delim('{'), "bans", json.Delim('[')} {
		if token, err := dec.Token(); err != nil || token != want {
			return c.stranger(resp)
		}
	}
	for dec.More() {
		var b bans.Ban
		if err := dec.Decode(&b); err != nil {
			return fmt.Errorf("read the node's answer: %w", err)
		}
		if err := f(b); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil { // the list did not end
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("read the node's answer: %w", err)
	}
	return nil
}
