package regions

import (
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

var (
	minute = counters.NewMeter("per_minute", counters.SlidingWindow, time.Minute)
	epoch  = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
)

// began is the moment of the monotonic clock when the wall clock shows the epoch.
const began = 77 * time.Hour

func note(w *ackedSlots, slots []counters.Slot, before []uint64, push bool) {
	w.note(slots, before, push, epoch, began)
}

func numbered(key int, count uint64) counters.Slot {
	return counters.Slot{
		Meter: &minute, Key: counters.Key(key), Index: minute.Index(epoch), Origin: 1, Birth: 1, Count: count,
	}
}

func TestAckedSlotsShowLoss(t *testing.T) {
	w := newAckedSlots()
	slots := []counters.Slot{numbered(1, 5), numbered(2, 6)}
	if n := w.behind(slots, []uint64{0, 0}, began); n != 0 {
		t.Errorf("a store that never acknowledged anything is behind with %d slots", n)
	}
	note(&w, slots, []uint64{0, 0}, false)
	if n := w.behind(slots, []uint64{5, 7}, began); n != 0 {
		t.Errorf("a store that knows as much and more is behind with %d slots", n)
	}
	if n := w.behind(slots, []uint64{4, 0}, began); n != 2 {
		t.Errorf("a store that lost two slots is behind with %d", n)
	}
	// A lower count that came late is acknowledged as well, and lowers nothing.
	note(&w, []counters.Slot{numbered(1, 3)}, []uint64{5}, false)
	if n := w.behind(slots[:1], []uint64{4}, began); n != 1 {
		t.Errorf("after a lower count: behind with %d slots, want 1", n)
	}
	w.forget()
	if n := w.behind(slots, []uint64{0, 0}, began); n != 0 {
		t.Errorf("forgotten slots still prove something: behind with %d slots", n)
	}
	if p := w.probes(epoch, began); len(p) != 0 {
		t.Errorf("the store is asked about %v, which proves nothing", p)
	}
	note(&w, []counters.Slot{numbered(1, 5), numbered(2, 6), numbered(3, 7)}, []uint64{5, 6, 7}, true)
	if p := w.probes(epoch, began); len(p) != 3 || p[0].Key != 2 || p[1].Key != 1 {
		t.Errorf("after a loss that proved to be none the probes are %v, want those first that had been news", p)
	}
}

// What a call without an answer told proves nothing until it is acknowledged; what it asked about proves as much as
// before.
func TestUnansweredSlotsProveNothing(t *testing.T) {
	w := newAckedSlots()
	slots := []counters.Slot{numbered(1, 5), numbered(2, 6)}
	note(&w, slots, []uint64{0, 0}, false)
	w.unanswered([]counters.Slot{numbered(1, 8), numbered(2, 0), numbered(3, 1)})
	if n := w.behind(slots, []uint64{0, 0}, began); n != 1 {
		t.Errorf("behind with %d slots, want the one that was asked about", n)
	}
	if p := w.probes(epoch, began); len(p) != 1 || p[0] != numbered(2, 0) || len(w.slots) != 2 {
		t.Errorf("the probes are %v, want the one that can prove something", p)
	}
	note(&w, []counters.Slot{numbered(1, 8)}, []uint64{8}, false)
	if p := w.probes(epoch, began); len(p) != 2 || p[0] != numbered(1, 0) {
		t.Errorf("the probes are %v, want the one first that was acknowledged last", p)
	}
}

func TestAckedSlotsAboutToExpireShowNothing(t *testing.T) {
	w := newAckedSlots()
	slots := []counters.Slot{numbered(1, 5)}
	note(&w, slots, []uint64{0}, false)
	ends := began + time.Duration((slots[0].Index+1)*int64(minute.Sub)+int64(minute.Window)-epoch)
	if n := w.behind(slots, []uint64{0}, ends-clockSkew); n != 1 {
		t.Errorf("a slot that lives longer than the clock skew: behind with %d, want 1", n)
	}
	if n := w.behind(slots, []uint64{0}, ends-clockSkew+1); n != 0 {
		t.Errorf("a slot that another clock may have expired: behind with %d, want 0", n)
	}
	if p := w.probes(epoch, ends-clockSkew+1); len(p) != 0 || len(w.slots) != 0 {
		t.Errorf("expired slots are kept: %d, probes %v", len(w.slots), p)
	}
}

func TestAckedSlotsAreBounded(t *testing.T) {
	w := newAckedSlots()
	for i := range 2*maxAckedSlots + 100 {
		note(&w, []counters.Slot{numbered(i, 1)}, []uint64{0}, false)
	}
	if len(w.slots) != maxAckedSlots {
		t.Errorf("%d slots, the cap is %d", len(w.slots), maxAckedSlots)
	}
	if n := len(w.probes(epoch, began)); n != maxProbes {
		t.Errorf("%d probes, the cap is %d", n, maxProbes)
	}
	// One that is known takes nobody's place.
	var known counters.Slot
	for _, s := range w.slots {
		known = s.Slot
		break
	}
	known.Count = 9
	note(&w, []counters.Slot{known}, []uint64{1}, false)
	if len(w.slots) != maxAckedSlots || w.slots[identify(&known)].Count != 9 {
		t.Errorf("a known slot was not raised in its place: %d slots", len(w.slots))
	}
}

// However many slots come after them, what the store is asked for again can still prove a loss.
func TestProbesAreNotDisplaced(t *testing.T) {
	w := newAckedSlots()
	probe := numbered(-1, 5)
	note(&w, []counters.Slot{probe}, []uint64{0}, false)
	for i := range 10 * maxAckedSlots {
		note(&w, []counters.Slot{numbered(i, 1)}, []uint64{1}, true) // a push of what the store has: no news
	}
	if p := w.probes(epoch, began); p[0] != numbered(-1, 0) {
		t.Fatalf("the probes are %v, want the one first that was news", p)
	}
	if n := w.behind([]counters.Slot{probe}, []uint64{4}, began); n != 1 {
		t.Error("a store that lost the probe is not behind")
	}
}

func TestProbesAreEachOfAnotherSlot(t *testing.T) {
	w := newAckedSlots()
	for count := range uint64(100) {
		note(&w, []counters.Slot{numbered(1, count+1), numbered(2, count+1)}, []uint64{count, count}, false)
	}
	if p := w.probes(epoch, began); len(p) != 2 || p[0] != numbered(2, 0) || p[1] != numbered(1, 0) {
		t.Errorf("the probes are %v, want both slots once, the later first", p)
	}
}

func TestProbesAreTheLatestRaised(t *testing.T) {
	w := newAckedSlots()
	for i := range 100 {
		note(&w, []counters.Slot{numbered(i, 2)}, []uint64{0}, false)
	}
	// Told again, but not raised: an older copy of the store need not lack them.
	for i := range 60 {
		note(&w, []counters.Slot{numbered(i, 2)}, []uint64{2}, false)
	}
	probes := w.probes(epoch, began)
	if len(probes) != maxProbes {
		t.Fatalf("%d probes, want %d", len(probes), maxProbes)
	}
	for i, s := range probes {
		if want := counters.Key(99 - i); s.Key != want {
			t.Errorf("probe %d is of key %d, want %d", i, s.Key, want)
		}
	}
}

func TestProbesAreNews(t *testing.T) {
	for _, c := range []struct {
		what   string
		before uint64
		push   bool
		news   bool
	}{
		{"raised", 2, false, true},
		{"raised by a push", 2, true, true},
		{"known, and never acknowledged", 3, false, true},
		{"known to a push", 3, true, false},
	} {
		w := newAckedSlots()
		note(&w, []counters.Slot{numbered(1, 1)}, []uint64{0}, false)
		note(&w, []counters.Slot{numbered(2, 3)}, []uint64{c.before}, c.push)
		if p := w.probes(epoch, began); (p[0].Key == 2) != c.news {
			t.Errorf("%s: the probes are %v, news: %v", c.what, p, c.news)
		}
	}
}

func TestProbesFallBackOnAnyAckedSlot(t *testing.T) {
	w := newAckedSlots()
	hour := counters.NewMeter("per_hour", counters.SlidingWindow, time.Hour)
	long := counters.Slot{Meter: &hour, Key: 7, Index: hour.Index(epoch), Origin: 1, Birth: 1, Count: 3}
	note(&w, []counters.Slot{long}, []uint64{0}, false)
	for i := range maxProbes {
		note(&w, []counters.Slot{numbered(i, 1)}, []uint64{0}, false)
	}
	if p := w.probes(epoch+int64(10*time.Minute), began+10*time.Minute); len(p) != 1 ||
		identify(&p[0]) != identify(&long) {
		t.Errorf("with the latest expired the probes are %v, want the one that lives on", p)
	}
}

func TestPending(t *testing.T) {
	p := newPending(2)
	for _, s := range []counters.Slot{numbered(1, 5), numbered(1, 4), numbered(2, 6), numbered(1, 7), numbered(1, 6)} {
		if !p.add(&s) {
			t.Fatalf("no room for %v", s)
		}
	}
	if s := numbered(3, 1); p.add(&s) {
		t.Error("there was room above the cap")
	}
	if s := numbered(2, 8); !p.add(&s) {
		t.Error("a slot that is known found no room to rise")
	}
	due := p.due(epoch)
	counts := map[counters.Key]uint64{}
	for _, s := range due {
		counts[s.Key] = s.Count
	}
	if len(due) != 2 || counts[1] != 7 || counts[2] != 8 {
		t.Fatalf("due: %v, want key 1 at 7 and key 2 at 8", counts)
	}
	// Key 2 rises while the store is being told.
	if s := numbered(2, 9); !p.add(&s) {
		t.Fatal("no room to rise")
	}
	p.acknowledge(due)
	if rest := p.due(epoch); len(rest) != 1 || rest[0] != numbered(2, 9) {
		t.Errorf("after an acknowledgement %v is pending, want what rose meanwhile", rest)
	}
	if rest := p.due(epoch + int64(2*time.Minute)); len(rest) != 0 || len(p.slots) != 0 {
		t.Errorf("expired slots are pending: %v", rest)
	}
}

func TestAlarm(t *testing.T) {
	var a alarm
	var got []bool
	for _, on := range []bool{false, true, true, false, true} {
		got = append(got, a.begins(on))
	}
	for i, want := range []bool{false, true, false, false, true} {
		if got[i] != want {
			t.Errorf("step %d: begins is %v, want %v", i, got[i], want)
		}
	}
}
