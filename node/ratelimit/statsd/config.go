// Package statsd sends the statistics of package ratelimit to a statsd server, as envoyproxy/ratelimit does: each
// counter by how much it has grown, and none that has not.
package statsd

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/edgelimit/edgelimit/node/text"
)

// Config says where statistics are sent.
type Config struct {
	// Address is the host:port of the server; empty: nothing is sent.
	Address string `yaml:"address"`
	// Network is tcp or udp.
	Network string `yaml:"network"`
	// Interval is the time between two sendings, 1ms to 1h.
	Interval time.Duration `yaml:"interval"`
	// Tags are sent with every statistic.
	Tags map[string]string `yaml:"tags"`
	// Datadog sends tags as DogStatsD expects them, as |#env:prod, and not in the name, as .__env=prod.
	Datadog bool `yaml:"datadog"`
	// Mogrifiers rename statistics. They need Datadog.
	Mogrifiers []Mogrifier `yaml:"mogrifiers"`
}

// DefaultConfig returns the defaults of envoyproxy/ratelimit, without an address.
func DefaultConfig() Config {
	return Config{Network: "tcp", Interval: 10 * time.Second, Tags: map[string]string{}, Mogrifiers: []Mogrifier{}}
}

// Validate reports the first wrong setting.
func (c *Config) Validate() error {
	if _, port, err := net.SplitHostPort(c.Address); c.Address != "" && (err != nil || port == "") {
		return fmt.Errorf("address: %.80q: want host:port", c.Address)
	}
	if c.Network != "tcp" && c.Network != "udp" {
		return fmt.Errorf("network: %.80q: want tcp or udp", c.Network)
	}
	if c.Interval < time.Millisecond || c.Interval > time.Hour {
		return fmt.Errorf("interval: %v, want 1ms to 1h", text.Setting(c.Interval))
	}
	if len(c.Mogrifiers) > 0 && !c.Datadog {
		return errors.New("mogrifiers: they need datadog: true")
	}
	for i := range c.Mogrifiers {
		if err := c.Mogrifiers[i].validate(); err != nil {
			return fmt.Errorf("mogrifiers[%d]: %w", i, err)
		}
	}
	for name := range c.Tags {
		if name == "" {
			return errors.New("tags: one has no name")
		}
	}
	return nil
}
