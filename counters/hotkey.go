package counters

import (
	"math"
	"time"
	"unsafe"
)

// hotKey is the demand for a key near its limit: tables divide the limit by it when it runs short (thin.go). A cell
// gets one when half of its limit is used, or when a peer reports demand for the key. Where nothing else is said, rates
// are costs per second, and times are in nanoseconds.
type hotKey struct {
	view          uint64  // used part of the limit at the last decision
	until         int64   // end of the time for which the key is an offender
	measured      int64   // when own was last measured
	summed        int64   // when the sums below were made
	average       float32 // requests per second that this table is asked for
	sentAt        uint32  // when own was last sent, see coarseTime
	own           float32 // cost per second that this table is asked for, as it is reported to peers
	sentRate      float32 // own as it was last sent
	reachableRate float32 // rate that this table and all reachable peers are asked for
	none          uint16  // always 0, where a cell has its meter: it tells a hotKey from a cell, see eachOn
	flags
	requests        uint8     // for which this table was asked since own was last measured, 255 at most
	unreachableRate float32   // rate that unreachable peers were asked for when they last reported
	due             float32   // cost that reachable peers were asked for since their last report
	part            float32   // part of the requests to admit, 0 to 1
	credit          float32   // cost that may be admitted while part is below 1; grows by part of each request's cost
	unsent          uint32    // cost admitted and not sent yet
	peerRates       uint32    // first of the list
	estimate        uint32    // partitionEstimate; 0 while all peers are reachable
	owned           uint32    // ownedRate, of an owner; 0: none
	left            [2]uint64 // counts of the sub-windows that left the ring last, the newest first
}

// The flags of a hotKey.
const (
	stale   flags = 1 << iota // the sums have to be made again
	watched                   // it is measured in intervals in which nobody asks for it, too
	fresh                     // it was measured once
)

// peerRate is the demand that one peer reported for the key.
type peerRate struct {
	next        uint32
	at          uint32 // time of the report, see coarseTime
	rate        float32
	origin      uint16 // its number
	unreachable bool
	dated       bool // at is the peer's own time, not this table's
}

const (
	hotKeyWords   = int(unsafe.Sizeof(hotKey{}) / wordBytes)
	peerRateWords = int(unsafe.Sizeof(peerRate{}) / wordBytes)

	// A cell gets a hotKey when 1/hotShare of its limit is used, and may lose it below 1/coolShare.
	hotShare  = 2
	coolShare = 4
	// maxPeerRates caps the list, and so the time of a decision.
	maxPeerRates = 1 << 10
	// maxRate caps a reported rate, so that no sum overflows.
	maxRate = MaxLimit
	// resendEvery is the time after which unchanged demand is sent again; resendShare is the relative change that is
	// sent at once.
	resendEvery = int64(500 * time.Millisecond)
	resendShare = 0.3
	// A peer rate that was not reported for this long is dropped: nobody asks that peer for the key any more.
	peerRateLasts = 1200 * time.Millisecond
	// A key is watched from watchedRate requests per second on, or three in an interval, until it is below
	// unwatchedRate.
	watchedRate   = 10
	unwatchedRate = 4
)

func (m *memory) hotKey(ref uint32) *hotKey     { return (*hotKey)(m.at(ref)) }
func (m *memory) peerRate(ref uint32) *peerRate { return (*peerRate)(m.at(ref)) }

// coarseTime is a time in units of 2^20 ns, about a millisecond: 32 bits last for 52 days.
func coarseTime(now int64) uint32 { return uint32(now >> 20) }

// ensureHotKey returns the cell's hotKey and makes one if there is none; nil if there is no memory for it.
func (t *Table) ensureHotKey(s *shard, c *cell, now int64) *hotKey {
	if c.hotKey != 0 {
		return s.memory.hotKey(c.hotKey)
	}
	if c.hotKey = t.alloc(s, hotKeyWords, c, now); c.hotKey == 0 {
		return nil
	}
	w := s.memory.hotKey(c.hotKey)
	w.part, w.unsent = 1, c.offered
	if l := t.meters.state(c.number()).limit.Load(); l != nil {
		w.left = l.leftUnseen()
	}
	w.requests = uint8(min(1, c.offered)) // or more: nobody counted them
	return w
}

// unsentCost returns the cost that was admitted of the cell's key and not sent yet. Without a hotKey it is the cost
// that was asked for, an upper bound.
func (s *shard) unsentCost(c *cell) uint64 {
	if c.hotKey != 0 {
		return uint64(min(s.memory.hotKey(c.hotKey).unsent, c.offered))
	}
	return uint64(c.offered)
}

// dropHotKey frees the hotKey, its peer rates and its estimate.
func (s *shard) dropHotKey(c *cell) {
	if c.hotKey == 0 {
		return
	}
	w := s.memory.hotKey(c.hotKey)
	for w.peerRates != 0 {
		s.removePeerRate(&w.peerRates)
	}
	s.dropEstimate(w)
	if w.owned != 0 {
		s.memory.free(w.owned)
	}
	s.memory.free(c.hotKey)
	c.hotKey = 0
}

