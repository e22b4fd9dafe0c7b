package counters

import "time"

// NewTiny returns a table whose shards hold a few pages each, so that they are soon full.
func NewTiny(origin Origin, pages int) *Table {
	return NewTinyIn(Config{Origin: origin}, pages)
}

// NewTinyIn is NewTiny for a table in a region.
func NewTinyIn(cfg Config, pages int) *Table {
	return newTable(cfg, (pages+1)*(pageWords*wordBytes+64)*20/19)
}

// What users of the package need no name for.
const (
	Lifts         = lifts
	Credits       = credits
	MaxMeters     = maxMeters
	MaxSubWindows = maxSubWindows
	MaxBirth      = maxBirth
	Unplaced      = unplaced
	DebtClasses   = debtClasses
)

// AdHoc reports whether a meter belongs to an ad-hoc limit.
func AdHoc(m Meter) bool { return m.adHoc() }

// LiftBanOf lifts the ban of a limit.
func LiftBanOf(t *Table, l *Limit, key Key, now int64) (left time.Duration, kept bool) {
	return t.LiftBan(&Bans{*l.ban}, key, now)
}

// Believed is the most that a slot is believed to count where the limit is known.
func Believed(l *Limit) uint64 { return maxLimits * (l.max + l.rate.Refill) }

// ShardOf is the number of the shard that a key's cell is in, of a table without a seed.
func ShardOf(l *Limit, key Key) int { return int(hash(0, l.id, key) >> (64 - shardBits)) }

// BanShardOf is that of its ban, the key's own where the limit has none.
func BanShardOf(l *Limit, key Key) int {
	if l.ban == nil {
		return ShardOf(l, key)
	}
	return int(hash(0, l.ban.id, key) >> (64 - shardBits))
}

// SetBirths sets the birth of the last cell that was created in place of an evicted one.
func SetBirths(t *Table, birth uint32) {
	for i := range t.shards {
		t.shards[i].births = birth
	}
}

// HotKeyState is what a table knows of the demand for a key.
type HotKeyState struct {
	Own, Reachable, Unreachable, Estimate float64
	PeerRates                             int
	Until, Summed                         int64
}

// HotKeyState returns what is known of the demand for a key, nil if nothing is.
func (t *Table) HotKeyState(l *Limit, key Key) *HotKeyState {
	h := hash(t.seed, l.id, key)
	s := t.shardOf(h)
	s.Lock()
	defer s.Unlock()
	ref := s.find(l.id, key, h)
	if ref == 0 || s.cell(ref).hotKey == 0 {
		return nil
	}
	w := s.memory.hotKey(s.cell(ref).hotKey)
	seen := &HotKeyState{
		Own: float64(w.own), Reachable: float64(w.reachableRate), Unreachable: float64(w.unreachableRate),
		Until: w.until, Summed: w.summed,
	}
	for ref := w.peerRates; ref != 0; ref = s.memory.peerRate(ref).next {
		seen.PeerRates++
	}
	if w.estimate != 0 {
		for _, n := range s.memory.estimate(w.estimate).counts {
			seen.Estimate += float64(n)
		}
	}
	return seen
}

// LongestFill is how long a bucket of the window may take to fill, in nanoseconds.
func LongestFill(window time.Duration) uint64 { return uint64(longestFill(window)) }

// Panicking returns the limit as no rule can have it: a decision under it divides by zero once the shards are locked.
func Panicking(l *Limit) *Limit {
	other := *l
	other.sub = 0
	return &other
}

// RetireOrigin forgets at once what an origin counted, if the table knows it.
func RetireOrigin(t *Table, o Origin) {
	t.drain.Lock()
	defer t.drain.Unlock()
	ot := &t.origins
	ot.Lock()
	if k := ot.known(uint64(o)); k != 0 {
		ot.state(k).retired.Store(true)
		ot.state(k).watermark.Store(Gone)
		ot.sweep = sweep{left: shards}
	}
	ot.Unlock()
	for ot.sweep.left > 0 {
		t.sweepRetired()
	}
}
