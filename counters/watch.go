package counters

import (
	"math"
	"time"
	"unsafe"
)

// watch is what is known of the demand for a key, by which its limit is shared out once it runs short: see thin.go. A key gets one when
// half of its limit is used, or a peer tells what it is asked for.
type watch struct {
	view     uint64  // what was used of the limit at the last decision
	until    int64   // the key is an offender until then
	measured int64   // when its own demand was last measured
	told     int64   // when that was last told
	summed   int64   // when the sums below were made
	own      float32 // cost per second that this table is asked for
	said     float32 // what was told of it
	live     float32 // cost per second that all are asked for who are heard
	none     uint16  // always 0, where a cell has its meter: there are cells of as many words, and this is how to tell that it is none
	stale    bool    // the sums are to be made again
	_        uint8
	frozen   float32 // and who are not
	due      float32 // cost that peers who are heard were asked for and have not told yet
	part     float32 // of what is asked for that is admitted
	credit   float32 // of the next request, while not all are admitted
	unsent   float32 // cost that was admitted and not told yet
	voices   uint32  // the first
	ghost    uint32  // of those who are not heard, 0 while all are
	_        uint32
}

// voice is what one other origin is asked for.
type voice struct {
	next   uint32
	at     uint32 // when it told, see voiceTime
	rate   float32
	origin uint16 // its number
	frozen bool   // it is not heard any more
	dated  bool   // its clock is known to say so
}

const (
	watchWords = int(unsafe.Sizeof(watch{}) / wordBytes)
	voiceWords = int(unsafe.Sizeof(voice{}) / wordBytes)

	// watchedShare of the limit, one half, makes a watch; where less than unwatchedShare is used, a quarter, it can go.
	watchedShare   = 2
	unwatchedShare = 4
	// maxVoices caps the time that peers can make a request take.
	maxVoices = 1 << 10
	// maxRate caps what a peer can say that it is asked for: no sum of it overflows.
	maxRate = MaxLimit
	// retell is how often demand is told that stays as it is, and retellShare by how much of it it changes to be told at once.
	retell      = int64(500 * time.Millisecond)
	retellShare = 0.3
	// A voice that is not heard again for so long has fallen silent: nobody asks it any more.
	voiceLasts = 1200 * time.Millisecond
)

func (m *memory) watch(ref uint32) *watch { return (*watch)(m.at(ref)) }
func (m *memory) voice(ref uint32) *voice { return (*voice)(m.at(ref)) }

// voiceTime is a time as voices note it: about a millisecond is fine enough, and 32 bits last for weeks.
func voiceTime(now int64) uint32 { return uint32(now >> 20) }

// watched returns the cell's watch, a new one if it has none; nil where there is no room.
func (t *Table) watched(s *shard, c *cell, now int64) *watch {
	if c.watch != 0 {
		return s.memory.watch(c.watch)
	}
	if c.watch = t.alloc(s, watchWords, c, now); c.watch == 0 {
		return nil
	}
	w := s.memory.watch(c.watch)
	w.part, w.unsent = 1, float32(c.offered)
	return w
}

// exactUnsent is up to where a float32 counts.
const exactUnsent = 1 << 24

// untold is what was admitted of the cell's key and not told yet; where that is not known, what was asked for.
func (s *shard) untold(c *cell) uint64 {
	if c.watch != 0 {
		if w := s.memory.watch(c.watch); w.unsent < exactUnsent {
			return min(uint64(w.unsent), uint64(c.offered))
		}
	}
	return uint64(c.offered)
}

// unwatch frees what is known of the demand.
func (s *shard) unwatch(c *cell) {
	if c.watch == 0 {
		return
	}
	for ref := s.memory.watch(c.watch).voices; ref != 0; {
		ref = s.hush(ref)
	}
	s.lay(s.memory.watch(c.watch))
	s.memory.free(c.watch)
	c.watch = 0
}

// hush frees a voice, and returns the next.
func (s *shard) hush(ref uint32) uint32 {
	v := s.memory.voice(ref)
	next := v.next
	s.origins.bearers[v.origin].Add(-1)
	s.memory.free(ref)
	return next
}

// ahead reports whether the voice told at a time to come: the clock was set back.
func (v *voice) ahead(now int64) bool { return int32(v.at-voiceTime(now)) > 0 }

// age is how old what is known of the key at the voice's origin is, of whom all is known that came before asOf. What was told of the key
// since is younger than what is known of the origin, of which a frame may be missing: a frame tells counts so far.
func (v *voice) age(asOf, now int64) int64 {
	age := now - asOf
	if v.dated {
		age = min(age, int64(int32(voiceTime(now)-v.at))<<20)
	}
	return max(0, age)
}

// over reports whether the voice says nothing any more, of whose origin all is known that came before asOf.
func (v *voice) over(asOf, now int64) bool {
	told := v.at
	if v.ahead(now) {
		told = voiceTime(now)
	}
	return asOf == Gone || int32(voiceTime(asOf)-told) > int32(voiceTime(int64(voiceLasts)))
}

