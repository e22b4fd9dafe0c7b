package gossip

import (
	"maps"
	"math"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// ackWindow is how many ticks beyond a gap a replica remembers to have: as many as the bitmap of an ack holds.
const ackWindow = maxBitmap * 8

// inbound is what a replica has received from one origin.
//
// Three times say how complete that is. watermark is the sender's time before which everything it admitted has arrived;
// watermarkAt is this node's time at which that became so; latestSent is the sender's time of its newest frame, which
// may be ahead of the watermark while frames are missing. newest is the same, at most this node's time when that frame
// came: so a forged frame from the future does not make all others old.
type inbound struct {
	origin          counters.Origin
	cumulative      uint64                 // every tick up to here has arrived
	beyond          map[uint64]arrival     // frames that arrived after a gap
	beacon          beaconMark             // of the latest beacon
	watermark       int64                  // 0: not yet complete once
	watermarkAt     int64                  //
	hereAt, thereAt int64                  // the same of what it knows of its region, and of the others; 0: nothing
	meanAt          [2]int64               // hereAt and thereAt on average, weighted by demand
	lostAt          int64                  // when nodes that are out of its reach were last in it
	ages            ages                   // that it sent last
	region          *region                // that it is of; nil: unknown
	sums            [3]map[string]reported // demand that it added up, by rule; see demandOf
	latestSent      int64                  //
	newest          int64                  //
	highest         uint64                 // highest tick of any frame
	lastSeen        int64                  // when the last frame arrived that was newer than all before
	since           int64                  // when the first frame arrived, or was awaited
	interval        time.Duration          // the gossip interval, the same on every node
	ackDue          bool                   // an acknowledgement is due
	demand          map[string]reported    // by rule
	worstAge        time.Duration          // largest age since this replica's last tick
	peakAge         time.Duration          // largest age between its last two ticks
	lowSince        int64                  // since when its newest frames have far too low ticks; 0: no
	left            bool                   // it sent a goodbye: it admits nothing any more
	leftAt          int64                  // when that came
	ended           bool                   // its process has ended without one, see End
	unlinked        bool                   // it is no member any more, and was no link: others tell what it admitted
	idle            bool                   // it had no requests when it sent its newest frame
	informed        bool                   // a snapshot of it has come
	truncated       bool                   // a snapshot may have left out what changed long ago
	there           transit                // transit time of its frames
	back            int64                  // least transit time of this node's frames, as it reports
	backKnown       bool                   //
	snapshots       allowance              // for its snapshots
}

// beaconMark is the content of a beacon: the ticks up to tick hold everything that was admitted before sent.
type beaconMark struct {
	tick uint64
	sent int64
	ages *ages
}

// arrival is a frame that arrived after a gap.
type arrival struct {
	sent int64
	last bool // of its interval
	ages *ages
}

// reported is the demand that an origin reported under one rule.
type reported struct {
	rate float64 // cost per second
	most float64 // of the rates, decaying over mostMemory
	sent int64   // the sender's time of the report
	came int64   // when it came
}

// maxDemands caps the rules of which one origin can report.
const maxDemands = 1 << 14

func newInbound(now int64, interval time.Duration) *inbound {
	return &inbound{since: now, interval: interval, beyond: make(map[uint64]arrival), demand: make(map[string]reported)}
}

// repeated reports whether the frame has arrived before.
func (h *inbound) repeated(f *frame) bool {
	_, waits := h.beyond[f.tick]
	return f.kind.numbered() && (f.tick <= h.cumulative || waits)
}

// note records that the frame arrived, and updates the cumulative tick and the watermark.
func (h *inbound) note(f *frame, now int64) {
	if f.sent > h.newest || f.kind.numbered() && f.tick > h.highest { // any other may be a recording
		h.lastSeen = now
	}
	h.newest = max(h.newest, min(f.sent, now))
	if f.sent > h.latestSent {
		h.latestSent = f.sent
		h.idle = f.kind == beacon && f.since == 0
	}
	h.highest = max(h.highest, f.tick)
	h.worstAge = max(h.worstAge, h.age(now))
	switch f.kind {
	case data, dataMore:
		h.ackDue = true
		if f.tick > h.cumulative && f.tick <= h.cumulative+ackWindow && !f.again {
			h.beyond[f.tick] = arrival{f.sent, f.kind == data, f.ages}
		}
	case snapshot:
		h.ackDue = true
		if f.tick >= h.cumulative && !f.again {
			h.cumulative = f.tick
			if f.sent > beforeAll {
				h.advanceWatermark(f.sent, f.ages, now)
			}
			maps.DeleteFunc(h.beyond, func(tick uint64, _ arrival) bool { return tick <= h.cumulative })
		}
	}
	for {
		a, ok := h.beyond[h.cumulative+1]
		if !ok {
			break
		}
		h.cumulative++
		delete(h.beyond, h.cumulative)
		if a.last {
			h.advanceWatermark(a.sent, a.ages, now)
		}
	}
	if (f.kind == beacon || f.kind == goodbye) && f.sent > h.beacon.sent {
		h.beacon = beaconMark{f.tick, f.sent, f.ages}
	}
	if h.beacon.tick <= h.cumulative && h.beacon.sent != 0 { // the frames that a beacon reports may come after it
		h.advanceWatermark(h.beacon.sent, h.beacon.ages, now)
	}
	if f.kind == goodbye {
		h.left, h.leftAt = true, now
	}
}

// advanceWatermark records that everything the origin admitted before its time sent has arrived.
func (h *inbound) advanceWatermark(sent int64, a *ages, now int64) {
	if sent <= h.watermark {
		return
	}
	h.watermark, h.watermarkAt = sent, now
	if a != nil {
		h.ages = *a
		h.hereAt = latest(h.hereAt, min(sent, now)-int64(a.here), now)
		h.thereAt = latest(h.thereAt, min(sent, now)-int64(a.there), now)
		h.meanAt = [2]int64{min(sent, now) - int64(a.meanHere), min(sent, now) - int64(a.meanThere)}
		h.lostAt = min(sent, now) - int64(a.lost)
	}
}

// latest is the later one of two times that have been; the second, if the clock was set back since the first.
func latest(before, at, now int64) int64 {
	if before > now {
		return at
	}
	return max(before, at)
}

// noteDemand records the demand that the origin reported in a frame of its time sent.
func (h *inbound) noteDemand(g *group, sent, now int64) {
	d, known := h.demand[g.meter.Rule]
	if sent < d.sent || !known && (g.demand == 0 || len(h.demand) >= maxDemands) {
		return
	}
	h.demand[g.meter.Rule] = d.then(g.demand, sent, now)
}

// mostMemory is how long a rate counts that was higher than the next ones: the rate of a few requests is uncertain.
const mostMemory = time.Second

// then is what is known after a report of a rate; 0: the rule is quiet.
func (d reported) then(rate float64, sent, now int64) reported {
	next := reported{rate: rate, sent: sent, came: now}
	if rate > 0 {
		next.most = max(rate, d.most*decay(sent-d.sent, mostMemory))
	}
	return next
}

func decay(elapsed int64, memory time.Duration) float64 {
	return math.Exp(-time.Duration(max(0, elapsed)).Seconds() / memory.Seconds())
}

// rate is the cost per second that the origin was asked for under a rule when its newest frame was sent: since its
// report it was asked for nothing, or it had reported again. mostRate is what it may be at most from then on.
func (h *inbound) rate(rule string) float64 {
	d := h.demand[rule]
	return d.rate * decay(h.newest-d.sent, counters.DemandMemory)
}

func (h *inbound) mostRate(rule string) float64 {
	d := h.demand[rule]
	return d.most * decay(h.newest-d.sent, mostMemory)
}

// forget drops what the origin reported: it reports to another owner from now on.
func (h *inbound) forget() {
	clear(h.demand)
	h.sums, h.hereAt, h.thereAt = [3]map[string]reported{}, 0, 0
}

// await has the origin count as one that has just come: it did not send of itself before, and is to do so from now on.
func (h *inbound) await(now int64) { h.since, h.worstAge, h.peakAge = now, 0, 0 }

// isFar reports whether the origin is of another region.
func (h *inbound) isFar() bool { return h.region != nil && h.region.place != counters.Near }

// isGone reports whether the origin admits nothing any more that nobody else tells.
func (h *inbound) isGone() bool { return h.left || h.unlinked }

// age returns the age of the watermark by the origin's clock or by this node's, whichever is more: a clock that is
// ahead does not make old counts look fresh.
func (h *inbound) age(now int64) time.Duration {
	if h.watermark == 0 || h.watermarkAt < h.since {
		return time.Duration(max(0, now-h.since))
	}
	return time.Duration(max(0, now-h.watermark, now-h.watermarkAt))
}

// unreported returns for how much of its time the origin has not reported what it admitted: since its newest frame, and
// one interval for each frame that is missing.
func (h *inbound) unreported(now int64) time.Duration {
	missing := time.Duration(min(h.highest-min(h.highest, h.cumulative), 2*ackWindow)) - time.Duration(len(h.beyond))
	since := time.Duration(max(0, now-h.newest, now-h.lastSeen))
	return min(h.age(now), max(0, missing)*h.interval+since)
}

// tick closes an interval of the replica's own.
func (h *inbound) tick(now int64) {
	h.since = min(h.since, now) // the clock may have been set back
	h.peakAge = max(h.worstAge, h.age(now))
	h.worstAge = 0
	// A rule that a whole interval's report did not name is quiet.
	quiet := h.watermark
	if h.hereAt != 0 { // it names a rule only with counts, or every half second
		quiet -= int64(namedWithin)
	}
	for rule, r := range h.demand {
		if r.sent < quiet && r.rate > 0 {
			r.rate, r.most = 0, 0
			h.demand[rule] = r
		}
	}
	for _, sums := range h.sums {
		maps.DeleteFunc(sums, func(_ string, r reported) bool { return r.sent < quiet })
	}
}

// ack returns the acknowledgement to send to the origin.
func (h *inbound) ack(origin counters.Origin, now int64) ack {
	a := ack{origin: origin, cumulative: h.cumulative}
	least, ok := h.there.of(now, h.transitPeriod())
	a.transit, a.timed = time.Duration(least), ok
	for tick := range h.beyond { // cumulative+1 is not among them
		i := tick - h.cumulative - 2
		a.bitmap = append(a.bitmap, make([]byte, max(0, int(i/8)+1-len(a.bitmap)))...)
		a.bitmap[i/8] |= 1 << (i % 8)
	}
	return a
}
