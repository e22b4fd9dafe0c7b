package judge

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/record"
)

// trace is a record in memory, in the order of time.
type trace struct {
	header       record.Header
	limit        *counters.Limit
	identities   []string // by key
	keys         map[string]counters.Key
	nodes        map[string]string    // interns node IDs, so that each is in memory once
	decisions    []decision           // by the time of sending
	observations []record.Observation // by the time of the answer
	events       []record.Event       // by time
	end          int64                // when the last thing happened
	lastDone     int64                // when the last decision was answered
	slowest      int64                // the longest time between sending and answer
}

// decision is one of the record. Its key takes the place of its identity, and its node that of its region.
type decision struct {
	record.Decision
	key counters.Key
}

// maxRun is the longest run that can be judged: a report has a line for each second.
const maxRun = 31 * 24 * time.Hour

// load brings the entries into the order of time, and reports why they cannot be judged.
func load(h record.Header, entries iter.Seq2[record.Entry, error]) (*trace, error) {
	limit, err := h.Rule.AsLimit()
	if err != nil {
		return nil, err
	}
	t := &trace{
		header: h, limit: limit, keys: make(map[string]counters.Key), nodes: make(map[string]string),
		end: h.Started, lastDone: h.Started,
	}
	for _, n := range h.Nodes {
		t.nodes[n.ID] = n.ID
	}
	for e, err := range entries {
		if err != nil {
			return nil, err
		}
		t.add(&e)
	}
	if run := time.Duration(t.end - t.header.Started); run > maxRun {
		return nil, fmt.Errorf("the record is of %v, at most %v can be judged", run, maxRun)
	}
	if len(t.decisions) == 0 {
		return nil, errors.New("the record holds no decisions: there is nothing to judge")
	}
	slices.SortStableFunc(t.decisions, func(a, b decision) int { return cmp.Compare(a.Sent, b.Sent) })
	slices.SortStableFunc(t.observations, func(a, b record.Observation) int { return cmp.Compare(a.Done, b.Done) })
	slices.SortStableFunc(t.events, func(a, b record.Event) int { return cmp.Compare(a.At, b.At) })
	return t, nil
}

func (t *trace) add(e *record.Entry) {
	sent, done := e.Span()
	t.end, t.slowest = max(t.end, done), max(t.slowest, done-sent)
	switch {
	case e.Decision != nil:
		d := decision{*e.Decision, t.key(e.Decision.Identity)}
		d.Node, d.Region, d.Identity = t.nodes[d.Node], "", ""
		t.decisions = append(t.decisions, d)
		t.lastDone = max(t.lastDone, done)
	case e.Observation != nil:
		t.observations = append(t.observations, *e.Observation)
	case e.Event != nil:
		t.events = append(t.events, *e.Event)
	}
}

// key numbers the identities.
func (t *trace) key(identity string) counters.Key {
	k, ok := t.keys[identity]
	if !ok {
		k = counters.Key(len(t.identities))
		t.keys[identity] = k
		t.identities = append(t.identities, identity)
	}
	return k
}

func (t *trace) name(k counters.Key) string { return t.identities[k] }

// second returns the number of the second since the start that holds the time.
func (t *trace) second(at int64) int { return int((at - t.header.Started) / int64(time.Second)) }
