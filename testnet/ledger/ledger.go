// Package ledger holds what a cluster decided against what the oracle would have decided: the same algorithm with zero-latency global
// knowledge ([counterstest.Model]). The demo keeps a ledger while it runs, the checker builds one from a record.
package ledger

import (
	"iter"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/counters/counterstest"
)

// Ledger notes decisions of all nodes under one limit. It is not safe for concurrent use.
type Ledger struct {
	limit   *counters.Limit
	truth   *counterstest.Model // what was admitted, by all nodes together
	oracle  *counterstest.Model // what would have been
	clients map[string]*Client
	swept   int64
}

// Client is what a ledger knows of one client.
type Client struct {
	Tally
	Admitted counterstest.Rolling // what the nodes admitted
	Oracle   counterstest.Rolling // what the oracle would have
	Reached  uint64               // the most that the oracle counted, with what it denied
	key      counters.Key
}

// KeepsTo is the part of its limit that a client may use and never be denied.
const KeepsTo = 0.95

// Tally counts requests.
type Tally struct {
	Offered        uint64 `json:"offered"`
	Admitted       uint64 `json:"admitted"`
	Denied         uint64 `json:"denied"`
	OracleAdmitted uint64 `json:"oracle_admitted"`
}

// Add counts a request by what the nodes and the oracle said.
func (t *Tally) Add(allowed, oracle bool) {
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

// New returns an empty ledger.
func New(l *counters.Limit) *Ledger {
	return &Ledger{
		limit: l, truth: counterstest.NewModel(l), oracle: counterstest.NewModel(l), clients: make(map[string]*Client),
	}
}

// Noted is what a ledger says of a decision.
type Noted struct {
	Oracle bool    // the oracle would have admitted it
	Room   bool    // what all nodes together had admitted left room for it
	Excess float64 // of the client at that moment, this decision included; see Ledger.Excess
}

// Note takes in a decision of a node about a cost, at a time in Unix nanoseconds. Requests have to come in the order of their times.
func (g *Ledger) Note(name string, cost uint64, at int64, allowed bool) Noted {
	c := g.clients[name]
	if c == nil {
		c = &Client{key: counters.Key(len(g.clients))}
		g.clients[name] = c
	}
	n := Noted{Oracle: g.oracle.Fits(c.key, cost, at), Room: g.truth.Fits(c.key, cost, at)}
	before := g.oracle.View(c.key, at)
	if c.Reached = max(c.Reached, before+cost); n.Oracle {
		c.Oracle.Add(at, cost)
		g.oracle.Charge(c.key, cost, at)
	}
	if allowed {
		c.Admitted.Add(at, cost)
		g.truth.Charge(c.key, cost, at)
	}
	n.Excess = g.excess(c, at)
	c.Tally.Add(allowed, n.Oracle)
	g.sweep(at)
	return n
}

const sweepEvery = time.Second

// sweep lets go what no window holds any more, now and then.
func (g *Ledger) sweep(now int64) {
	if g.swept == 0 {
		g.swept = now
	}
	if now-g.swept > int64(sweepEvery) {
		g.swept = now
		g.truth.Forget(now)
		g.oracle.Forget(now)
	}
}

// Excess is by how much the algorithm's own count of what was admitted is above the limit, of the client for which it is most, as a
// part of the limit; 0 where no client is above.
func (g *Ledger) Excess(now int64) float64 {
	worst := 0.0
	for _, c := range g.clients {
		worst = max(worst, g.excess(c, now))
	}
	return worst
}

func (g *Ledger) excess(c *Client, now int64) float64 {
	most := float64(g.limit.Max())
	return (float64(g.truth.View(c.key, now)) - most) / most
}

// PeakOver is the over-admission against the oracle over the rolling windows that end between from and to (Unix nanoseconds): the
// fullest window of any client less the oracle's fullest window of it, as a part of the limit.
func (g *Ledger) PeakOver(from, to int64) float64 {
	window, worst := g.limit.Meter().Window, 0.0
	for _, c := range g.clients {
		worst = max(worst, g.over(c.Admitted.PeakWithin(window, from, to), g.Reach(c)))
	}
	return worst
}

// PeakOverLimit is PeakOver against the limit itself, which the algorithm alone may exceed.
func (g *Ledger) PeakOverLimit(from, to int64) float64 {
	window, worst := g.limit.Meter().Window, 0.0
	for _, c := range g.clients {
		worst = max(worst, g.over(c.Admitted.PeakWithin(window, from, to), g.limit.Max()))
	}
	return worst
}

// PeakAbove is PeakOver with each window held against the oracle's own window of the same time, or the limit where that is more: the
// stricter of the two, as the oracle's fullest window does not excuse any other. It looks at the windows that end with an admission.
func (g *Ledger) PeakAbove(from, to int64) float64 {
	window, worst := g.limit.Meter().Window, uint64(0)
	for _, c := range g.clients {
		worst = max(worst, c.Admitted.PeakAbove(&c.Oracle, g.limit.Max(), window, from, to))
	}
	return float64(worst) / float64(g.limit.Max())
}

// Reach is how full a window of the client the algorithm itself lets become: the limit, or the oracle's fullest window of the whole
// run where that is more.
func (g *Ledger) Reach(c *Client) uint64 {
	return max(c.Oracle.Peak(g.limit.Meter().Window), g.limit.Max())
}

func (g *Ledger) over(peak, reach uint64) float64 {
	return (float64(peak) - float64(reach)) / float64(g.limit.Max())
}

// Clients yields the clients by name, in no order.
func (g *Ledger) Clients() iter.Seq2[string, *Client] {
	return func(yield func(string, *Client) bool) {
		for name, c := range g.clients {
			if !yield(name, c) {
				return
			}
		}
	}
}

// Fairness is how those fared who are never to be denied.
type Fairness struct {
	CompliantClients int    `json:"compliant_clients"`
	CompliantOffered uint64 `json:"compliant_offered"`
	FalseRejections  uint64 `json:"false_rejections"`
}

// Compliant reports whether the oracle never counted more than KeepsTo of the limit for the client.
func (g *Ledger) Compliant(c *Client) bool {
	return float64(c.Reached) <= KeepsTo*float64(g.limit.Max())
}

// Fairness sums up the compliant clients. Their denials are false rejections; anybody else who is denied asked for more than the limit
// is sure to have room for, and a denial although there was some is how nodes share out what is left.
func (g *Ledger) Fairness() (f Fairness) {
	for _, c := range g.clients {
		if g.Compliant(c) {
			f.CompliantClients++
			f.CompliantOffered += c.Offered
			f.FalseRejections += c.Denied
		}
	}
	return f
}

// Len is the number of clients.
func (g *Ledger) Len() int { return len(g.clients) }
