package gossip

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/edgelimit/edgelimit/counters"
)

// envelope returns the fields of a frame before its groups.
func envelope() *bytes.Buffer {
	var buf bytes.Buffer
	enc := msgpack.NewEncoder(&buf)
	_ = enc.EncodeArrayLen(frameFields)
	for _, v := range []uint64{frameVersion, uint64(data), 1, 1, uint64(frameTime), 0} {
		_ = enc.EncodeUint(v)
	}
	return &buf
}

// groupOf returns a group with the rule and the entries given.
func groupOf(rule string, entries []byte) []byte {
	g := group{origin: 1, meter: meter(rule, 1e6, 1e6), demand: 0.001}
	return finishGroup(g.encodeHead(1), entries, g.encodeTail())
}

func frameOf(groups ...[]byte) []byte {
	buf := envelope()
	buf.Write(joinGroups(groups))
	return appendBin(buf.Bytes(), nil)
}

// allocated returns how many bytes f allocates: the least of some runs, because others may allocate meanwhile.
func allocated(f func()) uint64 {
	least := uint64(math.MaxUint64)
	for range 5 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	return least
}

// Nothing that a frame declares is allocated before the bytes are there.
func TestDeclaredLengthsAllocateNothing(t *testing.T) {
	huge := []byte{0xff, 0xff, 0xff, 0xff}
	declare := func(code byte) []byte { return append([]byte{code}, huge...) }
	const bin32, str32, array32 = 0xc6, 0xdb, 0xdd
	cut := func(b []byte, n int) []byte { return b[:len(b)-n] }
	g := groupOf("r", nil)
	for name, b := range map[string][]byte{
		"envelope": declare(array32),
		"ack":      append(envelope().Bytes(), append([]byte{0x90}, declare(bin32)...)...),
		"bitmap":   append(envelope().Bytes(), append([]byte{0x90, 0xc4, 7, 1, 1}, declare(bin32)...)...),
		"groups":   append(envelope().Bytes(), declare(array32)...),
		"group":    append(cut(frameOf(g), len(g)+2+2), declare(bin32)...),
		"rule":     frameOf(declare(str32)),
		"entries":  frameOf(append(cut(g, 2), declare(bin32)...)),
		"groups that are not there": append(append(envelope().Bytes(), 0xdd, 0, 0, 0xff, 0xff),
			bytes.Repeat([]byte{0xa0}, 1<<16)...),
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			got := allocated(func() { _, err = decodeFrame(b) })
			if err == nil {
				t.Error("the frame is accepted")
			}
			if largest := uint64(64<<10 + 4*len(b)); got > largest {
				t.Errorf("%d bytes allocated for %d, at most %d are allowed", got, len(b), largest)
			}
		})
	}
}

// The densest frames that are valid cost at most so many times their length.
func TestDenseFramesAllocateInProportion(t *testing.T) {
	entry := []byte{isOne, 0, 0, 0, 0, 0, 0, 0}
	var small [][]byte
	for i := range 60_000 / minGroup {
		small = append(small, groupOf(string([]byte{'a' + byte(i%2)}), nil))
	}
	for name, test := range map[string]struct {
		frame []byte
		times int
	}{
		"entries in a packet": {frameOf(groupOf("r", bytes.Repeat(entry, 60_000/minEntry))), 0},
		"entries in a stream": {frameOf(groupOf("r", bytes.Repeat(entry, 7<<20/minEntry))), 0},
		"groups in a packet":  {frameOf(small...), 6},
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			got := allocated(func() { _, err = decodeFrame(test.frame) })
			if err != nil {
				t.Error(err)
			}
			if largest := uint64(64<<10 + test.times*len(test.frame)); got > largest {
				t.Errorf("%d bytes allocated for %d, at most %d are allowed", got, len(test.frame), largest)
			}
			t.Logf("%d bytes for %d: %.1f times", got, len(test.frame), float64(got)/float64(len(test.frame)))
		})
	}
}

func TestOversizedFrames(t *testing.T) {
	b := frameOf(groupOf("r", bytes.Repeat([]byte{isOne, 0, 0, 0, 0, 0, 0, 0}, maxSnapshot/minEntry)))
	if len(b) <= maxSnapshot {
		t.Fatal("the frame is not oversized")
	}
	if _, err := decodeFrame(b); err == nil {
		t.Error("a frame beyond the cap is accepted")
	}
}

