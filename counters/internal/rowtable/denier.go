package rowtable

import "github.com/edgelimit/edgelimit/counters/internal/rows"

// Plausible counts can be forged, too: a peer that knows the gossip key and the hashes of keys can have those keys
// denied for as long as it sends. Nobody can distinguish this from a peer that admitted as much. A floor against it
// would let clients with a node of their own have half of the limit more, so there is none. But the table counts the
// keys that are denied because of a single peer, and names the peer. It looks at keys that few peers count: where there
// are blocks, it would have to search for all of them.

// denierShare is the part of the limit that one peer alone has to report to be LastDenier.
const denierShare = 0.9

// note records in a head whether its last request was denied.
func (t *Table) note(y *layer, cost uint64, d Decision) {
	if y.c != nil && y.l.chargeable(cost) {
		t.noteVerdict(y, d.Allowed)
	}
}

// noteVerdict records in a head whether its last request was denied, and looks at the first denial of a key in a
// sub-window.
func (t *Table) noteVerdict(y *layer, allowed bool) {
	if !allowed && y.c.has(slotsForm) && !y.c.has(denied|judged) {
		t.judge(y)
	}
	y.c.put(denied, !allowed)
}

// judge looks at a denial of a key. If this table admitted no more than its floor, and one peer alone reported
// denierShare of the limit, and more than all others, that peer becomes LastDenier.
func (t *Table) judge(y *layer) {
	y.c.raise(judged)
	name := slotsName(y.c)
	line := y.s.Find(rows.Sub(y.h, name), y.c.key, name)
	if line == nil || t.ownSum(y) > t.floor(y.l) {
		return
	}
	r := raising{t, y.s, y.h, y.c}
	var room [slotsPerLine * (narrow + 2)]Slot
	slots := r.appendBeside(room[:0], slotsOf(line))
	var origin uint16
	var most, all uint64
	for i := range slots {
		all += slots[i].Count
		var count uint64
		for k := range slots {
			if slots[k].Origin == slots[i].Origin {
				count += slots[k].Count
			}
		}
		if count > most {
			origin, most = slots[i].Origin, count
		}
	}
	if most > all/2 && float64(most) >= denierShare*float64(y.l.Max) {
		t.implausible.deniedByOne.Add(1)
		t.implausible.denier.Store(uint32(origin))
	}
}

// DeniedByOne returns how many keys, once per sub-window, were denied because of a single peer.
func (t *Table) DeniedByOne() uint64 { return t.implausible.deniedByOne.Load() }

// LastDenier returns the origin that last had a key denied alone; 0 if there was none.
func (t *Table) LastDenier() uint16 { return uint16(t.implausible.denier.Load()) }
