package telemetry

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edgelimit/gossip"
)

// Latencies are the histograms of what happens off the request path.
type Latencies struct {
	staleness *prometheus.HistogramVec
	calls     *prometheus.HistogramVec
	regions   regionLabels
}

func newLatencies() *Latencies {
	return &Latencies{
		staleness: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "edgelimit_peer_staleness_seconds",
			Help: "Time since the last counts of each active peer, the largest in every gossip interval, " +
				"by the peer's region.",
			Buckets: []float64{.05, .1, .15, .2, .3, .5, 1, 2, 5, 10, 30, 60},
		}, []string{"region"}),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "edgelimit_store_call_seconds",
			Help:    "Duration of calls of the regional store, by outcome (ok, failed).",
			Buckets: []float64{.0005, .001, .002, .005, .01, .025, .05, .1, .25, .5},
		}, []string{"outcome"}),
	}
}

// Collectors returns the histograms.
func (l *Latencies) Collectors() []prometheus.Collector {
	return []prometheus.Collector{l.staleness, l.calls}
}

// StoreCall observes a call of the regional store.
func (l *Latencies) StoreCall(took time.Duration, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "failed"
	}
	l.calls.WithLabelValues(outcome).Observe(took.Seconds())
}

// observe observes the ages of active members. Idle ones send once a second, and would hide how fast counts travel.
// Regions without a member lose their series.
func (l *Latencies) observe(members []gossip.MemberStatus) {
	for _, gone := range l.regions.keep(members) {
		l.staleness.DeleteLabelValues(gone)
	}
	for i := range members {
		if m := &members[i]; !m.Idle {
			l.staleness.WithLabelValues(l.regions.of(m.Region)).Observe(m.Age.Seconds())
		}
	}
}

const (
	maxRegionSeries = 64      // regions with series of their own: peers choose the names
	otherRegions    = "other" // the label of the others
)

// regionLabels are the regions with series of their own, in the order in which their members came. The zero value is
// ready; it is safe for concurrent use.
type regionLabels struct {
	mu    sync.Mutex
	known map[string]bool
}

// of returns the label of a member's region.
func (l *regionLabels) of(region string) string {
	region = label(region)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.known[region]:
		return region
	case len(l.known) >= maxRegionSeries:
		return otherRegions
	case l.known == nil:
		l.known = make(map[string]bool)
	}
	l.known[region] = true
	return region
}

// keep forgets the regions without a member, and returns the labels that are no longer in use.
func (l *regionLabels) keep(members []gossip.MemberStatus) (gone []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	present := make(map[string]bool, len(l.known))
	for i := range members {
		present[label(members[i].Region)] = true
	}
	for region := range l.known {
		if !present[region] {
			delete(l.known, region)
			gone = append(gone, region)
		}
	}
	if len(present) <= maxRegionSeries && !present[otherRegions] { // each has its own
		gone = append(gone, otherRegions)
	}
	return gone
}

// label makes a metric label of a name: one that is not UTF-8 would panic.
func label(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
