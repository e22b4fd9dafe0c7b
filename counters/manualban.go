package counters

import (
	"fmt"
	"time"
)

// A manual ban is one that an operator begins. It is a slot like other bans, of a meter that is no limit's: what its
// name says is up to the caller, and its window is as long as the ban. The table replicates, keeps and lifts it; to
// deny requests by it is up to the caller, too, who learns of it by [Table.WatchBans].

// Bans are the bans of a meter of the algorithm [Ban]. They are immutable.
type Bans struct{ banSpec }

// NewBans returns the bans of a meter, which may come from a peer. The error says what is wrong with it.
func NewBans(m Meter) (*Bans, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	if m.Algorithm != Ban {
		return nil, fmt.Errorf("meter %s: the algorithm %s is not that of bans", m.Rule, m.Algorithm)
	}
	return &Bans{*newBanSpec(m)}, nil
}

// Meter returns the meter of the bans.
func (b *Bans) Meter() Meter { return b.meter }

// Ban begins a ban of a key, and returns its end, in nanoseconds since the Unix epoch. It goes over lifts of before
// now. kept is false if there is no room for it: then nothing has changed.
func (t *Table) Ban(b *Bans, key Key, now int64) (ends int64, kept bool) {
	h, s := t.locate(b.id, key)
	s.Lock()
	defer s.Unlock()
	until := ceilMillis(now + b.sub)
	if ref, _, ok := s.live(name{&b.lift, key, h}, now); ok { // of a table whose clock is ahead
		until = max(until, *s.cell(ref).until()+b.millis()+1)
	}
	ref, _ := t.reach(s, name{&b.spec, key, h}, true, now)
	if ref == 0 {
		return 0, false
	}
	t.noteTime(s, &b.spec, ref, until)
	return int64(until) * int64(time.Millisecond), true
}

// BanEnds returns the end of a key's ban, in nanoseconds since the Unix epoch; 0 if it has none.
func (t *Table) BanEnds(b *Bans, key Key, now int64) int64 {
	_, s := t.locate(b.id, key)
	s.Lock()
	defer s.Unlock()
	return t.bannedUntil(&b.banSpec, key, 0, t.distrustsBans(nil, &b.banSpec, now), now)
}
