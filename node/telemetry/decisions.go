package telemetry

import (
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edgelimit/counters"
)

// decisionSample is one in how many decisions is timed: to read the time twice and to observe costs half a decision.
const decisionSample = 32

// newDecisions returns the histogram of decisions: classic buckets for all, native ones for Prometheus servers that ask
// for them.
func newDecisions() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "edgelimit_decision_seconds",
		Help: "Time that decisions take in the node, of one in 32, by API (http, grpc with POST /json, resp, proxy, " +
			"library) and outcome (allowed, denied, failed). Requests in a queue wait afterwards.",
		Buckets: []float64{2.5e-7, 5e-7, 1e-6, 2e-6, 5e-6, 1e-5, 5e-5, 2.5e-4, .001, .005, .025,
			.1, .5},
		NativeHistogramBucketFactor: 1.2, NativeHistogramMaxBucketNumber: 100,
	}, []string{"api", "outcome"})
}

// DecisionTimes are those of the decisions that one API asks for. It is safe for concurrent use and allocates nothing.
type DecisionTimes struct{ allowed, denied, failed prometheus.Observer }

// Decisions returns where to time the decisions that an API asks for.
func (l *Latencies) Decisions(api string) DecisionTimes {
	by := func(outcome string) prometheus.Observer { return l.decisions.WithLabelValues(api, outcome) }
	return DecisionTimes{by("allowed"), by("denied"), by("failed")}
}

// Begin returns the time at which a decision begins, or zero for one that is not timed.
func (d *DecisionTimes) Begin() (began time.Time) {
	if rand.Uint32()%decisionSample == 0 {
		began = time.Now()
	}
	return began
}

// End observes a decision with these layers, or with an error instead, that Begin returned a time for.
func (d *DecisionTimes) End(began time.Time, layers []counters.Decision, err error) {
	if began.IsZero() {
		return
	}
	took := time.Since(began).Seconds()
	switch {
	case err != nil:
		d.failed.Observe(took)
	case counters.VerdictOf(layers).Allowed:
		d.allowed.Observe(took)
	default:
		d.denied.Observe(took)
	}
}
