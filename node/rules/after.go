package rules

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// A rule may charge what a response says, such as failed logins or bytes: the request itself only has to find room for
// a cost of one, and the charge follows the response, with room or not (counters.Table.Report).

// After is what a rule charges after the response. The zero value charges nothing then: the rule charges requests.
type After struct {
	On      Statuses // the statuses that are charged; zero with a Cost: all
	Cost    CostFrom // what is charged
	Header  string   // the response header with the cost, in canonical form; empty but for CostHeader
	present bool
}

// NewAfter returns the charge of responses of certain statuses, all if there are none. The header is for CostHeader.
func NewAfter(on Statuses, cost CostFrom, header string) After {
	if on == (Statuses{}) {
		on = allStatuses()
	}
	return After{On: on, Cost: cost, Header: header, present: true}
}

// ChargesLater reports whether the rule, which may be nil, charges responses.
func (r *Rule) ChargesLater() bool { return r != nil && r.After.present }

// NeedsBody reports whether what is charged is known at the end of the response's body only.
func (a *After) NeedsBody() bool { return a.Cost == CostBytes || a.Cost == CostDuration }

// CostFrom is where the cost of a response comes from.
type CostFrom uint8

const (
	CostOne      CostFrom = iota // each response costs 1
	CostHeader                   // a response header has it
	CostBytes                    // the bytes of the response's body
	CostDuration                 // the milliseconds from the request to the end of the response, rounded up
)

var costs = [...]string{CostOne: "one", CostHeader: "header", CostBytes: "response_bytes", CostDuration: "duration"}

// String returns the name in rule files.
func (c CostFrom) String() string { return costs[min(int(c), len(costs)-1)] }

// Statuses is a set of HTTP statuses, 100 to 599: bit status-100.
type Statuses [8]uint64

const (
	minStatus = 100
	maxStatus = 599
)

// allStatuses returns the set of all statuses.
func allStatuses() (s Statuses) {
	for status := minStatus; status <= maxStatus; status++ {
		s.add(status)
	}
	return s
}

func (s *Statuses) add(status int) { s[(status-minStatus)/64] |= 1 << ((status - minStatus) % 64) }

// Add adds a status, as 403, or a class of them, as 4xx. ok is false for what is neither.
func (s *Statuses) Add(word string) (ok bool) {
	if class, found := strings.CutSuffix(word, "xx"); found && len(class) == 1 && class[0] >= '1' && class[0] <= '5' {
		for i := range 100 {
			s.add(int(class[0]-'0')*100 + i)
		}
		return true
	}
	n, err := strconv.Atoi(word)
	if err != nil || n < minStatus || n > maxStatus || len(word) != 3 {
		return false
	}
	s.add(n)
	return true
}

// Has reports whether the set has a status. One outside of 100 to 599 counts as 599.
func (s *Statuses) Has(status int) bool {
	if status < minStatus || status > maxStatus {
		status = maxStatus
	}
	return s[(status-minStatus)/64]>>((status-minStatus)%64)&1 == 1
}

// String lists the statuses, classes as such.
func (s Statuses) String() string {
	if s == allStatuses() {
		return "any status"
	}
	var words []string
	for class := 1; class <= 5; class++ {
		var single []string
		for i := range 100 {
			if s.Has(class*100 + i) {
				single = append(single, strconv.Itoa(class*100+i))
			}
		}
		if len(single) == 100 {
			single = []string{strconv.Itoa(class) + "xx"}
		}
		words = append(words, single...)
	}
	return strings.Join(words, " ")
}

// Response is what is known of a response once it has ended, or once its header has come.
type Response struct {
	Status   int                 // 0: the client left before there was one
	Header   map[string][]string // by canonical names
	Bytes    uint64              // of the body
	Duration time.Duration       // from the request to the end
	Cost     uint64              // in place of a header with the cost, where Header is nil
}

// cost returns what a response costs. ok is false if the header that should say so is missing or is no whole number; it
// costs 1 then.
func (a *After) cost(r *Response) (cost uint64, ok bool) {
	switch {
	case r == nil || r.Status != 0 && !a.On.Has(r.Status):
		return 0, true
	case r.Status == 0 && (a.Cost == CostHeader || a.Cost == CostBytes && r.Bytes == 0):
		return 1, true // who does not wait for the answer is not let off
	case a.Cost == CostBytes:
		return min(r.Bytes, counters.MaxLimit), true
	case a.Cost == CostDuration:
		ms := math.Ceil(float64(r.Duration) / float64(time.Millisecond))
		return uint64(max(0, min(ms, counters.MaxLimit))), true
	case a.Cost == CostHeader && r.Header == nil:
		return min(r.Cost, counters.MaxLimit), true
	case a.Cost == CostHeader:
		values := r.Header[a.Header]
		if len(values) != 1 {
			return 1, false
		}
		n, err := ParseCost(strings.TrimSpace(values[0]))
		if err != nil {
			return 1, false
		}
		return min(n, counters.MaxLimit), true
	}
	return 1, true
}

// Unpriced reports whether a response that is charged lacks the header with its cost.
func (a *After) Unpriced(r *Response) bool {
	_, ok := a.cost(r)
	return !ok
}

// pendingRetry is when a request may be tried again that had no room beside those under way.
const pendingRetry = time.Second

// Pend says how many other requests of the layer's counter have not been charged yet: each may cost 1.
func (m *Match) Pend(others uint64) { m.pending = others }

// MayOwe reports whether responses may cost more than is left of the layer's limit, which then owes the rest. A store
// that decides for several nodes keeps no debts.
func (m *Match) MayOwe() bool {
	r := m.Rule
	return r != nil && m.own == nil && r.After.Cost != CostOne && r.Limit != nil && r.Limit.Max() > 0 && !r.Strict &&
		m.Listed == Unlisted
}

// Owe has the layer, which MayOwe, deny everything for a debt that is paid after so long.
func (m *Match) Owe(left time.Duration) { m.owes = left }

// annotateDebt puts the rule's view into the decision of a layer that owes.
func (m *Match) annotateDebt(d *counters.Decision) {
	l := m.Rule.Limit
	d.Limit, d.Window, d.ResetAfter, d.Remaining = l.Max()-m.Rule.Margin, l.Lasts(), m.owes, 0
	if !d.Allowed {
		d.RetryAfter = m.owes
	}
}

// describe returns what is charged after the response, as text.
func (a *After) describe() string {
	what := "1"
	switch a.Cost {
	case CostHeader:
		what = "header " + a.Header
	case CostBytes, CostDuration:
		what = a.Cost.String()
	}
	return fmt.Sprintf("charges %s after a response of %v", what, a.On)
}
