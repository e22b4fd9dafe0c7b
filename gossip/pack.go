package gossip

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/edgelimit/edgelimit/counters"
)

// pack cuts groups into fields of groups of at most size bytes, splitting a group's slots where they do not fit. sent
// is the frame's time.
func pack(groups []group, self counters.Origin, sent int64, size int) [][]byte {
	p := packing{size: size}
	for _, g := range groups {
		head, tail := g.encodeHead(self), g.encodeTail()
		now := g.meter.Index(sent)
		for first := true; first || len(g.slots) > 0; first = false {
			room := p.room(head) - len(tail)
			if room < maxEntry && len(p.groups) > 0 {
				p.flush()
				room = p.room(head) - len(tail)
			}
			p.entries, g.slots = packEntries(p.entries[:0], g.slots, now, room)
			p.add(finishGroup(head, p.entries, tail))
		}
	}
	p.flush()
	return p.done
}

// packing is a call of pack: the fields that are done, and the groups of the one that is being filled.
type packing struct {
	size    int
	done    [][]byte
	groups  []byte // bins, one after the other
	count   int
	entries []byte // memory
}

// room is how many bytes of entries a group with this head may have.
func (p *packing) room(head []byte) int {
	header := maxHeader // of the field, the group, and its entries
	if p.size <= math.MaxUint16 {
		header = 3
	}
	return p.size - len(p.groups) - len(head) - 3*header
}

func (p *packing) add(group []byte) {
	p.groups = appendBin(p.groups, group)
	p.count++
}

func (p *packing) flush() {
	if p.count > 0 {
		p.done = append(p.done, fieldOf(p.count, p.groups))
		p.groups, p.count = p.groups[:0], 0
	}
}

// fieldOf is the field of so many groups.
func fieldOf(count int, groups []byte) []byte {
	buf := bytes.NewBuffer(make([]byte, 0, maxHeader+len(groups)))
	_ = msgpack.NewEncoder(buf).EncodeArrayLen(count)
	buf.Write(groups)
	return buf.Bytes()
}

// emptyBody is the field of a frame without groups.
var emptyBody = fieldOf(0, nil)

// encodeHead is all of a group before its entries.
func (g *group) encodeHead(self counters.Origin) []byte {
	var buf bytes.Buffer
	enc := msgpack.NewEncoder(&buf)
	origin := g.origin
	if origin == self {
		origin = 0
	}
	_ = enc.EncodeString(g.meter.Rule)
	_ = enc.EncodeUint(uint64(g.meter.Algorithm))
	_ = enc.EncodeInt(int64(g.meter.Window))
	_ = enc.EncodeInt(int64(g.meter.Sub))
	_ = enc.EncodeUint(uint64(origin))
	_ = enc.EncodeUint(uint64(min(math.Ceil(g.demand*1000), 1<<63))) // beyond it the conversion depends on the machine
	return buf.Bytes()
}

// encodeTail is all of a group after its entries.
func (g *group) encodeTail() []byte {
	var buf bytes.Buffer
	if enc := msgpack.NewEncoder(&buf); g.rise == ofSum {
		_ = enc.EncodeInt(encodedSum)
	} else {
		_ = enc.EncodeUint(min(g.rise, math.MaxInt64))
	}
	return buf.Bytes()
}

// finishGroup is a group: its head, its entries and its tail.
func finishGroup(head, entries, tail []byte) []byte {
	group := make([]byte, 0, len(head)+maxHeader+len(entries)+len(tail))
	return append(appendBin(append(group, head...), entries), tail...)
}

// maxHeader is the most bytes of the header of a bin or an array.
const maxHeader = 5

// appendBin appends b as a msgpack bin.
func appendBin(dst, b []byte) []byte {
	switch n := len(b); {
	case n <= math.MaxUint8:
		dst = append(dst, 0xc4, byte(n))
	case n <= math.MaxUint16:
		dst = binary.BigEndian.AppendUint16(append(dst, 0xc5), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint32(append(dst, 0xc6), uint32(n))
	}
	return append(dst, b...)
}
