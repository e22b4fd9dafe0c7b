package gossip

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/edgelimit/edgelimit/counters"
)

// A frame is a msgpack array, in the order in which it travels:
//
//	0  version   uint   frameVersion
//	1  kind      uint   beacon, data, dataMore, snapshot, goodbye
//	2  origin    uint   who sends it
//	3  tick      uint   data: its number; all others: the latest number whose content it covers
//	4  sent      int    wall time of the sender, Unix nanoseconds
//	5  since     uint   length in nanoseconds of the time before sent that it reports; 0: no request came in it
//	6  groups    array of bin, one for each meter (and origin)
//	7  ack       bin    what the sender has of the addressee (below); empty: none
//	8  ages      bin    left out where every node sends to every other one (below)
//	9  to        uint   the low 32 bits of the addressee's origin; left out like the ages
//
// Only the ack differs from one addressee to the next where every node sends to every other one. So a frame is encoded
// once for all of them. Where owners add up, a frame reports to its addressee what others count, without what came from
// that one. So another boot at the same address, of which more may have come, drops it. ack, groups and ages are
// msgpack themselves:
//
//	ages:   here int, there int, lost int: how old what the sender knows was when it was sent, in ms: of its region,
//	        of the other regions, and of nodes that are out of its reach, which the first two leave out;
//	        way int: the usual transit time to the other regions, in ms; meanHere int, meanThere int: here and there
//	        on average, weighted by demand, at most those; few int: 1 if the sender knows few nodes, and adds up
//	        only as others do (left out: 0)
//	ack:    origin uint (whose ticks), cumulative uint (it has 1 to this), bitmap bin (bit i: it has cumulative+2+i,
//	        too), transit int (least transit time of its frames in ms; nil, or left out: unknown)
//	group:  rule str, algorithm uint, window int, sub-window int (nanoseconds), origin uint (0: the sender's own),
//	        demand uint (cost per 1000 s of the hottest key), entries bin,
//	        rise int (largest cost admitted of one key in the time that the frame reports; -1: the origin is the name
//	        of a sum)
//
// and entries are packed densely, see entry.go. Fields are only ever appended, to the frame, to an ack or to a group:
// what follows the last known one is skipped, as is a group of an unknown algorithm.
const (
	frameVersion = 1
	frameFields  = 8 // without ages and what follows
)

// MaxFrame is the most bytes in a frame that travels as a packet: with what memberlist adds, it fits an Ethernet
// packet.
const MaxFrame = 1200

