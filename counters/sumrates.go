package counters

import (
	"math"
	"time"
	"unsafe"
)

// sumRates are the rates that nodes are asked for a key, as an owner sends them.
type sumRates struct {
	near, far, lost float32
	due             bool // they are sent even if no count rose
	all             bool // all members are sent the sums, those too that did not ask for the key
	spread          bool // they were before
}

// ownedRate is what an owner measures of a hot key of its own.
type ownedRate struct {
	sent   float32 // rate of all nodes as it was last sent
	risen  float32 // cost by which the counts of the region rose since measured
	rate   float32 // the same a second: what is admitted there, at least
	spread bool    // all members are sent the sums
	_      [3]uint8
	sentAt int64
	at     int64 // when rate was last measured; 0: never
}

const ownedRateWords = int(unsafe.Sizeof(ownedRate{}) / wordBytes)

func (m *memory) ownedRate(ref uint32) *ownedRate { return (*ownedRate)(m.at(ref)) }

// ensureOwned returns the ownedRate of a hotKey and makes one if there is none; nil if there is no memory for it.
func (t *Table) ensureOwned(s *shard, c *cell, w *hotKey, now int64) *ownedRate {
	if w.owned == 0 {
		if w.owned = t.alloc(s, ownedRateWords, c, now); w.owned == 0 {
			return nil
		}
	}
	return s.memory.ownedRate(w.owned)
}

// measure updates the rate: a moving average over DemandMemory. Members report demand only for keys that they know to
// be hot.
func (o *ownedRate) measure(drainedAt, now int64) {
	first := o.at == 0
	gap := now - o.at
	if first {
		gap = now - drainedAt
	}
	if gap <= 0 {
		return
	}
	seconds := time.Duration(gap).Seconds()
	rate := o.risen / float32(seconds)
	if first {
		o.rate = rate
	} else {
		o.rate += (rate - o.rate) * float32(1-math.Exp(-seconds/DemandMemory.Seconds()))
	}
	o.risen, o.at = 0, now
}

// due reports whether a rate has to be sent, as hotKey.changed does, and takes it for sent then.
func (o *ownedRate) due(rate float32, now int64) bool {
	since := now - o.sentAt
	due := since < 0 || since >= resendEvery || float32(math.Abs(float64(rate-o.sent))) > resendShare*o.sent
	if due {
		o.sentAt, o.sent = now, rate
	}
	return due
}

// sumRates adds up the demand for a cell, and notes whose part it is. Only a key that may be near its limit has any. It
// leaves out what another owner of the region added up: two owners would send each other their own demand back.
func (t *Table) sumRates(x *outgoing) (r sumRates) {
	s, c, m, l, now := x.s, x.c, x.m, x.m.limit.Load(), x.now
	if l == nil || l.max == 0 || c.hotKey == 0 {
		return r
	}
	w, cl := s.memory.hotKey(c.hotKey), t.keepers(l)
	owned := &ownedRate{}
	if w.owned != 0 { // none is made here: memory for it may take a cell that has to be added up first
		owned = s.memory.ownedRate(w.owned)
		owned.measure(s.drainedAt, now)
		w.unsent = 0
	}
	r.near = float32(w.ownNow(c, s.drainedAt, cl.horizon, now))
	for link := &w.peerRates; *link != 0; {
		v := s.memory.peerRate(*link)
		place, watermark := s.placeOf(v.origin), t.origins.watermarkOf(v.origin, c)
		if v.over(watermark, now) || place.isDown() && v.outdated(now) {
			s.removePeerRate(link)
			w.raise(stale)
			continue
		}
		link = &v.next
		if place.isDown() {
			continue
		}
		of := t.sums.get(v.origin)
		of.rate = v.rate
		of.lost = v.age(watermark, now) > SilentAfter*cl.horizon
		switch {
		case of.lost:
			r.lost += v.rate
		case place == Near:
			r.near += v.rate
		case place.isFar():
			r.far += v.rate
		}
	}
	r.near = max(r.near, owned.rate)
	all := r.near + r.far + r.lost
	view := s.view(c, m, x.instant)
	isSoon := soon(l.max-min(view, l.max), all, cl.horizon)
	if now >= w.until && coolShare*view < l.max && !isSoon {
		owned.spread = false
		return sumRates{}
	}
	r.due = owned.due(all, now)
	r.spread = owned.spread
	r.all = (r.spread || hotShare*view >= l.max || isSoon) && t.sums.isWide()
	owned.spread = r.all
	return r
}
