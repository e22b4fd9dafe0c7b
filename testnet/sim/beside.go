package sim

import "math/rand/v2"

// beside is clients beside the load, each of which spends 95 % of its limit as evenly as can be, at nodes drawn at random. No window of any
// algorithm ever holds more than that of them.
type beside struct {
	clients, nodes, first int
	gap, phase, end       int64
	count                 int64
	places                *rand.Rand
}

func newBeside(o *Options) source {
	b := &beside{clients: o.Beside, nodes: o.Total(), first: o.Keys, end: int64(o.Duration), places: o.stream(drawBeside)}
	most := int64(keepsTo * float64(o.Limit))
	if most == 0 {
		b.end = 0 // the limit leaves room for one request, and 95 % of it for none
		return b
	}
	b.gap = (int64(o.lasts())-1)/most + 1
	b.phase = b.places.Int64N(b.gap)
	return b
}

// next goes through the clients in turn; each comes once in a gap.
func (b *beside) next() (arrival, bool) {
	round, client := b.count/int64(b.clients), b.count%int64(b.clients)
	at := b.phase + round*b.gap + client*(b.gap/int64(b.clients))
	if at >= b.end {
		return arrival{}, false
	}
	b.count++
	return arrival{after: at, node: b.places.IntN(b.nodes), client: b.first + int(client)}, true
}

// merged is the arrivals of two sources.
type merged struct {
	sources [2]source
	heads   [2]arrival
	more    [2]bool
}

func newMerged(a, b source) source {
	m := &merged{sources: [2]source{a, b}}
	for i := range m.sources {
		m.heads[i], m.more[i] = m.sources[i].next()
	}
	return m
}

func (m *merged) next() (arrival, bool) {
	i := 0
	if !m.more[0] || m.more[1] && m.heads[1].after < m.heads[0].after {
		i = 1
	}
	a, ok := m.heads[i], m.more[i]
	if ok {
		m.heads[i], m.more[i] = m.sources[i].next()
	}
	return a, ok
}
