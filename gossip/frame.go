package gossip

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/vmihailenco/msgpack/v5"
)

// A frame is a msgpack array, in the order in which it travels:
//
//	0  version   uint   frameVersion
//	1  kind      uint   beacon, data, dataMore, snapshot, goodbye
//	2  origin    uint   who sends it
//	3  tick      uint   data: its number; all others: the latest number whose content it covers
//	4  sent      int    wall time of the sender, Unix nanoseconds
//	5  active    uint   for how many nanoseconds before that it has had requests without a pause
//	6  ack       bin    what the sender has of the addressee (below); empty: nothing to say
//	7  groups    array of bin, one for each meter (and origin)
//
// ack and groups are msgpack themselves:
//
//	ack:    origin uint (whose ticks), cumulative uint (it has 1 to this), bitmap bin (bit i: it has cumulative+2+i, too)
//	group:  rule str, algorithm uint, window int, sub-window int (nanoseconds), origin uint (0: the sender's own),
//	        demand uint (cost per 1000 s of the hottest key), entries bin
//
// and entries are packed densely, one after the other:
//
//	key 8 bytes little endian, age varint, birth uvarint, count uvarint
//
// where age is how many sub-windows the entry lies before the one that holds `sent`. Fields are only ever appended, to the
// frame, to an ack or to a group: what follows the last known one is skipped.
const (
	frameVersion = 1
	frameFields  = 8
)

// MaxFrame is the most bytes in a frame that travels as a packet: with what memberlist adds, it fits an Ethernet packet.
const MaxFrame = 1200

const (
	maxEnvelope = 200                    // bytes of a packet for the envelope and its ack
	maxBody     = MaxFrame - maxEnvelope // of groups
	maxBitmap   = 128                    // bytes of the ack's bitmap
	maxSnapshot = 8 << 20                // bytes of a frame that travels as a stream
	maxEntry    = 8 + 3*binary.MaxVarintLen64
	minGroup    = 18 // bytes: the shortest that is valid
)

type kind uint8

const (
	beacon   kind = iota // nothing new
	data                 // the last frame, or the only one, of an interval
	dataMore             // more frames of the same interval follow
	snapshot             // all live slots of all origins
	goodbye              // a beacon, the last: from now on the sender admits nothing
	kinds
)

type frame struct {
	kind   kind
	origin counters.Origin
	tick   uint64
	sent   int64
	active time.Duration
	ack    ack
	groups []group
}

// ack says which ticks of an origin its sender has. The zero value says nothing.
type ack struct {
	origin     counters.Origin
	cumulative uint64
	bitmap     []byte // bit i: cumulative+2+i
}

func (a ack) has(tick uint64) bool {
	if tick <= a.cumulative {
		return true
	}
	if tick == a.cumulative+1 {
		return false
	}
	i := tick - a.cumulative - 2
	return i/8 < uint64(len(a.bitmap)) && a.bitmap[i/8]&(1<<(i%8)) != 0
}

// group is what a frame says of one meter, of one origin.
type group struct {
	origin counters.Origin // never 0 once decoded
	meter  *counters.Meter
	demand float64 // cost per second
	slots  []counters.Slot
}

// encode appends the envelope and the body to dst.
func (f *frame) encode(dst []byte, body []byte) []byte {
	buf := bytes.NewBuffer(dst)
	enc := msgpack.NewEncoder(buf)
	// Writing to a bytes.Buffer cannot fail.
	_ = enc.EncodeArrayLen(frameFields)
	_ = enc.EncodeUint(frameVersion)
	_ = enc.EncodeUint(uint64(f.kind))
	_ = enc.EncodeUint(uint64(f.origin))
	_ = enc.EncodeUint(f.tick)
	_ = enc.EncodeInt(f.sent)
	_ = enc.EncodeUint(uint64(f.active))
	_ = enc.EncodeBytes(f.ack.encode())
	buf.Write(body)
	return buf.Bytes()
}

func (a ack) encode() []byte {
	if a.origin == 0 {
		return []byte{}
	}
	var buf bytes.Buffer
	enc := msgpack.NewEncoder(&buf)
	_ = enc.EncodeUint(uint64(a.origin))
	_ = enc.EncodeUint(a.cumulative)
	_ = enc.EncodeBytes(notNil(a.bitmap))
	return buf.Bytes()
}

