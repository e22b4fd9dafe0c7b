package regions

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// DefaultMaxSlots caps an Embedded store unless told otherwise: about 120 MB when every slot is of another key.
const DefaultMaxSlots = 1 << 20

const (
	pageSlots  = 1024        // slots that Load gives at a time
	sweepEvery = time.Second // how late memory of expired slots may come back
)

// Embedded is a Store in the memory of this process: for a single node, for nodes that share a process, and for tests.
// It is lost with the process. It is safe for concurrent use.
//
// Its memory is bounded by a cap on slots. At the cap it refuses new ones with ErrFull and goes on raising those it
// has.
type Embedded struct {
	now   func() time.Time
	began time.Time
	cap   int

	mu      sync.Mutex
	windows map[windowID]*window
	slots   int
	swept   time.Duration // when expired windows were last let go
	batch   uint64        // number of the Merge at work
	epoch   string
}

// windowID names a sub-window of a meter. Its slots expire together, so they are kept together.
type windowID struct {
	meter counters.Meter
	index int64
}

type window struct {
	meter *counters.Meter
	until time.Duration // of the store's time; some caller needs it until then
	slots int
	keys  map[counters.Key][]held
}

// held is one slot. batch is the last Merge that gave it or was sent it: its answer has the slot once.
type held struct {
	origin   counters.Origin
	birth    uint32
	count    uint64
	restored uint64
	batch    uint64
}

// NewEmbedded returns an empty store of at most maxSlots slots (0 means DefaultMaxSlots). Its clock is now, which is
// called concurrently: only how much time passes matters.
func NewEmbedded(maxSlots int, now func() time.Time) *Embedded {
	if maxSlots <= 0 {
		maxSlots = DefaultMaxSlots
	}
	e := &Embedded{now: now, began: now(), cap: maxSlots}
	e.Flush()
	return e
}

// Flush drops everything and changes the epoch, as if the store had been replaced by a new one.
func (e *Embedded) Flush() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.windows = make(map[windowID]*window)
	e.slots = 0
	e.epoch = rand.Text()
}

// Len is the number of slots held; slots that expired within the last second may be among them.
func (e *Embedded) Len() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.slots
}

// Merge implements Store.
func (e *Embedded) Merge(ctx context.Context, slots []counters.Slot, now int64) (Merged, error) {
	clock := e.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	before := make([]uint64, len(slots))
	err := e.raiseAll(ctx, slots, moment{now, clock.Sub(e.began)}, func(i int, h *held) {
		before[i], h.count, h.batch = h.count, max(h.count, slots[i].Count), e.batch
	})
	if err != nil {
		return Merged{}, fmt.Errorf("merge into the embedded store: %w", err)
	}
	return Merged{Before: before, Others: e.others(slots, now), Epoch: e.epoch, Time: clock}, nil
}

// Restore implements Store.
func (e *Embedded) Restore(ctx context.Context, slots []counters.Slot, now int64) error {
	at := moment{now, e.now().Sub(e.began)}
	e.mu.Lock()
	defer e.mu.Unlock()
	err := e.raiseAll(ctx, slots, at, func(i int, h *held) { h.restored = max(h.restored, slots[i].Count) })
	if err != nil {
		return fmt.Errorf("restore in the embedded store: %w", err)
	}
	return nil
}

// moment is the time of a call.
type moment struct {
	caller int64         // by the caller's clock, in Unix nanoseconds
	store  time.Duration // since the store was made
}

// raiseAll calls raise for every slot given that is held, or has room now.
func (e *Embedded) raiseAll(ctx context.Context, slots []counters.Slot, at moment, raise func(i int, h *held)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e.sweep(at.store)
	e.batch++
	refused := 0
	for i := range slots {
		switch h, full := e.find(&slots[i], at); {
		case h != nil:
			raise(i, h)
		case full:
			refused++
		}
	}
	if refused > 0 {
		return fmt.Errorf("no room for %d of %d slots beside the %d it may hold; raise its cap: %w",
			refused, len(slots), e.cap, ErrFull)
	}
	return nil
}

