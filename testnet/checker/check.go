package checker

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/counters/counterstest"
	"github.com/edgelimit/edgelimit/testnet/ledger"
	"github.com/edgelimit/edgelimit/testnet/record"
)

// Check judges a record. It holds all of it in memory, some 300 bytes a decision. An error says that the record cannot be judged;
// what it shows to be broken is in the report.
func Check(r *record.Reader) (*Report, error) {
	t, err := load(r)
	if err != nil {
		return nil, fmt.Errorf("check record: %w", err)
	}
	report, err := judge(t)
	if err != nil {
		return nil, fmt.Errorf("check record: %w", err)
	}
	return report, nil
}

func judge(t *trace) (*Report, error) {
	if err := t.sort(); err != nil {
		return nil, err
	}
	line, err := newTimeline(t)
	if err != nil {
		return nil, err
	}
	c := &check{
		trace: t, timeline: line, ledger: ledger.New(t.limit), clients: make([]client, len(t.identities)),
		phases: make([]sums, len(line.periods)), seconds: make([]sums, t.seconds()), broken: make(map[place]*Violation),
	}
	c.count()
	c.replay()
	c.judgeCompliant()
	c.judgeBound()
	c.judgeAgreement()
	return c.report(), nil
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

// check is a record that is being judged.
type check struct {
	*trace
	timeline *timeline
	ledger   *ledger.Ledger
	clients  []client // by key
	total    sums
	phases   []sums
	seconds  []sums
	agrees   []string // by observation: how its counts differ from the truth; "" if they do not
	steady   float64  // largest bound that was exported when no fault showed
	agreeMs  float64
	broken   map[place]*Violation
}

// client is what the verdict on denials needs to know.
type client struct {
	offered  counterstest.Rolling
	estimate uint64 // the most that the algorithm can have counted if everything was admitted
}

// place is where violations are told apart.
type place struct {
	invariant Invariant
	second    int
}

// violate notes a violation.
func (c *check) violate(i Invariant, at int64, what, expected, got string) {
	p := place{i, c.second(at)}
	if v := c.broken[p]; v != nil {
		v.Times++
		return
	}
	c.broken[p] = &Violation{Invariant: i, Second: p.second, What: what, Expected: expected, Got: got, Times: 1}
}

// at calls f for all sums that a moment belongs to.
func (c *check) at(moment int64, f func(*sums)) {
	f(&c.total)
	f(&c.phases[c.timeline.index(moment)])
	f(&c.seconds[c.second(moment)])
}

// count asks the oracle about every request that was answered, in the order in which they were sent. One that was not is no request
// to it either: else a node that is down would count as the limiter's thrift.
func (c *check) count() {
	for i := range c.decisions {
		d := &c.decisions[i]
		c.clients[d.key].offered.Add(d.sent, d.cost)
		if d.outcome == failed {
			c.at(d.sent, func(s *sums) { s.Failed++ })
			continue
		}
		noted := c.ledger.Note(c.name(d.key), d.cost, d.sent, d.outcome == allowed)
		c.at(d.sent, func(s *sums) { s.add(d, noted.Oracle) })
	}
}

// moment is when something is taken in. What was sent comes before what was done at the same time: it may have come first.
type moment struct {
	at   int64
	kind kind
	i    int
}

type kind uint8

const (
	decisionSent kind = iota
	decisionDone
	observationDone
)

func (c *check) moments() []moment {
	all := make([]moment, 0, 2*len(c.decisions)+len(c.observations))
	for i := range c.decisions {
		all = append(all, moment{c.decisions[i].sent, decisionSent, i}, moment{c.decisions[i].done, decisionDone, i})
	}
	for i := range c.observations {
		all = append(all, moment{c.observations[i].Done, observationDone, i})
	}
	slices.SortStableFunc(all, func(a, b moment) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.kind, b.kind)) })
	return all
}

const forgetEvery = 10e9 // ns

// replay holds every answer and observation against what was admitted.
func (c *check) replay() {
	b, seen := newBracket(c.limit), c.newSightings()
	c.agrees = make([]string, len(c.observations))
	forgot := c.header.Started
	for _, m := range c.moments() {
		switch m.kind {
		case decisionSent:
			b.sent(&c.decisions[m.i])
		case decisionDone:
			b.done(&c.decisions[m.i], c.timeline.told(&c.decisions[m.i]))
			c.judgeDecision(&c.decisions[m.i], b)
		case observationDone:
			c.judgeObservation(m.i, b, seen)
		}
		if m.at-forgot > forgetEvery {
			forgot = m.at
			b.forget(m.at - c.slowest - clockLag)
		}
	}
}

// judgeDecision holds an answer against what was admitted when it came.
func (c *check) judgeDecision(d *decision, b *bracket) {
	cl, limit := &c.clients[d.key], c.limit.Max()
	cl.estimate = max(cl.estimate, b.askedAtMost(d.key, d.sent))
	most := b.atMost(d.key, d.sent)
	if d.told && d.view > most {
		c.violate(Truth, d.done, fmt.Sprintf("%s told of %s", d.node, c.name(d.key)),
			fmt.Sprintf("at most the %d that were admitted", most), fmt.Sprintf("%d counted", d.view))
	}
	if d.outcome == allowed {
		excess := (float64(b.atLeast(d.key, d.done)) - float64(limit)) / float64(limit)
		c.at(d.done, func(s *sums) { s.excess = max(s.excess, excess) })
	}
}

// judgeCompliant looks for false rejections: denials of clients that keep to their limit (ledger.Compliant). Of such a client the oracle
// admits all, so that it is who would not have been counted above 95 % either if everything had been admitted.
func (c *check) judgeCompliant() {
	most := uint64(ledger.KeepsTo * float64(c.limit.Max()))
	compliant, spread := make([]bool, len(c.clients)), make([]bool, len(c.clients))
	for i := range c.clients {
		compliant[i] = c.clients[i].estimate <= most
		spread[i] = c.clients[i].offered.Peak(c.limit.Meter().Window) <= most
	}
	for i := range c.decisions {
		d := &c.decisions[i]
		switch {
		case d.outcome != denied:
		case !compliant[d.key]:
			if spread[d.key] {
				c.at(d.sent, func(s *sums) { s.BurstDenied++ })
			}
		default:
			c.at(d.sent, func(s *sums) { s.FalseRejections++ })
			c.violate(Compliant, d.sent, fmt.Sprintf("%s denied %s, who keeps to 95 %% of the limit", d.node, c.name(d.key)),
				fmt.Sprintf("admitted: it is never counted at more than %d of %d", most, c.limit.Max()), "denied")
		}
	}
}

// identity returns the key of an identity of which there were decisions.
func (c *check) identity(name string) (counters.Key, bool) {
	k, ok := c.keys[name]
	return k, ok
}
