package record

import (
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/edgelimit/edgelimit/counters"
)

// validate says what is wrong with the entry in a record with the header.
func (e *Entry) validate(h *Header, regions map[string]string) error {
	switch {
	case e.Decision != nil && e.Event == nil && e.Observation == nil:
		return e.Decision.validate(h, regions)
	case e.Event != nil && e.Decision == nil && e.Observation == nil:
		return e.Event.validate(h)
	case e.Observation != nil && e.Decision == nil && e.Event == nil:
		return e.Observation.validate(h, regions)
	}
	return errors.New("not just one of decision, event and observation")
}

func (d *Decision) validate(h *Header, regions map[string]string) error {
	if err := validSpan(h, d.Sent, d.Done); err != nil {
		return fmt.Errorf("decision: %w", err)
	}
	region, ok := regions[d.Node]
	switch {
	case !ok:
		return fmt.Errorf("decision: node %q is not in the header", d.Node)
	case d.Region != region:
		return fmt.Errorf("decision: node %q is in region %q, not in %q", d.Node, region, d.Region)
	case d.Identity == "" || !utf8.ValidString(d.Identity):
		return errors.New("decision: no identity, or one that is not UTF-8 and would be written as another")
	case d.Cost == 0 || d.Cost > counters.MaxLimit:
		return fmt.Errorf("decision: a cost of %d, want 1 to %d", d.Cost, uint64(counters.MaxLimit))
	case d.Error != "" && (d.Allowed || d.Limit != 0 || d.Remaining != 0):
		return errors.New("decision: both an error and an answer")
	case d.Limit != 0 && d.Limit != h.Rule.Limit:
		return fmt.Errorf("decision: node %q answered for a limit of %d, the record is of %d", d.Node, d.Limit, h.Rule.Limit)
	case d.Remaining > d.Limit:
		return fmt.Errorf("decision: %d of %d remaining", d.Remaining, d.Limit)
	}
	return nil
}

func (e *Event) validate(h *Header) error {
	if err := validSpan(h, e.At, e.At); err != nil {
		return fmt.Errorf("event: %w", err)
	}
	if e.Name == "" {
		return errors.New("event: no name")
	}
	return nil
}

func (o *Observation) validate(h *Header, regions map[string]string) error {
	if err := validSpan(h, o.Sent, o.Done); err != nil {
		return fmt.Errorf("observation: %w", err)
	}
	if _, ok := regions[o.Node]; !ok {
		return fmt.Errorf("observation: node %q is not in the header", o.Node)
	}
	for identity := range o.Counts {
		if !utf8.ValidString(identity) {
			return errors.New("observation: an identity is not UTF-8 and would be written as another")
		}
	}
	switch {
	case o.Boot == "":
		return errors.New("observation: no boot, which says what may be compared with what")
	case o.Bound < 0 || math.IsNaN(o.Bound) || math.IsInf(o.Bound, 0):
		return fmt.Errorf("observation: a bound of %v", o.Bound)
	case o.Staleness < 0 || o.Members < 0:
		return fmt.Errorf("observation: staleness %v, %d members", o.Staleness, o.Members)
	}
	return nil
}

// MaxWait is the longest time between question and answer that a record may hold. A decision may lie anywhere in it, so that whoever
// judges has to reckon with every sub-window of it.
const MaxWait = 10 * time.Minute

func validSpan(h *Header, from, to int64) error {
	if from < h.Started || to < from || to > latest {
		return fmt.Errorf("from %d to %d is no time after the start of the record at %d", from, to, h.Started)
	}
	if to-from > int64(MaxWait) {
		return fmt.Errorf("%v between question and answer, at most %v are recorded: give up earlier", time.Duration(to-from), MaxWait)
	}
	return nil
}

// regions returns the region of each node.
func (h *Header) regions() map[string]string {
	out := make(map[string]string, len(h.Nodes))
	for _, n := range h.Nodes {
		out[n.ID] = n.Region
	}
	return out
}
