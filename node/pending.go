package node

import (
	"context"
	"slices"
	"sync"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/rules"
)

// pending is a request that waits for its turn, or whose response has still to be charged.
type pending struct {
	node      *Node        // nil once it has ended
	held      *heldRequest // nil: it does not wait
	req       Request
	keys      []pendingKey
	headers   []string
	needsBody bool
}

// Begin is Decide for a request that the caller holds back until its turn, and whose response it will see. Rules that
// charge responses find room for it beside all others that have begun here and not ended. So as many requests at once
// as the limit has room for are let through, however long their responses take. The result is nil if there is nothing
// to wait for nor to charge later; else its Wait must be called, and its End.
func (n *Node) Begin(ctx context.Context, req *Request, layers []Decision) ([]Decision, answer.Pending, error) {
	return n.library.Begin(ctx, req, layers)
}

// beginPending is Begin whose time nobody observes.
func (n *Node) beginPending(ctx context.Context, req *Request, layers []Decision) ([]Decision, answer.Pending, error) {
	n.setDomain(req)
	var room [rules.MaxDescriptors]rules.Match
	p, matches, err := n.match(req, room[:0])
	if d, ok := n.withoutRules(p, req, err); ok {
		return appendEach(layers, d, req), nil, nil
	}
	if err != nil {
		return layers, nil, err
	}
	var keys []pendingKey
	var headers []string
	needsBody := false
	for i := range matches {
		m := &matches[i]
		if !m.Rule.ChargesLater() || m.Listed == rules.AllowListed {
			continue
		}
		k := pendingKey{m.Rule.FullName, m.Key}
		m.Pend(n.pending.add(k))
		keys = append(keys, k)
		needsBody = needsBody || m.Rule.After.NeedsBody()
		if name := m.Rule.After.Header; name != "" {
			headers = append(headers, name)
		}
	}
	first := len(layers)
	var held *heldRequest
	if mayHold(matches) {
		layers, held, err = n.decideHolding(ctx, p, req, matches, layers)
	} else {
		layers, err = n.decide(ctx, p, req, matches, layers)
	}
	if err != nil {
		n.pending.remove(keys)
		return layers, nil, err
	}
	if len(keys) == 0 && held == nil {
		return layers, nil, nil
	}
	if !counters.VerdictOf(layers[first:]).Allowed {
		n.pending.remove(keys)
		return layers, nil, nil
	}
	later := &pending{node: n, held: held, keys: keys, headers: headers, needsBody: needsBody}
	if len(keys) > 0 {
		later.req = *req
		later.req.Asks, later.req.Descriptors = slices.Clone(req.Asks), slices.Clone(req.Descriptors)
		for i, entries := range later.req.Descriptors {
			later.req.Descriptors[i] = slices.Clone(entries)
		}
	}
	return layers, later, nil
}

// Wait implements answer.Pending.
func (p *pending) Wait(ctx context.Context) (charges bool, err error) {
	if p.held != nil {
		select {
		case <-p.held.ready:
			p.held = nil
		case <-ctx.Done():
			p.End(ctx, nil, nil)
			return false, ctx.Err()
		}
	}
	return len(p.keys) > 0, nil
}

// CostHeaders implements answer.Pending.
func (p *pending) CostHeaders() []string { return p.headers }

// NeedsBody implements answer.Pending.
func (p *pending) NeedsBody() bool { return p.needsBody }

// End implements answer.Pending.
func (p *pending) End(ctx context.Context, resp *rules.Response, layers []Decision) []Decision {
	n := p.node
	if n == nil {
		return layers
	}
	p.node = nil
	if p.held != nil && resp == nil {
		n.queues.leave(p.held)
	}
	if resp != nil && len(p.keys) > 0 {
		p.req.Response = resp
		layers, _ = n.Report(ctx, &p.req, layers) // the request was valid; who has gone needs no answer
	}
	n.pending.remove(p.keys)
	return layers
}

// report charges a request after it was served.
func (n *Node) report(ctx context.Context, p *policy, req *Request, matches []rules.Match) {
	var room [rules.MaxDescriptors]counters.Charge
	charges, now := room[:len(matches)], n.clock.Coarse()
	n.charge(req, matches, now, charges)
	n.reportCharges(ctx, p, req, matches, charges, now)
	for i := range matches {
		r := matches[i].Rule
		if r.ChargesLater() && charges[i].Limit != nil && charges[i].Cost > 0 {
			p.tallies[r].allowed.Add(1)
		}
		if r.ChargesLater() && r.After.Unpriced(req.Response) {
			n.monitor.Unpriced.Count(r, now)
		}
	}
}

// reportCharges charges what was served, in the stores of strict rules as well. The table counts these where it may
// have to decide itself.
func (n *Node) reportCharges(
	ctx context.Context, p *policy, req *Request, matches []rules.Match, charges []counters.Charge, now int64,
) {
	if p.meetsStrict(matches) {
		n.reportStrict(ctx, p, matches, charges)
		charges = slices.Clone(charges)
		for i := range charges {
			if matches[i].Strict(&charges[i]) && matches[i].Rule.WithoutStore(req.OnFailure) != rules.FailLocal {
				charges[i].Limit = nil
			}
		}
	}
	n.reportOwing(matches, charges, now)
}

// pendingKey is a counter with its rule.
type pendingKey struct {
	rule string
	key  counters.Key
}

// pendingCounts counts the requests of each counter that have begun and not ended. It is as large as there are such
// requests. It is safe for concurrent use.
type pendingCounts struct {
	sync.Mutex
	counts map[pendingKey]uint64
}

// add counts a request, and returns how many others there are.
func (c *pendingCounts) add(k pendingKey) (others uint64) {
	c.Lock()
	defer c.Unlock()
	if c.counts == nil {
		c.counts = make(map[pendingKey]uint64)
	}
	others = c.counts[k]
	c.counts[k]++
	return others
}

func (c *pendingCounts) remove(keys []pendingKey) {
	c.Lock()
	defer c.Unlock()
	for _, k := range keys {
		if c.counts[k]--; c.counts[k] == 0 {
			delete(c.counts, k)
		}
	}
}
