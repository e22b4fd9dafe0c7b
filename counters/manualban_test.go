package counters_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func banMeter(rule string, lasts time.Duration) counters.Meter {
	return counters.Meter{Rule: rule, Algorithm: counters.Ban, Window: lasts, Sub: lasts}
}

// manually are manual bans of keys of a rule.
func manually(t testing.TB, rule, reason string, lasts time.Duration) *counters.Bans {
	t.Helper()
	b, err := counters.NewBans(banMeter("%ban/k/a/"+reason+"/"+rule, lasts))
	testkit.Must(t, err)
	return b
}

// A manual ban begins, is replicated, ends, is lifted and begins anew, all to the millisecond.
func TestManualBan(t *testing.T) {
	b, here, there := manually(t, "r", "why", time.Minute), small(1), small(2)
	until, kept := here.Ban(b, 7, start)
	if !kept || until != after(time.Minute) || here.BanEnds(b, 7, start) != until || here.BanEnds(b, 8, start) != 0 {
		t.Errorf("it ends %v later, kept %v", time.Duration(until-start), kept)
	}
	there.Merge(here.DrainDirty(start).Slots, start)
	if there.BanEnds(b, 7, until-1) != until || there.BanEnds(b, 7, until) != 0 {
		t.Error("the other table has another end")
	}
	now := after(time.Second)
	if left, kept := there.LiftBan(b, 7, now); !kept || left != 59*time.Second {
		t.Errorf("lifted: %v, %v", left, kept)
	}
	here.Merge(there.DrainDirty(now).Slots, now)
	if here.BanEnds(b, 7, now) != 0 || there.BanEnds(b, 7, now) != 0 {
		t.Error("it is lifted and holds")
	}
	until, _ = here.Ban(b, 7, now+1) // within the millisecond of the lift: the later word counts
	there.Merge(here.DrainDirty(now+1).Slots, now+1)
	if until <= now || here.BanEnds(b, 7, now+2) != until || there.BanEnds(b, 7, now+2) != until {
		t.Error("the ban after the lift does not hold everywhere")
	}
}

// The node gives the table no limit for manual bans, and they stay all the same; counts of such a meter would go.
func TestManualBansStay(t *testing.T) {
	b, table := manually(t, "r", "", time.Hour), small(1)
	until, _ := table.Ban(b, 7, start)
	if now := pass(table, start, 30*time.Minute); table.BanEnds(b, 7, now) != until {
		t.Error("after half an hour it is forgotten")
	}
	if pass(table, after(30*time.Minute), 2*time.Hour); table.Stats().Keys != 0 {
		t.Errorf("%d cells stay after their ends", table.Stats().Keys)
	}
}

func TestManualBansAreChecked(t *testing.T) {
	for _, lasts := range []time.Duration{0, time.Microsecond, time.Second + 1, counters.MaxWindow + time.Second} {
		if _, err := counters.NewBans(banMeter("r", lasts)); err == nil {
			t.Errorf("a ban of %v is taken", lasts)
		}
	}
	if _, err := counters.NewBans(counters.NewMeter("r", counters.FixedWindow, time.Second)); err == nil {
		t.Error("counts are taken for bans")
	}
	// a forged end beyond the length is refused, and distrusted
	b, table := manually(t, "r", "", time.Minute), small(1)
	m := b.Meter()
	forged := counters.Slot{Meter: &m, Key: 7, Index: m.Index(start), Origin: 9,
		Count: uint64(after(time.Hour) / int64(time.Millisecond))}
	if table.Merge([]counters.Slot{forged}, start) != 0 || table.BanEnds(b, 7, start) != 0 {
		t.Error("a ban of a minute lasts an hour")
	}
	forged.Count = uint64(after(time.Minute) / int64(time.Millisecond))
	if table.Merge([]counters.Slot{forged}, start); table.BanEnds(b, 7, start) != 0 {
		t.Error("while forged bans come others' count")
	}
	if until, _ := table.Ban(b, 7, start); table.BanEnds(b, 7, start) != until {
		t.Error("the table's own ban does not count")
	}
}