// What makes no sense is refused, whoever says it.
func TestNonsense(t *testing.T) {
	fields := func(vs ...any) []byte {
		var buf bytes.Buffer
		enc := msgpack.NewEncoder(&buf)
		_ = enc.EncodeArrayLen(len(vs))
		for _, v := range vs {
			_ = enc.Encode(v)
		}
		return buf.Bytes()
	}
	none := []byte{}
	now := uint64(frameTime)
	entry := func(head byte, then ...byte) []byte { return append([]byte{head, 1, 2, 3, 4, 5, 6, 7}, then...) }
	varint := func(v int64) []byte { return binary.AppendVarint(nil, v) }
	ackOf := func(cumulative uint64, bitmap int) []byte {
		return (&ack{origin: 1, cumulative: cumulative, bitmap: make([]byte, bitmap)}).encode()
	}
	head := func(m counters.Meter) []byte {
		return finishGroup((&group{origin: 1, meter: &m}).encodeHead(1), nil, nil)
	}
	sub := *meter("r", 1e9, 1e9)
	for name, b := range map[string][]byte{
		"nothing":             nil,
		"no array":            {1},
		"nil":                 {0xc0},
		"too few fields":      fields(1, 1, 1, 1, now, 0, none),
		"version 0":           fields(0, 1, 1, 1, now, 0, []any{}, none),
		"unknown kind":        fields(1, uint64(kinds), 1, 1, now, 0, []any{}, none),
		"negative kind":       fields(1, -1, 1, 1, now, 0, []any{}, none),
		"no origin":           fields(1, 1, 0, 1, now, 0, []any{}, none),
		"tick beyond acks":    fields(1, 1, 1, uint64(math.MaxUint64/2+1), now, 0, []any{}, none),
		"negative tick":       fields(1, 1, 1, -1, now, 0, []any{}, none),
		"before 1970":         fields(1, 1, 1, 1, -1, 0, []any{}, none),
		"at 1970":             fields(1, 1, 1, 1, 0, 0, []any{}, none),
		"text for a number":   fields(1, "1", 1, 1, now, 0, []any{}, none),
		"float for a number":  fields(1, 1.5, 1, 1, now, 0, []any{}, none),
		"groups that are nil": fields(1, 1, 1, 1, now, 0, nil, none),
		"ack that is nil":     fields(1, 1, 1, 1, now, 0, []any{}, nil),
		"ack that is short":   fields(1, 1, 1, 1, now, 0, []any{}, []byte{1, 1}),
		"ack beyond ticks":    fields(1, 1, 1, 1, now, 0, []any{}, ackOf(math.MaxUint64/2+1, 0)),
		"bitmap too long":     fields(1, 1, 1, 1, now, 0, []any{}, ackOf(1, maxBitmap+1)),
		"group that is nil":   fields(1, 1, 1, 1, now, 0, []any{nil}, none),
		"group that is empty": frameOf(none),
		"no rule":             frameOf(groupOf("", nil)),
		"rule too long":       frameOf(groupOf(string(make([]byte, counters.MaxRuleName+1)), nil)),
		"algorithm 0":         frameOf(head(counters.Meter{Rule: "r", Algorithm: 0, Window: sub.Window, Sub: sub.Sub})),
		"fixed in parts": frameOf(head(counters.Meter{Rule: "r", Algorithm: counters.FixedWindow,
			Window: 2 * sub.Window, Sub: sub.Sub})),
		"window of 0":     frameOf(head(counters.Meter{Rule: "r", Algorithm: 1, Sub: sub.Sub})),
		"sub-window of 0": frameOf(head(counters.Meter{Rule: "r", Algorithm: 1, Window: sub.Window})),
		"negative window": frameOf(head(counters.Meter{Rule: "r", Algorithm: 1, Window: -sub.Window,
			Sub: -sub.Sub})),
		"longest sub-window": frameOf(head(counters.Meter{Rule: "r", Algorithm: 1, Window: math.MaxInt64,
			Sub: math.MaxInt64})),
		"half an entry":       frameOf(groupOf("r", entry(isOne)[:7])),
		"an entry and a half": frameOf(groupOf("r", append(entry(isOne), entry(isOne)[:7]...))),
		"entry without end":   frameOf(groupOf("r", bytes.Repeat([]byte{0xff}, 40))),
		"no highest byte":     frameOf(groupOf("r", entry(isOne|follows))),
		"no age":              frameOf(groupOf("r", entry(isOne|ageBits<<ageShift))),
		"age without end":     frameOf(groupOf("r", entry(isOne|ageBits<<ageShift, 0x80))),
		"age of 2^40":         frameOf(groupOf("r", entry(isOne|ageBits<<ageShift, varint(1<<40)...))),
		"age of -2^40":        frameOf(groupOf("r", entry(isOne|ageBits<<ageShift, varint(-1<<40)...))),
		"no birth":            frameOf(groupOf("r", entry(isOne|hasBirth))),
		"birth of 2^32":       frameOf(groupOf("r", entry(isOne|hasBirth, binary.AppendUvarint(nil, 1<<32)...))),
		"no demand":           frameOf(groupOf("r", entry(isOne|hasDemand))),
		"no count":            frameOf(groupOf("r", entry(0))),
		"count beyond 2^64":   frameOf(groupOf("r", entry(0, bytes.Repeat([]byte{0xff}, 10)...))),
	} {
		t.Run(name, func(t *testing.T) {
			r := NewReplica(9, 1e8, counters.NewTable(counters.Config{Origin: 9, Memory: counters.MinMemory}))
			if err := r.Receive(b, frameTime); err == nil {
				t.Error("the frame is accepted")
			}
			if s := r.Stats(); s.Malformed != 1 || s.FramesReceived != 0 || len(r.inbound) != 0 {
				t.Errorf("it left %+v, and %d heard", s, len(r.inbound))
			}
		})
	}
}

