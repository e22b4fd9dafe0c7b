package telemetry

import (
	"log/slog"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
	"github.com/edgelimit/edgelimit/node/limits"
)

// alarm warns, once a minute at most, by how much a total has risen since its last warning.
type alarm struct {
	logged uint64 // the total at the last warning
	every  limits.OncePerMinute
}

// tableAlarms warn when keys are evicted that count, each of which may be admitted anew, and when peers report what no
// honest one can. They are not safe for concurrent use.
type tableAlarms struct {
	log    *slog.Logger
	memory string // the budget

	evictedDenied, evictedFull, evictedRemote, implausible, unknownOrigins, retiredOrigins, denials alarm
}

// manyDenials is how many keys a minute have to be denied because of one peer alone for a warning. Some are, where
// clients have a node of their own.
const manyDenials = 1000

// look warns of what has risen.
func (a *tableAlarms) look(s counters.Stats, members []gossip.MemberStatus, now time.Time) {
	warn := func(alarm *alarm, total, least uint64, text, unit string, more ...any) {
		if total == alarm.logged || !alarm.every.Due(now) {
			return
		}
		rose := total - alarm.logged
		if alarm.logged = total; rose >= least {
			a.log.Warn(text, append([]any{unit, rose}, more...)...)
		}
	}
	warn(&a.evictedDenied, s.EvictedDenied, 1, "keys over their limit were evicted and may be admitted again: give "+
		"the counters more memory", "keys", "memory", a.memory)
	warn(&a.evictedFull, s.EvictedFull, 1, "keys that had used half of their limit or more were evicted and may be "+
		"admitted as much again, which is in the over-admission bound: give the counters more memory",
		"keys", "memory", a.memory)
	warn(&a.denials, s.DeniedByOne, manyDenials, "many keys were denied here because of what one peer alone reported: "+
		"see whether it gets that many requests; if it does not, or is not yours, rotate the gossip key, as whoever "+
		"holds it can speak in any node's name", "keys", "peer", memberName{s.LastDenier, members})
	warn(&a.implausible, s.Implausible, 1, "refused implausible counts, of more than a node can have admitted; until "+
		"they end each node keeps a local floor of half its share of the limits concerned: if the node has other "+
		"limits, give it the same rules; if not, upgrade or stop it; if it is not yours, rotate the gossip key, as "+
		"whoever holds it can speak in any node's name", "slots", "rule", s.LastImplausible.Rule,
		"sender", memberName{s.LastImplausible.Sender, members},
		"in_the_name_of", memberName{s.LastImplausible.Origin, members})
	warn(&a.unknownOrigins, s.OriginsRefused, 1, "refused counts of origins that are no members: a peer names more of "+
		"them than nodes can have started in a window; members' counts are not concerned; if nodes start that often, "+
		"shorten the longest windows; if not, rotate the gossip key", "slots")
	warn(&a.retiredOrigins, s.OriginsRetired, 1, "forgot what nodes counted that are no members any more, those "+
		"silent for longest first: more nodes started within the longest window than can be told apart", "origins")
	warn(&a.evictedRemote, s.EvictedRemote, 1, "keys that only peers count took up more than half of the memory, and "+
		"some were evicted: give the counters more memory, or look for a peer that counts made-up keys", "keys")
}

// memberName is region/node of the member that owns an origin. The log asks for it when it writes: it takes a hash for
// each member.
type memberName struct {
	origin  counters.Origin
	members []gossip.MemberStatus
}

// LogValue implements slog.LogValuer.
func (n memberName) LogValue() slog.Value {
	for i := range n.members {
		if m := &n.members[i]; m.Member.Origin() == n.origin {
			return slog.StringValue(m.Region + "/" + m.NodeID)
		}
	}
	return slog.StringValue("unknown")
}
