package conformance

import "fmt"

// model counts what is used of each key's limit, by key and value.
type model map[layer]int64

// expected is the right answer of an API.
type expected struct {
	answer
	denying []string // the rules that deny; which of them is reported depends on their waits
}

// decide charges a request in all of its layers, or in none.
func (m model) decide(q request) expected {
	e := expected{answer: answer{allowed: true, limit: -1, remaining: -1}}
	cost := max(int64(q.cost), 1)
	for _, l := range q.layers {
		limit, met := limits[l.key]
		if met && l.key != "shadow" && m[l]+cost > limit {
			e.allowed = false
			e.denying = append(e.denying, "per_"+l.key)
		}
	}
	for _, l := range q.layers {
		if limit, met := limits[l.key]; met && e.allowed && q.cost > 0 && m[l]+cost <= limit {
			m[l] += cost
		}
	}
	if !e.allowed {
		e.retry = some
		for _, l := range q.layers {
			if limit, met := limits[l.key]; met && l.key != "shadow" && cost > limit {
				e.retry = forever
			}
		}
	}
	least := 2.0
	for _, l := range q.layers {
		limit, met := limits[l.key]
		if part := float64(limit-m[l]) / float64(limit); met && part < least && (l.key != "shadow" || least == 2) {
			e.rule, e.limit, e.remaining = "per_"+l.key, limit, limit-m[l]
			if l.key != "shadow" {
				least = part
			}
		}
	}
	return e
}

// differs returns an error if an API's answer is wrong.
func (e expected) differs(got answer) error {
	if got.allowed != e.allowed {
		return fmt.Errorf("got %+v, want %+v", got, e)
	}
	if got.retry != unknown && got.retry != e.retry {
		return fmt.Errorf("wait %d, want %d: %+v", got.retry, e.retry, e)
	}
	if len(e.denying) > 1 { // any of them may be reported
		return nil
	}
	want := e.answer
	if len(e.denying) == 1 && e.denying[0] != want.rule {
		want.rule, want.limit, want.remaining = e.denying[0], limits[e.denying[0][len("per_"):]], -1
	}
	for _, w := range []struct {
		what      string
		got, want int64
	}{{"limit", got.limit, want.limit}, {"remaining", got.remaining, want.remaining}} {
		if w.got != w.want && w.got != -1 && w.want != -1 {
			return fmt.Errorf("%s is %d, want %d: %+v", w.what, w.got, w.want, e)
		}
	}
	if got.rule != "?" && got.rule != want.rule {
		return fmt.Errorf("it names the rule %q, want %q", got.rule, want.rule)
	}
	return nil
}
