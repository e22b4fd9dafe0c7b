package limits

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/clientaddr"
)

// makeRoom evicts all kinds that have expired, or else one, for a new kind of a source. The lock is held.
func (k *Keeper[Kind]) makeRoom(from netip.Addr, now time.Time) {
	source := k.greediest(from)
	var expired []Kind
	var victim Kind
	var least *kept // the victim's
	at := now.UnixNano()
	for kind, l := range k.all {
		if l.charged.Load()+l.counts <= at {
			expired = append(expired, kind)
		} else if l.from == source && (least == nil || l.goesBefore(least)) {
			victim, least = kind, l
		}
	}
	if len(expired) > 0 {
		k.drop(expired...)
		return
	}
	held := k.places[source]
	k.drop(victim)
	k.evicted.Add(1)
	if k.warning.Due(now) {
		k.opt.Logger.Warn("more ad-hoc limits are in use than are kept: the least used are evicted for new ones",
			slog.String("api", k.opt.API), slog.Int("kept", k.opt.Max),
			slog.String("source", source.String()), slog.Int("of_source", held))
	}
}

// drop removes kinds. The lock is held.
func (k *Keeper[Kind]) drop(kinds ...Kind) {
	proven := false
	for _, kind := range kinds {
		l := k.all[kind]
		delete(k.all, kind)
		if k.places[l.from]--; k.places[l.from] == 0 {
			delete(k.places, l.from)
		}
		proven = proven || l.proven
	}
	if proven {
		k.publish()
	}
}

// greediest returns the source that holds the most kinds, counting the new one of the source given, which goes before
// its equals. Where every source holds one, it is any.
func (k *Keeper[Kind]) greediest(from netip.Addr) netip.Addr {
	largest, source := k.places[from]+1, from
	for other, n := range k.places {
		if n > largest || k.places[source] == 0 {
			largest, source = n, other
		}
	}
	return source
}

// goesBefore reports whether l is evicted before another limit of its source.
func (l *kept) goesBefore(other *kept) bool {
	if l.proven != other.proven {
		return other.proven
	}
	return l.charged.Load() < other.charged.Load()
}

// counts returns for how long a charge may count: until its sub-window has left the window, or until a bucket is full
// again, of which twice the capacity may have been taken (counters.Charge.Overdraw).
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
	addr = clientaddr.Of(addr)
	if addr.Is6() {
		network, _ := addr.Prefix(64)
		return network.Addr()
	}
	return addr
}
