package node

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/node/status"
)

const (
	rateStep  = 5 * time.Second
	rateSteps = 60
)

// rates keeps how many requests each rule allowed and denied in the steps of the last five minutes.
type rates struct {
	mu   sync.Mutex
	step int // number of the latest
	of   map[*decisionCounts]*rateHistory
}

type rateHistory struct {
	allowed, denied         [rateSteps]uint64
	lastAllowed, lastDenied uint64
	seen                    int // the latest step with a decision
}

// totals returns what was allowed and denied since the start, in whatever way.
func (t *decisionCounts) totals() (allowed, denied uint64) {
	return t.allowed.Load() + t.waived.Load() + t.failedOpen.Load(),
		t.denied.Load() + t.banned.Load() + t.failedClosed.Load()
}

// watchRates samples the decisions until ctx ends: 1000 rules take 10 us every 5 s.
func (n *Node) watchRates(ctx context.Context) {
	var bans banReport
	pair := ""
	ticker := time.NewTicker(rateStep)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			n.rates.sample(n.policy.Load())
			bans.look(n, time.Now())
			pair = n.warnOfPair(pair)
			n.losses.recent(n.lostWrites(), time.Now())
		}
	}
}

// banReport logs that rules ban more identities, once a minute at most: bans by hand have a line each.
type banReport struct {
	before map[string]int // by full name, as of the last line
	logged time.Time
}

func (b *banReport) look(n *Node, now time.Time) {
	if now.Sub(b.logged) < time.Minute {
		return
	}
	counts, more, total := n.bans.Counts(), 0, 0
	var names []string
	for rule, count := range counts {
		total += count
		if count > b.before[rule] {
			more += count - b.before[rule]
			if r := n.policy.Load().set.Rule(rule); r != nil {
				rule = r.Name
			}
			names = append(names, rule)
		}
	}
	switch {
	case more > 0:
		slices.Sort(names)
		n.log.Info("more identities are banned", "more", more, "in_force", total, "rules", some(names))
	case total == 0 && len(b.before) > 0:
		n.log.Info("no identity is banned any more")
	default:
		if total > 0 {
			b.before = counts
		}
		return
	}
	if b.logged, b.before = now, counts; total == 0 {
		b.before = nil
	}
}

// sample ends a step. Only rules with decisions in the last steps have a history.
func (r *rates) sample(p *policy) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.of
	r.of = make(map[*decisionCounts]*rateHistory, len(before))
	r.step++
	at := r.step % rateSteps
	for _, t := range p.tallies {
		allowed, denied := t.totals()
		h := before[t]
		switch {
		case r.of[t] != nil || h == nil && allowed+denied == 0:
			continue
		case h == nil: // at the last sample there was no decision
			h = new(rateHistory)
		}
		h.allowed[at], h.denied[at] = allowed-h.lastAllowed, denied-h.lastDenied
		h.lastAllowed, h.lastDenied = allowed, denied
		if h.allowed[at]+h.denied[at] > 0 {
			h.seen = r.step
		}
		r.of[t] = h
	}
}

// recent returns the steps of a rule; nil if it decided nothing in them.
func (r *rates) recent(t *decisionCounts) *status.Recent {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.of[t]
	if h == nil || r.step-h.seen >= rateSteps {
		return nil
	}
	next := r.step%rateSteps + 1
	turned := func(steps []uint64) []uint64 { return slices.Concat(steps[next:], steps[:next]) }
	return &status.Recent{Step: rateStep.Milliseconds(), Allowed: turned(h.allowed[:]), Denied: turned(h.denied[:])}
}
