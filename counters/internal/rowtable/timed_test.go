package rowtable_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/counters/internal/rowtable"
)

// bans are bans of both tables.
type bans struct {
	old *counters.Bans
	new *rowtable.Bans
}

// lengths are how long bans last.
var lengths = []time.Duration{time.Millisecond, time.Second, 77 * time.Second, 40 * time.Hour, 366 * 24 * time.Hour}

// addManualBans adds bans that are no limit's. There are bans only while the clock does not step back: counters.Table
// forgets some that are in force again then, and remembers others.
func (p *pair) addManualBans() {
	if !p.steady {
		return
	}
	name := counters.BanName{Rule: "rule0", Keys: counters.ManualKeys, By: "test", Reason: "why"}
	old, err := counters.ManualBans(name, lengths[p.IntN(len(lengths))])
	if err != nil {
		p.Fatal(err)
	}
	p.addBans(old, nil)
}

func (p *pair) addBans(old *counters.Bans, of *rowtable.Limit) *bans {
	b := &bans{old, rowtable.NewBans(p.Uint64(), int64(old.Lasts()), of)}
	p.bans = append(p.bans, b)
	return b
}

// banLength is how long the bans of a limit last; 0: it has none.
func (p *pair) banLength() time.Duration {
	if !p.steady {
		return 0
	}
	return lengths[p.IntN(len(lengths))] * time.Duration(p.IntN(2))
}

// ban begins, lifts, looks at or merges a ban of a key.
func (p *pair) ban() {
	if !p.steady {
		return
	}
	b, key := p.bans[p.IntN(len(p.bans))], p.keys[p.IntN(len(p.keys))]
	of := rowtable.BanKey{Bans: b.new, Key: key}
	switch p.IntN(6) {
	case 0:
		ends, kept := p.old.Ban(b.old, counters.Key(key), p.now)
		if got, ok := p.new.Ban(of, p.now); got != ends || ok != kept {
			p.Fatalf("seed %d, step %d: banned until %d, want %d", p.seed, p.n, got, ends)
		}
	case 1:
		left, kept := p.old.LiftBan(b.old, counters.Key(key), p.now)
		if got, ok := p.new.Lift(of, p.now); got != int64(left) || ok != kept {
			p.Fatalf("seed %d, step %d: lifted with %d left, want %d", p.seed, p.n, got, left)
		}
	default:
		p.mergeTime(b, key)
	}
	p.compareBan(b, key)
}

func (p *pair) compareBan(b *bans, key uint64) {
	want := p.old.BanEnds(b.old, counters.Key(key), p.now)
	if got := p.new.BanEnds(rowtable.BanKey{Bans: b.new, Key: key}, p.now); got != want {
		p.Fatalf("seed %d, step %d: at %d, the ban of %x (for %v) ends at %d, want %d", p.seed, p.n, p.now, key,
			b.old.Lasts(), got, want)
	}
}

// mergeTime sends the end of a ban, or a lift, to both. Honest peers send what they set in a sub-window, of clocks that
// may be ahead, and some peers lie.
func (p *pair) mergeTime(b *bans, key uint64) {
	meter, now, length := b.old.Meter(), &b.new.Meter, uint64(b.old.Lasts()/time.Millisecond)
	index := meter.Index(p.now) + 1 - p.Int64N(3)
	millis := uint64(index)*length + p.Uint64N(length)
	switch { // what follows from a time that is a length ahead of the clock leaves scans before it ends
	case index > meter.Index(p.now):
	case p.IntN(2) == 0:
		meter.Algorithm, now = counters.Lift, b.new.LiftMeter()
	default:
		millis += length
	}
	switch manual := b == p.bans[len(p.bans)-1]; p.IntN(200) {
	case 0:
		millis = p.Uint64N(1 + millis)
	case 1:
		if !manual {
			break
		}
		millis = uint64(index+2)*length + 1
	}
	origin, birth := uint16(2+p.IntN(4)), uint32(max(0, p.IntN(4)-2))
	want := p.old.Merge([]counters.Slot{{Meter: &meter, Key: counters.Key(key), Index: index, Count: millis,
		Origin: counters.Origin(origin), Birth: birth}}, p.now)
	got := p.new.Merge(now, []rowtable.Slot{{Key: key, Index: index, Count: millis, Origin: origin,
		Birth: birth}}, p.now)
	ends := millis
	if meter.Algorithm == counters.Lift {
		ends += length
	}
	if got > want && ends > uint64(p.now/int64(time.Millisecond)) { // it keeps the latest time alone, until it ends
		p.Fatalf("seed %d, step %d: the time %d of sub-window %d rose", p.seed, p.n, millis, index)
	}
	if was, is := p.old.Stats().Implausible, p.new.Implausible(); was != is {
		p.Fatalf("seed %d, step %d: %d implausible slots, want %d", p.seed, p.n, is, was)
	}
}

