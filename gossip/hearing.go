package gossip

import (
	"maps"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// ackWindow is how many ticks beyond a gap a replica remembers to have: as many as the bitmap of an ack holds.
const ackWindow = maxBitmap * 8

// hearing is what a replica knows of what one origin has told it.
type hearing struct {
	cumulative uint64              // it has every tick up to here
	beyond     map[uint64]arrival  // what came after a gap
	covered    covered             // by the latest beacon
	asOf       int64               // the sender's time at which the knowledge of it was whole; 0: never yet
	asOfHere   int64               // when it became so, by this node's clock
	latest     int64               // the latest time at which a frame that came was sent
	highest    uint64              // tick that a frame told of
	heardAt    int64               // when a frame came last
	since      int64               // when the first one came
	interval   time.Duration       // between reports: T, the same on every node
	ackDue     bool                // something came that wants an acknowledgement
	demand     map[string]reported // by rule
	worstAge   time.Duration       // the largest age since the last tick of this replica's own
	peakAge    time.Duration       // the largest age between the last two
	left       bool                // it said goodbye: it admits nothing any more
	far        bool                // it is of another region
	idle       bool                // no requests came to it when the latest frame was sent
	partial    bool                // it may have left out what changed long ago
	there      transit             // of its frames
	back       int64               // what this node's frames seem to take at least, as it says
	backKnown  bool
}

// covered is what a beacon said: the ticks up to it hold all that was admitted before it was sent.
type covered struct {
	tick uint64
	sent int64
}

// arrival is a frame that came after a gap.
type arrival struct {
	sent int64
	last bool // of its interval
}

// reported is what an origin is asked for under one rule.
type reported struct {
	rate float64 // cost per second
	sent int64   // the sender's time of the report
	came int64   // when it came
}

// maxDemands caps the rules of which one origin can report.
const maxDemands = 1 << 14

func newHearing(now int64, interval time.Duration) *hearing {
	return &hearing{since: now, interval: interval, beyond: make(map[uint64]arrival), demand: make(map[string]reported)}
}

// repeated reports whether the frame has come before, or another that tells the same.
func (h *hearing) repeated(f *frame) bool {
	_, waits := h.beyond[f.tick]
	return (f.kind == data || f.kind == dataMore) && (f.tick <= h.cumulative || waits)
}

// note records that the frame came, and brings the cumulative tick and the age up to date.
func (h *hearing) note(f *frame, now int64) {
	h.heardAt = now
	if f.sent > h.latest {
		h.latest = f.sent
		h.idle = f.kind == beacon && f.since == 0
	}
	h.highest = max(h.highest, f.tick)
	h.worstAge = max(h.worstAge, h.age(now))
	switch f.kind {
	case data, dataMore:
		h.ackDue = true
		if f.tick > h.cumulative && f.tick <= h.cumulative+ackWindow && !f.again {
			h.beyond[f.tick] = arrival{f.sent, f.kind == data}
		}
	case snapshot:
		h.ackDue = true
		if f.tick >= h.cumulative {
			h.cumulative = f.tick
			h.wholeAt(f.sent, now)
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
			h.wholeAt(a.sent, now)
		}
	}
	if (f.kind == beacon || f.kind == goodbye) && f.sent > h.covered.sent {
		h.covered = covered{f.tick, f.sent}
	}
	if h.covered.tick <= h.cumulative && h.covered.sent != 0 { // the frames that a beacon speaks of may come after it
		h.wholeAt(h.covered.sent, now)
	}
	h.left = h.left || f.kind == goodbye
}

// wholeAt notes that the knowledge of the origin is whole as of its time sent.
func (h *hearing) wholeAt(sent, now int64) {
	if sent > h.asOf {
		h.asOf, h.asOfHere = sent, now
	}
}

// noteDemand takes in what the origin is asked for, as it said in a frame of the time sent.
func (h *hearing) noteDemand(g *group, sent, now int64) {
	d, known := h.demand[g.meter.Rule]
	if sent < d.sent || !known && (g.demand == 0 || len(h.demand) >= maxDemands) {
		return
	}
	h.demand[g.meter.Rule] = reported{rate: g.demand, sent: sent, came: now}
}

// age is how old the knowledge of the origin is: by its clock, or by this node's since it came, whichever is more. So a clock that is
// ahead does not make old knowledge look fresh; it only hides the time that the frame was under way.
func (h *hearing) age(now int64) time.Duration {
	if h.asOf == 0 {
		return time.Duration(max(0, now-h.since))
	}
	return time.Duration(max(0, now-h.asOf, now-h.asOfHere))
}

// untold is for how much of its time the origin has not told what it admitted: since its latest frame, and in those that are missing.
func (h *hearing) untold(now int64) time.Duration {
	missing := time.Duration(min(h.highest-min(h.highest, h.cumulative), 2*ackWindow)) - time.Duration(len(h.beyond))
	since := time.Duration(max(0, now-h.latest, now-h.heardAt))
	return min(h.age(now), max(0, missing)*h.interval+since)
}

// tick closes an interval of the replica's own.
func (h *hearing) tick(now int64) {
	h.peakAge = max(h.worstAge, h.age(now))
	h.worstAge = 0
	// A rule that a whole interval's report did not name is quiet.
	for rule, r := range h.demand {
		if r.sent < h.asOf && r.rate > 0 {
			r.rate = 0
			h.demand[rule] = r
		}
	}
}

// ack says what the replica has of the origin.
func (h *hearing) ack(origin counters.Origin) ack {
	a := ack{origin: origin, cumulative: h.cumulative}
	if len(h.beyond) == 0 {
		return a
	}
	last := slices.Max(slices.Collect(maps.Keys(h.beyond)))
	first := h.cumulative + 2
	if last < first {
		return a
	}
	a.bitmap = make([]byte, (last-first)/8+1)
	for tick := range h.beyond {
		i := tick - first
		a.bitmap[i/8] |= 1 << (i % 8)
	}
	return a
}
