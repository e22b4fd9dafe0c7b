package counters_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/oracle"
)

// One table and its model, by a clock that goes as the script wants.

// fuzzTake plays a script of eight bytes a step: what, a key, and how much of time or cost.
func fuzzTake(t *testing.T, l *counters.Limit, now int64, script []byte) {
	table, model := small(1), oracle.NewCells(l, 1)
	if isBucket(l.Meter().Algorithm) {
		table.Know([]*counters.Limit{l})
	}
	m := l.Meter()
	for ; len(script) >= 8; script = script[8:] {
		op, key, arg := script[0]%8, apart(l,
			int(script[1]%3)), uint64(binary.LittleEndian.Uint32(script[2:]))<<(script[6]%32)
		switch op {
		case 0:
			now += int64(arg % uint64(4*m.Window))
		case 1:
			now -= min(now, int64(arg%uint64(2*m.Window)))
		case 2:
			now -= now % int64(m.Sub)
		case 3:
			if ban := l.BanMeter(); ban != nil && script[6]&32 != 0 {
				fuzzBan(t, table, model, key, ban, arg, script[7], now)
				break
			}
			if isBucket(m.Algorithm) && model.View(key, now) > 500*l.Refill() {
				break // a bucket does not tell waits of a thousand windows
			}
			slot := counters.Slot{
				Meter: &m, Key: key, Index: max(0, m.Index(now)+int64(script[7]%64)-int64(m.SubWindows())-1),
				Origin: counters.Origin(script[7]/64) + 1,
				Count:  min(arg, most(l)), CompleteThrough: now - int64(arg%uint64(m.Window)),
			}
			if isBucket(m.Algorithm) {
				slot.Count = min(slot.Count, counters.Believed(l))
			}
			novel := table.Merge([]counters.Slot{slot}, now) > 0
			if want := model.Merge(slot, now); novel != want {
				t.Fatalf("%+v: novel %v, the model says %v", slot, novel, want)
			}
		default:
			cost := arg
			if op < 7 {
				cost = arg % (l.Max() + 2)
			}
			if op == 6 {
				table.Report([]counters.Charge{{Limit: l, Key: key, Cost: cost}}, now)
				model.Report(key, cost, now)
				cost = 0
			}
			got, want := table.Take(l, key, cost, now), model.Take(key, cost, now)
			if got != want {
				t.Fatalf("cost %d of key %d at %d:\n got %+v\nwant %+v", cost, key, now, got, want)
			}
		}
		if got, want := table.View(l, key, now), model.View(key, now); got != want {
			t.Fatalf("view of key %d at %d: %d, the model says %d", key, now, got, want)
		}
	}
}

// fuzzBan merges a ban of another's.
func fuzzBan(
	t *testing.T, table *counters.Table, model *oracle.Cells, key counters.Key, m *counters.Meter, arg uint64,
	what byte, now int64,
) {
	lasts := uint64(m.Window / time.Millisecond)
	slot := counters.Slot{
		Meter: m, Key: key, Index: max(0, m.Index(now)+int64(what%4)-2), Origin: counters.Origin(what/4%4) + 1,
		Birth: uint32(what / 16 % 2),
	}
	slot.Count = uint64(slot.Index+2)*lasts - arg%(2*lasts)
	novel := table.Merge([]counters.Slot{slot}, now) > 0
	if want := model.Merge(slot, now); novel != want {
		t.Fatalf("%+v: novel %v, the model says %v", slot, novel, want)
	}
}

// withFuzzedBan is what a limit does to whom it denies, by the rest of the number that chose its algorithm.
func withFuzzedBan(t *testing.T, l *counters.Limit, algorithm byte) *counters.Limit {
	what, window := int(algorithm)/len(algorithms), l.Meter().Window
	return penalized(t, l, what&1 == 1, what>>1&1 == 1, []time.Duration{window, window / 7, 2*window + 1, 0}[what>>2&3])
}

func FuzzTake(f *testing.F) {
	for setting := range 256 {
		f.Add(byte(setting), byte(setting>>1), pseudoRandom(setting, 1600))
	}
	f.Fuzz(func(t *testing.T, algorithm, setting byte, script []byte) {
		now := start
		if setting>>6&1 == 1 {
			now = 0
		}
		fuzzTake(t, withFuzzedBan(t, fuzzLimit(t, algorithm, setting), algorithm), now, script[:min(len(script), 4000)])
	})
}