// leave notes what leaves the ring when it moves on by so many sub-windows.
func (w *hotKey) leave(ring []uint64, by int64) {
	for i := range int(min(by, int64(len(ring)+len(w.left)))) {
		w.left[1], w.left[0] = w.left[0], 0
		if i < len(ring) {
			w.left[0] = ring[i]
		}
	}
}

// removePeerRate frees the peer rate that a link leads to.
func (s *shard) removePeerRate(link *uint32) {
	s.origins.holders[s.memory.peerRate(*link).origin].Add(-1)
	s.pop(link)
}

// ahead reports whether the report is from the future: the clock stepped back.
func (v *peerRate) ahead(now int64) bool { return int32(v.at-coarseTime(now)) > 0 }

// age returns how long ago the peer last reported this key, given its watermark. The report may be newer than the
// watermark, which waits for missing frames; as counts are cumulative, the newer of the two counts.
func (v *peerRate) age(watermark, now int64) int64 {
	age := now - watermark
	if v.dated {
		age = min(age, int64(int32(coarseTime(now)-v.at))<<20)
	}
	return max(0, age)
}

// over reports whether the rate has expired: the peer is gone, or its watermark is so late that it would have reported
// the key again if it were still asked for it.
func (v *peerRate) over(watermark, now int64) bool {
	sent := v.at
	if v.ahead(now) {
		sent = coarseTime(now)
	}
	return watermark == Gone || int32(coarseTime(watermark)-sent) > int32(coarseTime(int64(peerRateLasts)))
}

// outdated reports whether the rate was not reported for peerRateLasts, wherever the peer's watermark is: nobody sends
// it to this table any more.
func (v *peerRate) outdated(now int64) bool {
	return int32(coarseTime(now)-v.at) > int32(coarseTime(int64(peerRateLasts)))
}

// rateOf is the rate that an origin reported for a cell's key, 0 if it reported none.
func (s *shard) rateOf(c *cell, origin uint16) float32 {
	if c.hotKey == 0 {
		return 0
	}
	for ref := s.memory.hotKey(c.hotKey).peerRates; ref != 0; {
		v := s.memory.peerRate(ref)
		if v.origin == origin {
			return v.rate
		}
		ref = v.next
	}
	return 0
}

// notePeerRate records the demand that a peer reported with a slot. A report that is older than the last one changes
// nothing.
func (t *Table) notePeerRate(s *shard, c *cell, origin uint16, slot *Slot, now int64) {
	w := t.ensureHotKey(s, c, now)
	if w == nil {
		return
	}
	rate, sent, dated := min(slot.Demand, maxRate), coarseTime(now), slot.SentAt != 0
	if dated { // within the last hour: 32 bits do not reach much further
		sent = coarseTime(min(max(slot.SentAt, now-int64(time.Hour)), now))
	}
	link, passed := &w.peerRates, 0
	for ; *link != 0 && passed < maxPeerRates; passed++ {
		v := s.memory.peerRate(*link)
		if v.origin == origin {
			if int32(sent-v.at) >= 0 || v.ahead(now) {
				v.rate, v.at, v.dated = rate, sent, dated
				w.raise(stale)
			}
			return
		}
		link = &v.next
	}
	if passed == maxPeerRates {
		return
	}
	if ref := t.alloc(s, peerRateWords, c, now); ref != 0 {
		*s.memory.peerRate(ref) = peerRate{next: w.peerRates, at: sent, rate: rate, origin: origin, dated: dated}
		w.peerRates = ref
		w.raise(stale)
		s.origins.holders[origin].Add(1)
	}
}

// ownNow estimates the rate that this table is asked for now. It decays with DemandMemory from a horizon after the last
// measurement on. If the last drain was more than a quarter of a horizon ago, the cost asked for since counts as well.
func (w *hotKey) ownNow(c *cell, drainedAt, horizon, now int64) float64 {
	quiet := max(0, now-w.measured-horizon)
	own := float64(w.own) * math.Exp(-time.Duration(quiet).Seconds()/DemandMemory.Seconds())
	if since := now - drainedAt; since > horizon/4 {
		own = max(own, float64(c.offered)/time.Duration(since).Seconds())
	}
	return own
}