// find returns what is held of a slot, and makes it unless the slot has no count. If it returns nil, full says whether
// room is lacking.
func (e *Embedded) find(s *counters.Slot, at moment) (h *held, full bool) {
	if expired(s.Meter, s.Index, at.caller) {
		return nil, false
	}
	id := windowID{*s.Meter, s.Index}
	w := e.windows[id]
	if w != nil && w.until < at.store {
		e.drop(id, w)
		w = nil
	}
	if w != nil {
		if s.Count > 0 {
			w.until = max(w.until, at.store+lifetime(s.Meter, s.Index, at.caller))
		}
		cell := w.keys[s.Key]
		for i := range cell {
			if cell[i].origin == s.Origin && cell[i].birth == s.Birth {
				return &cell[i], false
			}
		}
	}
	if s.Count == 0 {
		return nil, false
	}
	if e.slots >= e.cap {
		return nil, true
	}
	if w == nil {
		meter := *s.Meter
		until := at.store + lifetime(s.Meter, s.Index, at.caller)
		w = &window{meter: &meter, until: until, keys: make(map[counters.Key][]held)}
		e.windows[id] = w
	}
	cell := append(w.keys[s.Key], held{origin: s.Origin, birth: s.Birth})
	w.keys[s.Key] = cell
	w.slots++
	e.slots++
	return &cell[len(cell)-1], false
}

// others returns the other slots of the same meters, keys and sub-windows, each once.
func (e *Embedded) others(slots []counters.Slot, now int64) []counters.Slot {
	var others []counters.Slot
	for i := range slots {
		s := &slots[i]
		w := e.windows[windowID{*s.Meter, s.Index}]
		if w == nil || expired(w.meter, s.Index, now) {
			continue
		}
		cell := w.keys[s.Key]
		for j := range cell {
			if cell[j].batch != e.batch {
				cell[j].batch = e.batch
				others = append(others, w.slot(s.Key, s.Index, &cell[j]))
			}
		}
	}
	return others
}

// Load implements Store. It blocks other calls only while it copies one sub-window of one meter.
func (e *Embedded) Load(ctx context.Context, now int64, page func(slots []counters.Slot)) error {
	e.mu.Lock()
	ids := slices.Collect(maps.Keys(e.windows))
	e.mu.Unlock()

	var slots []counters.Slot
	for _, id := range ids {
		slots = e.copyWindow(slots[:0], id, now)
		for chunk := range slices.Chunk(slots, pageSlots) {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("load the embedded store: %w", err)
			}
			page(chunk)
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("load the embedded store: %w", err)
	}
	return nil
}

// copyWindow appends the slots of a sub-window that can still count.
func (e *Embedded) copyWindow(dst []counters.Slot, id windowID, now int64) []counters.Slot {
	at := e.now().Sub(e.began)
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.windows[id]
	if w == nil || w.until < at || expired(w.meter, id.index, now) {
		return dst
	}
	for key, cell := range w.keys {
		for i := range cell {
			dst = append(dst, w.slot(key, id.index, &cell[i]))
		}
	}
	return dst
}

func (w *window) slot(key counters.Key, index int64, h *held) counters.Slot {
	return counters.Slot{
		Meter: w.meter, Key: key, Index: index, Origin: h.origin, Birth: h.birth, Count: max(h.count, h.restored),
	}
}

// sweep drops, every sweepEvery, the windows that nobody needs any more: also after the clock was set back.
func (e *Embedded) sweep(now time.Duration) {
	if now >= e.swept && now < e.swept+sweepEvery {
		return
	}
	e.swept = now
	for id, w := range e.windows {
		if w.until < now {
			e.drop(id, w)
		}
	}
}

func (e *Embedded) drop(id windowID, w *window) {
	e.slots -= w.slots
	delete(e.windows, id)
}
