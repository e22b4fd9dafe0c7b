package abuse

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
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
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.target.Health+"/metrics", nil)
	if err != nil {
		return Gauges{}, err
	}
	resp, err := r.probe.Do(req)
	if err != nil {
		return Gauges{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return Gauges{}, fmt.Errorf("/metrics: %s", resp.Status)
	}
	return parseGauges(resp.Body)
}

func parseGauges(text io.Reader) (Gauges, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return Gauges{}, fmt.Errorf("/metrics: %w", err)
	}
	sum := func(name string) (total float64) {
		for _, m := range families[name].GetMetric() {
			if !hasLabel(m, "door", "health") {
				total += m.GetGauge().GetValue() + m.GetUntyped().GetValue() // one of them is set
			}
		}
		return total
	}
	return Gauges{sum("edgelimit_connections"), sum("process_open_fds"), sum("go_goroutines"),
		sum("process_resident_memory_bytes")}, nil
}

func hasLabel(m *dto.Metric, name, value string) bool {
	for _, l := range m.GetLabel() {
		if l.GetName() == name && l.GetValue() == value {
			return true
		}
	}
	return false
}

// watchPeak reads the gauges until ctx ends and returns the maximum of each.
func (r *run) watchPeak(ctx context.Context) (peak Gauges) {
	ticker := time.NewTicker(250 * time.Millisecond)
	defer ticker.Stop()
	for {
		if g, err := r.gauges(ctx); err == nil {
			peak = Gauges{max(peak.Connections, g.Connections), max(peak.Files, g.Files),
				max(peak.Goroutines, g.Goroutines), max(peak.RSS, g.RSS)}
		}
		select {
		case <-ctx.Done():
			return peak
		case <-ticker.C:
		}
	}
}

// awaitRelease waits until the node holds hardly more connections, files and goroutines than before.
func (r *run) awaitRelease(ctx context.Context, before Gauges) (after Gauges, released bool) {
	const slack = 20 // connections of compliant clients, which come and go
	ctx, cancel := context.WithTimeout(ctx, r.opt.Timeout)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		if g, err := r.gauges(ctx); err == nil {
			after = g
			if g.Connections <= before.Connections+slack && g.Files <= before.Files+slack &&
				g.Goroutines <= before.Goroutines+2*slack {
				return g, true
			}
		}
		select {
		case <-ctx.Done():
			return after, false
		case <-ticker.C:
		}
	}
}
