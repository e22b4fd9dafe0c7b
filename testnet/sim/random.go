package sim

import (
	"encoding/binary"
	"math/rand/v2"
)

// concern is what something random is drawn for. Each has a stream of its own.
type concern uint64

const (
	drawGaps concern = 1 + iota
	drawClients
	drawPlaces
	drawSpots
	drawStart
	drawPhases
	drawSkew
	drawLoss
	drawDuplicate
	drawReorder
	drawDelay
	drawStreams
	drawMembership
	drawFlush
	drawBeside
	drawStore // of region r: drawStore + r<<32
)

func (o *Options) stream(c concern) *rand.Rand { return rand.New(rand.NewPCG(o.Seed, uint64(c))) }

// chance reports true with the probability p. It draws nothing where that is certain.
func chance(r *rand.Rand, p float64) bool { return p > 0 && r.Float64() < p }

// digest folds all events of a run into a number: two runs with the same one went the same way.
type digest uint64

func (d *digest) add(words ...uint64) {
	h := uint64(*d)
	for _, w := range words {
		h = (h ^ w) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	*d = digest(h)
}

func (d *digest) addBytes(b []byte) {
	for ; len(b) >= 8; b = b[8:] {
		d.add(binary.LittleEndian.Uint64(b))
	}
	last := uint64(len(b))
	for _, c := range b {
		last = last<<8 | uint64(c)
	}
	d.add(last)
}
