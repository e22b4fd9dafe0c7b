package rowtable_test

import (
	"maps"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/counters/internal/rowtable"
)

// shareLimit sets how tables share a limit.
func (p *pair) shareLimit(c *counters.LimitConfig) {
	if !p.shares {
		return
	}
	if p.IntN(4) == 0 {
		c.Among = min(c.Max+p.Uint64N(1+c.Max), counters.MaxLimit)
	}
	c.OnPartition = counters.Partition(p.IntN(2))
	if p.IntN(4) == 0 {
		c.MaxUnsent = 1 + p.Uint64N(1+c.Max/4)
	}
}

// share sets the cluster of both, or how far both have received what an origin counted.
func (p *pair) share() {
	if !p.shares {
		return
	}
	if p.IntN(2) == 0 {
		peers, horizon := p.IntN(4), time.Duration(1+p.Int64N(int64(time.Second)))
		p.old.SetCluster(peers, horizon)
		p.new.SetCluster(rowtable.Global, peers, horizon)
		return
	}
	watermark := p.now - p.Int64N(1+p.length())
	switch p.IntN(6) {
	case 0:
		watermark = counters.Gone
	case 1:
		watermark = p.now
	}
	all := slices.Sorted(maps.Keys(p.marks))
	if len(all) > 0 {
		p.setWatermark(all[p.IntN(len(all))], watermark)
	}
}

// keepWatermark sets the watermark of an origin that both may know now.
func (p *pair) keepWatermark(o counters.Origin) {
	if _, ok := p.marks[o]; !ok {
		p.marks[o] = p.now
	}
	p.setWatermark(o, p.marks[o])
}

func (p *pair) setWatermark(o counters.Origin, watermark int64) {
	p.marks[o] = watermark
	p.old.SetWatermark(o, watermark)
	p.new.SetWatermark(uint16(o), watermark)
}

// demand is the demand in a slot of others, and when it was sent.
func (p *pair) demand(l limits) (rate float32, sentAt int64) {
	if !p.shares || p.IntN(3) > 0 {
		return 0, 0
	}
	rate = float32(1+p.Uint64N(1+l.old.Max()*uint64(1+p.IntN(4)))) / float32(l.old.Lasts().Seconds()+1e-3)
	if p.IntN(2) == 0 {
		sentAt = p.now - p.Int64N(int64(2*time.Second))
	}
	return rate, sentAt
}

// meterDemands is what drains found, by the name of a meter.
type meterDemands map[string]rowtable.Demand

func (d meterDemands) raise(name string, by rowtable.Demand) {
	f := d[name]
	d[name] = rowtable.Demand{Rate: max(f.Rate, by.Rate), Rise: max(f.Rise, by.Rise), Used: max(f.Used, by.Used)}
}

func (d meterDemands) add(_ *pair, found []counters.Demand) {
	for _, f := range found {
		d.raise(nameOf(f.Meter), rowtable.Demand{Rate: f.Rate, Rise: f.Rise, Used: f.Used})
	}
}

func (d meterDemands) addNew(p *pair, found []rowtable.Demand) {
	for _, f := range found {
		d.raise(p.ruleOf(rowtable.Slot{Meter: f.Meter}), f)
	}
}

// compare compares what both found. What a floor admitted is no part of the limit, so the tables may take it for more
// or less of its use.
func (d meterDemands) compare(p *pair, found meterDemands) {
	if !maps.Equal(d, found) && p.new.Implausible() == 0 {
		p.Fatalf("seed %d, step %d: demands\n%+v, want\n%+v", p.seed, p.n, found, d)
	}
}

// drainEarly compares what both send early.
func (p *pair) drainEarly() {
	type own struct {
		rule   string
		key    uint64
		index  int64
		count  uint64
		demand float32
	}
	select {
	case <-p.old.EarlyFlush():
		select {
		case <-p.new.EarlyFlush():
		default:
			p.Fatalf("seed %d, step %d: the new table does not flush", p.seed, p.n)
		}
	default:
		select {
		case <-p.new.EarlyFlush():
			p.Fatalf("seed %d, step %d: the new table flushes", p.seed, p.n)
		default:
		}
	}
	wanted, found := make(meterDemands), make(meterDemands)
	want, got := make(map[own]bool), make(map[own]bool)
	d := p.old.DrainEarly(p.now)
	for _, s := range d.Slots {
		want[own{nameOf(s.Meter), uint64(s.Key), s.Index, s.Count, s.Demand}] = true
	}
	for _, s := range p.new.DrainEarly(nil, p.now) {
		got[own{p.ruleOf(s), s.Key, s.Index, s.Count, s.Demand}] = true
	}
	if !maps.Equal(want, got) {
		p.Fatalf("seed %d, step %d: drained early\n%v, want\n%v", p.seed, p.n, got, want)
	}
	wanted.add(p, d.Demand)
	found.addNew(p, p.new.Demands())
	wanted.compare(p, found)
}

// placed is an origin of a place: one of three members of the region, or the sum over them or over all other regions.
func (p *pair) placed() (origin uint16, place counters.Place) {
	switch origin = uint16(2 + p.IntN(5)); origin {
	case 5:
		return origin, counters.Near.Sum()
	case 6:
		return origin, counters.Elsewhere
	}
	return origin, counters.Near
}

// originOf is the name of an origin by its number: a sum has one for each partition of keys.
func originOf(number uint16, place counters.Place, key uint64) counters.Origin {
	if place != counters.Near.Sum() && place != counters.Elsewhere {
		return counters.Origin(number)
	}
	return counters.NewSum(uint64(number) << 32).Of(counters.Key(key).Partition())
}

// numberOf is the number of an origin.
func numberOf(o counters.Origin) uint16 {
	if sum := o >> 32; sum > 0 {
		return uint16(sum)
	}
	return uint16(o)
}
