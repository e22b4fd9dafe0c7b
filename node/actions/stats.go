package actions

import (
	"sync/atomic"
)

// Outcomes are how often something happened to a layer, by what became of it.
type Outcomes struct {
	Skipped uint64 // the layer was left out
	Counted uint64 // under MissingValue, UnreadableValue, or each of several values
	Denied  uint64 // and with it the request
}

// Stats are totals since the start.
type Stats struct {
	Described    uint64 // requests
	NoDescriptor uint64 // requests without any layer, so that no rule limits them
	// Missing are layers whose request lacked a source. Untrusted are those that lacked the method, host,
	// path or query because the peer is no trusted proxy.
	Missing, Untrusted Outcomes
	// Ambiguous are layers with a source that servers read differently, or that cannot be read.
	Ambiguous Outcomes
	// IgnoredHeaders are requests with headers for the client's address or the original request from a peer that is no
	// trusted proxy.
	IgnoredHeaders uint64
}

// Stats returns the totals.
func (a *Actions) Stats() Stats {
	s := &a.stats
	return Stats{
		Described: s.described.Load(), NoDescriptor: s.noDescriptor.Load(), IgnoredHeaders: s.ignoredHeaders.Load(),
		Missing: s.missing.load(), Untrusted: s.untrusted.load(), Ambiguous: s.ambiguous.load(),
	}
}

type stats struct {
	described, noDescriptor, ignoredHeaders atomic.Uint64
	missing, untrusted, ambiguous           outcomes
}

type outcomes struct{ skipped, counted, denied atomic.Uint64 }

func (o *outcomes) load() Outcomes {
	return Outcomes{Skipped: o.skipped.Load(), Counted: o.counted.Load(), Denied: o.denied.Load()}
}