var (
	banLasts = 10 * time.Second
	someBans = rowtable.NewBans(0x1234567, int64(banLasts), nil)
)

// Who watches bans learns of each that begins or is lifted, here or elsewhere, of all once a list has overflowed, and
// again when the table comes to distrust others, or trusts them again.
func TestChangedBans(t *testing.T) {
	table := rowtable.New(tableSize, 1)
	changed := table.WatchBans()
	r := rand.New(rand.NewPCG(1, 2))
	want := func(now int64, keys ...uint64) {
		t.Helper()
		var got []uint64
		table.ChangedBans(now, func(bans, key uint64) {
			if bans != someBans.ID {
				t.Errorf("bans of %x", bans)
			}
			got = append(got, key)
		})
		slices.Sort(got)
		slices.Sort(keys)
		if got = slices.Compact(got); !slices.Equal(got, keys) {
			t.Fatalf("%d bans changed, want %d", len(got), len(keys))
		}
	}
	table.Ban(rowtable.BanKey{Bans: someBans, Key: 1}, start)
	table.Lift(rowtable.BanKey{Bans: someBans, Key: 2}, start)
	index := start / int64(banLasts)
	end := rowtable.Slot{Key: 3, Index: index, Count: uint64(index+2) * uint64(banLasts.Milliseconds()), Origin: 2}
	table.Merge(&someBans.Meter, []rowtable.Slot{end}, start)
	<-changed
	want(start, 1, 2, 3)
	want(start)
	table.Merge(&someBans.Meter, []rowtable.Slot{end}, start)
	want(start) // it did not rise
	table.RelistBans()
	want(start+10, 1, 2, 3)
	end.Key, end.Count = 4, end.Count+1
	table.Merge(&someBans.Meter, []rowtable.Slot{end}, start)
	want(start + 10)
	want(start+10+int64(5*time.Second), 1, 2, 3) // they came of others, and count no more
	keys := []uint64{1, 2, 3}
	for range 5000 { // the first shards alone: their lists overflow
		key := r.Uint64()
		if _, kept := table.Ban(rowtable.BanKey{Bans: someBans, Key: key}, start); kept {
			keys = append(keys, key)
		}
	}
	want(start+11, keys[3:]...)
}

// A ban is in force again when the clock steps back before its end, until it is long over.
func TestBanAndTheClock(t *testing.T) {
	table, k := rowtable.New(tableSize, 1), rowtable.BanKey{Bans: someBans, Key: 1}
	ends, _ := table.Ban(k, start)
	for _, c := range []struct {
		after time.Duration
		want  int64
	}{{banLasts, 0}, {banLasts / 2, ends}, {3 * banLasts, 0}, {banLasts / 2, 0}} {
		table.Expire(start + int64(c.after))
		if got := table.BanEnds(k, start+int64(c.after)); got != c.want {
			t.Errorf("after %v it ends at %d, want %d", c.after, got, c.want)
		}
	}
}

// A key of which others know as well takes one line for its bans.
func TestABanIsALine(t *testing.T) {
	table := rowtable.New(tableSize, 1)
	table.Ban(rowtable.BanKey{Bans: someBans, Key: 1}, start)
	for origin := range uint16(100) {
		index := start / int64(banLasts)
		end := uint64(index+1)*uint64(banLasts.Milliseconds()) + uint64(origin)
		table.Merge(&someBans.Meter, []rowtable.Slot{{Key: 1, Index: index, Count: end, Origin: 2 + origin}}, start)
	}
	if n := table.Lines(); n != 1 {
		t.Errorf("%d lines", n)
	}
	table.Expire(start + 2*int64(banLasts))
	if n := table.Lines(); n != 0 {
		t.Errorf("%d lines are left", n)
	}
}
