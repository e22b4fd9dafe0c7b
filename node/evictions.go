package node

import (
	"log/slog"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// evictionAlarm warns when keys that are over their limit went to make room: each begins at nothing again, and may be admitted a whole
// limit more. It is not safe for concurrent use.
type evictionAlarm struct {
	log    *slog.Logger
	budget Size
	told   uint64    // how many the last warning included
	at     time.Time // when that was
}

// alarmEvery is how long the alarm is silent after a warning.
const alarmEvery = time.Minute

// look warns of what went since the last warning, once a minute at most.
func (a *evictionAlarm) look(s counters.Stats, now time.Time) {
	if s.EvictedDenied == a.told || !a.at.IsZero() && now.Sub(a.at) < alarmEvery {
		return
	}
	a.log.Warn("keys over their limit had to go to make room, and may be admitted again: give the counters more memory",
		"keys", s.EvictedDenied-a.told, "memory", a.budget.String())
	a.told, a.at = s.EvictedDenied, now
}
