// Package prom serves the statistics of package ratelimit to Prometheus under the names that envoyproxy/ratelimit has
// them, which a mapping of statsd_exporter makes of the names of statsd.
package prom

import (
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/statsd_exporter/pkg/mapper"
)

// Config says where the statistics are served.
type Config struct {
	// Address is the host:port of the listener; empty: none.
	Address string `yaml:"address"`
	// Path is where they are on it.
	Path string `yaml:"path"`
	// MapperFile is a mapping of statsd_exporter (YAML) of names to names and labels; empty: that server's own.
	MapperFile string `yaml:"mapper_file"`
}

// DefaultConfig returns the defaults of envoyproxy/ratelimit, without an address.
func DefaultConfig() Config { return Config{Path: "/metrics"} }

// Validate reports the first wrong setting.
func (c *Config) Validate() error {
	if _, port, err := net.SplitHostPort(c.Address); c.Address != "" && (err != nil || port == "") {
		return fmt.Errorf("address: %.80q: want host:port", c.Address)
	}
	if !strings.HasPrefix(c.Path, "/") || strings.ContainsAny(c.Path, "{} ") {
		return fmt.Errorf("path: %.80q: want a path, as /metrics", c.Path)
	}
	if c.Address == "" && c.MapperFile != "" {
		return errors.New("mapper_file: a mapping without an address: nothing is served")
	}
	return nil
}

//go:embed mapping.yaml
var mapping string

// Each calls f with every counter and its total.
type Each func(f func(name string, total uint64))

// Collector collects counters with mapped names. New makes it.
type Collector struct {
	each   Each
	mapper mapper.MetricMapper
}

// New returns a collector of a valid configuration. If the file cannot be read, the collector has the mapping of
// envoyproxy/ratelimit, and is returned with the error.
func New(cfg Config, each Each) (*Collector, error) {
	c := &Collector{each: each}
	if cfg.MapperFile != "" {
		text, err := os.ReadFile(cfg.MapperFile)
		if err == nil { // the one was the name of the other, and still is in files of Envoy Gateway
			err = c.mapper.InitFromYAMLString(strings.ReplaceAll(string(text), "timer_type:", "observer_type:"))
		}
		if err == nil {
			return c, nil
		}
		c.mapper = mapper.MetricMapper{}
		return c, errors.Join(fmt.Errorf("mapper_file: %w", err), c.mapper.InitFromYAMLString(mapping))
	}
	return c, c.mapper.InitFromYAMLString(mapping)
}

// Describe describes nothing: names and labels come from the mapping.
func (c *Collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the counters. Those that become one by the mapping are added up.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	type counter struct {
		name   string
		labels prometheus.Labels
		total  uint64
	}
	var all []*counter
	seen := make(map[string]*counter)
	c.each(func(name string, total uint64) {
		to, labels, ok := c.mapper.GetMapping(name, mapper.MetricTypeCounter)
		if ok && to.Action == mapper.ActionTypeDrop {
			return
		}
		if ok {
			name = to.Name
		}
		name = mapper.EscapeMetricName(name)
		key := fmt.Sprint(name, labels) // maps are printed in order
		m := seen[key]
		if m == nil {
			m = &counter{name: name, labels: labels}
			seen[key], all = m, append(all, m)
		}
		m.total += total
	})
	for _, m := range all {
		desc := prometheus.NewDesc(m.name, "A statistic of envoyproxy/ratelimit.", nil, m.labels)
		metric, err := prometheus.NewConstMetric(desc, prometheus.CounterValue, float64(m.total))
		if err != nil { // the mapping's
			metric = prometheus.NewInvalidMetric(desc, err)
		}
		out <- metric
	}
}
