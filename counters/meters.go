package counters

import (
	"sync/atomic"
	"time"
)

// meterState is a meter as a table keeps it.
type meterState struct {
	Meter
	shape
	id       uint64
	scope    Scope
	number   uint16
	holders  *atomic.Int32
	limit    atomic.Pointer[Limit] // the limit that last decided; merges debit a bucket by it
	maxCount atomic.Uint64         // that a slot is believed to count; 0: anything
	offered  atomic.Uint64         // the most that a cell which went had been asked for since the last drain
	used     atomic.Uint64         // see Demand; 0: not more than Limit.Far

	forgotten     atomic.Uint64 // see Forgotten
	implausibleAt atomic.Int64  // when an implausible slot of the meter came last; 0: none did

	demand float64 // see Demand; guarded by Table.drain
	rise   uint64  // likewise

	adHoc   bool
	charged atomic.Bool // here, not only by peers
	known   bool        // it is of a limit in force; guarded by Table.drain
	// retired is since when an ad-hoc meter that was charged here is not known; 0: it is. Guarded by Table.drain.
	retired int64
}

// retire brings up to date since when the meter's counts are of no use here. Those of an ad-hoc limit that the node
// has given up would keep their meter for as long as they count, a year perhaps, and there are only so many numbers
// for meters.
func (m *meterState) retire(now int64) {
	switch {
	case !m.adHoc:
	case m.known || !m.charged.Load():
		m.retired = 0
	case m.retired == 0:
		m.retired = now
	}
}

// retireAfter is how long a meter is given up before its counts go: a limit that is charged again is known again
// before.
const retireAfter = int64(time.Second)

// forgets reports whether a cell of the meter is to go: the meter was given up, and nothing has come to the cell
// since.
func (m *meterState) forgets(c *cell, now int64) bool {
	return m.retired != 0 && now-m.retired > retireAfter && int32(c.used-usedAt(m.retired)) <= 0
}

// MaxMeters is how many meters a table counts at a time: those of its limits, and those of which cells are left. Those
// of peers take up three quarters of them at most. Requests that meet one more are denied.
const MaxMeters = 1<<13 - 1

// The last numbers are not for everybody, so that there are always some for new rules: peers' meters get none of the
// last localMeters, and those of limits that requests bring along none of the last ruleMeters.
const (
	localMeters = MaxMeters / 4
	ruleMeters  = MaxMeters / 8
)

// meterTable holds the meters that a table's cells count.
type meterTable struct {
	registry
	states []*meterState // by number
}

func newMeterTable() meterTable {
	return meterTable{registry: newRegistry(MaxMeters), states: make([]*meterState, MaxMeters+1)}
}

// acquire returns the state of a meter for one more cell, nil if no number is left for meters of its kind.
func (ms *meterTable) acquire(id uint64, m *Meter, local bool) *meterState {
	ms.RLock()
	if k := ms.numbers[id]; k != 0 {
		ms.holders[k].Add(1)
		ms.RUnlock()
		return ms.states[k]
	}
	ms.RUnlock()
	ms.Lock()
	defer ms.Unlock()
	spare := localMeters
	switch {
	case local && m.AdHoc():
		spare = ruleMeters
	case local:
		spare = 0
	}
	before := ms.numbers[id]
	k := ms.register(id, spare)
	if k == 0 {
		return nil
	}
	if before == 0 {
		s, _ := m.Home()
		ms.states[k] = &meterState{Meter: *m, shape: m.shape(), id: id, scope: s, number: k, holders: &ms.holders[k],
			adHoc: m.AdHoc()}
	}
	ms.holders[k].Add(1)
	return ms.states[k]
}

// release takes a cell of the meter off.
func (m *meterState) release() { m.holders.Add(-1) }

// all appends the meters that the table knows to dst.
func (ms *meterTable) all(dst []*meterState) []*meterState {
	ms.RLock()
	defer ms.RUnlock()
	return append(dst, ms.states[1:1+ms.given]...)
}

// noteUsed notes what was used of the limit when something was admitted.
func (m *meterState) noteUsed(used uint64) {
	for largest := m.used.Load(); used > largest && !m.used.CompareAndSwap(largest, used); {
		largest = m.used.Load()
	}
}

// noteForgotten notes what was counted of a key when it was evicted.
func (m *meterState) noteForgotten(count uint64) {
	for largest := m.forgotten.Load(); count > largest && !m.forgotten.CompareAndSwap(largest, count); {
		largest = m.forgotten.Load()
	}
}
