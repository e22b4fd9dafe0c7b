package judge

import (
	"iter"
	"maps"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/oracle"
)

// Tracker compares the decisions of all nodes under one limit with those of the oracle: the same algorithm with
// zero-latency global knowledge ([oracle.Model]). It is not safe for concurrent use.
//
// A real node decides by a time up to lag before a request was sent, or as late as when it was answered: on a busy
// machine that is long. Excess and PeakOver count only what lies in a window for certain: each cost in the earliest
// sub-window that it may lie in, seen when the last was answered.
type Tracker struct {
	limit    *counters.Limit
	lag      int64         // ns; 0: times are exact
	admitted *oracle.Model // by all nodes together
	oracle   *oracle.Model
	clients  map[string]*Client
	forgotAt int64
}

// Client is what a tracker knows of one client.
type Client struct {
	Requests
	Admitted   oracle.Rolling // what the nodes admitted
	Oracle     oracle.Rolling // what the oracle would have admitted
	MaxCounted uint64         // the largest count of the oracle, a request that it denied included
	key        counters.Key
}

// ClockLag is the longest time by which a node's clock may be behind the recorder's: a node reads a coarse time that a
// goroutine updates, and that goroutine waits for a processor on a busy machine.
const ClockLag = 25 * time.Millisecond

// CompliantShare is the part of its limit that a client may use and never be denied.
const CompliantShare = 0.95

// Requests counts requests by their outcome.
type Requests struct {
	Offered        uint64 `json:"offered"`
	Admitted       uint64 `json:"admitted"`
	Denied         uint64 `json:"denied"`
	OracleAdmitted uint64 `json:"oracle_admitted"`
}

// Add counts a request by what a node and the oracle decided.
func (r *Requests) Add(allowed, oracle bool) {
	r.Offered++
	if allowed {
		r.Admitted++
	} else {
		r.Denied++
	}
	if oracle {
		r.OracleAdmitted++
	}
}

// NetPct is what was admitted against what the oracle would have, in percent, less 100; 0 if that is nothing.
func (r *Requests) NetPct() float64 {
	if r.OracleAdmitted == 0 {
		return 0
	}
	return Percent(float64(r.Admitted)/float64(r.OracleAdmitted) - 1)
}

// NewTracker returns an empty tracker. lag is ClockLag for decisions of real nodes, and 0 where times are exact, as a
// simulator's are.
func NewTracker(l *counters.Limit, lag time.Duration) *Tracker {
	return &Tracker{
		limit: l, lag: int64(lag), clients: make(map[string]*Client),
		admitted: oracle.NewModel(l), oracle: oracle.NewModel(l),
	}
}

// Verdict compares one decision with the oracle.
type Verdict struct {
	Oracle bool    // the oracle would have admitted it
	Fits   bool    // what all nodes together had admitted left room for it
	Excess float64 // of the client, this decision included; see Tracker.Excess
}

// Add takes in a node's decision about a cost that was asked for and answered at times in Unix nanoseconds, which are
// the same where times are exact. Decisions come in the order of sending.
func (t *Tracker) Add(client string, cost uint64, sent, done int64, allowed bool) Verdict {
	c := t.clients[client]
	if c == nil {
		c = &Client{key: counters.Key(len(t.clients))}
		t.clients[client] = c
	}
	v := Verdict{Oracle: t.oracle.Fits(c.key, cost, sent), Fits: t.admitted.Fits(c.key, cost, sent)}
	c.MaxCounted = max(c.MaxCounted, t.oracle.View(c.key, sent)+cost)
	if v.Oracle {
		c.Oracle.Add(sent, cost)
		t.oracle.Charge(c.key, cost, sent)
	}
	if allowed {
		c.Admitted.Add(sent, cost)
		t.admitted.Charge(c.key, cost, sent-t.lag)
	}
	v.Excess = t.excess(c, done)
	c.Requests.Add(allowed, v.Oracle)
	t.forget(sent)
	return v
}

// forget drops what no window holds any more, once a second.
func (t *Tracker) forget(now int64) {
	if t.forgotAt == 0 {
		t.forgotAt = now
	}
	if now-t.forgotAt > int64(time.Second) {
		t.forgotAt = now
		t.admitted.Forget(now)
		t.oracle.Forget(now)
	}
}

