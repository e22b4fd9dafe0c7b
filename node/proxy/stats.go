package proxy

import (
	"time"

	"github.com/edgelimit/edgelimit/node/actions"
)

// Stats are totals since the start, except for WebSockets and UpstreamStats.Up.
type Stats struct {
	Classes    [6]uint64 // requests by the first digit of their status, from 1
	Retries    uint64
	WebSockets int // that are open
	LogErrors  uint64
	Upstreams  []UpstreamStats
	Described  []actions.Stats // of the routes, and of all other requests
}

// UpstreamStats are those of an upstream.
type UpstreamStats struct {
	Name     string // as it is configured
	Up       bool
	Requests uint64
	// Connects, Timeouts and Broken are requests without a response: no connection, not in time, or otherwise.
	Connects, Timeouts, Broken uint64
}

// Stats returns the totals.
func (p *Proxy) Stats() Stats {
	s := Stats{Retries: p.retries.Load(), WebSockets: int(p.open.Load())}
	for i := range s.Classes {
		s.Classes[i] = p.classes[i].Load()
	}
	if p.access != nil {
		s.LogErrors = p.access.Failures()
	}
	now := time.Now()
	for _, u := range p.upstreams {
		s.Upstreams = append(s.Upstreams, UpstreamStats{Name: u.name, Up: u.up(now), Requests: u.requests.Load(),
			Connects: u.connects.Load(), Timeouts: u.timeouts.Load(), Broken: u.broken.Load()})
	}
	for i := range p.routes {
		s.Described = append(s.Described, p.routes[i].actions.Stats())
	}
	return s
}

// Panics returns how many requests ended in a panic.
func (p *Proxy) Panics() uint64 { return p.panics.Load() }