const (
	maxEnvelope = 3*1 + 4*9 + 2 + 2 + 15 // bytes of a packet around its groups, without an ack
	maxBody     = MaxFrame - maxEnvelope // of groups
	maxTo       = 5                      // bytes of the addressee
	maxBitmap   = 128                    // bytes of the ack's bitmap
	maxTick     = math.MaxUint64 / 2
	maxSnapshot = 8 << 20 // bytes of a frame that travels as a stream
	minGroup    = 18      // bytes: the shortest that is valid
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

// numbered reports whether frames of the kind have ticks of their own.
func (k kind) numbered() bool { return k == data || k == dataMore }

type frame struct {
	kind   kind
	origin counters.Origin
	tick   uint64
	sent   int64
	since  time.Duration
	ack    ack
	groups []group
	ages   *ages  // nil: none
	to     uint32 // for whom it is, see toWhom; 0: for everybody
	again  bool   // it came early: it is to come again (not sent)
}

// toWhom is how a frame names whom it is for.
func toWhom(o counters.Origin) uint32 { return uint32(o) }

// ages report how old what the sender of a frame knows of others is, and how far they are.
// here and there are those of what is known latest. On average, weighted by the demand, it is meanHere and meanThere.
type ages struct {
	here, there, lost, way, meanHere, meanThere time.Duration

	few bool // the sender knows few nodes, and adds up only as others do
}

// ack lists which ticks of an origin its sender has. The zero value is none.
type ack struct {
	origin     counters.Origin
	cumulative uint64
	bitmap     []byte // bit i: cumulative+2+i
	transit    time.Duration
	timed      bool // the transit is known
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

// group is the part of a frame about one meter of one origin.
type group struct {
	origin  counters.Origin // never 0 once decoded
	meter   *counters.Meter
	demand  float64         // cost per second
	slots   []counters.Slot // to be packed
	entries []byte          // of a frame that came: what they were packed to, well-formed
	rise    uint64          // cost; or ofSum
}

const (
	ofSum      = math.MaxUint64 // the origin is the name of a sum
	encodedSum = -1             // ofSum as it travels
)

// encode appends the frame to dst. groups is its field of groups, as pack makes it.
func (f *frame) encode(dst []byte, groups []byte) []byte {
	buf := bytes.NewBuffer(dst)
	enc := msgpack.NewEncoder(buf)
	// Writing to a bytes.Buffer cannot fail.
	tail, fields := f.tail(), frameFields
	if len(tail) > 0 {
		fields += 2
	}
	_ = enc.EncodeArrayLen(fields)
	_ = enc.EncodeUint(frameVersion)
	_ = enc.EncodeUint(uint64(f.kind))
	_ = enc.EncodeUint(uint64(f.origin))
	_ = enc.EncodeUint(f.tick)
	_ = enc.EncodeInt(f.sent)
	_ = enc.EncodeUint(uint64(f.since))
	buf.Write(groups)
	return append(appendBin(buf.Bytes(), f.ack.encode()), tail...)
}

// tail is what follows the ack: nothing in a frame that is for everybody.
func (f *frame) tail() []byte {
	if f.ages == nil && f.to == 0 {
		return nil
	}
	return binary.BigEndian.AppendUint32(append(appendBin(nil, f.ages.encode()), 0xce), f.to)
}

// encode is the content of the field of the ages, empty if there are none.
func (a *ages) encode() []byte {
	if a == nil {
		return nil
	}
	var buf bytes.Buffer
	enc := msgpack.NewEncoder(&buf)
	for _, age := range [...]time.Duration{a.here, a.there, a.lost, a.way, a.meanHere, a.meanThere} {
		_ = enc.EncodeInt(min(age, maxAge).Milliseconds())
	}
	if a.few {
		_ = enc.EncodeInt(1)
	}
	return buf.Bytes()
}

const maxAge = 24 * time.Hour // beyond it, ages do not differ

// withAck returns a copy of an encoded frame without an ack that has one, of at most 255 bytes. tail bytes follow it.
func withAck(b, encoded []byte, tail int) []byte {
	const none = 2 // bytes of an empty bin, and of the header of such a one
	at := len(b) - tail
	with := appendBin(append(make([]byte, 0, len(b)+len(encoded)), b[:at-none]...), encoded)
	return append(with, b[at:]...)
}

func (a ack) encode() []byte {
	if a.origin == 0 {
		return nil
	}
	var buf bytes.Buffer
	enc := msgpack.NewEncoder(&buf)
	_ = enc.EncodeUint(uint64(a.origin))
	_ = enc.EncodeUint(a.cumulative)
	buf.Write(appendBin(nil, a.bitmap))
	if a.timed {
		_ = enc.EncodeInt(a.transit.Milliseconds())
	}
	return buf.Bytes()
}

var errFrame = errors.New("gossip: malformed frame")

// decodeFrame reads a frame from untrusted bytes. It reads data in place, and allocates at most in proportion to its
// length.
func decodeFrame(b []byte) (*frame, error) {
	if len(b) > maxSnapshot {
		return nil, fmt.Errorf("%w: %d bytes, at most %d are allowed", errFrame, len(b), maxSnapshot)
	}
	r, in := borrowReader(b), borrowReader(nil)
	defer r.giveBack()
	defer in.giveBack()
	fields, version := r.arrayLen(), r.uint()
	r.check(fields >= frameFields, "an envelope of %d fields", fields)
	r.check(version > 0, "version 0")
	f := &frame{kind: kind(min(r.uint(), uint64(kinds)))}
	r.check(f.kind < kinds, "an unknown kind")
	f.origin, f.tick, f.sent = counters.Origin(r.uint()), r.uint(), r.int()
	r.check(f.origin != 0, "no origin")
	r.check(f.tick <= maxTick && (f.tick > 0 || !f.kind.numbered()), "a tick beyond bounds")
	r.check(f.sent > 0, "sent before 1970")
	f.since = time.Duration(min(r.uint(), uint64(counters.MaxWindow)))
	n := r.arrayLen()
	f.groups = make([]group, 0, min(n, r.src.Len()/minGroup))
	for i := 0; i < n && r.err == nil; i++ {
		if g := decodeGroup(r, in, f); g.meter != nil {
			f.groups = append(f.groups, g)
		}
	}
	f.ack = decodeAck(r, in)
	if fields > frameFields {
		f.ages = decodeAges(r, in)
	}
	if fields > frameFields+1 {
		f.to = uint32(r.uint())
	}
	if r.err != nil {
		return nil, r.err
	}
	return f, nil
}

// decodeAges reads the ages of r by means of in.
func decodeAges(r, in *reader) *ages {
	b := r.bytes()
	if r.err != nil || len(b) == 0 {
		return nil
	}
	in.reset(b)
	var a ages
	for _, age := range [...]*time.Duration{&a.here, &a.there, &a.lost, &a.way, &a.meanHere, &a.meanThere} {
		*age = time.Duration(max(0, min(in.int(), maxAge.Milliseconds()))) * time.Millisecond
	}
	few, _ := in.optionalInt()
	a.few = few != 0
	a.meanHere, a.meanThere = min(a.meanHere, a.here), min(a.meanThere, a.there)
	r.err = in.err
	return &a
}

// decodeAck reads the ack of r by means of in.
func decodeAck(r, in *reader) ack {
	b := r.bytes()
	if r.err != nil || len(b) == 0 {
		return ack{}
	}
	in.reset(b)
	a := ack{origin: counters.Origin(in.uint()), cumulative: in.uint(), bitmap: in.bytes()}
	if v, ok := in.optionalInt(); ok {
		largest := maxTransit / int64(time.Millisecond)
		a.transit, a.timed = time.Duration(max(-largest, min(v, largest)))*time.Millisecond, true
	}
	in.check(len(a.bitmap) <= maxBitmap && a.cumulative <= maxTick, "an ack beyond bounds")
	r.err = in.err
	return a
}

// decodeGroup reads the next group of r by means of in. One of an algorithm that only a later version has is the zero
// group: this node has no rule of it, and keeps nothing of what others count by it.
func decodeGroup(r, in *reader, f *frame) group {
	in.reset(r.bytes())
	if r.err != nil {
		return group{}
	}
	g := group{meter: &counters.Meter{
		Rule: string(in.bytes()), Algorithm: counters.Algorithm(min(in.uint(), math.MaxUint8)),
		Window: time.Duration(in.int()), Sub: time.Duration(in.int()),
	}}
	if g.origin = counters.Origin(in.uint()); g.origin == 0 {
		g.origin = f.origin
	}
	g.demand = float64(in.uint()) / 1000
	g.entries = in.bytes()
	if rise := in.int(); rise == encodedSum {
		g.rise = ofSum
	} else {
		in.check(rise >= 0, "a rise below 0")
		g.rise = uint64(rise)
	}
	if in.err == nil && g.meter.Algorithm != 0 && !g.meter.Algorithm.Known() {
		return group{}
	}
	err := g.meter.Validate()
	in.check(err == nil, "%w", err)
	in.check(in.err != nil || g.wellFormed(), "an entry beyond bounds")
	r.err = in.err
	return g
}

// wellFormed reports whether all of the group's entries can be read.
func (g *group) wellFormed() bool {
	var s counters.Slot
	e := entries{rest: g.entries}
	for e.next(&s, 0) {
	}
	return len(e.rest) == 0
}
