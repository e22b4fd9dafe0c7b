package node

import (
	"log/slog"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
)

// lieAlarm warns when peers tell counts that no node can have admitted. It is not safe for concurrent use.
type lieAlarm struct {
	log  *slog.Logger
	told uint64    // how many the last warning included
	at   time.Time // when that was
}

// look warns of what came since the last warning, once a minute at most. The last of it was told of the origin given, which a member may
// own.
func (a *lieAlarm) look(s counters.Stats, origin counters.Origin, members []gossip.MemberStatus, now time.Time) {
	if s.Implausible == a.told || !a.at.IsZero() && now.Sub(a.at) < alarmEvery {
		return
	}
	name := "unknown"
	for _, m := range members {
		if m.Member.Origin() == origin {
			name = m.Region + "/" + m.NodeID
		}
	}
	a.log.Warn("refused counts that no node can have admitted; until they end each node keeps a floor of half its share of every limit: "+
		"if the node has other limits, give it the same rules; if not, upgrade or stop it; if it is not yours, rotate the gossip key, as whoever "+
		"holds it can speak in any node's name", "slots", s.Implausible-a.told, "in_the_name_of", name)
	a.told, a.at = s.Implausible, now
}
