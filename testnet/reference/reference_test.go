package reference

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// tally counts exchanges.
type tally struct {
	exchanges    int
	equal        int         // in all fields
	sameDecision int         // in those that let a request pass or deny it
	later        int         // equal, or as in later versions of the reference
	denied       int         // where the reference denies a descriptor
	known        map[int]int // exchanges with a known difference, by its place in the list
}

// unexplained are exchanges of one group that differ in the same fields, in a way that is not known.
type unexplained struct {
	what    string
	times   int
	decides bool
	example string
}

// judge adds comparisons to the tally, and fails the test where one differs in a way that is not known.
func (n *tally) judge(t *testing.T, all []comparison) {
	t.Helper()
	var found []*unexplained
	here, counted := newTally(), make(counts)
	defer n.add(here)
	for i := range all {
		c := &all[i]
		c.trace = counted.trace(c)
		u := here.count(c)
		if u == nil {
			continue
		}
		same := func(other *unexplained) bool { return other.what == u.what }
		if i := slices.IndexFunc(found, same); i >= 0 {
			found[i].times++
			continue
		}
		found = append(found, u)
	}
	if len(found) == 0 {
		return
	}
	slices.SortStableFunc(found, func(a, b *unexplained) int {
		if a.decides != b.decides {
			return map[bool]int{true: -1, false: 1}[a.decides]
		}
		return b.times - a.times
	})
	var report strings.Builder
	for _, u := range found {
		fmt.Fprintf(&report, "\n%d times %s\n%s", u.times, u.what, u.example)
	}
	t.Errorf("%s; differences that are not known:%s", here, report.String())
}

// count adds one comparison, and returns what of it is not known, or nil.
func (n *tally) count(c *comparison) *unexplained {
	n.exchanges++
	if len(c.differences) == 0 {
		n.equal++
	}
	if !slices.ContainsFunc(c.differences, difference.decides) {
		n.sameDecision++
	}
	for field, value := range c.theirs {
		if value == "OVER_LIMIT" && field != "overall_code" && field != "overallCode" {
			n.denied++
			break
		}
	}
	var kinds []string
	var u unexplained
	var seen = make(map[int]bool)
	for _, d := range c.differences {
		if k := knownFor(c, d); k >= 0 {
			seen[k] = true
			continue
		}
		u.decides = u.decides || d.decides()
		if kind := d.kind(); !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
			u.example += fmt.Sprintf("    %s: theirs %.200q, ours %.200q\n", d.field, d.theirs, d.ours)
		}
	}
	later := len(kinds) == 0
	for k := range seen {
		n.known[k]++
		later = later && differences[k].later
	}
	if later {
		n.later++
	}
	if len(kinds) == 0 {
		return nil
	}
	u.times, u.what = 1, c.exchange.name+": "+strings.Join(kinds, ", ")
	u.example = fmt.Sprintf("  as exchange %d, %s\n%s", n.exchanges, c.exchange, u.example)
	return &u
}

// add adds the counts of another tally.
func (n *tally) add(m *tally) {
	n.exchanges, n.equal, n.sameDecision = n.exchanges+m.exchanges, n.equal+m.equal, n.sameDecision+m.sameDecision
	n.denied, n.later = n.denied+m.denied, n.later+m.later
	for k, count := range m.known {
		n.known[k] += count
	}
}

func newTally() *tally { return &tally{known: make(map[int]int)} }

// String is how much of all is equal.
func (n *tally) String() string {
	return fmt.Sprintf("%d exchanges, %d denied, %d equal, %d with the same decision", n.exchanges, n.denied, n.equal,
		n.sameDecision)
}
