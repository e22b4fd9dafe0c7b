package counters

import (
	"math"
	"slices"
	"time"
)

// How several tables keep one limit together, without false rejections.
//
// A table's view V of a key never exceeds the truth, so admitting while V leaves room never rejects a client that keeps
// to its limit L. Where the limit runs short, though, each table also admits what the others have not reported yet.
// That can be estimated and shared out, but an estimate that rejects is unfair unless there is proof:
//
//	proof     The key is an offender from the moment V plus the request exceeds 95 % of L, for as long as an admission
//	          counts. No other key is held back.
//	thinning  Of an offender's requests the part p is admitted, evenly spread, so that all tables together admit what
//	          there is room for:
//
//	              p = (L - V - U + R) / (D + Lambda*H)
//
//	          U       estimate of what unreachable peers admitted (partition.go)
//	          R       cost that leaves the window within H at the current rate (later cost is not lent)
//	          D       cost that the other peers were asked for since their reports: sum of rate * age of the report
//	          Lambda  cost per second that all tables are asked for
//	          H       1.5 times the time until all tables know what one admits
//
// A request that V leaves no room for is never admitted. While peers are unreachable an offender stays one as long as
// all tables together are asked for 95 % of the limit: otherwise each side of a partition would take itself to be
// alone.

const (
	// proofShare of the limit makes an offender.
	proofShare = 0.95
	// horizons is H, in horizons of the cluster.
	horizons = 1.5
	// sumsPerHorizon is how often in a horizon the sums are made again, at most: the ages in D grow with time.
	sumsPerHorizon = 16
)

// Partition says what a limit does where peers are unreachable.
type Partition uint8

const (
	Share Partition = iota // each side of a partition admits the part of the limit that it is asked for
	Local                  // each side admits the whole limit
)

// partitions are the names of the policies.
var partitions = [...]string{Share: "share", Local: "local"}

// String is the policy's name in rule files.
func (p Partition) String() string { return partitions[min(int(p), len(partitions)-1)] }

// ParsePartition returns the policy of a name.
func ParsePartition(name string) (p Partition, ok bool) {
	i := slices.Index(partitions[:], name)
	return Partition(max(i, 0)), i >= 0
}

// policy is how tables keep a limit together.
type policy struct {
	partition Partition
	maxUnsent uint64
	scope     Scope
}

// OnPartition returns the limit with another policy for what to do where peers are unreachable.
func (l *Limit) OnPartition(p Partition) *Limit {
	other := *l
	other.partition = p
	return &other
}

// MaxUnsent returns the limit with the cost that a table may admit of a key before it sends to its peers, without
// waiting for the interval to end. 0: no such maximum.
func (l *Limit) MaxUnsent(cost uint64) *Limit {
	other := *l
	other.maxUnsent = cost
	return &other
}

// cluster is what a table knows of those that keep its limits with it.
type cluster struct {
	peers   int
	horizon int64 // nanoseconds
}

// SetCluster says how many peers keep the limits with this table, and the horizon: how long it takes, as a rule, until
// all of them know what one admits. To begin with there are none.
func (t *Table) SetCluster(peers int, horizon time.Duration) { t.setCluster(Global, peers, horizon) }

// SetRegion is SetCluster for the limits of scope Region: it says how many of the peers are of the table's region.
func (t *Table) SetRegion(peers int, horizon time.Duration) { t.setCluster(Region, peers, horizon) }

func (t *Table) setCluster(s Scope, peers int, horizon time.Duration) {
	if now := t.clusters[s].Load(); now.peers != peers || now.horizon != int64(horizon) {
		t.clusters[s].Store(&cluster{peers, int64(horizon)})
	}
}

// SetWatermark says that all that the origin admitted before the time watermark is known. Gone says that it admits
// nothing any more.
func (t *Table) SetWatermark(o Origin, watermark int64) {
	t.origins.RLock()
	defer t.origins.RUnlock()
	if k := t.origins.numbers[uint64(o)]; k != 0 {
		t.watermarks[k].Store(watermark)
	}
}

// Gone is later than any time.
const Gone = math.MaxInt64

// holdsBack decides whether a request of a hot key is denied although the limit has room for it, as far as is
// known.
func (t *Table) holdsBack(y layer, l *Limit, cost, before uint64, how step) bool {
	asked := max(cost, 1)
	if asked > l.max {
		return false // it is denied anyway, and proves nothing
	}
	s, w := y.shard, y.shard.memory.hotKey(y.cell.hotKey)
	switch how {
	case charge:
		if w.part < 1 {
			w.credit -= float32(cost)
		}
		t.spend(s, l, y.cell, w, cost)
		return false
	case peek:
		seen := *w
		w = &seen
	}
	if l.algorithm.bucket() {
		t.debitPending(s, l, y.cell, y.at) // a count is more than a debt
	}
	w.view = s.view(y.cell, t.meters.states[y.cell.meter], y.at) + before
	if w.part = t.admittedPart(y, l, w, asked, how); w.view+asked > l.max {
		return false // it is denied anyway
	}
	if w.part == 1 {
		w.credit = 0
	} else if !w.afford(float32(asked), how) {
		return true
	}
	if how == take {
		t.spend(s, l, y.cell, w, asked)
	}
	return false
}