// pack cuts groups into bodies of at most size bytes, splitting a group's slots where they do not fit. sent is the frame's time.
func pack(groups []group, self counters.Origin, sent int64, size int) [][]byte {
	var bodies [][]byte
	var open [][]byte // encoded groups of the body being filled
	used := 0
	flush := func() {
		if len(open) > 0 {
			bodies = append(bodies, joinGroups(open))
			open, used = nil, 0
		}
	}
	for _, g := range groups {
		for first := true; first || len(g.slots) > 0; first = false {
			head := g.encodeHead(self)
			room := size - used - len(head) - 2*5 // two bin headers
			if room < maxEntry && used > 0 {
				flush()
				room = size - len(head) - 2*5
			}
			entries, rest := packEntries(g.slots, sent, room)
			g.slots = rest
			open = append(open, finishGroup(head, entries))
			used += len(head) + len(entries) + 2*5
		}
	}
	flush()
	return bodies
}

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

// packEntries packs as many slots as fit into room bytes, at least one.
func packEntries(slots []counters.Slot, sent int64, room int) (entries []byte, rest []counters.Slot) {
	for i := range slots {
		if len(entries) > 0 && len(entries)+maxEntry > room {
			return entries, slots[i:]
		}
		s := &slots[i]
		entries = binary.LittleEndian.AppendUint64(entries, uint64(s.Key))
		entries = binary.AppendVarint(entries, s.Meter.Index(sent)-s.Index)
		entries = binary.AppendUvarint(entries, uint64(s.Birth))
		entries = binary.AppendUvarint(entries, s.Count)
	}
	return entries, nil
}

func finishGroup(head, entries []byte) []byte {
	buf := bytes.NewBuffer(head)
	_ = msgpack.NewEncoder(buf).EncodeBytes(notNil(entries))
	return buf.Bytes()
}

func joinGroups(groups [][]byte) []byte {
	var buf bytes.Buffer
	enc := msgpack.NewEncoder(&buf)
	_ = enc.EncodeArrayLen(len(groups))
	for _, g := range groups {
		_ = enc.EncodeBytes(g)
	}
	return buf.Bytes()
}

// emptyBody is the body of a frame without groups.
var emptyBody = joinGroups(nil)

// notNil keeps msgpack from writing nil where a bin belongs.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

var errFrame = errors.New("gossip: malformed frame")

// decodeFrame reads a frame from untrusted bytes. It reads data in place, and allocates at most in proportion to its length.
func decodeFrame(b []byte) (*frame, error) {
	if len(b) > maxSnapshot {
		return nil, fmt.Errorf("%w: %d bytes, at most %d are allowed", errFrame, len(b), maxSnapshot)
	}
	r, in := borrowReader(b), borrowReader(nil)
	defer r.giveBack()
	defer in.giveBack()
	if n := r.arrayLen(); r.err == nil && n < frameFields {
		r.fail("an envelope of %d fields", n)
	}
	if v := r.uint(); r.err == nil && v == 0 {
		r.fail("version 0")
	}
	f := &frame{kind: kind(min(r.uint(), uint64(kinds)))}
	if r.err == nil && f.kind >= kinds {
		r.fail("an unknown kind")
	}
	f.origin = counters.Origin(r.uint())
	if r.err == nil && f.origin == 0 {
		r.fail("no origin")
	}
	if f.tick = r.uint(); r.err == nil && f.tick > math.MaxUint64/2 { // beyond what an ack may say
		r.fail("tick %d", f.tick)
	}
	if f.sent = r.int(); r.err == nil && f.sent <= 0 {
		r.fail("sent at %d", f.sent)
	}
	f.active = time.Duration(min(r.uint(), uint64(counters.MaxWindow)))
	f.ack = decodeAck(r, in)
	n := r.arrayLen()
	f.groups = make([]group, 0, min(n, r.src.Len()/minGroup))
	for i := 0; i < n && r.err == nil; i++ {
		f.groups = append(f.groups, decodeGroup(r, in, f))
	}
	if r.err != nil {
		return nil, r.err
	}
	return f, nil
}

// decodeAck reads the ack of r by means of in.
func decodeAck(r, in *reader) ack {
	b := r.bytes()
	if r.err != nil || len(b) == 0 {
		return ack{}
	}
	in.reset(b)
	a := ack{origin: counters.Origin(in.uint()), cumulative: in.uint(), bitmap: in.bytes()}
	if in.err == nil && (len(a.bitmap) > maxBitmap || a.cumulative > math.MaxUint64/2) {
		in.fail("an ack beyond bounds")
	}
	r.err = in.err
	return a
}

