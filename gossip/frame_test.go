package gossip

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
)

func meter(rule string, window, sub time.Duration) *counters.Meter {
	return &counters.Meter{Rule: rule, Algorithm: counters.SlidingWindow, Window: window, Sub: sub}
}

var frameMeters = []*counters.Meter{
	meter("a", 10*time.Second, time.Second),
	meter("edge/login", time.Minute, 6*time.Second),
	meter("edge/login", time.Hour, time.Minute),
	meter(
		strings.Repeat("long/", counters.MaxRuleName)[:counters.MaxRuleName], counters.MaxWindow, counters.MaxWindow/60,
	),
}

// unpack returns the slots of a group that came in a frame of the time sent.
func (g *group) unpack(sent int64) []counters.Slot {
	all := []counters.Slot{}
	for e := (entries{rest: g.entries}); len(e.rest) > 0; {
		s := counters.Slot{Meter: g.meter, Origin: g.origin}
		if !e.next(&s, g.meter.Index(sent)) {
			panic("entries that are not well-formed were taken in")
		}
		all = append(all, s)
	}
	return all
}

// joinGroups is the field of groups that holds these.
func joinGroups(groups [][]byte) []byte {
	var bins []byte
	for _, g := range groups {
		bins = appendBin(bins, g)
	}
	return fieldOf(len(groups), bins)
}

const frameTime = int64(1_800_000_000_123_456_789)

func drawSlot(t *rapid.T, m *counters.Meter, o counters.Origin) counters.Slot {
	return counters.Slot{
		Meter: m, Key: counters.Key(rapid.Uint64().Draw(t, "key")),
		Index: m.Index(frameTime) - rapid.Int64Range(-1, int64(m.SubWindows())).Draw(t, "age"), Origin: o,
		Birth:  rapid.OneOf(rapid.Just(uint32(0)), rapid.Uint32()).Draw(t, "birth"),
		Demand: rapid.OneOf(rapid.Just(float32(0)), rapid.SampledFrom(demandSteps[:])).Draw(t, "demand"),
		Count:  rapid.OneOf(rapid.Uint64Range(0, 300), rapid.Uint64()).Draw(t, "count"),
	}
}

func drawGroups(t *rapid.T, self counters.Origin) []group {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) group {
		g := group{
			origin: counters.Origin(rapid.OneOf(rapid.Just(uint64(self)), rapid.Uint64Min(1)).Draw(t, "origin")),
			meter:  rapid.SampledFrom(frameMeters).Draw(t, "meter"),
			demand: float64(rapid.Uint64Range(0, 1<<40).Draw(t, "demand")) / 1000,
			rise:   rapid.Uint64Max(math.MaxInt64).Draw(t, "rise"),
		}
		for range rapid.IntRange(0, 120).Draw(t, "slots") {
			g.slots = append(g.slots, drawSlot(t, g.meter, g.origin))
		}
		return g
	}), 0, 6).Draw(t, "groups")
}

func drawAck(t *rapid.T) ack {
	a := ack{
		origin:     counters.Origin(rapid.Uint64().Draw(t, "acked")),
		cumulative: rapid.Uint64Max(math.MaxUint64/2).Draw(t, "cumulative"),
		bitmap:     rapid.SliceOfN(rapid.Byte(), 0, maxBitmap).Draw(t, "bitmap"),
	}
	if a.origin == 0 {
		return ack{}
	}
	return a
}

func drawFrame(t *rapid.T) frame {
	return frame{
		kind:   kind(rapid.IntRange(0, int(kinds)-1).Draw(t, "kind")),
		origin: counters.Origin(rapid.Uint64Min(1).Draw(t, "self")),
		tick:   rapid.Uint64Range(1, math.MaxUint64/2).Draw(t, "tick"), sent: frameTime,
		since: time.Duration(rapid.Int64Range(0, int64(counters.MaxWindow)).Draw(t, "since")), ack: drawAck(t),
	}
}

// What goes into frames comes out of them: every slot once, in order, with its meter, origin and birth.
func TestFrameRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawFrame(t)
		groups := drawGroups(t, want.origin)
		var slots, came []counters.Slot
		for _, g := range groups {
			slots = append(slots, g.slots...)
		}
		size := rapid.SampledFrom([]int{maxBody, maxBody, 4 * maxBody, maxSnapshot}).Draw(t, "size")
		for _, body := range pack(groups, want.origin, want.sent, size) {
			if len(body) > size {
				t.Fatalf("a body of %d bytes, at most %d are allowed", len(body), size)
			}
			got, err := decodeFrame(want.encode(nil, body))
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range got.groups {
				came = append(came, g.unpack(want.sent)...)
				if i := indexOfDemand(groups, g); i < 0 {
					t.Fatalf("a group out of nowhere: %+v of %x, demand %v", *g.meter, uint64(g.origin), g.demand)
				}
			}
			got.groups = nil
			got.ack.bitmap = append([]byte{}, got.ack.bitmap...)
			want.ack.bitmap = append([]byte{}, want.ack.bitmap...)
			if !reflect.DeepEqual(*got, want) {
				t.Fatalf("envelope:\n got %+v\nwant %+v", *got, want)
			}
		}
		if !sameSlots(came, slots) {
			t.Fatalf("%d slots went in, %d came out or they differ", len(slots), len(came))
		}
	})
}

