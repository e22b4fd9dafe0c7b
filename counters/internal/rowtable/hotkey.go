package rowtable

import (
	"math"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/edgelimit/edgelimit/counters/internal/rows"
)

// A hot key is near its limit: tables divide the limit by the demand for it when it runs short (thin.go). A head
// becomes hot when half of its limit is used, or when a peer reports demand for its key. What a table knows of the
// demand is in lines of their own, of any generation of the head:
//
//	share     how this table divides the limit
//	own       what this table is asked for
//	estimate  what peers that cannot be reached may have admitted, while there are any (partition.go)
//	rates     what peers are asked for, four in a line, in the order in which they first reported
//
// Rates are costs per second.

// share is how this table divides the limit of a hot key.
type share struct {
	_           [2]uint64
	view        uint64  // used part of the limit at the last decision
	until       int64   // end of the time for which the key is an offender
	summed      int64   // when the rates below were added up
	reachable   float32 // rate that this table and all reachable peers are asked for
	unreachable float32 // rate that unreachable peers were asked for when they last reported
	due         float32 // cost that reachable peers were asked for since their last report
	part        float32 // part of the requests to admit, 0 to 1
	credit      float32 // cost that may be admitted while part is below 1; grows by part of each request's cost
	rates       uint16  // how many rates of peers there are
	stale       bool    // the rates have to be added up again
	estimated   bool    // there is an estimate
}

// ownDemand is what this table is asked for a hot key.
type ownDemand struct {
	_        [2]uint64
	measured int64   // when own was last measured
	average  float32 // requests per second
	own      float32 // rate as it is reported to peers
	sentRate float32 // own as it was last sent
	sentAt   uint32  // when own was last sent, see coarseTime
	unsent   uint32  // cost admitted and not sent yet
	requests uint8   // since own was last measured, 255 at most
	watched  bool    // it is measured in intervals in which nobody asks for it, too
	fresh    bool    // it was measured once
	_        [17]byte
}

// peerRate is the demand that one peer reported for a key.
type peerRate struct {
	at          uint32 // time of the report, see coarseTime
	rate        float32
	origin      uint16 // 0: none any more
	unreachable bool
	dated       bool // at is the peer's own time, not this table's
}

const ratesPerLine = 4

type peerRates struct {
	_     [2]uint64
	rates [ratesPerLine]peerRate
}

// The compiler holds that each is a line.
var (
	_ [0]struct{} = [unsafe.Sizeof(share{}) - unsafe.Sizeof(rows.Line{})]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(ownDemand{}) - unsafe.Sizeof(rows.Line{})]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(peerRates{}) - unsafe.Sizeof(rows.Line{})]struct{}{}
)

// The numbers of a hot key's lines but those of rates.
const (
	shareLine = iota
	ownLine
	estimateLine
)

const (
	// A head becomes hot when 1/hotShare of its limit is used, and may cool below 1/coolShare.
	hotShare  = 2
	coolShare = 4
	// maxPeerRates caps the rates of a key, and so the time of a decision.
	maxPeerRates = 1 << 10
	// maxRate caps a reported rate, so that no sum overflows.
	maxRate = maxLimit
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
	// demandMemory is the time constant with which a demand falls.
	demandMemory = 300 * time.Millisecond
)

// coarseTime is a time in units of 2^20 ns, about a millisecond: 32 bits last for 52 days.
func coarseTime(now int64) uint32 { return uint32(now >> 20) }

// hotKey is what a table knows of the demand for a hot key.
type hotKey struct {
	*share
	*ownDemand
}

// line is a line of the head, nil if it is missing.
func (y *layer) line(kind uint8, number int) *rows.Line {
	name := rows.Name(y.c.line().Meter(), kind, uint64(number))
	return y.s.Find(rows.Sub(y.h, name), y.c.key, name)
}

// clearLine makes a line of the head, or clears one that is left of before; nil if there is no room.
func (y *layer) clearLine(kind uint8, number int) *rows.Line {
	name := rows.Name(y.c.line().Meter(), kind, uint64(number))
	l := ensure(y.s, rows.Sub(y.h, name), y.c.key, name)
	if l != nil {
		l.Words = [6]uint64{}
	}
	return l
}

// hotKey returns what is known of the demand for a key; hot is false if the key is not hot.
func (y *layer) hotKey() (w hotKey, isHot bool) {
	if !y.c.has(hot) {
		return w, false
	}
	a, b := y.line(hotKind, shareLine), y.line(hotKind, ownLine)
	if a == nil || b == nil {
		return w, false
	}
	return hotKey{(*share)(unsafe.Pointer(a)), (*ownDemand)(unsafe.Pointer(b))}, true
}

// heat makes a head hot. It reports whether there is room for that.
func (y *layer) heat() (w hotKey, isHot bool) {
	if w, isHot = y.hotKey(); isHot {
		return w, true
	}
	a, b := y.clearLine(hotKind, shareLine), y.clearLine(hotKind, ownLine)
	if a == nil || b == nil {
		return w, false
	}
	w = hotKey{(*share)(unsafe.Pointer(a)), (*ownDemand)(unsafe.Pointer(b))}
	w.part, w.unsent = 1, y.c.offered()
	w.requests = uint8(min(1, y.c.offered())) // or more: nobody counted them
	y.c.raise(hot)
	return w, true
}

// noteRequest counts a request of a hot key.
func (y *layer) noteRequest() {
	if w, isHot := y.hotKey(); isHot {
		w.requests += min(1, math.MaxUint8-w.requests)
	}
}

// isWatched reports whether the key is measured whether somebody asks for it or not.
func (y *layer) isWatched() bool {
	w, isHot := y.hotKey()
	return isHot && w.watched
}

