package otlp

import (
	"testing"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// decider returns a node that does not run, and a request that it denies.
func decider(t testing.TB, endpoint string, ratio float64) (*node.Node, node.Request) {
	t.Helper()
	cfg := config(t, endpoint)
	cfg.OTLP.TraceRatio = ratio
	n, err := node.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n, node.Request{Rule: "per_ip", Identity: "192.0.2.1"}
}

// What is not traced allocates nothing: neither without a collector, nor where chance does not choose it.
func TestNothingIsAllocatedForWhatIsNotTraced(t *testing.T) {
	if testkit.Enabled {
		return // it allocates
	}
	for endpoint, ratio := range map[string]float64{"": 1, "http://127.0.0.1:1": 0} {
		n, request := decider(t, endpoint, ratio)
		if allocs := testing.AllocsPerRun(1000, func() { _, _ = n.Take(t.Context(), request) }); allocs != 0 {
			t.Errorf("endpoint %q: %v allocations", endpoint, allocs)
		}
	}
}

// Compare off with the others of one run.
func BenchmarkTake(b *testing.B) {
	for _, c := range []struct {
		name, endpoint string
		ratio          float64
	}{{"off", "", 0}, {"none", "http://127.0.0.1:1", 0}, {"hundredth", "http://127.0.0.1:1", 0.01},
		{"all", "http://127.0.0.1:1", 1}} {
		b.Run(c.name, func(b *testing.B) {
			n, request := decider(b, c.endpoint, c.ratio)
			b.ReportAllocs()
			for b.Loop() {
				_, _ = n.Take(b.Context(), request)
			}
		})
	}
}