// Bans of addresses have the address as their key, and deny every key of it; without an address all is as ever.
func TestBansOfAddresses(t *testing.T) {
	plain := banning(t, "r", counters.SlidingWindow)
	for _, scope := range []counters.Scope{counters.Global, counters.Region, counters.Alone} {
		l := with(t, plain, func(c *counters.LimitConfig) {
			c.AddressBans, c.Scope, c.Region = "%ban/a64///r", scope, "eu"
		})
		table := counters.NewTable(counters.Config{Origin: 1, Region: "eu", Memory: counters.MinMemory})
		const addr = counters.Key(0xffffffff_c0000201)
		take := func(key, address counters.Key, now int64) counters.Decision {
			return table.TakeAll([]counters.Charge{{Limit: l, Key: key, Address: address, Cost: 1}}, now, nil)[0]
		}
		for range 4 {
			take(1, addr, start)
		}
		if d := take(2, addr, after(time.Second)); !d.Banned || d.RetryAfter != 29*time.Second {
			t.Errorf("%v: another key of the address: %+v", scope, d)
		}
		if d := take(2, addr+1, after(time.Second)); d.Banned {
			t.Errorf("%v: another address: %+v", scope, d)
		}
		for range 4 {
			take(3, 0, start)
		}
		if d := table.Take(l, 3, 1, start); !d.Banned {
			t.Errorf("%v: a key without an address: %+v", scope, d)
		}
		bans, err := counters.NewBans(*l.AddressBanMeter())
		testkit.Must(t, err)
		if name := bans.Meter().Rule; name != "%ban/a64///"+l.Meter().Rule {
			t.Errorf("%v: the bans are called %q", scope, name)
		}
		if same := with(t, l, func(*counters.LimitConfig) {}); *same.AddressBanMeter() != bans.Meter() {
			t.Errorf("%v: made of its own configuration, its bans are called %q", scope, same.AddressBanMeter().Rule)
		}
		if left, kept := table.LiftBan(bans, addr, after(time.Second)); !kept || left != 29*time.Second {
			t.Errorf("%v: lifted %v, %v", scope, left, kept)
		}
		if d := take(2, addr, after(11*time.Second)); !d.Allowed {
			t.Errorf("%v: after the lift %+v", scope, d)
		}
	}
	without := newLimit(t, counters.NewMeter("r", counters.FixedWindow, time.Second), 3)
	if _, err := without.With(func(c *counters.LimitConfig) { c.AddressBans = "a" }); err == nil {
		t.Error("addresses without bans")
	}
	long := strings.Repeat("a", counters.MaxRuleName+1)
	if _, err := plain.With(func(c *counters.LimitConfig) { c.AddressBans = long }); err == nil {
		t.Error("a name of bans that is too long")
	}
}

// watcher keeps the bans of a table by its feed alone.
type watcher struct {
	table *counters.Table
	ends  map[string]int64
}

func (w *watcher) follow(now int64) {
	w.table.ChangedBans(now, func(m *counters.Meter, key counters.Key) {
		b, err := counters.NewBans(*m)
		if err != nil {
			panic(err)
		}
		id := fmt.Sprint(m.Rule, key)
		if w.ends[id] = w.table.BanEnds(b, key, now); w.ends[id] == 0 {
			delete(w.ends, id)
		}
	})
}

// Tables that have exchanged all bans and lifts, in whatever order, have the same, and their feeds say so: also one
// that overflowed.
func TestTheFeedAgreesWithTheTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var watchers []*watcher
		for i := range 3 {
			w := &watcher{small(counters.Origin(i + 1)), make(map[string]int64)}
			w.table.WatchBans()
			watchers = append(watchers, w)
		}
		rules := []*counters.Bans{}
		for i := range 2 {
			b, err := counters.NewBans(banMeter(fmt.Sprint("r", i), time.Duration(i+1)*10*time.Second))
			testkit.Must(t, err)
			rules = append(rules, b)
		}
		now, sent := start, make([][]counters.Slot, 3)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now += rapid.Int64Range(0, int64(2*time.Second)).Draw(t, "pause")
			at := rapid.IntRange(0, 2).Draw(t, "table")
			w, b := watchers[at], rules[rapid.IntRange(0, 1).Draw(t, "rule")]
			key := counters.Key(rapid.IntRange(1, 3).Draw(t, "key"))
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				w.table.Ban(b, key, now)
			case 1:
				w.table.LiftBan(b, key, now)
			case 2:
				from := rapid.IntRange(0, 2).Draw(t, "from")
				sent[from] = append(sent[from], watchers[from].table.DrainDirty(now).Slots...)
				w.table.Merge(rapid.Permutation(sent[from]).Draw(t, "order"), now)
			case 3:
				w.follow(now)
			}
		}
		for _, w := range watchers {
			for _, other := range watchers {
				w.table.Merge(other.table.Snapshot(now, 1000), now)
			}
			w.follow(now)
			maps.DeleteFunc(w.ends, func(_ string, ends int64) bool { return ends <= now })
			if !maps.Equal(w.ends, watchers[0].ends) {
				t.Fatalf("%v and %v", w.ends, watchers[0].ends)
			}
			for _, b := range rules {
				for key := range counters.Key(4) {
					if got := w.ends[fmt.Sprint(b.Meter().Rule, key)]; got != w.table.BanEnds(b, key, now) {
						t.Fatalf("the feed ends key %d at %d, the table at %d", key, got, w.table.BanEnds(b, key, now))
					}
				}
			}
		}
	})
}