// unsentCost returns the cost that was admitted of a key and not sent yet. Of a key that is not hot, it is the cost
// that was asked for, an upper bound.
func (y *layer) unsentCost() uint64 {
	if w, isHot := y.hotKey(); isHot {
		return uint64(min(w.unsent, y.c.offered()))
	}
	return uint64(y.c.offered())
}

// ratesLine is the line of a rate, nil if it is missing.
func (y *layer) ratesLine(i int) *peerRates {
	return (*peerRates)(unsafe.Pointer(y.line(ratesKind, i/ratesPerLine)))
}

// eachRate goes through the rates of peers, the last one first, and drops those for which stays returns false.
func (y *layer) eachRate(w *share, stays func(v *peerRate) bool) {
	var line *peerRates
	drops := false
	for i := int(w.rates) - 1; i >= 0; i-- {
		if line == nil || i%ratesPerLine == ratesPerLine-1 {
			line = y.ratesLine(i)
		}
		if v := &line.rates[i%ratesPerLine]; !stays(v) {
			v.origin, drops = 0, true
		}
	}
	if drops {
		y.closeRates(w)
	}
}

// closeRates moves the rates of peers together.
func (y *layer) closeRates(w *share) {
	kept := 0
	for i := range int(w.rates) {
		v := y.ratesLine(i).rates[i%ratesPerLine]
		if v.origin != 0 {
			y.ratesLine(kept).rates[kept%ratesPerLine] = v
			kept++
		}
	}
	w.rates = uint16(kept)
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

// notePeerRate records the demand that a peer reported with a slot. A report that is older than the last one changes
// nothing.
func (t *Table) notePeerRate(y *layer, slot *Slot, now int64) {
	w, isHot := y.heat()
	if !isHot {
		return
	}
	if state := t.origins.of(slot.Origin); slot.Place.isSum() && state.sums.Load() == nil {
		state.sums.CompareAndSwap(nil, new([Partitions]atomic.Int64))
	}
	t.origins.watermarkOf(slot.Origin, y.c.key).CompareAndSwap(0, now)
	v := peerRate{at: coarseTime(now), rate: min(slot.Demand, maxRate), origin: slot.Origin, dated: slot.SentAt != 0}
	if v.dated { // within the last hour: 32 bits do not reach much further
		v.at = coarseTime(min(max(slot.SentAt, now-int64(time.Hour)), now))
	}
	known := false
	y.eachRate(w.share, func(old *peerRate) bool {
		if old.origin == v.origin {
			known = true
			if int32(v.at-old.at) >= 0 || old.ahead(now) {
				old.rate, old.at, old.dated = v.rate, v.at, v.dated
				w.stale = true
			}
		}
		return true
	})
	i := int(w.rates)
	if known || i == maxPeerRates {
		return
	}
	if i%ratesPerLine == 0 && y.clearLine(ratesKind, i/ratesPerLine) == nil {
		return
	}
	y.ratesLine(i).rates[i%ratesPerLine] = v
	w.rates++
	w.stale = true
}

// ownNow estimates the rate that this table is asked for now. It decays with demandMemory from a horizon after the last
// measurement on. If the last drain was more than a quarter of a horizon ago, the cost asked for since counts as well.
func (w *ownDemand) ownNow(c *head, drainedAt, horizon, now int64) float64 {
	quiet := max(0, now-w.measured-horizon)
	own := float64(w.own) * math.Exp(-time.Duration(quiet).Seconds()/demandMemory.Seconds())
	if since := now - drainedAt; since > horizon/4 {
		own = max(own, float64(c.offered())/time.Duration(since).Seconds())
	}
	return own
}

// measure updates own at the end of an interval. Peers count a report until the next one, for peerRateLasts at most: a
// request that nobody repeats is reported as one in that time. counters/DESIGN.md explains the formulas.
func (w hotKey) measure(offered uint32, elapsed float64, now int64) {
	n := float64(w.requests)
	w.requests = 0
	if elapsed <= 0 {
		return
	}
	many := n >= max(3, watchedRate*elapsed)
	fast, memory := many || w.watched, peerRateLasts.Seconds()
	if fast {
		memory = demandMemory.Seconds()
	}
	gap := max(elapsed, time.Duration(now-w.measured).Seconds())
	decay, weight := math.Exp(-gap/memory), -math.Expm1(-elapsed/memory) // of what was, and of this interval
	// in two intervals, one after the other, it is more than a burst
	if many && w.fresh && gap < 1.5*elapsed {
		decay, weight = 0, 1
	}
	before := float64(w.average) * decay
	w.average = float32(before + weight*n/elapsed)
	own := float64(w.own) * decay
	switch {
	case w.watched:
		own += weight * float64(offered) / elapsed
	case n > 0: // only intervals with a request are measured
		rate := max(1e-9, before+weight*(n-math.Exp(-0.9*(n-1)))/elapsed)
		rate /= -math.Expm1(-rate * max(elapsed, peerRateLasts.Seconds()))
		own = rate * float64(offered) / n
	}
	w.fresh = w.measured == 0
	w.watched = w.average >= watchedRate || fast && w.average >= unwatchedRate
	if fast && n == 0 && !w.watched { // peers count it for longer than it is remembered here
		own *= memory / peerRateLasts.Seconds()
	}
	w.own, w.measured, w.stale = float32(own), now, true
}

// changed reports whether own has to be sent: it differs by resendShare from what was sent, or resendEvery has passed.
func (w *ownDemand) changed(now int64) bool {
	since := int32(coarseTime(now) - w.sentAt)
	return since < 0 || since >= int32(coarseTime(resendEvery)) ||
		float32(math.Abs(float64(w.own-w.sentRate))) > resendShare*w.sentRate
}
