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
	asOf       int64               // the sender's time at which the knowledge of it was whole; 0: never yet
	asOfHere   int64               // when it became so, by this node's clock
	latest     int64               // the latest time at which a frame that came was sent
	gap        time.Duration       // the age of the knowledge when the first frame of that time came
	heardAt    int64               // when a frame came last
	since      int64               // when the first one came
	interval   time.Duration       // between reports: T, the same on every node
	ackDue     bool                // something came that wants an acknowledgement
	demand     map[string]reported // by rule
	worstAge   time.Duration       // the largest age since the last tick of this replica's own
	peakAge    time.Duration       // the largest age between the last two
	left       bool                // it said goodbye: it admits nothing any more
	partial    bool                // it may have left out what changed long ago
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
	late float64 // cost of intervals whose reports came late, while something is still missing
	peak float64 // the most cost that was unseen since the last audit
}

// maxDemands caps the rules of which one origin can report.
const maxDemands = 1 << 14

func newHearing(now int64, interval time.Duration) *hearing {
	return &hearing{since: now, interval: interval, beyond: make(map[uint64]arrival), demand: make(map[string]reported)}
}

// note records that the frame came, and brings the cumulative tick and the age up to date.
func (h *hearing) note(f *frame, now int64) {
	h.heardAt = now
	if f.sent > h.latest {
		h.latest, h.gap = f.sent, h.age(now)
	}
	h.worstAge = max(h.worstAge, h.age(now))
	unseenFor := max(h.gap, h.age(now))
	_, waits := h.beyond[f.tick]
	numbered := f.kind == data || f.kind == dataMore
	repeated := numbered && (f.tick <= h.cumulative || waits)
	if f.tick <= h.cumulative || f.tick == h.cumulative+1 && numbered {
		// Nothing is missing, so before it became active there was nothing to see.
		unseenFor = min(unseenFor, f.active+time.Duration(max(0, now-f.sent)))
	}
	switch f.kind {
	case data, dataMore:
		h.ackDue = true
		if f.tick > h.cumulative && f.tick <= h.cumulative+ackWindow {
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
	if (f.kind == beacon || f.kind == goodbye) && f.tick == h.cumulative {
		h.wholeAt(f.sent, now)
	}
	h.left = h.left || f.kind == goodbye
	for i := range f.groups {
		if g := &f.groups[i]; g.origin == f.origin && f.kind != snapshot && !repeated {
			h.noteDemand(g, f.sent, unseenFor)
		}
	}
}

// wholeAt notes that the knowledge of the origin is whole as of its time sent.
func (h *hearing) wholeAt(sent, now int64) {
	if sent > h.asOf {
		h.asOf, h.asOfHere = sent, now
	}
}

// noteDemand takes in what the origin is asked for, and what it may have admitted unseen until this report came.
func (h *hearing) noteDemand(g *group, sent int64, unseenFor time.Duration) {
	r, known := h.demand[g.meter.Rule]
	if !known && (g.demand == 0 || len(h.demand) >= maxDemands) {
		return
	}
	rate := max(r.rate, g.demand)
	if sent < r.sent { // it was lost and came again: it tells what was unseen of its interval, but not how things are
		rate, r.late = r.rate, r.late+g.demand*h.interval.Seconds()
	} else {
		r.rate, r.sent = g.demand, sent
		if len(h.beyond) == 0 {
			r.late = 0
		}
	}
	switch g.meter.Algorithm {
	case counters.TokenBucket, counters.LeakyBucket, counters.LeakyQueue: // what they hold may be more than comes back in a window
	default:
		unseenFor = min(unseenFor, g.meter.Window)
	}
	r.peak = max(r.peak, rate*unseenFor.Seconds()+r.late)
	h.demand[g.meter.Rule] = r
}

// age is how old the knowledge of the origin is: by its clock, or by this node's since it came, whichever is more. So a clock that is
// ahead does not make old knowledge look fresh; it only hides the time that the frame was under way.
func (h *hearing) age(now int64) time.Duration {
	if h.asOf == 0 {
		return time.Duration(max(0, now-h.since))
	}
	return time.Duration(max(0, now-h.asOf, now-h.asOfHere))
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