// measure updates own at the end of an interval. Peers count a report until the next one, for peerRateLasts at most,
// so reports have to add up to what was asked for, however seldom that is:
//
//   - A request that is not repeated lasts for 1.2 s at the peers. A rate r is reported as r / (1 - e^(-1.2 r)):
//     1/1.2 s for one request, r for many.
//   - Only intervals with a request are measured, which is the more of a bias the fewer there are. Of n requests n -
//     e^(-0.9 (n-1)) count: nearly the mean of a Poisson distribution of which n > 0 was drawn.
//   - A key with three requests in an interval and ten a second is watched: it is measured in quiet intervals as
//     well, with a memory of 0.3 s instead of 1.2, and its fall is reported. Without that a hotspot that moves counts
//     twice for 1.2 s. What the first interval brings may be a burst; what the second one brings is taken for its
//     rate at once.
//
// Reports add up to within 25 % from 0.1 to 100 requests a second, evenly or at random, and within 30 % for bursts.
// With the rate of the last interval alone, 120 nodes took all to be asked for 38 % more than they were, 1,500 for 5
// to 12 times as much.
func (w *hotKey) measure(offered uint32, elapsed float64, now int64) {
	n := float64(w.requests)
	w.requests = 0
	if elapsed <= 0 {
		return
	}
	many := n >= max(3, watchedRate*elapsed)
	fast, memory := many || w.has(watched), peerRateLasts.Seconds()
	if fast {
		memory = DemandMemory.Seconds()
	}
	gap := max(elapsed, time.Duration(now-w.measured).Seconds())
	decay, weight := math.Exp(-gap/memory), -math.Expm1(-elapsed/memory) // of what was, and of this interval
	// in two intervals, one after the other, it is more than a burst
	if many && w.has(fresh) && gap < 1.5*elapsed {
		decay, weight = 0, 1
	}
	before := float64(w.average) * decay
	w.average = float32(before + weight*n/elapsed)
	own := float64(w.own) * decay
	switch {
	case w.has(watched):
		own += weight * float64(offered) / elapsed
	case n > 0: // only intervals with a request are measured
		rate := max(1e-9, before+weight*(n-math.Exp(-0.9*(n-1)))/elapsed)
		rate /= -math.Expm1(-rate * max(elapsed, peerRateLasts.Seconds()))
		own = rate * float64(offered) / n
	}
	w.put(fresh, w.measured == 0)
	w.put(watched, w.average >= watchedRate || fast && w.average >= unwatchedRate)
	if fast && n == 0 && !w.has(watched) { // peers count it for longer than it is remembered here
		own *= memory / peerRateLasts.Seconds()
	}
	w.own, w.measured = float32(own), now
	w.raise(stale)
}

// changed reports whether own has to be sent: it differs by resendShare from what was sent, or resendEvery has passed.
func (w *hotKey) changed(now int64) bool {
	since := int32(coarseTime(now) - w.sentAt)
	return since < 0 || since >= int32(coarseTime(resendEvery)) ||
		float32(math.Abs(float64(w.own-w.sentRate))) > resendShare*w.sentRate
}

// updateHotKey measures the demand of a cell that is drained. It makes a hotKey where 1/hotShare of the limit is used,
// and drops it where less than 1/coolShare is used and no peer reports the key. It returns nil where peers need no
// demand: for a key that is no offender and uses less than 1/coolShare.
func (t *Table) updateHotKey(x *outgoing, elapsed float64) *hotKey {
	s, c, l, now := x.s, x.c, x.m.limit.Load(), x.now
	if l == nil || l.max == 0 || t.keepers(l).peers == 0 {
		return nil
	}
	view := s.view(c, x.m, x.instant)
	if c.hotKey == 0 && l.maxUnsent == 0 && hotShare*view < l.max {
		return nil
	}
	w := t.ensureHotKey(s, c, now)
	if w == nil {
		return nil
	}
	w.measure(c.offered, elapsed, now)
	if now < w.until || coolShare*view >= l.max {
		return w
	}
	w.unsent = 0 // the counts are sent, only the demand is not
	w.lower(watched)
	if l.maxUnsent == 0 && !t.hasPeerRate(s, c, w, now) {
		s.dropHotKey(c)
	}
	return nil
}

// hasPeerRate reports whether a peer reports demand for the key.
func (t *Table) hasPeerRate(s *shard, c *cell, w *hotKey, now int64) bool {
	o := t.owners.Load()
	for ref := w.peerRates; ref != 0; ref = s.memory.peerRate(ref).next {
		v := s.memory.peerRate(ref)
		left := o == nil && s.placeOf(v.origin).isSum() && v.outdated(now) // see peerDemands
		if !left && !v.over(t.origins.watermarkOf(v.origin, c), now) {
			return true
		}
	}
	return false
}

// appendDemand adds the demand to the newest slot of the cell in dst[first:]. Where there is none and the demand
// changed, it appends the unchanged count to carry it.
func (t *Table) appendDemand(dst []Slot, first int, x *outgoing, w *hotKey) []Slot {
	if len(dst) == first {
		if !w.changed(x.now) {
			return dst
		}
		var room [1]uint64
		own := x.slot(1, t.origin, x.s.own(room[:0], x.c, &x.m.shape, 1)[0])
		own.Birth = x.c.birth
		dst = append(dst, own)
	}
	dst[first].Demand = w.own
	w.sentRate, w.sentAt, w.unsent = w.own, coarseTime(x.now), 0
	return dst
}
