package telemetry

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/gossip"
)

// rulesHold is how long a peer has other rules before the log says so: a reload reaches the nodes one after the other,
// and a new fingerprint takes a second or two to arrive.
const rulesHold = 8 * time.Second

// fingerprintAlarm logs which peers have another fingerprint, of rules or of the identity key, than the node. look is
// not safe for concurrent use.
type fingerprintAlarm struct {
	log        *slog.Logger
	level      slog.Level
	text, over string        // logged when peers differ, and when none does any more
	hold       time.Duration // how long a peer differs before it is logged

	count    atomic.Int64         // peers that differ now
	since    map[string]time.Time // when each of them was first seen to differ, by name
	reported []string
}

func newRulesAlarm(log *slog.Logger) *fingerprintAlarm {
	return &fingerprintAlarm{log: log, level: slog.LevelWarn, hold: rulesHold,
		text: "peers have other rules or overrides than this node: give all nodes the same rule files, " +
			"default_algorithm and ipv6_prefix",
		over: "all peers have the rules of this node again"}
}

func newIdentityAlarm(log *slog.Logger) *fingerprintAlarm {
	return &fingerprintAlarm{log: log, level: slog.LevelError,
		text: "peers have another identity key than this node: their counts and those of this node do not add up, " +
			"so that each client has its limit there and here; give all nodes the same key file",
		over: "all peers have the identity key of this node again"}
}

// look takes the names of the peers that differ, of so many.
func (a *fingerprintAlarm) look(differing []string, peers int, now time.Time) {
	a.count.Store(int64(len(differing)))
	before := a.since
	a.since = make(map[string]time.Time, len(differing))
	var due []string
	news := false
	for _, name := range differing {
		first, known := before[name]
		if !known {
			first = now
		}
		if a.since[name] = first; now.Sub(first) >= a.hold {
			due = append(due, name)
			news = news || !slices.Contains(a.reported, name)
		}
	}
	if news {
		a.log.Log(context.Background(), a.level, a.text, "peers", firstNames(due), "count", len(due), "of", peers)
		a.reported = due
	}
	if len(differing) == 0 && len(a.reported) > 0 {
		a.reported = nil
		a.log.Info(a.over)
	}
}

// differing returns the names of the members with another fingerprint. Members that send none (0) may have the same.
func differing(members []gossip.MemberStatus, own uint64, of func(*gossip.Member) uint64) (names []string) {
	for i := range members {
		if f := of(&members[i].Member); f != 0 && f != own {
			names = append(names, peerName(&members[i]))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
