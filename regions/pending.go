package regions

import "github.com/edgelimit/edgelimit/counters"

// pending are the slots that wait for the store, each with the largest count offered. It is bounded.
type pending struct {
	cap   int
	slots map[slotID]counters.Slot
}

func newPending(capacity int) pending {
	return pending{cap: capacity, slots: make(map[slotID]counters.Slot)}
}

// add notes a slot. It returns false when there is no room for one more.
func (p *pending) add(s *counters.Slot) bool {
	id := identify(s)
	known, ok := p.slots[id]
	switch {
	case ok && known.Count >= s.Count:
		return true
	case !ok && len(p.slots) >= p.cap:
		return false
	}
	p.slots[id] = *s
	return true
}

// due drops what has expired and returns the rest. It stays pending.
func (p *pending) due(now int64) []counters.Slot {
	due := make([]counters.Slot, 0, len(p.slots))
	for id, s := range p.slots {
		if expired(s.Meter, s.Index, now) {
			delete(p.slots, id)
			continue
		}
		due = append(due, s)
	}
	return due
}

// acknowledge takes out what the store has now. What rose in the meantime stays.
func (p *pending) acknowledge(slots []counters.Slot) {
	for i := range slots {
		id := identify(&slots[i])
		if p.slots[id].Count <= slots[i].Count {
			delete(p.slots, id)
		}
	}
}
