package telemetry

import (
	"testing"

	"github.com/edgelimit/edgelimit/counters"
)

// To time one decision in 32 costs each of them this much.
func BenchmarkDecisionTimes(b *testing.B) {
	times, layers := newLatencies().Decisions("library"), []counters.Decision{{Allowed: true}}
	b.ReportAllocs()
	for b.Loop() {
		times.End(times.Begin(), layers, nil)
	}
}
