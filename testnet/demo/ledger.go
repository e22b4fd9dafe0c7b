package demo

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/counters/counterstest"
)

// ledger notes every decision of the cluster, and asks the oracle what it would have decided.
type ledger struct {
	limit *counters.Limit

	mu      sync.Mutex
	truth   *counterstest.Model // what was admitted, by all nodes together
	oracle  *counterstest.Model // what would have been
	clients map[string]*client
	nodes   []Tally
	total   Tally
	unfair  uint64  // requests denied although what was admitted left room for them
	over    float64 // largest excess of the truth over the limit since the last look, as a part of the limit
	forgot  time.Time
}

// Tally counts requests.
type Tally struct {
	Offered        uint64 `json:"offered"`
	Admitted       uint64 `json:"admitted"`
	Denied         uint64 `json:"denied"`
	OracleAdmitted uint64 `json:"oracle_admitted"`
}

func (t *Tally) add(allowed, oracle bool) {
	t.Offered++
	if allowed {
		t.Admitted++
	} else {
		t.Denied++
	}
	if oracle {
		t.OracleAdmitted++
	}
}

type client struct {
	key      counters.Key
	tally    Tally
	admitted counterstest.Rolling
	oracle   counterstest.Rolling
}

func newLedger(l *counters.Limit, nodes int) *ledger {
	return &ledger{
		limit: l, truth: counterstest.NewModel(l), oracle: counterstest.NewModel(l),
		clients: make(map[string]*client), nodes: make([]Tally, nodes), forgot: time.Now(),
	}
}

// note takes in a decision of a node. Requests have to come in the order of their times.
func (g *ledger) note(node int, name string, at time.Time, allowed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.clients[name]
	if c == nil {
		c = &client{key: counters.Key(len(g.clients))}
		g.clients[name] = c
	}
	now := at.UnixNano()
	oracle := g.oracle.Take(c.key, 1, now).Allowed
	if oracle {
		c.oracle.Add(now, 1)
	}
	if allowed {
		c.admitted.Add(now, 1)
		meter := g.limit.Meter()
		g.truth.Add(c.key, meter.Index(now), 1)
		g.over = max(g.over, g.excess(c, now))
	}
	if !allowed && g.truth.View(c.key, now) < g.limit.Max() {
		g.unfair++
	}
	c.tally.add(allowed, oracle)
	g.nodes[node].add(allowed, oracle)
	g.total.add(allowed, oracle)
	if at.Sub(g.forgot) > meterSweep {
		g.forgot = at
		g.truth.Forget(now)
		g.oracle.Forget(now)
	}
}

// excess is how much more of a client was admitted in the window than its limit, as a part of the limit. The lock is held.
func (g *ledger) excess(c *client, now int64) float64 {
	most := float64(g.limit.Max())
	return (float64(g.truth.View(c.key, now)) - most) / most
}

const meterSweep = 10 * time.Second

// look returns the totals, by node and in all, and the largest excess since the last look, that of now included.
func (g *ledger) look(now time.Time) (nodes []Tally, total Tally, over float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	over, g.over = g.over, 0
	for _, c := range g.clients {
		over = max(over, g.excess(c, now.UnixNano()))
	}
	return slices.Clone(g.nodes), g.total, over
}

// peakOver is the over-admission against the oracle over the rolling windows that end between from and to: the fullest window of
// any client less the oracle's fullest window of it, as a part of the limit.
func (g *ledger) peakOver(from, to time.Time) float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	window, worst := g.limit.Meter().Window, 0.0
	for _, c := range g.clients {
		actual := c.admitted.PeakWithin(window, from.UnixNano(), to.UnixNano())
		// The oracle's fullest window of the whole run is how far the algorithm itself goes.
		worst = max(worst, (float64(actual)-float64(max(c.oracle.Peak(window), g.limit.Max())))/float64(g.limit.Max()))
	}
	return worst
}

// Limited is a client that was denied.
type Limited struct {
	Client string `json:"client"`
	Tally
}

// limited returns the clients that were denied, most often first.
func (g *ledger) limited() []Limited {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := []Limited{}
	for name, c := range g.clients {
		if c.tally.Denied > 0 {
			out = append(out, Limited{name, c.tally})
		}
	}
	slices.SortFunc(out, func(a, b Limited) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(a.Client, b.Client))
	})
	return out
}
