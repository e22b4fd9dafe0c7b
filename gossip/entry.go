package gossip

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/edgelimit/edgelimit/counters"
)

// Entries are packed densely, one after the other. An entry is, in the order in which it travels:
//
//	head       1 byte   from its lowest bit: step 3 bits, age 2 bits, birth, demand and one 1 bit each
//	key        7 bytes  little endian; the eighth, its highest, is that of the entry before (0 before the first) plus
//	                    step, modulo 256
//	[highest]  1 byte   if step is 7: the highest byte itself
//	[age]      varint   if age is 3: the age itself
//	[birth]    uvarint  if birth is 1; else 0
//	[demand]   1 byte   if demand is 1: see demandSteps; else it says nothing
//	[count]    uvarint  if one is 0; else 1
//
// where age is how many sub-windows the entry lies before the one that holds the frame's `sent`. Slots travel in the
// order of their keys' highest bytes, so that a usual entry takes 9 bytes: head, key, and a count of up to 127.
const (
	stepBits  = 0b111
	ageShift  = 3
	ageBits   = 0b11
	hasBirth  = 1 << 5
	hasDemand = 1 << 6
	isOne     = 1 << 7

	follows  = stepBits // a step, or an age of as many bits, that has no room in the head
	minEntry = 8
	maxEntry = minEntry + 1 + binary.MaxVarintLen64 + binary.MaxVarintLen32 + 1 + binary.MaxVarintLen64
)

// demandSteps are the demands that an entry can say, in cost per second: eight to an octave, from an eighth to half a
// billion.
var demandSteps = func() (steps [256]float32) {
	// 2^(i/8), alike on every machine
	octave := [8]float64{1, 1.0905077, 1.1892071, 1.2968396, 1.4142136, 1.5422108, 1.6817928, 1.8340081}
	for i := range steps {
		steps[i] = float32(math.Ldexp(octave[i%8], i/8-3))
	}
	return steps
}()

// demandStep is the least step that is not below the demand; beyond the last one, that one.
func demandStep(demand float32) byte {
	i, _ := slices.BinarySearch(demandSteps[:], demand)
	return byte(min(i, len(demandSteps)-1))
}

// packEntries packs as many slots as fit into room bytes, at least one, behind what dst holds. now is the sub-window of
// the frame's time.
func packEntries(dst []byte, slots []counters.Slot, now int64, room int) (entries []byte, rest []counters.Slot) {
	var highest byte
	start := len(dst)
	for i := range slots {
		end := len(dst)
		dst = appendEntry(dst, &slots[i], highest, now)
		if end > start && len(dst)-start > room {
			return dst[:end], slots[i:]
		}
		highest = byte(slots[i].Key >> 56)
	}
	return dst, nil
}

// appendEntry appends one entry. highest is the highest byte of the key before it.
func appendEntry(dst []byte, s *counters.Slot, highest byte, now int64) []byte {
	step := min(byte(s.Key>>56)-highest, follows)
	age := now - s.Index
	head := step | byte(min(uint64(age), ageBits))<<ageShift
	if s.Birth != 0 {
		head |= hasBirth
	}
	if s.Demand > 0 {
		head |= hasDemand
	}
	if s.Count == 1 {
		head |= isOne
	}
	dst = binary.LittleEndian.AppendUint64(dst, uint64(s.Key)<<8|uint64(head))
	if step == follows {
		dst = append(dst, byte(s.Key>>56))
	}
	if uint64(age) >= ageBits { // it is 3 or more, or negative
		dst = binary.AppendVarint(dst, age)
	}
	if s.Birth != 0 {
		dst = binary.AppendUvarint(dst, uint64(s.Birth))
	}
	if s.Demand > 0 {
		dst = append(dst, demandStep(s.Demand))
	}
	if s.Count != 1 {
		dst = binary.AppendUvarint(dst, s.Count)
	}
	return dst
}

// entries reads packed entries, one after the other.
type entries struct {
	rest    []byte
	highest byte // of the last key
}

// next reads an entry into a slot: all but its meter, origin and Since. It reports whether there was one; if not, and
// something is left, that is malformed. now is the sub-window of the frame's time.
func (e *entries) next(s *counters.Slot, now int64) bool {
	b := e.rest
	if len(b) < minEntry {
		return false
	}
	word := binary.LittleEndian.Uint64(b)
	b = b[minEntry:]
	head := byte(word)
	highest, age, birth, count, ok := e.highest+head&stepBits, int64(head>>ageShift&ageBits), uint64(0), uint64(1), true
	if head&stepBits == follows {
		if len(b) == 0 {
			return false
		}
		highest, b = b[0], b[1:]
	}
	if age == ageBits {
		var n int
		if age, n = binary.Varint(b); n <= 0 || age != int64(int32(age)) {
			return false
		}
		b = b[n:]
	}
	if head&hasBirth != 0 {
		if birth, b, ok = readUvarint(b); !ok || birth > math.MaxUint32 {
			return false
		}
	}
	s.Demand = 0
	if head&hasDemand != 0 {
		if len(b) == 0 {
			return false
		}
		s.Demand, b = demandSteps[b[0]], b[1:]
	}
	if head&isOne == 0 {
		if count, b, ok = readUvarint(b); !ok {
			return false
		}
	}
	e.rest, e.highest = b, highest
	s.Key, s.Index, s.Birth, s.Count = counters.Key(highest)<<56|counters.Key(word>>8), now-age, uint32(birth), count
	return true
}

func readUvarint(b []byte) (v uint64, rest []byte, ok bool) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), b[1:], true
	}
	v, n := binary.Uvarint(b)
	return v, b[max(n, 0):], n > 0
}
