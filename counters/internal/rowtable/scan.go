package rowtable

import (
	"slices"

	"github.com/edgelimit/edgelimit/counters/internal/rows"
)

// Scan goes through all that a table counts, a part at a time: for newcomers and new owners, for stores, and for those
// who look. It returns every slot that counts all the time, of this table (origin 0) and of others, and each at least
// once: one that moves to another line meanwhile may come twice. Of bans and lifts of others it returns the latest
// alone.
type Scan struct {
	Of  func(m *Meter, key uint64) bool // which keys; nil: all but those that are nobody else's
	Own bool                            // the slots of this table alone

	table  *Table
	shard  int
	cursor rows.Cursor
	begun  bool   // in this shard
	moved  []Slot // to lines that the scan may have passed
}

// scanPart is how many places a part of a Scan goes through. A head may take as long as sixty others.
const scanPart = 64

// Scan begins a scan. It has to be gone through, or stopped.
func (t *Table) Scan() *Scan { return &Scan{table: t} }

// Next appends the slots of the next part to dst. more is false after the last one. One shard is locked meanwhile.
func (sc *Scan) Next(dst []Slot, now int64) (all []Slot, more bool) {
	t := sc.table
	s := &t.store.Shards()[sc.shard]
	s.Lock()
	defer s.Unlock()
	if !sc.begun {
		sc.begun = true
		t.shards[sc.shard].scans = append(t.shards[sc.shard].scans, sc)
	}
	done := s.Scan(&sc.cursor, t.readyPart(s, scanPart, now), func(l *rows.Line) bool {
		dst = sc.appendLine(dst, s, l, now)
		return false
	})
	dst, sc.moved = append(dst, sc.moved...), sc.moved[:0]
	if done {
		sc.leave()
		sc.shard++
	}
	return dst, sc.shard < len(t.shards)
}

// Stop ends a scan before its end.
func (sc *Scan) Stop() {
	if sc.begun {
		s := &sc.table.store.Shards()[sc.shard]
		s.Lock()
		defer s.Unlock()
		sc.leave()
	}
}

// leave ends the scan of a shard, which is locked.
func (sc *Scan) leave() {
	cold := &sc.table.shards[sc.shard]
	i := slices.Index(cold.scans, sc)
	cold.scans = slices.Delete(cold.scans, i, i+1)
	sc.begun = false
}

// wants reports whether the scan is for a line's key.
func (sc *Scan) wants(l *rows.Line) bool {
	m := sc.table.meter(l.Meter())
	return sc.Of == nil && m.Scope != Alone || sc.Of != nil && sc.Of(m, l.Key)
}

// noteMoved has the scans of a head's shard return slots that are about to move to other lines.
func (r *raising) noteMoved(l *slots) {
	for _, sc := range r.shardOf(r.h).scans {
		if !sc.Own && sc.wants(r.c.line()) {
			sc.moved = r.appendBeside(sc.moved, l)
		}
	}
}

// appendLine appends the slots of a line: a head has its own ones, and a line of slots beside it.
func (sc *Scan) appendLine(dst []Slot, s *rows.Shard, l *rows.Line, now int64) []Slot {
	kind := l.Kind()
	row := kind == rowKind || kind == fewKind
	if kind != rows.Head && (sc.Own || kind != blockKind && !row) || !sc.wants(l) {
		return dst
	}
	t, m, h := sc.table, sc.table.meter(l.Meter()), sc.table.hashOf(l)
	head := l
	if kind != rows.Head {
		if head = s.Head(h, m.ID, l.Key); head == nil {
			return dst
		}
	}
	c := headOf(head)
	if _, _, ok := t.settle(s, h, c, m, now); !ok {
		return dst
	}
	switch {
	case kind != rows.Head && l.Rest()&maxGeneration != c.generation():
		return dst
	case kind == blockKind:
		return appendBlock(dst, s, h, c, m, l)
	case kind == fewKind && !c.has(rowsForm):
		return dst
	case row:
		return appendRow(dst, s, h, c, m, l)
	}
	dst = t.appendOwn(dst, s, h, c, m, m.N+1)
	switch {
	case sc.Own:
	case m.isTimed():
		dst = appendLatest(dst, c, m, now)
	case c.has(slotsForm) && !c.has(rowsForm):
		name := slotsName(c)
		if beside := s.Find(rows.Sub(h, name), c.key, name); beside != nil {
			dst = appendSlots(dst, c, slotsOf(beside))
		}
	}
	return dst
}

