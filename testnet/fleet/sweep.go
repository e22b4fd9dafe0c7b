package fleet

import (
	"context"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/judge"
	"github.com/edgelimit/edgelimit/testnet/scrape"
	"github.com/edgelimit/edgelimit/testnet/traffic"
)

// scrapeEvery is how often the metrics of some node are read, one after the other. In a sweep, each is read.
const scrapeEvery = 100 * time.Millisecond

func (f *fleet) sweep() time.Duration { return scrapeEvery * time.Duration(len(f.nodes)) }

// gossipTotals are counters of what nodes sent and refused, added up over the nodes.
type gossipTotals struct {
	framesSent, bytesSent, malformed, refused float64
}

func (t *gossipTotals) add(m scrape.Metrics) {
	t.framesSent += m.Sum("edgelimit_gossip_frames_sent_total")
	t.bytesSent += m.Sum("edgelimit_gossip_bytes_sent_total")
	t.malformed += m.Sum("edgelimit_gossip_malformed_frames_total")
	t.refused += m.Sum("edgelimit_refused_slots_total")
}

// sweeper reads the metrics of the nodes.
type sweeper struct {
	fleet *fleet
	rule  string // whose bounds it keeps

	mu     sync.Mutex
	bounds []bound
}

// bound is what a node exported for hotRule at a time.
type bound struct {
	at    int64 // Unix ns
	ratio float64
}

// run reads the bounds of all nodes again and again until ctx ends.
func (s *sweeper) run(ctx context.Context) {
	ticker := time.NewTicker(scrapeEvery)
	defer ticker.Stop()
	for i := 0; ; i = (i + 1) % len(s.fleet.nodes) {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if s.fleet.isAway(i) {
			continue
		}
		m, err := scrape.Get(ctx, s.fleet.client, s.fleet.nodes[i].target.Health+"/metrics")
		if err != nil {
			continue // it is restarted, and the requests of the load say whether it should answer
		}
		for _, b := range m.Series("edgelimit_over_admission_bound_ratio") {
			if b.Labels["rule"] == s.rule {
				s.mu.Lock()
				s.bounds = append(s.bounds, bound{time.Now().UnixNano(), b.Value})
				s.mu.Unlock()
			}
		}
	}
}

// readTimeout is how long a node may take to show its counters.
const readTimeout = 30 * time.Second

// totals reads the counters of all nodes.
func (f *fleet) totals(ctx context.Context) (t gossipTotals, err error) {
	for i := range f.nodes {
		// A node on a busy machine may end a connection that it was too slow for.
		if err := await(ctx, readTimeout, func() (bool, error) {
			m, err := scrape.Get(ctx, f.client, f.nodes[i].target.Health+"/metrics")
			if err == nil {
				t.add(m)
			}
			return err == nil, err
		}); err != nil {
			return t, err
		}
	}
	return t, nil
}

// Excess is what the hot clients were admitted above their limit.
type Excess struct {
	MaxPct   float64 `json:"max_pct"`       // largest, by the algorithm's own count of what all nodes admitted
	NetPct   float64 `json:"net_pct"`       // all that was admitted, against the oracle
	BoundPct float64 `json:"bound_pct"`     // largest that a node exported
	MinPct   float64 `json:"bound_min_pct"` // the smallest of the sweeps' largest
	// Violations counts seconds in which the excess was above what any node exported in the sweep behind it: a bound is
	// about the last window. Seconds in which a node was restarted, whose bound ended with it, are not judged.
	Violations      int    `json:"bound_violations"`
	Compliant       uint64 `json:"compliant_offered"`
	FalseRejections uint64 `json:"false_rejections"`
}

// judgeExcess compares the decisions, in the order of sending, with the oracle and with the bounds of sweeps.
func judgeExcess(decisions []decision, bounds []bound, sweep time.Duration, limit *counters.Limit) (e Excess) {
	t, total := judge.NewTracker(limit, judge.ClockLag), judge.Requests{}
	perSecond := make(map[int64]float64)
	for _, d := range decisions {
		v := t.Add(d.client, 1, d.sent, d.done, d.allowed)
		if d.client != compliant {
			total.Add(d.allowed, v.Oracle)
		}
		second := d.done / int64(time.Second)
		if d.allowed {
			perSecond[second] = max(perSecond[second], v.Excess)
			e.MaxPct = max(e.MaxPct, judge.Percent(v.Excess))
		}
	}
	e.NetPct = total.NetPct()
	f := t.Fairness()
	e.Compliant, e.FalseRejections = f.CompliantOffered, f.FalseRejections
	largest := largestBounds(bounds, sweep)
	for second, excess := range perSecond {
		if b, known := largest(second); known && excess > b {
			e.Violations++
		}
	}
	e.MinPct = -1
	for second := range perSecond {
		if b, known := largest(second); known {
			e.BoundPct = max(e.BoundPct, judge.Percent(b))
			if e.MinPct < 0 || judge.Percent(b) < e.MinPct {
				e.MinPct = judge.Percent(b)
			}
		}
	}
	return e
}

// largestBounds returns the largest bound that any node exported in the sweep after a second (Unix), if that sweep is
// complete.
func largestBounds(bounds []bound, sweep time.Duration) func(second int64) (float64, bool) {
	perSecond, last := make(map[int64]float64), int64(0)
	for _, b := range bounds {
		second := b.at / int64(time.Second)
		perSecond[second] = max(perSecond[second], b.ratio)
		last = max(last, second)
	}
	return func(second int64) (largest float64, known bool) {
		end := second + int64(sweep/time.Second) + 1
		for s := second; s <= end; s++ {
			if b, ok := perSecond[s]; ok {
				largest, known = max(largest, b), true
			}
		}
		return largest, known && end <= last
	}
}

// pauses are how long this process was kept from running, the longest in each second.
type pauses struct{ each []time.Duration }

func (p *pauses) run(ctx context.Context) {
	for ctx.Err() == nil {
		second, cancel := context.WithTimeout(ctx, time.Second)
		p.each = append(p.each, traffic.LongestStall(second))
		cancel()
	}
}