// What nodes count by any algorithm travels: a frame is read as it was written, and merged.
func TestAllAlgorithmsTravel(t *testing.T) {
	for a := counters.SlidingWindow; a <= counters.LeakyQueue; a++ {
		m := counters.NewMeter("r", a, time.Minute)
		limit, err := counters.NewLimit(m, 10)
		if err != nil {
			t.Fatal(err)
		}
		from := counters.NewTable(counters.Config{Origin: 1, Memory: counters.MinMemory})
		sender := NewReplica(1, 1e8, from)
		sender.Join(9, frameTime)
		from.Take(limit, 5, 3, frameTime)
		to := counters.NewTable(counters.Config{Origin: 9, Memory: counters.MinMemory})
		to.Know([]*counters.Limit{limit})
		auditor := NewReplica(9, 1e8, to)
		for _, message := range sender.Tick(from.DrainDirty(frameTime), frameTime) {
			if err := auditor.Receive(message.Data, frameTime); err != nil {
				t.Errorf("%v: %v", a, err)
			}
		}
		slots := to.Snapshot(frameTime, 10)
		if len(slots) != 1 || *slots[0].Meter != m || slots[0].Key != 5 || slots[0].Count != 3 || slots[0].Origin != 1 {
			t.Errorf("%v: 3 of key 5 became %+v", a, slots)
		}
		if v := to.View(limit, 5, frameTime); v > 3 {
			t.Errorf("%v: 3 of key 5 are counted as %d", a, v)
		}
	}
}

// seeds are real frames: what a small cluster sends.
func seedFrames(tb testing.TB) [][]byte {
	b, err := hex.DecodeString(golden)
	if err != nil {
		tb.Fatal(err)
	}
	frames := [][]byte{b, frameOf(), frameOf(groupOf("r", nil))}
	w := newFakeNet(nil, 4, 100*time.Millisecond)
	for i := range 30 {
		w.take(w.nodes[i%4], counters.Key(w.rand.IntN(3)), 1, w.limits[i%2])
		w.run(100 * time.Millisecond)
	}
	w.nodes[0].up = false
	w.restart(w.nodes[0])
	w.run(time.Second)
	kinds := make(map[kind]int)
	for _, data := range w.received {
		f, err := decodeFrame(data)
		if err != nil {
			tb.Fatal(err)
		}
		if kinds[f.kind]++; kinds[f.kind] <= 3 && len(data) < 4096 {
			frames = append(frames, data)
		}
	}
	return frames
}