// slotOf is a slot of another origin.
func slotOf(c *head, sub int64, origin uint16, birth uint32, count uint64) Slot {
	return Slot{Key: c.key, Index: sub, Count: count, Birth: birth, Origin: origin, Meter: c.line().Meter()}
}

// appendSlots appends those of a line of slots.
func appendSlots(dst []Slot, c *head, l *slots) []Slot {
	for _, sl := range &l.slots {
		if sl.origin != 0 {
			sub := near(c.sub(), uint64(sl.sub), 8)
			dst = append(dst, slotOf(c, sub, sl.origin, sl.birth, uint64(sl.count)))
		}
	}
	return dst
}

// appendBlock appends what 16 origins counted in a sub-window.
func appendBlock(dst []Slot, s *rows.Shard, h uint64, c *head, m *Meter, l *rows.Line) []Slot {
	more := l.Rest() >> generationBits
	first := uint16(more << blockOrigins)
	sub := near(c.sub(), more>>originBits, spanBits)
	if !c.counts(m, sub) {
		return dst
	}
	for i := range cells {
		if count := countIn(s, h, l, i); count != 0 {
			dst = append(dst, slotOf(c, sub, first+uint16(i), 0, count))
		}
	}
	return dst
}

// appendRow appends what an origin counted since a birth in 16 sub-windows.
func appendRow(dst []Slot, s *rows.Shard, h uint64, c *head, m *Meter, l *rows.Line) []Slot {
	more := l.Rest() >> generationBits
	birth := uint32(more>>originBits) & maxBirth
	first := near(c.sub()>>rowSubs, more>>(originBits+birthBits), spanBits-birthBits) << rowSubs
	for i := range cells {
		sub := first + int64(i)
		if !c.counts(m, sub) {
			continue
		}
		if count := countIn(s, h, l, i); count != 0 {
			dst = append(dst, slotOf(c, sub, uint16(more), birth, count))
		}
	}
	return dst
}

// counts reports whether a sub-window is in the ring, or the next one.
func (c *head) counts(m *Meter, sub int64) bool { return sub >= c.sub()-int64(m.N) && sub <= c.sub()+1 }

// countIn is a count of a block or row, with what the line above it has of it.
func countIn(s *rows.Shard, h uint64, l *rows.Line, i int) uint64 {
	count := shortsOf(l).get(i)
	if count < moreBit {
		return count
	}
	above := l.Name + aboveKind
	if more := s.Find(rows.Sub(h, above), l.Key, above); more != nil {
		return count&(moreBit-1) | shortsOf(more).get(i)<<shortBits
	}
	return 0
}

// near is the number next to another one that has some low bits.
func near(to int64, low uint64, bits uint) int64 {
	by := int64((low - uint64(to)) << (64 - bits)) // to the top, and back with the sign
	return to + by>>(64-bits)
}

// Slots returns what every origin counted of a key in the sub-windows that still count. It goes through a shard.
func (t *Table) Slots(m *Meter, key uint64, now int64) (all []Slot) {
	shard := int(t.store.Hash(m.ID, key) >> (64 - shardBits))
	sc := &Scan{table: t, shard: shard, Of: func(of *Meter, k uint64) bool { return k == key && of.ID == m.ID }}
	for sc.shard == shard {
		all, _ = sc.Next(all, now)
	}
	return all
}