// indexOfDemand finds the group of the same meter, origin and rise whose demand it is, rounded up to a thousandth.
func indexOfDemand(groups []group, g group) int {
	for i, want := range groups {
		if want.origin == g.origin && *want.meter == *g.meter && want.rise == g.rise &&
			math.Abs(g.demand-want.demand) <= 0.001+1e-9*want.demand {
			return i
		}
	}
	return -1
}

func sameSlots(a, b []counters.Slot) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, y := a[i], b[i]
		if *x.Meter != *y.Meter {
			return false
		}
		x.Meter, y.Meter = nil, nil
		if x != y {
			return false
		}
	}
	return true
}

// worstFrame is an envelope whose fields all take as many bytes as they can.
func worstFrame() frame {
	return frame{
		kind: kinds - 1, origin: math.MaxUint64, tick: math.MaxUint64 / 2, sent: math.MaxInt64,
		since: counters.MaxWindow,
	}
}

// worstSlots are slots whose entries all take as many bytes as they can.
func worstSlots(m *counters.Meter, n int) (slots []counters.Slot) {
	for i := range n {
		slots = append(
			slots,
			counters.Slot{Meter: m, Key: counters.Key(-i) << 63, Index: math.MinInt64 + 1<<62, Origin: 1,
				Birth: math.MaxUint32, Demand: 1, Count: math.MaxUint64},
		)
	}
	return slots
}

func TestPacketsFit(t *testing.T) {
	long := frameMeters[len(frameMeters)-1]
	f := worstFrame()
	for n := range 200 {
		for _, demand := range []float64{0, math.MaxUint32, math.MaxFloat64} {
			// Groups of n slots, and of one each: the names take most of the room.
			one := group{origin: 1, meter: long, demand: demand, rise: math.MaxUint64, slots: worstSlots(long, n)}
			groups := []group{one}
			for range n % 10 {
				groups = append(groups,
					group{origin: 1, meter: long, demand: demand, rise: math.MaxUint64, slots: one.slots[:1]})
				groups = append(groups, group{origin: 1, meter: frameMeters[0], demand: demand, rise: math.MaxUint64})
			}
			for _, body := range pack(groups, f.origin, f.sent, maxBody) {
				if b := f.encode(nil, body); len(b) > MaxFrame {
					t.Fatalf("%d slots: a packet of %d bytes, at most %d are allowed", n, len(b), MaxFrame)
				}
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		for _, body := range pack(drawGroups(t, 7), f.origin, frameTime, maxBody) {
			if b := f.encode(nil, body); len(b) > MaxFrame {
				t.Fatalf("a packet of %d bytes, at most %d are allowed", len(b), MaxFrame)
			}
		}
	})
}

// A frame that is given an ack is as one that was made with it. The longest ack fits a beacon.
func TestWithAck(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		with := drawFrame(t)
		without := with
		without.ack = ack{}
		if a, b := withAck(without.encode(nil, emptyBody), with.ack.encode(), 0),
			with.encode(nil, emptyBody); !bytes.Equal(
			a,
			b,
		) {
			t.Fatalf("given an ack:\n%x\nmade with it:\n%x", a, b)
		}
	})
	f := worstFrame()
	f.ack = ack{origin: math.MaxUint64, cumulative: math.MaxUint64 / 2, bitmap: bytes.Repeat([]byte{0xff}, maxBitmap)}
	if encoded := f.ack.encode(); len(encoded) > math.MaxUint8 || len(f.encode(nil, emptyBody)) > MaxFrame {
		t.Errorf("the longest ack has %d bytes, its beacon %d", len(encoded), len(f.encode(nil, emptyBody)))
	}
}

// overhead is what memberlist adds to a message that is encrypted, in a region with a name of usual length: a type, a
// checksum, the label, and version, nonce and tag.
const overhead = 1 + 5 + 2 + len("edgelimit/lan/eu-west-1") + 1 + 12 + 16

