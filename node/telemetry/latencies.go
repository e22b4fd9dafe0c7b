package telemetry

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edgelimit/gossip"
)

// Latencies are the histograms of what takes time.
type Latencies struct {
	staleness *prometheus.HistogramVec
	calls     *prometheus.HistogramVec
	strict    *prometheus.HistogramVec
	decisions *prometheus.HistogramVec
	labels    map[string]string // of the regions that staleness was last observed of; used by observe alone
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
		strict: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "edgelimit_strict_call_seconds",
			Help:    "Duration of calls of the stores of strict rules, by home region and outcome (ok, failed).",
			Buckets: []float64{.0002, .0005, .001, .002, .005, .01, .025, .05, .1, .25, .5, 1},
		}, []string{"home_region", "outcome"}),
		decisions: newDecisions(),
	}
}

// Collectors returns the histograms.
func (l *Latencies) Collectors() []prometheus.Collector {
	return []prometheus.Collector{l.staleness, l.calls, l.strict, l.decisions}
}

// StoreCall observes a call of the regional store.
func (l *Latencies) StoreCall(took time.Duration, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "failed"
	}
	l.calls.WithLabelValues(outcome).Observe(took.Seconds())
}

// StrictCall returns a function that observes calls of a home region's store of strict rules.
func (l *Latencies) StrictCall(region string) func(took time.Duration, err error) {
	by := func(outcome string) prometheus.Observer { return l.strict.WithLabelValues(label(region), outcome) }
	ok, failed := by("ok"), by("failed")
	return func(took time.Duration, err error) {
		if err != nil {
			failed.Observe(took.Seconds())
		} else {
			ok.Observe(took.Seconds())
		}
	}
}

// observe observes the ages of active members. Idle ones send once a second, and would hide how fast counts travel.
// Regions without a member lose their series.
func (l *Latencies) observe(members []gossip.MemberStatus) {
	labels := regionLabels(members)
	used := make(map[string]bool, len(labels))
	for _, label := range labels {
		used[label] = true
	}
	for _, label := range l.labels {
		if !used[label] {
			l.staleness.DeleteLabelValues(label)
		}
	}
	l.labels = labels
	for i := range members {
		if m := &members[i]; !m.Idle {
			l.staleness.WithLabelValues(labels[m.Region]).Observe(m.Age.Seconds())
		}
	}
}

const (
	maxRegionSeries = 64      // regions with series of their own: peers choose the names
	otherRegions    = "other" // the label of the others
)

// regionLabels returns the metric label of each region of the members, which are sorted by region: the first
// maxRegionSeries by name have their own.
func regionLabels(members []gossip.MemberStatus) map[string]string {
	labels := make(map[string]string)
	for i := range members {
		region := members[i].Region
		if _, known := labels[region]; known {
			continue
		}
		labels[region] = otherRegions
		if len(labels) <= maxRegionSeries {
			labels[region] = label(region)
		}
	}
	return labels
}

// label makes a metric label of a name: one that is not UTF-8 would panic.
func label(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
