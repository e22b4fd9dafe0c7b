package counters

import "sync"

// meterState is a meter as a table keeps it.
type meterState struct {
	Meter
	id     uint64
	size   int     // places in a ring
	demand float64 // see Demand; guarded by Table.drain
}

// meterTable holds the meters that a table's cells count, and lives as long as the table.
type meterTable struct {
	sync.RWMutex
	byID map[uint64]*meterState
}

// maxRemoteMeters caps what peers can make a table hold.
const maxRemoteMeters = 1 << 16

// localMeter returns the state of a limit's meter.
func (t *Table) localMeter(l *Limit) *meterState { return t.meters.state(l.id, &l.meter, true) }

// remoteMeter returns the state of a meter that a peer sent, or nil if the table does not take it.
func (t *Table) remoteMeter(m *Meter) *meterState {
	if m == nil || m.Validate() != nil {
		return nil
	}
	return t.meters.state(m.id(), m, false)
}

func (ms *meterTable) state(id uint64, m *Meter, local bool) *meterState {
	ms.RLock()
	state := ms.byID[id]
	ms.RUnlock()
	if state != nil {
		return state
	}
	ms.Lock()
	defer ms.Unlock()
	if state = ms.byID[id]; state == nil && (local || len(ms.byID) < maxRemoteMeters) {
		state = &meterState{Meter: *m, id: id, size: m.ringSize()}
		ms.byID[id] = state
	}
	return state
}

// all returns the meters that the table knows.
func (ms *meterTable) all() []*meterState {
	ms.RLock()
	defer ms.RUnlock()
	states := make([]*meterState, 0, len(ms.byID))
	for _, s := range ms.byID {
		states = append(states, s)
	}
	return states
}
