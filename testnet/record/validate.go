package record

import (
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/edgelimit/edgelimit/counters"
)

const (
	// maxWait is the longest time between request and answer that a record may hold. The decision may lie anywhere in
	// it, so that the judge has to consider every sub-window of it.
	maxWait = 10 * time.Minute
	// maxTime is the last time that a record may hold: far from now, and from where sums of times would overflow.
	maxTime = math.MaxInt64 / 4
)

// AsLimit returns the rule as the limit that an oracle decides by.
func (r Rule) AsLimit() (*counters.Limit, error) {
	algorithm, ok := counters.ParseAlgorithm(r.Algorithm)
	switch {
	case !ok:
		return nil, fmt.Errorf("rule %s: unknown algorithm %q", r.Name, r.Algorithm)
	case algorithm != counters.SlidingWindow:
		// The judge works out by sub-windows what it means that the time of a decision is not exact.
		return nil, fmt.Errorf("rule %s: a record of %q cannot be judged, only one of %q", r.Name, algorithm,
			counters.SlidingWindow)
	case r.Limit == 0:
		return nil, fmt.Errorf("rule %s: a limit of 0 admits nothing, and there is nothing to judge", r.Name)
	}
	return counters.NewLimit(counters.Meter{Rule: r.Name, Algorithm: algorithm, Window: r.Window, Sub: r.Sub}, r.Limit)
}

// Validate reports everything that is wrong with the header, but for its version.
func (h *Header) Validate() error {
	var errs []error
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	_, err := h.Rule.AsLimit()
	errs = append(errs, err)
	wrong(len(h.Nodes) == 0, "no nodes: name every node of the testnet")
	seen := make(map[string]bool)
	for _, n := range h.Nodes {
		wrong(n.ID == "" || n.Region == "" || seen[n.ID],
			"node %q of region %q: give each an id of its own and a region", n.ID, n.Region)
		seen[n.ID] = true
	}
	wrong(h.Started < 0 || h.Started > maxTime, "started at %d, which is no time in Unix nanoseconds", h.Started)
	return errors.Join(errs...)
}

var errNotUTF8 = errors.New("no identity, or one that is not UTF-8 and would be written as another")

// validate reports what is wrong with the entry in a record with the header, whose nodes have these regions.
func (e *Entry) validate(h *Header, regions map[string]string) (err error) {
	var kinds []string
	if e.Decision != nil {
		kinds, err = append(kinds, "decision"), e.Decision.validate(h, regions)
	}
	if e.Event != nil {
		if kinds = append(kinds, "event"); e.Event.Name == "" {
			err = errors.New("no name")
		}
	}
	if e.Observation != nil {
		kinds, err = append(kinds, "observation"), e.Observation.validate(regions)
	}
	if len(kinds) != 1 {
		return errors.New("not just one of decision, event and observation")
	}
	from, to := e.Span()
	if from < h.Started || to < from || to > maxTime {
		err = fmt.Errorf("from %d to %d is no time after the start of the record at %d", from, to, h.Started)
	} else if wait := time.Duration(to - from); wait > maxWait {
		err = fmt.Errorf("%v between request and answer, at most %v are recorded: give up earlier", wait, maxWait)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", kinds[0], err)
	}
	return nil
}

func (d *Decision) validate(h *Header, regions map[string]string) error {
	region, ok := regions[d.Node]
	switch {
	case !ok:
		return fmt.Errorf("node %q is not in the header", d.Node)
	case d.Region != region:
		return fmt.Errorf("node %q is in region %q, not in %q", d.Node, region, d.Region)
	case d.Identity == "" || !utf8.ValidString(d.Identity):
		return errNotUTF8
	case d.Cost == 0 || d.Cost > counters.MaxLimit:
		return fmt.Errorf("a cost of %d, want 1 to %d", d.Cost, uint64(counters.MaxLimit))
	case d.Error != "" && (d.Allowed || d.Limit != 0 || d.Remaining != 0):
		return errors.New("both an error and an answer")
	case d.Limit != 0 && d.Limit != h.Rule.Limit:
		return fmt.Errorf("node %q answered for a limit of %d, the record is of %d", d.Node, d.Limit, h.Rule.Limit)
	case d.Remaining > d.Limit:
		return fmt.Errorf("%d of %d remaining", d.Remaining, d.Limit)
	}
	return nil
}

func (o *Observation) validate(regions map[string]string) error {
	for identity := range o.Counts {
		if !utf8.ValidString(identity) {
			return errNotUTF8
		}
	}
	switch _, ok := regions[o.Node]; {
	case !ok:
		return fmt.Errorf("node %q is not in the header", o.Node)
	case o.Boot == "":
		return errors.New("no boot, without which observations cannot be compared")
	case o.Bound < 0 || math.IsNaN(o.Bound) || math.IsInf(o.Bound, 0):
		return fmt.Errorf("a bound of %v", o.Bound)
	case o.Staleness < 0 || o.Members < 0:
		return fmt.Errorf("staleness %v, %d members", o.Staleness, o.Members)
	}
	return nil
}