// afford adds to the credit what a request brings, and reports whether it is enough for it. What is only asked may be
// denied elsewhere: it saves no more than it takes to go on evenly.
func (w *hotKey) afford(asked float32, how step) bool {
	if saved := w.credit + w.part*asked; how == take {
		w.credit = saved
	} else {
		w.credit = max(w.credit, min(saved, 2*asked))
	}
	if w.credit < asked {
		return false
	}
	if how == take {
		w.credit -= asked
	}
	return true
}

// admittedPart is the part of what is asked for that is to be admitted: p of an offender, 1 of others.
func (t *Table) admittedPart(y layer, l *Limit, w *hotKey, asked uint64, how step) float32 {
	cl := t.keepers(l)
	if cl.peers == 0 || w.peerRates == 0 {
		return 1
	}
	now := y.cell.index*l.sub + y.at.off
	if since := now - w.summed; w.stale || since < 0 || since >= cl.horizon/sumsPerHorizon {
		t.sum(y.shard, l, y.cell, w, cl.horizon, now, how)
	}
	if !w.offends(l, asked, now) {
		return 1
	}
	within := int64(horizons * float64(cl.horizon))
	room := float64(l.max) - float64(w.view) + float64(l.leaving(y.cell, y.at, within))
	if w.estimate != 0 {
		room -= y.shard.memory.estimate(w.estimate).count(int64(l.Lasts()), now+within)
	}
	comes := float64(w.due) + float64(w.reachableRate+w.unreachableRate)*time.Duration(within).Seconds()
	if room >= comes {
		return 1
	}
	return float32(max(0, room/comes))
}

// offends reports whether the key is an offender, and notes until when.
func (w *hotKey) offends(l *Limit, asked uint64, now int64) bool {
	lasts, proof := l.Lasts(), proofShare*float64(l.max)
	w.until = min(w.until, now+int64(lasts)) // the clock may have been set back
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

// sum adds up what is asked for, and lets go the peer rates that say nothing any more. For a peek it changes nothing
// but the hot-key state.
func (t *Table) sum(s *shard, l *Limit, c *cell, w *hotKey, horizon, now int64, how step) {
	d := demands{own: w.ownNow(c, s.drainedAt, horizon, now)}
	for link := &w.peerRates; *link != 0; {
		v := s.memory.peerRate(*link)
		watermark, unreachable := t.watermarks[v.origin].Load(), false
		if v.over(watermark, now) {
			if how == peek {
				link = &v.next
			} else {
				*link = s.removePeerRate(*link)
			}
			continue
		}
		age, rate := v.age(watermark, now), float64(v.rate)
		switch unseen := rate * min(time.Duration(age), l.Lasts()).Seconds(); {
		case age <= silentAfter*horizon:
			d.reachable += rate
			d.due += unseen
		case l.partition == Share:
			unreachable = true
			d.unreachable += rate
			if !v.unreachable {
				d.lost += unseen
			}
		}
		if how != peek {
			v.unreachable = unreachable
		}
		link = &v.next
	}
	d.clamp(s, l, c, t.keepers(l).peers)
	if how != peek {
		t.updateEstimate(s, l, c, w, d.unreachable, d.lost, now)
	}
	w.reachableRate, w.unreachableRate, w.due, w.summed, w.stale = float32(d.own+d.reachable), float32(d.unreachable),
		float32(d.due), now, false
}

// leaving is how much of what is used comes back within a time, if nothing is added, but no more than would at the rate
// of now: what begins to leave only within that time is not lent before, or each burst would meet the end of the one a
// window ago.
func (l *Limit) leaving(c *cell, at instant, within int64) uint64 {
	if l.refill > 0 {
		return l.fits(min(uint64(within), 1<<40) << l.fraction)
	}
	if l.algorithm == FixedWindow {
		return 0
	}
	view, ring := c.windowView(&l.shape, at), c.counts(&l.shape)
	off := at.off + within
	by := off / l.sub
	if by > int64(l.n) {
		return view
	}
	left := partOf(ring[by:], &l.shape, instant{off: off - by*l.sub})
	for _, n := range ring[by+1:] {
		left += n
	}
	return min(view-min(left, view), uint64(float64(ring[0])*float64(within)/float64(l.sub)))
}
