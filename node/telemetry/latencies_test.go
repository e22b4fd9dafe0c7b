package telemetry

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
)

// The histogram of staleness is of peers that have requests: how fast counts travel, not how often an idle peer speaks.
func TestMetricsOfStaleness(t *testing.T) {
	l := newLatencies()
	status := func(region string, age time.Duration, idle bool) gossip.MemberStatus {
		return gossip.MemberStatus{
			Member:     gossip.Member{Region: region},
			PeerStatus: gossip.PeerStatus{Age: age, Idle: idle},
		}
	}
	l.observe(
		[]gossip.MemberStatus{status("eu", 120*time.Millisecond, false), status("eu", time.Second, true),
			status("us", 300*time.Millisecond, false)},
	)
	l.observe([]gossip.MemberStatus{status("eu", 180*time.Millisecond, false), status("us", time.Second, true)})
	for region, want := range map[string]struct {
		count uint64
		sum   float64
	}{"eu": {2, 0.3}, "us": {1, 0.3}} {
		var m dto.Metric
		if err := l.staleness.WithLabelValues(region).(prometheus.Histogram).Write(&m); err != nil {
			t.Fatal(err)
		}
		if h := m.GetHistogram(); h.GetSampleCount() != want.count || math.Abs(h.GetSampleSum()-want.sum) > 1e-9 {
			t.Errorf("%s: %d ages with a sum of %v, want %+v", region, h.GetSampleCount(), h.GetSampleSum(), want)
		}
	}
}

// Whatever peers call their regions, there are few series of them, and none of a region that is gone.
func TestSeriesOfRegions(t *testing.T) {
	l := newLatencies()
	members := func(prefix string, regions int) (list []gossip.MemberStatus) {
		for i := range regions {
			list = append(list, gossip.MemberStatus{Member: gossip.Member{Region: fmt.Sprint(prefix, i)}})
		}
		return list
	}
	series := func() map[string][]*dto.Metric {
		return seriesOf(t, l.staleness, "edgelimit_peer_staleness_seconds", "region")
	}
	l.observe(members("eu", 10))
	if got := series(); len(got) != 10 || got["eu9"] == nil {
		t.Errorf("%d series of 10 regions", len(got))
	}
	for i := range 50 {
		l.observe(members(fmt.Sprint("rogue-", i, "-"), 100))
		if got := series(); len(got) != maxRegionSeries+1 || got[otherRegions] == nil {
			t.Fatalf("%d series of 100 regions", len(got))
		}
	}
	l.observe(members("eu", 3))
	if got := series(); len(got) != 3 || got["eu2"] == nil {
		t.Errorf("of 3 regions that are left there are %d series", len(got))
	}
}

// seriesOf gathers what a collector exports, by the value of one of the labels.
func seriesOf(t *testing.T, c prometheus.Collector, metric, by string) map[string][]*dto.Metric {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string][]*dto.Metric)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == metric && l.GetName() == by {
					out[l.GetValue()] = append(out[l.GetValue()], m)
				}
			}
		}
	}
	return out
}

// Bounds of limits that are no longer in force are dropped.
func TestBoundsForgetLimits(t *testing.T) {
	l, err := counters.NewLimit(counters.NewMeter("test/client", counters.TokenBucket, time.Minute), 10)
	if err != nil {
		t.Fatal(err)
	}
	b := bounds{peaks: map[string]*gossip.Peak{"gone": {}, "test/client": {}}}
	b.peaks["gone"].Raise(1, time.Minute, at(0).UnixNano())
	b.peaks["test/client"].Raise(15, time.Minute, at(0).UnixNano())
	b.read(map[string]*counters.Limit{"test/client": l}, nil, nil, at(100))
	if b.Bound("gone") != 0 || b.Bound("test/client") != 0.5 {
		t.Errorf("bounds %v and %v, want 0 and 0.5", b.Bound("gone"), b.Bound("test/client"))
	}
}
