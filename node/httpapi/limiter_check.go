package httpapi

import (
	"encoding/json"
	"net/http"
	"time"
)

var limiterFields = []string{"rule_id", "identity"}

// standing is the answer of /limiter/check, allowed or not.
type standing struct {
	Allowed   bool   `json:"allowed"`
	Remaining uint64 `json:"remaining"`
	ResetAt   int64  `json:"reset_at"` // Unix seconds, rounded up
}

// limiterCheck answers /limiter/check.
func (d *door) limiterCheck(w http.ResponseWriter, r *http.Request, s *scratch) error {
	if err := s.decodeLimiterCheck(); err != nil {
		return err
	}
	v, err := d.ask(r, s)
	if err != nil {
		return err
	}
	at := &standing{Allowed: v.Allowed, Remaining: v.Governing.Remaining, ResetAt: unixUp(d.opt.Now().Add(v.Governing.ResetAfter))}
	retryAfter := d.headers.Write(w.Header(), s.layers)
	if !v.Allowed {
		deny(w, http.StatusTooManyRequests, v, s.layers, retryAfter, at)
		return nil
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(at)
}

func (s *scratch) decodeLimiterCheck() error {
	s.forget()
	c := cursor{text: s.body}
	return c.object("a check", limiterFields, func(name string) error {
		if name == "rule_id" {
			return c.stringInto(name, &s.req.Rule)
		}
		return c.stringInto(name, &s.req.Identity)
	})
}

// unixUp is t in Unix seconds, rounded up.
func unixUp(t time.Time) int64 {
	if t.Nanosecond() > 0 {
		return t.Unix() + 1
	}
	return t.Unix()
}
