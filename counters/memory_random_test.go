package counters

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// Whatever a table is asked, told and made to forget, under any clock: its shards stay in order, and when all has
// passed nothing is left.
func TestMemoryStaysInOrder(t *testing.T) {
	for seed := range uint64(15) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			m := newMess(t, seed)
			for step := range 1000 {
				m.step()
				if step%25 == 24 {
					m.audit(fmt.Sprint("seed ", seed, ", step ", step))
				}
			}
			if st := m.table.Stats(); st.Evicted == 0 || st.Expired == 0 {
				t.Errorf("seed %d: %+v, want cells evicted and expired, or else this is no test", seed, st)
			}
			m.end(seed)
		})
	}
}

// The keys of a mess lie in the first messShards shards, so that these are full.
const (
	messKeys   = 25
	messShards = 2
)

// mess is a small table that random things happen to.
type mess struct {
	*testing.T
	*rand.Rand
	table  *Table
	limits []*Limit
	meters []*Meter
	keys   [][]Key // by limit
	now    int64
}

func newMess(t *testing.T, seed uint64) *mess {
	m := &mess{T: t, Rand: rand.New(rand.NewPCG(seed, 7)), now: 1_700_000_000_000_000_000}
	m.table = NewTiny(1, 1+m.IntN(12))
	m.table.SetCluster(3, 200*time.Millisecond)
	for a := SlidingWindow; a <= LeakyQueue; a++ {
		for i, n := range []int{1, 2, 10, maxSubWindows} {
			if a == FixedWindow {
				n = 1
			}
			l := m.limit(fmt.Sprint(a, i), a, n)
			meter, keys := l.Meter(), []Key(nil)
			for key := Key(1); len(keys) < messKeys; key++ {
				if ShardOf(l, key) < messShards {
					keys = append(keys, key)
				}
			}
			m.limits, m.meters, m.keys = append(m.limits, l), append(m.meters, &meter), append(m.keys, keys)
		}
	}
	return m
}

// limit is one of n sub-windows.
func (m *mess) limit(rule string, a Algorithm, n int) *Limit {
	sub := []time.Duration{time.Millisecond, 7 * time.Millisecond, time.Second, time.Hour}[m.IntN(4)]
	meter := Meter{Rule: rule, Algorithm: a, Window: sub * time.Duration(n), Sub: sub}
	l, err := NewLimit(meter, m.Uint64N(200))
	if a.bucket() {
		l, err = LimitConfig{Meter: meter, Max: 1 + m.Uint64N(20), Refill: 1 + m.Uint64N(20)}.New()
	}
	if err == nil && m.IntN(2) == 0 {
		l, err = l.With(func(c *LimitConfig) { c.Ban = sub * time.Duration(1+m.IntN(20)) })
	}
	if err == nil && !a.bucket() && m.IntN(2) == 0 {
		l, err = l.With(func(c *LimitConfig) { c.CountRejected = true })
	}
	testkit.Must(m, err)
	return l
}

// pick is any key of any limit, and its number.
func (m *mess) pick() (i int, key Key) {
	i = m.IntN(len(m.limits))
	return i, m.keys[i][m.IntN(messKeys)]
}

func (m *mess) step() {
	switch m.IntN(12) {
	case 0:
		m.now += m.Int64N(int64(time.Millisecond))
	case 1:
		m.now += m.Int64N(int64(time.Second))
	case 2:
		if m.IntN(8) == 0 {
			m.now += m.Int64N(int64(70*time.Hour)) - int64(35*time.Hour)
		}
	}
	switch i, key := m.pick(); m.IntN(10) {
	case 0, 1, 2:
		m.table.Take(m.limits[i], key, m.Uint64N(12), m.now)
	case 3:
		if charges := m.charges(); m.IntN(3) == 0 {
			charges[0].Cost = m.Uint64N(100)
			m.table.Report(charges, m.now)
		} else {
			m.table.TakeAll(charges, m.now, nil)
		}
	case 4, 5, 6, 7:
		m.table.Merge(m.slots(i), m.now)
	case 8:
		if m.table.View(m.limits[i], key, m.now); m.IntN(10) == 0 {
			m.table.DrainDirty(m.now)
		}
	case 9:
		switch m.IntN(20) {
		case 0:
			m.table.Snapshot(m.now, m.IntN(1000))
			m.table.Own(m.now)
		case 1:
			m.table.Know(m.limits[:m.IntN(len(m.limits))])
		case 2, 3, 4, 5, 6, 7:
			m.table.SetWatermark(Origin(1+m.IntN(6)), m.asOf())
		case 8, 9:
			m.table.SetCluster(m.IntN(4), time.Duration(m.Int64N(int64(time.Second))))
		case 10, 11:
			m.table.DrainEarly(m.now)
		case 12:
			if m.IntN(4) == 0 {
				RetireOrigin(m.table, Origin(1+m.IntN(6)))
			}
		case 13:
			m.table.SetOwners(m.owners())
			m.table.Refresh(PartitionSet{m.Uint64(), m.Uint64()})
		}
	}
}