// toldAt is when the slot was told, as a voice can note it: not in the future, and not before its 32 bits reach back.
func (s *Slot) toldAt(now int64) int64 {
	if s.Told == 0 {
		return now
	}
	return min(max(s.Told, now-int64(time.Hour)), now)
}

// hear notes what an origin told at a time that it is asked for. What comes late, after something newer, changes nothing.
func (t *Table) hear(s *shard, c *cell, origin uint16, slot *Slot, now int64) {
	rate, told, dated := min(slot.Demand, maxRate), voiceTime(slot.toldAt(now)), slot.Told != 0
	w := t.watched(s, c, now)
	if w == nil {
		return
	}
	link, passed := &w.voices, 0
	for ; *link != 0 && passed < maxVoices; passed++ {
		v := s.memory.voice(*link)
		if v.origin == origin {
			if int32(told-v.at) >= 0 || v.ahead(now) {
				v.rate, v.at, v.dated, w.stale = rate, told, dated, true
			}
			return
		}
		link = &v.next
	}
	if passed == maxVoices {
		return
	}
	ref := t.alloc(s, voiceWords, c, now)
	if ref == 0 {
		return
	}
	*s.memory.voice(ref) = voice{next: w.voices, at: told, rate: rate, origin: origin, dated: dated}
	w.voices, w.stale = ref, true
	s.origins.bearers[origin].Add(1)
}

// ownNow is what this table is asked for, in cost per second, as far as can be told between two drains.
func (w *watch) ownNow(c *cell, drainedAt, horizon, now int64) float64 {
	quiet := max(0, now-w.measured-horizon)
	own := float64(w.own) * math.Exp(-time.Duration(quiet).Seconds()/demandMemory.Seconds())
	if since := now - drainedAt; since > horizon/4 {
		own = max(own, float64(c.offered)/time.Duration(since).Seconds())
	}
	return own
}

// measure brings the table's own demand up to date, at the end of an interval in which the key was asked for.
func (w *watch) measure(offered uint32, elapsed float64, now int64) {
	if elapsed <= 0 {
		return
	}
	if w.measured == 0 {
		w.own = float32(float64(offered) / elapsed)
	} else {
		gap := max(elapsed, time.Duration(now-w.measured).Seconds())
		w.own += (float32(float64(offered)/gap) - w.own) * float32(1-math.Exp(-gap/demandMemory.Seconds()))
	}
	w.measured, w.stale = now, true
}

// news reports whether the table's own demand is to be told, of which peers know what was told last.
func (w *watch) news(now int64) bool {
	since := now - w.told
	return since < 0 || since >= retell || float32(math.Abs(float64(w.own-w.said))) > retellShare*w.said
}

// watchOver brings the watch of a cell that is drained up to date: it makes one where half of the limit is used. It returns nil where
// nobody needs to know the demand: of a key that is no offender, and has less than a quarter of its limit used. Once no peer speaks of
// such a key either, its watch goes.
func (t *Table) watchOver(s *shard, c *cell, m *meterState, at instant, elapsed float64, now int64) *watch {
	l := m.limit.Load()
	if l == nil || l.max == 0 || t.keepers(l).peers == 0 {
		return nil
	}
	view := s.view(c, m, at)
	if c.watch == 0 && l.maxUnsent == 0 && watchedShare*view < l.max {
		return nil
	}
	w := t.watched(s, c, now)
	if w == nil {
		return nil
	}
	w.measure(c.offered, elapsed, now)
	if now >= w.until && unwatchedShare*view < l.max {
		if l.maxUnsent == 0 && !t.spokenOf(s, w, now) {
			s.unwatch(c)
			return nil
		}
		w.unsent = 0 // it is told, but for the demand
		return nil
	}
	return w
}

// spokenOf reports whether a peer says that it is asked for the key.
func (t *Table) spokenOf(s *shard, w *watch, now int64) bool {
	for ref := w.voices; ref != 0; {
		v := s.memory.voice(ref)
		if !v.over(t.heard[v.origin].Load(), now) {
			return true
		}
		ref = v.next
	}
	return false
}

// tell adds the demand to the newest of the slots that are told of the cell, from the one at first. Where none is, and the demand is
// news, it is told with the count as it was.
func (s *shard) tell(dst []Slot, first int, c *cell, w *watch, m *meterState, origin Origin, now int64) []Slot {
	if len(dst) == first {
		if !w.news(now) {
			return dst
		}
		ring := c.counts(&m.shape)
		own, _ := s.ownAt(c, ring, len(ring)-1, c.slots)
		dst = append(dst, Slot{Meter: &m.Meter, Key: c.key, Index: c.index, Origin: origin, Birth: c.birth, Count: own})
	}
	dst[first].Demand = w.own
	w.said, w.told, w.unsent = w.own, now, 0
	return dst
}
