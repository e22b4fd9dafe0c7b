package admin

import (
	"cmp"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/node/status"
)

const (
	// feedInterval is how often the streams of the status send it.
	feedInterval = 2 * time.Second
	// feedLimits is how many rules a stream's status has: a page shows no more.
	feedLimits = 50
)

// feed is what all streams of the status send: the node is asked once an interval however many viewers there are, and
// its status encoded once. It has no goroutine: without viewers nothing happens. It is safe for concurrent use.
type feed struct {
	node  Status
	began time.Time

	mu   sync.Mutex
	tick int64 // of the frame
	sent []byte
}

func newFeed(node Status) *feed { return &feed{node: node, began: time.Now(), tick: -1} }

// frame returns the server-sent event of the interval at hand, and how long that lasts yet: viewers that wait so long
// ask together. Nobody may change the event.
func (f *feed) frame() (event []byte, next time.Duration, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	since := time.Since(f.began)
	if tick := int64(since / feedInterval); tick != f.tick {
		s := f.node.Status()
		s.Limits = busiest(s.Limits)
		text, err := json.Marshal(s)
		if err != nil {
			return nil, 0, err
		}
		f.sent, f.tick = slices.Concat([]byte("event: status\ndata: "), text, []byte("\n\n")), tick
	}
	return f.sent, feedInterval - since%feedInterval, nil
}

// busiest returns the first feedLimits rules: those that denied and then admitted most in the last minutes, and before
// them the one with the largest bound.
func busiest(limits []status.Limit) []status.Limit {
	type ranked struct {
		at              int
		bound           float64
		denied, allowed uint64
	}
	sum := func(steps []uint64) (n uint64) {
		for _, s := range steps {
			n += s
		}
		return n
	}
	order := make([]ranked, len(limits))
	for i := range limits {
		order[i] = ranked{at: i, bound: limits[i].Bound}
		if r := limits[i].Recent; r != nil {
			order[i].denied, order[i].allowed = sum(r.Denied), sum(r.Allowed)
		}
	}
	slices.SortStableFunc(order, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(b.denied, a.denied), cmp.Compare(b.allowed, a.allowed))
	})
	if len(order) > feedLimits {
		loosest := slices.MaxFunc(order, func(a, b ranked) int { return cmp.Compare(a.bound, b.bound) })
		order = slices.DeleteFunc(order, func(r ranked) bool { return r.at == loosest.at })
		order = slices.Insert(order[:feedLimits-1], 0, loosest)
	}
	first := make([]status.Limit, len(order))
	for i, r := range order {
		first[i] = limits[r.at]
	}
	return first
}
