package counters

import (
	"math"
	"slices"
	"time"
)

// How several tables share one limit without false rejections.
//
// A table's view V of a key never exceeds what was admitted, so a node that admits while V has room never rejects a
// client that stays within its limit L. When the limit runs short, though, each table also admits what the others have
// not reported yet. This can be estimated and divided, but a rejection by estimate is unfair without proof:
//
//	proof     A key is an offender once V plus the request exceeds 95 % of L, rounded up, for as long as an admission
//	          counts. No other key is held back. Below a limit of twenty only a request beyond L is proof: a client
//	          that keeps to L asks for the last one, too.
//	thinning  The part p of an offender's requests is admitted, evenly spread, so that all tables together admit what
//	          the limit has room for:
//
//	              p = (L - V - U + R) / (D + Lambda*H)
//
//	          U       estimate of what unreachable peers admitted (partition.go)
//	          R       cost that leaves the window within H, at most at the current rate
//	          D       cost that the other peers were asked for since their reports: sum of rate * age of the report
//	          Lambda  cost per second that all tables are asked for
//	          H       1.5 times the time until all tables know what one admits
//
// No request beyond the room in V is admitted. While peers are unreachable, an offender remains one as long as all
// tables together are asked for 95 % of the limit: otherwise each side of a partition would take itself to be alone.

const (
	proofShare     = 0.95 // the part of the limit whose use proves an offender
	horizons       = 1.5  // H in horizons of the cluster
	sumsPerHorizon = 16   // how often per horizon D and Lambda are summed, at least: ages grow with time
)

// Partition is what a limit does while peers are unreachable.
type Partition uint8

const (
	Share Partition = iota // each side of a partition admits its part of the limit, in proportion to its demand
	Local                  // each side admits the whole limit
)

var partitions = [...]string{Share: "share", Local: "local"}

// String returns the policy's name in rule files.
func (p Partition) String() string { return partitions[min(int(p), len(partitions)-1)] }

// ParsePartition returns the policy with a name in rule files.
func ParsePartition(name string) (p Partition, ok bool) {
	i := slices.Index(partitions[:], name)
	return Partition(max(i, 0)), i >= 0
}

// policy is how tables share a limit.
type policy struct {
	partition Partition
	maxUnsent uint64
}

// cluster is what a table knows of the nodes that count limits with it.
type cluster struct {
	peers   int
	horizon int64 // nanoseconds
}

// SetCluster sets the number of peers, initially 0, and the horizon: the usual time until all peers know what one node
// admits.
func (t *Table) SetCluster(peers int, horizon time.Duration) { t.setCluster(Global, peers, horizon) }

// SetRegion is SetCluster for limits of the scope Region: peers is the number of peers in the table's region.
func (t *Table) SetRegion(peers int, horizon time.Duration) { t.setCluster(Region, peers, horizon) }

func (t *Table) setCluster(s Scope, peers int, horizon time.Duration) {
	if now := t.clusters[s].Load(); now.peers != peers || now.horizon != int64(horizon) {
		t.clusters[s].Store(&cluster{peers, int64(horizon)})
	}
}

// Gone is the watermark of an origin that admits nothing any more.
const Gone = math.MaxInt64

// SetWatermark sets the time up to which this table has received all that an origin admitted.
func (t *Table) SetWatermark(o Origin, watermark int64) {
	t.origins.RLock()
	defer t.origins.RUnlock()
	if k := t.origins.known(uint64(o)); k != 0 {
		t.origins.state(k).watermark.Store(watermark)
	}
}

// SetSumWatermarks sets the time up to which this table has received all that a sum counts, for some partitions.
func (t *Table) SetSumWatermarks(s Sum, of PartitionSet, watermark int64) {
	t.origins.RLock()
	defer t.origins.RUnlock()
	sums := t.origins.state(t.origins.known(uint64(s))).sums.Load()
	if sums == nil {
		return
	}
	for p := range sums {
		if of.Has(p) {
			sums[p].Store(watermark)
		}
	}
}

// step is what a decision on a layer is for.
type step uint8

const (
	peek     step = iota // answer, and leave no trace
	askAgain             // answer for a layer that was asked before, and has recorded that
	ask                  // answer for one of several layers; a second decision charges it if all admit
	charge               // charge a layer, as all have admitted
	take                 // answer, and charge if admitted
)

// holdsBack reports whether a request of a hot key is denied even if the view has room for it.
func (t *Table) holdsBack(y *layer, cost, before uint64, how step) bool {
	if cost == 0 {
		cost, how = 1, peek
	}
	if cost > y.l.max || how == askAgain || how == charge { // denied anyway, and no proof; or admitted before
		return false
	}
	w := y.s.memory.hotKey(y.c.hotKey)
	if how == peek {
		seen := *w
		w = &seen
	}
	w.view = t.used(y) + before
	was := w.part
	if w.part = t.admittedPart(y, w, cost, how); was == 1 && w.part < 1 {
		t.draw(y, w, cost)
	}
	switch {
	case w.view+cost > y.l.max: // it is denied anyway
		return false
	case w.part == 1:
		w.credit = 0
		return false
	}
	return !w.afford(float32(cost), how)
}

// draw draws the credit with which thinning begins. Where owners add up, there are many tables, and each may be asked
// for the key once: without a credit all of them would deny that request, whatever part of them fits.
func (t *Table) draw(y *layer, w *hotKey, asked uint64) {
	if t.owners.Load() != nil {
		h := hash(t.seed, y.l.id^uint64(y.off), y.c.key)
		w.credit = float32(h>>40) / (1 << 24) * float32(asked)
	}
}

