package strict

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// request are the layers of one Take or Report: one call of the script, or in a cluster one for each key.
type request struct {
	store *Store
	asks  []Ask
	calls []*call
	undos []*undo
}

// call is one run of the script.
type call struct {
	token  [8]byte
	keys   []string // two for each layer
	layers [][]byte // as the script takes them
	at     []int    // which asks they are
	shapes []*shape
	nth    []byte // which of the layers on the same state each is
	alone  bool   // the only call of its request
}

// group makes the calls.
func (r *request) group() error {
	if len(r.asks) > counters.MaxLayers {
		return fmt.Errorf("strict store: %d layers, at most %d are allowed", len(r.asks), counters.MaxLayers)
	}
	for i := range r.asks {
		a := &r.asks[i]
		if a.Limit == nil {
			continue
		}
		if a.Mode == counters.Elastic || a.Lender != 0 {
			return fmt.Errorf("rule %s is %w: it is elastic", a.Limit.Meter().Rule, ErrLimit)
		}
		y, err := r.store.shapes.of(a.Limit)
		if err != nil {
			return err
		}
		c := r.callFor(a.Key)
		state, tokens := y.names(a.Key)
		c.nth = append(c.nth, c.layersOn(state))
		c.keys = append(c.keys, state, tokens)
		c.at = append(c.at, i)
		c.shapes = append(c.shapes, y)
	}
	for _, c := range r.calls {
		c.alone = len(r.calls) == 1
		for j, i := range c.at {
			c.layers = append(c.layers, c.shapes[j].appendLayer(nil, &r.asks[i], r.mode(c, i), c.nth[j], 0))
		}
	}
	return nil
}

// layersOn is how many layers of the call have a state.
func (c *call) layersOn(state string) (n byte) {
	for i := 0; i < len(c.keys); i += 2 {
		if c.keys[i] == state {
			n++
		}
	}
	return n
}

// callFor returns the call for a key: the only one, unless in a cluster.
func (r *request) callFor(key counters.Key) *call {
	for _, c := range r.calls {
		if !r.store.cfg.Redis.Cluster || r.asks[c.at[0]].Key == key {
			return c
		}
	}
	c := &call{token: r.store.newToken()}
	r.calls = append(r.calls, c)
	return c
}

// mode is the mode of a layer in its call. Quotas of several calls are combined here, as no call knows the others.
func (r *request) mode(c *call, i int) counters.Mode {
	if !c.alone && r.asks[i].Mode == counters.Quota {
		return counters.Shadow
	}
	return r.asks[i].Mode
}

// take makes the calls, and gives back what the first ones charged if a later one denies. On an error the undos are
// what was charged.
func (r *request) take(ctx context.Context, decisions []counters.Decision) error {
	passes := true
	for _, c := range r.calls {
		if !passes {
			r.onlyAnswer(c)
		}
		started := time.Now()
		now, answers, err := r.store.run(ctx, callTake, c)
		if err != nil {
			if errors.Is(err, errSent) {
				r.undos = append(r.undos, r.store.undoAll(r.asks, c, started))
			}
			return err
		}
		for j, i := range c.at {
			answers[j].decision(r.asks[i].Limit, r.asks[i].Mode, &decisions[i])
			passes = passes && decisions[i].Allowed
		}
		if u := r.store.undo(r.asks, c, answers, now, started); u != nil {
			r.undos = append(r.undos, u)
		}
	}
	if len(r.calls) > 1 && (r.quotasFull(decisions) || !passes) {
		for _, u := range r.undos {
			r.store.enqueue(u.without(r.asks))
		}
	}
	return nil
}

// onlyAnswer makes a call of a denied request charge only what is charged in any case.
func (r *request) onlyAnswer(c *call) {
	for j, i := range c.at {
		if a := r.asks[i]; !a.Each && !a.Overdraw {
			a.Cost = 0
			c.layers[j] = c.shapes[j].appendLayer(nil, &a, r.mode(c, i), c.nth[j], 0)
		}
	}
}

// quotasFull denies a request of several calls if all of its quotas deny, and reports it.
func (r *request) quotasFull(decisions []counters.Decision) bool {
	quotas := 0
	for i := range r.asks {
		if r.asks[i].Limit != nil && r.asks[i].Mode == counters.Quota {
			if !decisions[i].Waived {
				return false
			}
			quotas++
		}
	}
	for i := range r.asks {
		if quotas > 0 && r.asks[i].Limit != nil && r.asks[i].Mode == counters.Quota {
			d := &decisions[i]
			d.Allowed, d.Waived, d.RetryAfter = false, false, r.asks[i].Limit.Meter().Sub
		}
	}
	return quotas > 0
}