// Packets are filled, because what memberlist and the network cost is by the packet: a key takes at most 12 bytes of
// it, all told.
func TestPacketsAreFull(t *testing.T) {
	for _, test := range []struct {
		what  string
		slot  counters.Slot
		bytes float64 // a key
	}{
		{"keys that are asked for once", counters.Slot{Count: 1}, 9.5},
		{"usual keys", counters.Slot{Count: 100}, 10.5},
		{"busy keys", counters.Slot{Count: 10_000}, 11.5},
		{"offenders", counters.Slot{Count: 100, Demand: 30}, 11.5},
		{"keys of a table that is full", counters.Slot{Count: 100, Birth: 100}, 11.5},
	} {
		const keys = 10_000
		m := frameMeters[1]
		slots := make([]counters.Slot, keys)
		for i := range slots {
			slots[i] = test.slot
			slots[i].Meter, slots[i].Index, slots[i].Origin = m, m.Index(frameTime), 1<<63
			slots[i].Key = counters.Key(i+1) * 0x9e3779b97f4a7c15
		}
		f := frame{kind: data, origin: 1 << 63, tick: 1000, sent: frameTime, since: time.Second}
		bodies := pack(new(arranger).arrange(slots, nil, f.origin), f.origin, frameTime, maxBody)
		total := 0
		for i, body := range bodies {
			b := f.encode(nil, body)
			if total += len(b) + overhead; i < len(bodies)-1 && len(body) < maxBody-maxEntry {
				t.Errorf("%s: body %d of %d has only %d bytes of %d", test.what, i, len(bodies), len(body), maxBody)
			}
		}
		if got := float64(total) / keys; got > test.bytes {
			t.Errorf("%s take %.2f bytes each, want at most %.1f", test.what, got, test.bytes)
		}
	}
}

// A demand beyond what the wire holds is the most that it holds, on every machine.
func TestHugeDemand(t *testing.T) {
	f, groups := goldenFrame()
	for _, demand := range []float64{math.MaxUint64, math.MaxFloat64, math.Inf(1)} {
		groups[0].demand = demand
		got, err := decodeFrame(f.encode(nil, pack(groups, f.origin, f.sent, maxBody)[0]))
		if err != nil {
			t.Fatal(err)
		}
		if want := float64(1<<63) / 1000; got.groups[0].demand != want {
			t.Errorf("demand %v arrives as %v, want %v", demand, got.groups[0].demand, want)
		}
	}
}

// goldenFrame says a little of everything.
func goldenFrame() (frame, []group) {
	f := frame{
		kind: data, origin: 0x1122334455667788, tick: 300, sent: frameTime, since: 1500 * time.Millisecond,
		ack: ack{origin: 0x99aabbccddeeff00, cumulative: 70000, bitmap: []byte{0b101}},
	}
	m := frameMeters[1]
	now := m.Index(frameTime)
	return f, []group{
		{origin: f.origin, meter: m, demand: 12.5, rise: 42, slots: []counters.Slot{
			{Meter: m, Key: 0x0102030405060708, Index: now, Origin: f.origin, Count: 1},
			{Meter: m, Key: 0x0102030405060708, Index: now - 1, Origin: f.origin, Birth: 2, Count: 300},
			{Meter: m, Key: 0xfe02030405060708, Index: now + 4, Origin: f.origin, Demand: 1024, Count: 1},
		}},
		{origin: 5, meter: m, slots: []counters.Slot{{Meter: m, Key: 9, Index: now + 1, Origin: 5, Count: 7}}},
	}
}

// The bytes on the wire do not change unnoticed: nodes of two versions speak with each other.
const golden = "98" + // array of 8
	"01" + // version
	"01" + // kind: data
	"cf1122334455667788" + // origin
	"cd012c" + // tick
	"cf18fae2769b0fcd15" + // sent
	"ce59682f00" + // since
	"92" + // two groups
	"c443" + "aa656467652f6c6f67696e" + "01" + "cf0000000df8475800" + "cf0000000165a0bc00" + "00" + "cd30d4" +
	"c41e" + "81" + "08070605040302" + // the least: one, in the sub-window of now, of a key whose highest byte is 1
	"28" + "08070605040302" + "02" + "ac02" + // the same key, the sub-window before, a birth, 300
	"df" + "08070605040302" + "fe" + "07" + "68" + // highest byte, age, demand; one
	"2a" + // rise
	"c42d" + "aa656467652f6c6f67696e" + "01" + "cf0000000df8475800" + "cf0000000165a0bc00" + "05" + "00" +
	"c40a" + "18" + "09000000000000" + "01" + "07" +
	"00" +
	"c411" + "cf99aabbccddeeff00" + "ce00011170" + "c40105" // ack: origin, cumulative, bitmap