// afford adds the admitted part of a request's cost to the credit, and reports whether the credit covers the request.
// Another layer may still deny a request that is only asked: its credit is limited, so that admission stays even.
func (w *hotKey) afford(asked float32, how step) bool {
	if saved := w.credit + w.part*asked; how == take {
		w.credit = saved
	} else {
		w.credit = max(w.credit, min(saved, 2*asked))
	}
	return w.credit >= asked
}

// admittedPart is the part of the key's requests to admit: p for an offender, 1 for others.
func (t *Table) admittedPart(y *layer, w *hotKey, asked uint64, how step) float32 {
	l := y.l
	cl := t.keepers(l)
	if cl.peers == 0 || w.peerRates == 0 {
		return 1
	}
	now := y.now()
	if since := now - w.summed; w.has(stale) || since < 0 || since >= cl.horizon/sumsPerHorizon {
		t.sum(y, w, cl.horizon, how)
	}
	if !w.offends(l, asked, now) {
		return 1
	}
	within := int64(horizons * float64(cl.horizon))
	room := float64(l.max) - float64(w.view) + float64(l.leaving(y.c, y.instant, within))
	if w.estimate != 0 {
		room -= y.s.memory.estimate(w.estimate).count(int64(l.Lasts()), now+within)
	}
	comes := float64(w.due) + float64(w.reachableRate+w.unreachableRate)*time.Duration(within).Seconds()
	if room >= comes {
		return 1
	}
	return float32(max(0, room/comes))
}

// offends reports whether the key is an offender, and updates until when.
func (w *hotKey) offends(l *Limit, asked uint64, now int64) bool {
	lasts, proof := l.Lasts(), math.Ceil(proofShare*float64(l.max))
	w.until = min(w.until, now+int64(lasts)) // the clock may have stepped back
	lapsed := w.until > 0 && now >= w.until && now-w.until < int64(lasts)
	switch {
	case float64(w.view+asked) > proof, lapsed && w.unreachableRate > 0 &&
		float64(w.reachableRate+w.unreachableRate)*lasts.Seconds() >= proof:
		w.until = now + int64(lasts)
	case now >= w.until:
		w.until = 0
		return false
	}
	return true
}

// sum adds up the demands. A peek changes nothing but w, which is a copy.
func (t *Table) sum(y *layer, w *hotKey, horizon int64, how step) {
	now := y.now()
	d := t.peerDemands(y, w, horizon, how)
	d.own = w.ownNow(y.c, y.s.drainedAt, horizon, now)
	d.clamp(y.s, y.l, y.c, t.keepers(y.l).peers)
	if how != peek {
		t.updateEstimate(y, w, &d)
	}
	w.reachableRate, w.unreachableRate = float32(d.own+d.reachable), float32(d.unreachable)
	w.due, w.summed = float32(d.due), now
	w.lower(stale)
}

// peerDemands adds up what peers are asked for, and removes expired rates. Where owners add up, a table may have both
// the sums of an owner and the rates that they are over: an owner was a member before, and the other way round. It
// takes the larger of the two, and drops the rates that it is not sent any more.
func (t *Table) peerDemands(y *layer, w *hotKey, horizon int64, how step) demands {
	var parts, downs demands
	s, l, c, now, o := y.s, y.l, y.c, y.now(), t.owners.Load()
	direct := o == nil || o.owns(c.key)
	for link := &w.peerRates; *link != 0; {
		v := s.memory.peerRate(*link)
		watermark, unreachable := t.origins.watermarkOf(v.origin, c), false
		place := s.placeOf(v.origin)
		down := place.isDown()
		d := &parts
		if down {
			d = &downs
		}
		if v.over(watermark, now) || (down == direct || o == nil && place.isSum()) && v.outdated(now) {
			if how == peek {
				link = &v.next
			} else {
				if v.unreachable {
					d.back += float64(v.rate)
				}
				s.removePeerRate(link)
			}
			continue
		}
		age, rate := v.age(watermark, now), float64(v.rate)
		switch unseen := rate * min(time.Duration(age), l.Lasts()).Seconds(); {
		case age <= SilentAfter*horizon:
			d.reachable += rate
			d.due += unseen
		case l.partition == Share:
			unreachable = true
			d.unreachable += rate
			if !v.unreachable {
				d.lost += unseen
			}
		}
		if v.unreachable && !unreachable {
			d.back += rate
		}
		if how != peek {
			v.unreachable = unreachable
		}
		link = &v.next
	}
	if downs.reachable+downs.unreachable > parts.reachable+parts.unreachable {
		return downs
	}
	return parts
}

// leaving is R: how much of the used cost leaves within a time, if nothing is added, at most at the current rate. A
// burst that will only begin to leave is not counted on: otherwise the next burst would begin before the last has left.
func (l *Limit) leaving(c *cell, at instant, within int64) uint64 {
	if l.rate.Refill > 0 {
		return l.rate.Fits(min(uint64(within), 1<<40) << l.fraction)
	}
	if l.algorithm == FixedWindow {
		return 0
	}
	view, ring := l.windowView(c, at), c.counts(&l.shape)
	off := at.off + within
	by := off / l.sub
	if by > int64(l.n) {
		return view
	}
	left := l.window.Part(ring[by], l.sub-(off-by*l.sub))
	for _, n := range ring[by+1:] {
		left += n
	}
	return min(view-min(left, view), uint64(float64(ring[0])*float64(within)/float64(l.sub)))
}