func TestTheFeedOverflows(t *testing.T) {
	table := counters.NewTable(counters.Config{Origin: 1, Memory: 64 << 20})
	changed := table.WatchBans()
	b := manually(t, "r", "", time.Hour)
	const keys = 300_000 // of 64 shards, more than 4096 each
	var slots []counters.Slot
	m := b.Meter()
	for key := range counters.Key(keys) {
		slots = append(slots, counters.Slot{Meter: &m, Key: key, Index: m.Index(start), Origin: 2,
			Count: uint64(after(time.Minute) / int64(time.Millisecond))})
	}
	table.Merge(slots, start)
	select {
	case <-changed:
	default:
		t.Error("nothing signals a change")
	}
	seen := make(map[counters.Key]bool)
	table.ChangedBans(start, func(_ *counters.Meter, key counters.Key) { seen[key] = true })
	if len(seen) != keys {
		t.Errorf("%d of %d bans are seen", len(seen), keys)
	}
	table.ChangedBans(start, func(*counters.Meter, counters.Key) { t.Error("a change that was seen before") })
	if slices.ContainsFunc(table.DrainDirty(start).Slots, func(s counters.Slot) bool { return s.Origin != 1 }) {
		t.Error("others' slots are sent as own")
	}
}

// Bans that peers send while a table distrusts them are listed when it trusts them again, and those that it had are not
// listed meanwhile: the feed says what the table denies by.
func TestTheFeedFollowsTrust(t *testing.T) {
	l := penalized(t, limitNamed(t, "r", 3), true, false, time.Hour)
	b, table, now := manually(t, "r", "", 10*time.Minute), small(1), start
	table.Know([]*counters.Limit{l})
	w := &watcher{table, make(map[string]int64)}
	table.WatchBans()
	send := func(m counters.Meter, key counters.Key, lasts time.Duration) {
		until := now + int64(lasts)
		table.Merge([]counters.Slot{{Meter: &m, Key: key, Index: m.Index(now), Origin: 2,
			Count: uint64(until / int64(time.Millisecond))}}, now)
	}
	listed := func(what string, want ...string) {
		t.Helper()
		w.follow(now)
		var got []string
		for key := range counters.Key(5) {
			denied := table.Take(l, key, 0, now).Banned
			if is := w.ends[fmt.Sprint(l.BanMeter().Rule, key)] > now; is != denied {
				t.Errorf("%s: key %d is listed: %v, denied: %v", what, key, is, denied)
			} else if is {
				got = append(got, fmt.Sprint("rule ", key))
			}
			if w.ends[fmt.Sprint(b.Meter().Rule, key)] > now {
				got = append(got, fmt.Sprint("manual ", key))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: listed are %v, want %v", what, got, want)
		}
	}
	send(*l.BanMeter(), 1, time.Hour)
	send(b.Meter(), 1, 10*time.Minute)
	listed("before", "rule 1", "manual 1")
	now = after(6 * time.Second)
	send(*l.BanMeter(), 9, 1<<62) // implausible
	send(b.Meter(), 9, 1<<62)
	send(*l.BanMeter(), 2, time.Hour)
	listed("distrusted")
	now = after(65 * time.Second)
	listed("almost a minute later")
	now = after(66 * time.Second)
	listed("the rule is trusted again", "rule 1", "rule 2")
	now = after(9 * time.Minute)
	send(b.Meter(), 3, 10*time.Minute)
	listed("manual bans are distrusted for their length", "rule 1", "rule 2")
	now = after(10*time.Minute + 6*time.Second)
	listed("they are trusted again", "rule 1", "rule 2", "manual 3")
	send(l.Meter(), 9, 1<<62)
	now = after(11 * time.Minute)
	listed("after implausible counts", "manual 3")
	now = after(12 * time.Minute)
	listed("a minute after them", "rule 1", "rule 2", "manual 3")
}

// A search of all shards is expensive, and peers can cause it: it is not repeated at once.
func TestTheFeedIsNotSearchedTooOften(t *testing.T) {
	b, table := manually(t, "r", "", time.Hour), small(1)
	table.WatchBans()
	table.Ban(b, 1, start)
	for second, want := range []int{1, 0, 0, 0, 0, 1, 0} {
		listed := 0
		table.RelistBans()
		table.ChangedBans(after(time.Duration(second)*time.Second), func(*counters.Meter, counters.Key) { listed++ })
		if listed != want {
			t.Errorf("after %d s %d bans are listed, want %d", second, listed, want)
		}
	}
}
