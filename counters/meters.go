package counters

import "sync/atomic"

// meterState is a meter as a table keeps it.
type meterState struct {
	Meter
	shape
	id      uint64
	scope   Scope
	number  uint16
	bearers *atomic.Int32
	limit   atomic.Pointer[Limit] // the limit that last decided; merges debit a bucket by it
	most    atomic.Uint64         // that a slot is believed to count; 0: anything
	offered atomic.Uint64         // the most that a cell which went had been asked for since the last drain
	used    atomic.Uint64         // see Demand; 0: not more than Limit.Far
	demand  float64               // see Demand; guarded by Table.drain
	rise    uint64                // likewise
}

// MaxMeters is how many meters a table counts at a time: those of its limits, and those of which cells are left. Those of peers take
// up three quarters of them at most. Requests that meet one more are denied.
const MaxMeters = 1<<13 - 1

const localMeters = MaxMeters / 4

// meterTable holds the meters that a table's cells count.
type meterTable struct {
	registry
	states []*meterState // by number
}

func newMeterTable() meterTable {
	return meterTable{registry: newRegistry(MaxMeters), states: make([]*meterState, MaxMeters+1)}
}

// bear returns the state of a meter for one more cell, nil if there are too many meters of peers.
func (ms *meterTable) bear(id uint64, m *Meter, local bool) *meterState {
	ms.RLock()
	if k := ms.numbers[id]; k != 0 {
		ms.bearers[k].Add(1)
		ms.RUnlock()
		return ms.states[k]
	}
	ms.RUnlock()
	ms.Lock()
	defer ms.Unlock()
	spare := localMeters
	if local {
		spare = 0
	}
	before := ms.numbers[id]
	k := ms.register(id, spare)
	if k == 0 {
		return nil
	}
	if before == 0 {
		s, _ := m.Home()
		ms.states[k] = &meterState{Meter: *m, shape: m.shape(), id: id, scope: s, number: k, bearers: &ms.bearers[k]}
	}
	ms.bearers[k].Add(1)
	return ms.states[k]
}

// release takes a cell of the meter off.
func (m *meterState) release() { m.bearers.Add(-1) }

// all appends the meters that the table knows to dst.
func (ms *meterTable) all(dst []*meterState) []*meterState {
	ms.RLock()
	defer ms.RUnlock()
	return append(dst, ms.states[1:1+ms.given]...)
}

// noteUsed notes what was used of the limit when something was admitted.
func (m *meterState) noteUsed(used uint64) {
	for most := m.used.Load(); used > most && !m.used.CompareAndSwap(most, used); {
		most = m.used.Load()
	}
}
