package hostile

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Gauges are what a node says of itself.
type Gauges struct {
	Connections float64 `json:"connections"` // at all doors but health
	Files       float64 `json:"files"`
	Goroutines  float64 `json:"goroutines"`
	RSS         float64 `json:"rss_bytes"`
}

// read asks the node how it is.
func (r *run) read(ctx context.Context) (Gauges, error) {
	ctx, cancel := context.WithTimeout(ctx, r.opt.Patience)
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

func parseGauges(text io.Reader) (g Gauges, err error) {
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		to := (*float64)(nil)
		switch {
		case strings.HasPrefix(name, "edgelimit_connections{") && !strings.Contains(name, `"health"`):
			to = &g.Connections
		case name == "process_open_fds":
			to = &g.Files
		case name == "go_goroutines":
			to = &g.Goroutines
		case name == "process_resident_memory_bytes":
			to = &g.RSS
		default:
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return g, fmt.Errorf("/metrics: %s is %q", name, value)
		}
		*to += v
	}
	return g, lines.Err()
}

// watch reads the gauges every now and then until ctx ends, and returns the largest of each.
func (r *run) watch(ctx context.Context) (most Gauges) {
	ticker := time.NewTicker(250 * time.Millisecond)
	defer ticker.Stop()
	for {
		if g, err := r.read(ctx); err == nil {
			most = Gauges{max(most.Connections, g.Connections), max(most.Files, g.Files), max(most.Goroutines, g.Goroutines), max(most.RSS, g.RSS)}
		}
		select {
		case <-ctx.Done():
			return most
		case <-ticker.C:
		}
	}
}

// settle waits until the node has given back what it took since before, but for what a few connections are.
func (r *run) settle(ctx context.Context, before Gauges) (g Gauges, settled bool) {
	const few = 20
	ctx, cancel := context.WithTimeout(ctx, r.opt.Patience)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		if now, err := r.read(ctx); err == nil {
			g = now
			if g.Connections <= before.Connections+few && g.Files <= before.Files+few && g.Goroutines <= before.Goroutines+2*few {
				return g, true
			}
		}
		select {
		case <-ctx.Done():
			return g, false
		case <-ticker.C:
		}
	}
}
