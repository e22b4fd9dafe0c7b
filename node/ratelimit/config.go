package ratelimit

import (
	"fmt"

	"golang.org/x/net/http/httpguts"

	"github.com/edgelimit/edgelimit/node/ratelimit/prom"
	"github.com/edgelimit/edgelimit/node/ratelimit/statsd"
)

// Config is what envoyproxy/ratelimit reads from its environment, for `compatibility: ratelimit`.
type Config struct {
	// QuotaMode is QUOTA_MODE: all rules are quotas.
	QuotaMode bool `yaml:"quota_mode"`
	// StopIncrements is STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT: where one descriptor of a request is over the limit,
	// the others are not charged.
	StopIncrements bool `yaml:"stop_increments"`
	// DynamicMetadata is RESPONSE_DYNAMIC_METADATA: answers describe the request.
	DynamicMetadata bool `yaml:"dynamic_metadata"`
	// Headers is LIMIT_RESPONSE_HEADERS_ENABLED: answers bring headers for the client, by these names.
	Headers bool `yaml:"headers"`
	// LimitHeader, RemainingHeader and ResetHeader are LIMIT_LIMIT_HEADER, LIMIT_REMAINING_HEADER and
	// LIMIT_RESET_HEADER.
	LimitHeader     string `yaml:"limit_header"`
	RemainingHeader string `yaml:"remaining_header"`
	ResetHeader     string `yaml:"reset_header"`
	// NearLimitRatio is NEAR_LIMIT_RATIO, the part of a limit from which on it is nearly used up.
	NearLimitRatio float64 `yaml:"near_limit_ratio"`
	// Statsd is where statistics are sent.
	Statsd statsd.Config `yaml:"statsd"`
	// Prometheus is where statistics are served.
	Prometheus prom.Config `yaml:"prometheus"`
}

// DefaultConfig returns the defaults of envoyproxy/ratelimit.
func DefaultConfig() Config {
	return Config{
		LimitHeader: "RateLimit-Limit", RemainingHeader: "RateLimit-Remaining", ResetHeader: "RateLimit-Reset",
		NearLimitRatio: 0.8, Statsd: statsd.DefaultConfig(), Prometheus: prom.DefaultConfig(),
	}
}

// Validate reports the first wrong setting.
func (c *Config) Validate() error {
	if !(c.NearLimitRatio > 0 && c.NearLimitRatio <= 1) {
		return fmt.Errorf("near_limit_ratio: %v, want more than 0 and at most 1", c.NearLimitRatio)
	}
	for key, name := range map[string]string{
		"limit_header": c.LimitHeader, "remaining_header": c.RemainingHeader, "reset_header": c.ResetHeader,
	} {
		if !httpguts.ValidHeaderFieldName(name) {
			return fmt.Errorf("%s: %.80q is no name of a header", key, name)
		}
	}
	if err := c.Statsd.Validate(); err != nil {
		return fmt.Errorf("statsd.%w", err)
	}
	if err := c.Prometheus.Validate(); err != nil {
		return fmt.Errorf("prometheus.%w", err)
	}
	return nil
}
