package demo

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/judge"
)

// tracker compares every decision of the cluster with the oracle, while the sampler reads: add and read are safe for
// concurrent use. nodes and total are of the load, without the compliant client, which would hide in them.
type tracker struct {
	mu     sync.Mutex
	all    *judge.Tracker
	nodes  []judge.Requests
	total  judge.Requests
	excess float64   // the largest since the last read, as a part of the limit
	last   time.Time // when the last decision was answered
}

func newTracker(l *counters.Limit, nodes int) *tracker {
	return &tracker{all: judge.NewTracker(l, judge.ClockLag), nodes: make([]judge.Requests, nodes)}
}

// add takes in a decision of a node. Requests come in the order in which they were sent.
func (t *tracker) add(node int, client string, sent, done time.Time, allowed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = done
	v := t.all.Add(client, 1, sent.UnixNano(), done.UnixNano(), allowed)
	if allowed {
		t.excess = max(t.excess, v.Excess)
	}
	if client != compliant {
		t.nodes[node].Add(allowed, v.Oracle)
		t.total.Add(allowed, v.Oracle)
	}
}

// read returns the requests by node and in all, and the largest excess since the last read, that of now included. A now
// before the last decision, as that of a tick which waited, is taken for the time of that decision.
func (t *tracker) read(now time.Time) (nodes []judge.Requests, total judge.Requests, excess float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Before(t.last) {
		now = t.last
	}
	excess, t.excess = t.excess, 0
	return slices.Clone(t.nodes), t.total, max(excess, t.all.Excess(now.UnixNano()))
}

// peakOver is judge.Tracker.PeakOver.
func (t *tracker) peakOver(from, to time.Time) float64 {
	return t.all.PeakOver(from.UnixNano(), to.UnixNano())
}

// Limited is a client of the load that was denied.
type Limited struct {
	Client string `json:"client"`
	judge.Requests
}

// limited returns the clients that were denied, the most denied first.
func (t *tracker) limited() []Limited {
	out := []Limited{}
	for name, c := range t.all.Clients() {
		if c.Denied > 0 && name != compliant {
			out = append(out, Limited{name, c.Requests})
		}
	}
	slices.SortFunc(out, func(a, b Limited) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(a.Client, b.Client))
	})
	return out
}