// decodeGroup reads the next group of r by means of in.
func decodeGroup(r, in *reader, f *frame) group {
	in.reset(r.bytes())
	if r.err != nil {
		return group{}
	}
	g := group{meter: &counters.Meter{
		Rule:      string(in.bytes()),
		Algorithm: counters.Algorithm(min(in.uint(), math.MaxUint8)),
		Window:    time.Duration(in.int()),
		Sub:       time.Duration(in.int()),
	}}
	if g.origin = counters.Origin(in.uint()); g.origin == 0 {
		g.origin = f.origin
	}
	g.demand = float64(in.uint()) / 1000
	entries := in.bytes()
	if in.err == nil {
		if err := g.meter.Validate(); err != nil {
			in.fail("%w", err)
		}
	}
	if in.err == nil {
		g.slots = unpackEntries(in, entries, &g, f.sent)
	}
	r.err = in.err
	return g
}

func unpackEntries(r *reader, b []byte, g *group, sent int64) []counters.Slot {
	const least = 8 + 3
	slots := make([]counters.Slot, 0, len(b)/least)
	now := g.meter.Index(sent)
	for len(b) > 0 {
		if len(b) < least {
			r.fail("an entry of %d bytes", len(b))
			return nil
		}
		key := binary.LittleEndian.Uint64(b)
		b = b[8:]
		age, n1 := binary.Varint(b)
		birth, n2 := binary.Uvarint(b[max(n1, 0):])
		count, n3 := binary.Uvarint(b[max(n1, 0)+max(n2, 0):])
		if n1 <= 0 || n2 <= 0 || n3 <= 0 || birth > math.MaxUint32 || age < math.MinInt32 || age > math.MaxInt32 {
			r.fail("an entry beyond bounds")
			return nil
		}
		b = b[n1+n2+n3:]
		slots = append(slots, counters.Slot{Meter: g.meter, Key: counters.Key(key), Index: now - age,
			Origin: g.origin, Birth: uint32(birth), Count: count})
	}
	return slots
}

// reader reads msgpack primitives in place. It keeps the first error; what it returns after one is zero.
type reader struct {
	b   []byte
	src bytes.Reader
	dec *msgpack.Decoder
	err error
}

func newReader(b []byte) *reader {
	r := &reader{}
	r.reset(b)
	r.dec = msgpack.NewDecoder(&r.src)
	return r
}

// readers are used again: making one costs as much as reading a frame of a few entries.
var readers = sync.Pool{New: func() any { return newReader(nil) }}

func borrowReader(b []byte) *reader {
	r := readers.Get().(*reader)
	r.reset(b)
	return r
}

// giveBack ends the use of a reader. It keeps no hold of what it read.
func (r *reader) giveBack() {
	r.reset(nil)
	readers.Put(r)
}

// reset makes the reader read b. The decoder has no state of its own between two values.
func (r *reader) reset(b []byte) {
	r.b, r.err = b, nil
	r.src.Reset(b)
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: "+format, append([]any{errFrame}, args...)...)
	}
}

func readOne[T any](r *reader, read func() (T, error)) (v T) {
	if r.err == nil {
		var err error
		if v, err = read(); err != nil {
			r.fail("%w", err)
		}
	}
	return v
}

func (r *reader) uint() uint64 { return readOne(r, r.dec.DecodeUint64) }

func (r *reader) int() int64 { return readOne(r, r.dec.DecodeInt64) }

// arrayLen reads the length of an array whose elements take at least a byte each.
func (r *reader) arrayLen() int {
	n := readOne(r, r.dec.DecodeArrayLen)
	if r.err == nil && (n < 0 || n > r.src.Len()) {
		r.fail("an array of %d elements in %d bytes", n, r.src.Len())
		return 0
	}
	return n
}

// bytes reads a bin or a str and returns the part of the input that holds it.
func (r *reader) bytes() []byte {
	n := readOne(r, r.dec.DecodeBytesLen)
	if r.err == nil && (n < 0 || n > r.src.Len()) {
		r.fail("%d bytes declared, %d left", n, r.src.Len())
	}
	if r.err != nil {
		return nil
	}
	start := len(r.b) - r.src.Len()
	_, _ = r.src.Seek(int64(n), 1)
	return r.b[start : start+n : start+n]
}