// FuzzDecodeFrame: no panic, no more memory than there is reason for, and what was read once is read again after it was
// written.
func FuzzDecodeFrame(f *testing.F) {
	for _, b := range seedFrames(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		first, err := decodeFrame(b)
		if err != nil {
			return
		}
		second := again(t, first)
		if third := again(t, second); !reflect.DeepEqual(second, third) {
			t.Errorf("written and read again:\n%+v\n%+v", second, third)
		}
		if first.origin != second.origin || first.tick != second.tick || first.sent != second.sent ||
			first.since != second.since {
			t.Errorf("envelope:\n%+v\n%+v", first, second)
		}
		table := counters.NewTable(counters.Config{Origin: 1, Memory: counters.MinMemory})
		r := NewReplica(1, 1e8, table)
		r.Join(first.origin, first.sent)
		_ = r.Receive(b, first.sent)
		_ = r.Receive(b, first.sent+1)
		for _, m := range r.Tick(table.DrainDirty(first.sent+2), first.sent+2) {
			if _, err := decodeFrame(m.Data); err != nil {
				t.Errorf("the answer cannot be read: %v", err)
			}
		}
	})
}

// again writes the frame and reads it.
func again(t *testing.T, f *frame) *frame {
	body := emptyBody
	groups := slices.Clone(f.groups)
	for i := range groups {
		groups[i].demand = min(math.Floor(groups[i].demand), 1<<40) // thousandths are rounded up each time
		groups[i].slots = groups[i].unpack(f.sent)
	}
	if bodies := pack(groups, f.origin, f.sent, math.MaxInt32); len(bodies) > 0 {
		body = bodies[0]
	}
	out, err := decodeFrame(f.encode(nil, body))
	if err != nil {
		t.Fatalf("%v: %+v", err, f)
	}
	if len(out.groups) != len(f.groups) {
		t.Fatalf("%d groups became %d", len(f.groups), len(out.groups))
	}
	for i := range out.groups {
		if got, want := out.groups[i].unpack(out.sent), f.groups[i].unpack(f.sent); !sameSlots(got, want) {
			t.Fatalf("group %d:\n%+v\n%+v", i, want, got)
		}
	}
	return out
}

func FuzzDecodeMember(f *testing.F) {
	for _, m := range []Member{
		{NodeID: "a", Region: "b", MinVersion: 1, MaxVersion: 1},
		{NodeID: "edge-17", Region: "eu-west-1", Incarnation: math.MaxUint64, MinVersion: 1, MaxVersion: 255},
	} {
		f.Add(m.encode())
	}
	f.Add([]byte{0x95, 0xdb, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMember(b)
		if err != nil {
			return
		}
		if len(m.NodeID) > MaxNodeID || len(m.Region) > MaxRegion || m.Origin() == 0 {
			t.Errorf("accepted %+v", m)
		}
		if again, err := decodeMember(m.encode()); err != nil || again != m {
			t.Errorf("%+v became %+v, %v", m, again, err)
		}
	})
}

func BenchmarkFrame(b *testing.B) {
	for _, n := range []int{1, 10, 80} {
		m := frameMeters[1]
		g := group{origin: 7, meter: m, demand: 10}
		for i := range n {
			g.slots = append(g.slots, counters.Slot{Meter: m, Key: counters.Key(uint64(i+1) * 0x9e3779b97f4a7c15),
				Index: m.Index(frameTime), Origin: 7, Count: uint64(100 + i)})
		}
		f := frame{kind: data, origin: 7, tick: 1000, sent: frameTime, ack: ack{origin: 8, cumulative: 900}}
		wire := f.encode(nil, pack([]group{g}, 7, frameTime, maxBody)[0])
		b.Run(fmt.Sprintf("encode/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				wire = f.encode(make([]byte, 0, MaxFrame), pack([]group{g}, 7, frameTime, maxBody)[0])
			}
			b.ReportMetric(float64(len(wire))/float64(n), "bytes/entry")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/entry")
		})
		b.Run(fmt.Sprintf("decode/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := decodeFrame(wire); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/entry")
		})
	}
}
