package counters

import (
	"sync/atomic"
	"time"
)

// maxMeters is the number of meters, 262,140, that a table can count at a time. A meter takes a number while its limit
// is in force ([Table.Know]) and while it has cells: the number of a removed rule is free when its last count has left
// the window. A limit has one meter; its bans and their lifts take one more each while there are any. A limit for whose
// meter no number is left denies every request, as no key is admitted untracked.
//
// Three quarters of the numbers are for all meters. Ad-hoc limits may take numbers up to seven eighths, limits of rules
// all of them: so there are numbers for new rules whatever peers send and requests bring along.
const maxMeters = 1<<(16+meterBits) - 1 - lowMeter

// localMeters are the numbers that meters of peers do not get, and ruleMeters those that ad-hoc limits do not get.
const (
	localMeters = maxMeters / 4
	ruleMeters  = maxMeters / 8
)

// retireAfter is how long an ad-hoc meter is unknown before its counts go. A limit that is still used becomes known
// again sooner.
const retireAfter = int64(time.Second)

type meterState struct {
	spec
	number   uint32
	holders  *atomic.Int32
	limit    atomic.Pointer[Limit] // the limit that decided last; merges use it to debit a bucket
	maxCount atomic.Uint64         // maximum of a plausible slot; 0: none
	offered  atomic.Uint64         // maximum, over cells removed since the last drain, of the cost asked for
	used     atomic.Uint64         // see Demand; 0: not more than Limit.Far

	forgotten     atomic.Uint64 // see Forgotten
	implausibleAt atomic.Int64  // time of the last implausible slot; 0: none came

	adHoc   bool
	charged atomic.Bool // by this table, not only by peers

	// Guarded by Table.drain:
	demand  float64 // see Demand
	asked   uint64  // of the hottest key in the interval that ends
	rise    uint64  // see Demand
	known   bool    // the meter of a limit in force
	retired int64   // since when a charged ad-hoc meter is not known; 0: it is known
}

// retire updates since when an ad-hoc meter is retired. The node has given up its limit: without retirement its counts
// would keep the meter's number until they leave the window, which may take a year.
func (m *meterState) retire(now int64) {
	switch {
	case !m.adHoc || m.algorithm.timed(): // bans are nobody's limits, and end by themselves
	case m.known || !m.charged.Load():
		m.retired = 0
	case m.retired == 0:
		m.retired = now
	}
}

// forgets reports whether the meter is retired and the cell was not used since.
func (m *meterState) forgets(c *cell, now int64) bool {
	return m.retired != 0 && now-m.retired > retireAfter && int32(c.used-usedAt(m.retired)) <= 0
}

// meterTable numbers the meters of a table's cells.
type meterTable struct {
	registry
	parts [maxMeters/partOfStates + 1]*meterStates // by number, see state
}

// partOfStates is how many states a table makes room for at a time.
const partOfStates = 256

// meterStates are the states of numbers in a row. A table makes them when it gives the first of these.
type meterStates [partOfStates]*meterState

func newMeterTable() meterTable {
	return meterTable{registry: newRegistry(maxMeters), parts: [maxMeters/partOfStates + 1]*meterStates{{}}}
}

// state returns the state of a number that was given, and nil for 0. A holder of the number needs no lock.
func (ms *meterTable) state(number uint32) *meterState {
	return ms.parts[number/partOfStates][number%partOfStates]
}

// acquire returns the state of a meter for one more holder, nil if there is no number for the meter. local: for this
// table's own limits, not for what a peer sent.
func (ms *meterTable) acquire(y *spec, local bool) *meterState {
	ms.RLock()
	if k := ms.numbers[y.id]; k != 0 {
		ms.holders[k].Add(1)
		ms.RUnlock()
		return ms.state(k)
	}
	ms.RUnlock()
	ms.Lock()
	defer ms.Unlock()
	spare := 0
	switch {
	case !local:
		spare = localMeters
	case y.meter.adHoc():
		spare = ruleMeters
	}
	k := ms.register(y.id, spare)
	if k == 0 {
		return nil
	}
	part := &ms.parts[k/partOfStates]
	if *part == nil {
		*part = new(meterStates)
	}
	state := &(*part)[k%partOfStates]
	if *state == nil || (*state).id != y.id {
		*state = &meterState{spec: *y, number: k, holders: &ms.holders[k], adHoc: y.meter.adHoc()}
	}
	ms.holders[k].Add(1)
	return *state
}

func (m *meterState) release() { m.holders.Add(-1) }

// all appends the states of all numbers that were ever given.
func (ms *meterTable) all(dst []*meterState) []*meterState {
	ms.RLock()
	defer ms.RUnlock()
	for k := range uint32(ms.given) {
		dst = append(dst, ms.state(k+1))
	}
	return dst
}

// raise stores n if it is larger than the value.
func raise(value *atomic.Uint64, n uint64) {
	for old := value.Load(); n > old && !value.CompareAndSwap(old, n); {
		old = value.Load()
	}
}