func TestFrameGolden(t *testing.T) {
	f, groups := goldenFrame()
	bodies := pack(groups, f.origin, f.sent, maxBody)
	if len(bodies) != 1 {
		t.Fatalf("%d bodies, want 1", len(bodies))
	}
	if got := hex.EncodeToString(f.encode(nil, bodies[0])); got != golden {
		t.Errorf("the frame on the wire has changed:\n got %s\nwant %s", got, golden)
	}
	b, err := hex.DecodeString(golden)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeFrame(b)
	if err != nil {
		t.Fatal(err)
	}
	f.groups = groups
	if _, want := goldenFrame(); !sameSlots(got.groups[0].unpack(f.sent), want[0].slots) ||
		!sameSlots(got.groups[1].unpack(f.sent), want[1].slots) {
		t.Errorf("groups:\n got %+v\nwant %+v", got.groups, want)
	}
	if got.groups[0].demand != 12.5 || got.groups[0].rise != 42 || got.ack.cumulative != 70000 || !got.ack.has(70002) ||
		got.ack.has(70003) ||
		!got.ack.has(70004) {
		t.Errorf("decoded %+v", got)
	}
}

// appended is what later versions may append to a list of fields.
func appended(enc *msgpack.Encoder) {
	_ = enc.EncodeString("later")
	_ = enc.EncodeMapLen(1)
	_ = enc.EncodeNil()
	_ = enc.EncodeFloat64(1)
}

// A frame of a later version, with fields appended wherever they may be and groups of algorithms that are not known
// yet.
func TestLaterFields(t *testing.T) {
	old, err := hex.DecodeString(golden)
	if err != nil {
		t.Fatal(err)
	}
	want, err := decodeFrame(old)
	if err != nil {
		t.Fatal(err)
	}
	append3 := func(b []byte) []byte {
		buf := bytes.NewBuffer(bytes.Clone(b))
		appended(msgpack.NewEncoder(buf))
		return buf.Bytes()
	}
	f, groups := goldenFrame()
	var encoded [][]byte
	for _, g := range groups {
		entries, _ := packEntries(nil, g.slots, g.meter.Index(f.sent), maxBody)
		encoded = append(encoded, append3(finishGroup(g.encodeHead(f.origin), entries, g.encodeTail())))
		later := group{origin: g.origin,
			meter: &counters.Meter{Rule: "later", Algorithm: counters.Ban + 3, Window: 7, Sub: 2}}
		encoded = append(encoded,
			append3(finishGroup(later.encodeHead(f.origin), []byte("no entry of this version"), later.encodeTail())))
	}
	var buf bytes.Buffer
	enc := msgpack.NewEncoder(&buf)
	_ = enc.EncodeArrayLen(frameFields + 5)
	for _, v := range []uint64{2, uint64(f.kind), uint64(f.origin), f.tick, uint64(f.sent), uint64(f.since)} {
		_ = enc.EncodeUint(v)
	}
	buf.Write(joinGroups(encoded))
	_ = enc.EncodeBytes(append3(append(f.ack.encode(), 0xc0))) // no transit is known
	want.ages = &ages{here: 5 * time.Millisecond, there: 6 * time.Millisecond, lost: 7 * time.Millisecond,
		way: 8 * time.Millisecond, meanHere: 3 * time.Millisecond, meanThere: 4 * time.Millisecond, few: true}
	_ = enc.EncodeBytes(append3([]byte{5, 6, 7, 8, 3, 4, 1}))
	want.to = 9
	_ = enc.EncodeUint(9)
	appended(enc)

	got, err := decodeFrame(buf.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
}

// Truncated frames, and frames with any one byte changed, are read or refused, but never taken for anything else in
// size.
func TestBrokenFrames(t *testing.T) {
	complete, err := hex.DecodeString(golden)
	if err != nil {
		t.Fatal(err)
	}
	for n := range complete {
		if _, err := decodeFrame(complete[:n]); !errors.Is(err, errFrame) {
			t.Errorf("the first %d bytes of %d: %v, want a malformed frame", n, len(complete), err)
		}
	}
	for i := range complete {
		for _, flip := range []byte{1, 0x80, 0xff} {
			b := bytes.Clone(complete)
			b[i] ^= flip
			f, err := decodeFrame(b)
			if err != nil {
				if !errors.Is(err, errFrame) {
					t.Errorf("byte %d: %v is no malformed frame", i, err)
				}
				continue
			}
			for _, g := range f.groups {
				if len(g.unpack(f.sent)) > 3 || g.origin == 0 || g.meter.Validate() != nil {
					t.Errorf("byte %d: decoded %+v", i, g)
				}
			}
		}
	}
}
