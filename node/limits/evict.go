package limits

import (
	"log/slog"
	"maps"
	"math"
	"net/netip"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// makeRoom evicts a kind, if necessary, for one that a source brings. The lock is held.
func (k *Keeper[Kind]) makeRoom(from netip.Addr, now time.Time) {
	proven := *k.proven.Load()
	if len(proven)+len(k.trial) < k.opt.Max || k.dropExpired(proven, now.UnixNano()) {
		return
	}
	source := k.greediest(from)
	held := k.places[source]
	kind, found := leastRecent(k.trial, source)
	if found {
		k.drop(k.trial, kind)
	} else {
		kind, _ = leastRecent(proven, source)
		others := maps.Clone(proven)
		k.drop(others, kind)
		k.proven.Store(&others)
	}
	k.evicted.Add(1)
	if k.warning.Due(now) {
		k.opt.Logger.Warn(
			"more ad-hoc limits are in use than are kept: the least used are evicted for new ones",
			slog.String("api", k.opt.API), slog.Int("kept", k.opt.Max),
			slog.String("source", source.String()), slog.Int("of_source", held))
	}
}

// dropExpired drops all kinds under which nothing counts any more, and reports whether there were any.
func (k *Keeper[Kind]) dropExpired(proven map[Kind]*kept, now int64) bool {
	if now < k.expiry {
		return false
	}
	k.expiry = math.MaxInt64
	expired := func(l *kept) bool {
		at := l.expires()
		if at > now {
			k.expiry = min(k.expiry, at)
		}
		return at <= now
	}
	before := len(k.trial) + len(proven)
	for kind, l := range k.trial {
		if expired(l) {
			k.drop(k.trial, kind)
		}
	}
	var others map[Kind]*kept // nil as long as there is no need of a copy
	for kind, l := range proven {
		if !expired(l) {
			continue
		}
		if others == nil {
			others = maps.Clone(proven)
		}
		k.drop(others, kind)
	}
	if others != nil {
		k.proven.Store(&others)
		proven = others
	}
	return len(k.trial)+len(proven) < before
}

// drop takes a kind out of a map that may be written to, and gives back its place.
func (k *Keeper[Kind]) drop(limits map[Kind]*kept, kind Kind) {
	from := limits[kind].from
	if k.places[from]--; k.places[from] == 0 {
		delete(k.places, from)
	}
	delete(limits, kind)
}

// greediest is the source that holds the most places, once the one given has the place that it asks for: this one
// before its equals.
func (k *Keeper[Kind]) greediest(from netip.Addr) netip.Addr {
	largest, source := k.places[from]+1, from
	for other, n := range k.places {
		if n > largest {
			largest, source = n, other
		}
	}
	if k.places[source] == 0 { // each source holds one: it takes that of any
		for other := range k.places {
			return other
		}
	}
	return source
}

// leastRecent returns the kind of a source that was charged least recently, if it holds any.
func leastRecent[Kind comparable](limits map[Kind]*kept, source netip.Addr) (kind Kind, found bool) {
	var oldest int64
	for other, l := range limits {
		if at := l.charged.Load(); l.from == source && (!found || at < oldest) {
			kind, oldest, found = other, at, true
		}
	}
	return kind, found
}

// expires is when nothing counts any more that was charged.
func (l *kept) expires() int64 { return l.charged.Load() + int64(coarse) + int64(counts(l.Limit)) }

// counts is for how long a charge may count: until the sub-window that holds it has left a window, or until a bucket
// is full again, of which twice the capacity may have been taken (counters.Charge.Overdraw).
func counts(l *counters.Limit) time.Duration {
	m := l.Meter()
	if l.Refill() == 0 {
		return m.Window + m.Sub
	}
	return max(2*l.Lasts(), m.Window)
}

// SourceOf is the source of an address: of an IPv6 address its network of 64 bits, as one client has all of it; the
// zero source of what is none.
func SourceOf(addr netip.Addr) netip.Addr {
	addr = addr.Unmap().WithZone("")
	if addr.Is6() {
		network, _ := addr.Prefix(64)
		return network.Addr()
	}
	return addr
}
