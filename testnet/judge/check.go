package judge

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/edgelimit/edgelimit/testnet/oracle"
	"github.com/edgelimit/edgelimit/testnet/record"
)

// Check judges a record. It holds all of it in memory, some 300 bytes a decision. An error means that the record cannot
// be judged; broken invariants are in the report.
func Check(r *record.Reader) (*Report, error) {
	report, err := Judge(r.Header(), r.Entries())
	if err != nil {
		return nil, fmt.Errorf("check record: %w", err)
	}
	return report, nil
}

// CheckFile judges the record in a file.
func CheckFile(name string) (*Report, error) {
	r, err := record.Open(name)
	if err != nil {
		return nil, err
	}
	report, err := Check(r)
	return report, errors.Join(err, r.Close())
}

// Judge judges what a record of these entries would hold, in whatever order they come. Its errors are those of Check.
func Judge(h record.Header, entries iter.Seq2[record.Entry, error]) (*Report, error) {
	t, err := load(h, entries)
	if err != nil {
		return nil, err
	}
	line, err := newTimeline(t)
	if err != nil {
		return nil, err
	}
	c := &check{
		trace: t, timeline: line, tracker: NewTracker(t.limit, 0), clients: make([]client, len(t.identities)),
		phases: make([]sums, len(line.periods)), seconds: make([]sums, t.second(t.end)+1),
		broken: make(map[place]*Violation),
	}
	c.count()
	c.replay()
	c.judgeDenials()
	c.judgeBound()
	c.judgeAgreement()
	return c.report(), nil
}

// check is a record that is being judged.
type check struct {
	*trace
	timeline *timeline
	tracker  *Tracker
	clients  []client // by key
	total    sums
	phases   []sums
	seconds  []sums
	differs  []string // by observation: how its counts differ from the truth; "" if they do not
	steady   float64  // largest bound that was exported while no fault showed
	agreeMs  float64
	broken   map[place]*Violation
}

// client is what the verdict on denials needs to know.
type client struct {
	offered    oracle.Rolling
	maxOffered uint64 // the most that the algorithm can have counted if everything was admitted
}

// place identifies a violation.
type place struct {
	invariant Invariant
	second    int
}

func (c *check) violate(i Invariant, at int64, what, expected, got string) {
	p := place{i, c.second(at)}
	if c.broken[p] == nil {
		c.broken[p] = &Violation{Invariant: i, Second: p.second, What: what, Expected: expected, Got: got}
	}
	c.broken[p].Times++
}

// at calls f for all sums that a time belongs to.
func (c *check) at(time int64, f func(*sums)) {
	f(&c.total)
	f(&c.phases[c.timeline.index(time)])
	f(&c.seconds[c.second(time)])
}

// count asks the oracle about every request that was answered, in the order of sending. A request that was not answered
// is none to the oracle either: else a node that is down would pass for thrift.
func (c *check) count() {
	for i := range c.decisions {
		d := &c.decisions[i]
		c.clients[d.key].offered.Add(d.Sent, d.Cost)
		if d.Error != "" {
			c.at(d.Sent, func(s *sums) { s.Failed++ })
			continue
		}
		v := c.tracker.Add(c.name(d.key), d.Cost, d.Sent, d.Done, d.Allowed)
		c.at(d.Sent, func(s *sums) { s.add(d, v.Oracle) })
	}
}

// step is one thing of the record that is replayed.
type step struct {
	at   int64
	kind int // of the same time, sending comes before answers: it may have come first
	i    int
}

const (
	decisionSent = iota
	decisionDone
	observationDone
)

func (c *check) steps() []step {
	all := make([]step, 0, 2*len(c.decisions)+len(c.observations))
	for i := range c.decisions {
		all = append(all, step{c.decisions[i].Sent, decisionSent, i}, step{c.decisions[i].Done, decisionDone, i})
	}
	for i := range c.observations {
		all = append(all, step{c.observations[i].Done, observationDone, i})
	}
	slices.SortStableFunc(all, func(a, b step) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.kind, b.kind))
	})
	return all
}

const forgetEvery = 10e9 // ns

// replay compares every answer and observation with what was admitted.
func (c *check) replay() {
	truth, floors := newTruth(c.limit), make(map[string]floor)
	c.differs = make([]string, len(c.observations))
	forgotAt := c.header.Started
	for _, s := range c.steps() {
		switch s.kind {
		case decisionSent:
			truth.sent(&c.decisions[s.i])
		case decisionDone:
			d := &c.decisions[s.i]
			truth.done(d, c.timeline.replicated(d))
			c.judgeDecision(d, truth)
		case observationDone:
			c.judgeObservation(s.i, truth, floors)
		}
		if s.at-forgotAt > forgetEvery {
			forgotAt = s.at
			truth.forget(s.at - c.slowest - int64(ClockLag))
		}
	}
}

// judgeDecision compares an answer with what was admitted when it came.
func (c *check) judgeDecision(d *decision, t *truth) {
	cl := &c.clients[d.key]
	cl.maxOffered = max(cl.maxOffered, maxView(t.offered, d.key, d.Sent))
	count, largest := d.Limit-d.Remaining, maxView(t.largest, d.key, d.Sent)
	if d.Limit != 0 && count > largest {
		c.violate(Truth, d.Done, fmt.Sprintf("%s answered a count of %s", d.Node, c.name(d.key)),
			fmt.Sprintf("at most the %d that were admitted", largest), fmt.Sprintf("%d counted", count))
	}
	if d.Allowed {
		excess := over(t.least.View(d.key, d.Done), c.limit.Max(), c.limit)
		c.at(d.Done, func(s *sums) { s.excess = max(s.excess, excess) })
	}
}

// judgeDenials finds the false rejections: denials of clients that keep to their limit (Tracker.Compliant). The oracle
// admits all that such a client asks for, so it is one that would not have been counted above 95 % if everything had
// been admitted.
func (c *check) judgeDenials() {
	largest := uint64(CompliantShare * float64(c.limit.Max()))
	spread := make([]bool, len(c.clients)) // below 95 % in every rolling window
	for i := range c.clients {
		spread[i] = c.clients[i].offered.Peak(c.limit.Meter().Window) <= largest
	}
	for i := range c.decisions {
		d := &c.decisions[i]
		switch {
		case d.Allowed || d.Error != "":
		case c.clients[d.key].maxOffered <= largest:
			c.at(d.Sent, func(s *sums) { s.FalseRejections++ })
			c.violate(Compliant, d.Sent,
				fmt.Sprintf("%s denied %s, which keeps to 95 %% of the limit", d.Node, c.name(d.key)),
				fmt.Sprintf("admitted: it is never counted at more than %d of %d", largest, c.limit.Max()), "denied")
		case spread[d.key]:
			c.at(d.Sent, func(s *sums) { s.BurstDenied++ })
		}
	}
}
