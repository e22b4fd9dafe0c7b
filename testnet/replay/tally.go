package replay

import (
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

// tally is what one rule came to.
type tally struct {
	rule    *rules.Rule
	path    []rules.Entry
	unknown []string        // keys that no field gives, so that it is not asked
	demand  *counters.Limit // what is never reached, to see what is asked for; nil for a rule without a limit

	requests, denied, changed uint64
	uncounted                 uint64 // requests of identities that are not told apart
	places                    map[counters.Key]int32
	identities                []identity
}

// identity is one that a rule counted.
type identity struct {
	name                      string
	requests, denied, changed uint64
	peak                      uint64 // the most that it asked for in one of the rule's windows
}

func newTally(r *rules.Rule) (*tally, error) {
	y := &tally{rule: r, path: r.Path(), places: make(map[counters.Key]int32)}
	if r.Limit == nil {
		return y, nil
	}
	var err error
	y.demand, err = counters.NewLimit(demandMeter(r.Limit), counters.MaxLimit)
	return y, err
}

// demandMeter counts what is asked for in the rule's window, as the rule does where it counts in windows. The smallest limit that denies
// an identity nothing is then its peak. Logs and buckets are counted in sliding windows: a bucket's is as long as the bucket takes to
// fill, and who never asks for more than it holds in that time is never denied.
func demandMeter(l *counters.Limit) counters.Meter {
	algorithm, window := counters.SlidingWindow, l.Lasts()
	if l.Meter().Algorithm == counters.FixedWindow {
		algorithm = counters.FixedWindow
	} else if rest := window % (10 * time.Millisecond); window > time.Second && rest != 0 {
		window += 10*time.Millisecond - rest // so that it has tenths
	}
	window = min(max(window, time.Millisecond), counters.MaxWindow)
	return counters.NewMeter(l.Meter().Rule, algorithm, window)
}

// identity returns the place of a key's identity, -1 if there is no room to tell one more apart.
func (y *tally) identity(key counters.Key, entries []rules.Entry, room *int) int32 {
	if i, ok := y.places[key]; ok {
		return i
	}
	if *room == 0 {
		return -1
	}
	*room--
	i := int32(len(y.identities))
	y.places[key] = i
	y.identities = append(y.identities, identity{name: y.name(entries)})
	return i
}

// maxName is how many bytes of an identity's name are kept.
const maxName = 200

// name is what a request's entries say beyond what the rule says by itself.
func (y *tally) name(entries []rules.Entry) string {
	var open []string
	for i, e := range entries {
		if e.Value != y.path[i].Value {
			open = append(open, e.Value)
		}
	}
	return clip(strings.Join(open, ", "), maxName)
}
