package counters

// A request may have layers that another store decides on: one that all nodes share, and that takes a round trip. It is
// charged in all its layers or in none, whoever decides on them. No lock is held during the round trip, so the table
// is asked twice:
//
//	Ask      decides on the table's own layers and charges nothing; a denial ends the request here
//	         the other store decides on its layers, and charges them
//	TakeAll  decides again, as other requests may have come meanwhile, and charges what Ask has asked for
//
// A layer of the other store has Charge.Decided set: for Ask to an admission, as it is not known yet, for TakeAll to
// the store's decision. The table adopts it. If TakeAll denies the request, the caller gives back what the store
// charged. A ban of the limit is the table's: it denies a banned key both times, and begins with a denial that was made
// elsewhere. If the store cannot decide, the table can: the layer gets another Charge, without Decided.
//
// With Charge.Counts the table counts what the store admitted, whether it has room or not, up to twice the limit. So it
// knows the use of the key when it has to decide itself.

// Ask is the first half of TakeAll for a request with Decided layers; none has a tallied limit. If a decision denies
// the request, it is done, as by TakeAll. Otherwise nothing is charged: TakeAll with the same charges comes next.
func (t *Table) Ask(charges []Charge, now int64, dst []Decision) []Decision {
	return t.takeAll(charges, true, now, dst)
}

// countDecided counts what other stores decided.
func (r *request) countDecided(t *Table, passes bool) {
	for i := range r.charges {
		ch, d := &r.charges[i], &r.decisions[i]
		if ch.Decided != nil && ch.Counts && (d.Allowed && !d.Waived && passes || ch.overdraws(d)) {
			t.report(&r.layers[i], ch, r.now)
		}
	}
}
