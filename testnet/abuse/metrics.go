package abuse

import (
	"context"
	"time"

	"github.com/edgelimit/edgelimit/testnet/scrape"
)

// Gauges are the resources that a node holds, from its metrics.
type Gauges struct {
	Connections float64 `json:"connections"` // without those of the health listener
	Files       float64 `json:"files"`
	Goroutines  float64 `json:"goroutines"`
	RSS         float64 `json:"rss_bytes"`
}

// gauges reads the node's metrics.
func (r *run) gauges(ctx context.Context) (Gauges, error) {
	ctx, cancel := context.WithTimeout(ctx, r.opt.Timeout)
	defer cancel()
	metrics, err := scrape.Get(ctx, r.probe, "http://"+r.target.Health+"/metrics")
	return gaugesOf(metrics), err
}

func gaugesOf(m scrape.Metrics) Gauges {
	connections := 0.0
	for _, s := range m.Series("edgelimit_connections") {
		if s.Labels["door"] != "health" {
			connections += s.Value
		}
	}
	return Gauges{connections, m.Sum("process_open_fds"), m.Sum("go_goroutines"),
		m.Sum("process_resident_memory_bytes")}
}

// watchPeak reads the gauges until ctx ends and returns the maximum of each.
func (r *run) watchPeak(ctx context.Context) (peak Gauges) {
	r.watch(ctx, 250*time.Millisecond, func(g Gauges) (enough bool) {
		peak = Gauges{max(peak.Connections, g.Connections), max(peak.Files, g.Files),
			max(peak.Goroutines, g.Goroutines), max(peak.RSS, g.RSS)}
		return false
	})
	return peak
}

// awaitRelease waits until the node holds hardly more connections, files and goroutines than before.
func (r *run) awaitRelease(ctx context.Context, before Gauges) (after Gauges, released bool) {
	const slack = 20 // connections of compliant clients, which come and go
	ctx, cancel := context.WithTimeout(ctx, r.opt.Timeout)
	defer cancel()
	r.watch(ctx, 50*time.Millisecond, func(g Gauges) (enough bool) {
		after = g
		released = g.Connections <= before.Connections+slack && g.Files <= before.Files+slack &&
			g.Goroutines <= before.Goroutines+2*slack
		return released
	})
	return after, released
}

// watch reads the gauges at an interval until ctx ends or see has enough.
func (r *run) watch(ctx context.Context, interval time.Duration, see func(Gauges) (enough bool)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if g, err := r.gauges(ctx); err == nil && see(g) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