// Excess returns max(0, (count - L) / L) of the client with the largest count, where count is the algorithm's own count
// of what all nodes admitted and L the limit.
func (t *Tracker) Excess(now int64) float64 {
	worst := 0.0
	for _, c := range t.clients {
		worst = max(worst, t.excess(c, now))
	}
	return worst
}

func (t *Tracker) excess(c *Client, now int64) float64 {
	return over(t.admitted.View(c.key, now), t.limit.Max(), t.limit)
}

// over returns the part of the limit by which a count is above a base.
func over(count, base uint64, l *counters.Limit) float64 {
	return (float64(count) - float64(base)) / float64(l.Max())
}

// PeakOver returns the over-admission against the oracle, as a part of the limit, in the rolling windows that end
// between from and to (Unix ns): a client's fullest window less its fullest window of the whole run by the oracle.
func (t *Tracker) PeakOver(from, to int64) float64 {
	return t.peakOver(t.limit.Meter().Window-time.Duration(t.lag), from, to, t.oraclePeak)
}

// PeakOverLimit is PeakOver against the limit itself, which the algorithm alone may exceed.
func (t *Tracker) PeakOverLimit(from, to int64) float64 {
	return t.peakOver(t.limit.Meter().Window, from, to, func(*Client) uint64 { return t.limit.Max() })
}

func (t *Tracker) peakOver(window time.Duration, from, to int64, base func(*Client) uint64) (worst float64) {
	for _, c := range t.clients {
		worst = max(worst, over(c.Admitted.PeakWithin(window, from, to), base(c), t.limit))
	}
	return worst
}

// PeakAbove is PeakOver with each window compared with the oracle's window of the same time, or with the limit where
// that is more. It is the stricter of the two: the oracle's fullest window excuses no other. It looks at the windows
// that end with an admission.
func (t *Tracker) PeakAbove(from, to int64) float64 {
	window, worst := t.limit.Meter().Window, uint64(0)
	for _, c := range t.clients {
		worst = max(worst, c.Admitted.PeakAbove(&c.Oracle, t.limit.Max(), window, from, to))
	}
	return float64(worst) / float64(t.limit.Max())
}

// oraclePeak returns how full a window of the client the algorithm itself lets become: the limit, or the oracle's
// fullest window of the whole run where that is more.
func (t *Tracker) oraclePeak(c *Client) uint64 {
	return max(c.Oracle.Peak(t.limit.Meter().Window), t.limit.Max())
}

// Clients yields the clients by name, in no order.
func (t *Tracker) Clients() iter.Seq2[string, *Client] { return maps.All(t.clients) }

// Fairness sums up the clients that are never to be denied.
type Fairness struct {
	CompliantClients int    `json:"compliant_clients"`
	CompliantOffered uint64 `json:"compliant_offered"`
	FalseRejections  uint64 `json:"false_rejections"`
}

// Compliant reports whether the oracle never counted more than CompliantShare of the limit for the client.
func (t *Tracker) Compliant(c *Client) bool {
	return float64(c.MaxCounted) <= CompliantShare*float64(t.limit.Max())
}

// Fairness sums up the compliant clients: their denials are false rejections. Any other client asks for more than the
// limit is sure to have room for. A denial in spite of room is how nodes share out what is left.
func (t *Tracker) Fairness() (f Fairness) {
	for _, c := range t.clients {
		if t.Compliant(c) {
			f.CompliantClients++
			f.CompliantOffered += c.Offered
			f.FalseRejections += c.Denied
		}
	}
	return f
}

// PeaksPerSecond returns the requests in the fullest rolling window of any client that ended in each of n seconds from
// a time on (Unix ns), as the nodes and as the oracle admitted them.
func (t *Tracker) PeaksPerSecond(from int64, n int) (admitted, oracle []uint64) {
	admitted, oracle = make([]uint64, n), make([]uint64, n)
	window := t.limit.Meter().Window
	for _, c := range t.clients {
		nodes, model := c.Admitted.Peaks(window, from, time.Second, n), c.Oracle.Peaks(window, from, time.Second, n)
		for i := range n {
			admitted[i], oracle[i] = max(admitted[i], nodes[i]), max(oracle[i], model[i])
		}
	}
	return admitted, oracle
}