// asOf is a time of which something may be known: never, of late, long ago, in the future.
func (m *mess) asOf() int64 {
	switch m.IntN(8) {
	case 0:
		return Gone
	case 1:
		return 0
	case 2:
		return m.now + m.Int64N(int64(2*time.Hour)) - int64(time.Hour)
	default:
		return m.now - m.Int64N(int64(3*time.Second))
	}
}

// demand is what a peer may say that it is asked for, or may say who is no peer.
func (m *mess) demand() float32 {
	odd := []float32{-1, 1e-40, 1e30, math.MaxFloat32, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())}
	switch m.IntN(4) {
	case 0:
		return odd[m.IntN(len(odd))]
	case 1:
		return 0
	default:
		return 100 * m.Float32()
	}
}

func (m *mess) charges() (charges []Charge) {
	for range 1 + m.IntN(MaxLayers) {
		i, key := m.pick()
		charges = append(charges, Charge{Limit: m.limits[i], Key: key, Cost: 1})
	}
	return charges
}

// owners are those of any partitions, or none.
func (m *mess) owners() *Owners {
	if m.IntN(3) == 0 {
		return nil
	}
	o := &Owners{Regions: 3, Owned: PartitionSet{m.Uint64(), m.Uint64()}, Home: PartitionSet{m.Uint64(), m.Uint64()},
		Region: NewSum(1 << 8), Elsewhere: NewSum(2 << 8), Lost: NewSum(3 << 8)}
	for p := range Partitions {
		o.Homes[p][0] = NewSum(4 << 8)
	}
	return o
}

// place is any place of an origin, the same for as long as the origin is in use, or at times another one.
func (m *mess) place(o Origin) Place {
	places := [...]Place{unplaced, Near, Far(0), Near.Sum(), Far(0).Sum(), Elsewhere, Lost}
	if m.IntN(20) == 0 {
		return places[m.IntN(len(places))]
	}
	return places[int(o)%len(places)]
}

// slots are some of one limit, a few of them of the same sub-window each: of the past, of now, and of the future, with
// counts and times of any size.
func (m *mess) slots(i int) (slots []Slot) {
	var index int64
	meter := m.meters[i]
	if ban := m.limits[i].BanMeter(); ban != nil && m.IntN(3) == 0 {
		meter = ban
	}
	for n := range m.IntN(60) {
		if n == 0 || m.IntN(4) == 0 {
			index = meter.Index(m.now) + 2 - m.Int64N(int64(meter.SubWindows())+4)
		}
		origin := Origin(1 + m.IntN(6))
		slots = append(slots, Slot{
			Meter: meter, Key: m.keys[i][m.IntN(messKeys)], Index: index,
			Origin: origin, Sender: Origin(m.IntN(2)), Place: m.place(origin), Birth: m.Uint32N(5),
			Count:           m.Uint64N(1<<m.IntN(64)+1) >> (m.IntN(2) * 63),
			CompleteThrough: m.now - m.Int64N(1<<(1+m.IntN(60))), Demand: m.demand(),
		})
	}
	return slots
}

func (m *mess) audit(when string) {
	for number := range messShards {
		auditShard(m.T, m.table, number, fmt.Sprint(when, ", shard ", number))
	}
}

// end lets all that counts pass, after which the table has to be as if it were new.
func (m *mess) end(seed uint64) {
	m.table.Know(nil)
	for range 300 { // a drain sweeps a part of the table
		m.table.DrainDirty(m.now + int64(85*365*24*time.Hour))
	}
	for number := range m.table.shards {
		s := &m.table.shards[number]
		auditShard(m.T, m.table, number, fmt.Sprint("seed ", seed, ", at the end, shard ", number))
		if s.keys != 0 || s.used != 0 {
			m.Errorf("seed %d: shard %d still holds %d cells and %d words when all has passed", seed, number, s.keys,
				s.used)
		}
	}
	for what, r := range map[string]*registry{"meter": &m.table.meters.registry, "origin": &m.table.origins.registry} {
		for number := range r.holders {
			if n := r.holders[number].Load(); n != 0 {
				m.Errorf("seed %d: %s %d is borne by %d when nothing is left", seed, what, number, n)
			}
		}
	}
}
