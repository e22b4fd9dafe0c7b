package demo

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	ledgers "github.com/edgelimit/edgelimit/testnet/ledger"
)

// Tally counts requests.
type Tally = ledgers.Tally

// Fairness is how those fared who are never to be denied.
type Fairness = ledgers.Fairness

// ledger notes every decision of the cluster, for the sampler to look at meanwhile. The tallies, by node and in all, are of the load: the
// client beside it would hide in them what it did.
type ledger struct {
	mu    sync.Mutex
	book  *ledgers.Ledger
	nodes []Tally
	total Tally
	over  float64 // largest excess of the truth over the limit since the last look, as a part of the limit
}

func newLedger(l *counters.Limit, nodes int) *ledger {
	return &ledger{book: ledgers.New(l), nodes: make([]Tally, nodes)}
}

// note takes in a decision of a node. Requests have to come in the order of their times.
func (g *ledger) note(node int, name string, at time.Time, allowed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	noted := g.book.Note(name, 1, at.UnixNano(), allowed)
	if allowed {
		g.over = max(g.over, noted.Excess)
	}
	if name == modest {
		return
	}
	g.nodes[node].Add(allowed, noted.Oracle)
	g.total.Add(allowed, noted.Oracle)
}

// look returns the totals, by node and in all, and the largest excess since the last look, that of now included.
func (g *ledger) look(now time.Time) (nodes []Tally, total Tally, over float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	over, g.over = g.over, 0
	return slices.Clone(g.nodes), g.total, max(over, g.book.Excess(now.UnixNano()))
}

// peakOver is the over-admission against the oracle over the rolling windows that end between from and to.
func (g *ledger) peakOver(from, to time.Time) float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.book.PeakOver(from.UnixNano(), to.UnixNano())
}

// Limited is a client of the load that was denied.
type Limited struct {
	Client string `json:"client"`
	Tally
}

// limited returns the clients that were denied, most often first.
func (g *ledger) limited() []Limited {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := []Limited{}
	for name, c := range g.book.Clients() {
		if c.Tally.Denied > 0 && name != modest {
			out = append(out, Limited{name, c.Tally})
		}
	}
	slices.SortFunc(out, func(a, b Limited) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(a.Client, b.Client))
	})
	return out
}
