package bans

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/bans/banname"
)

// A list says whom, by whom, why, since when and until when; a ban is gone at its end, and when it is lifted.
func TestRegistry(t *testing.T) {
	b := newBanned(t)
	b.ban(t, "192.0.2.0/24", "scanner", time.Hour)
	b.ban(t, "2001:db8:1:2::/64", "", time.Minute)
	key := named(t, banname.Name{Rule: "edge/x%@eu"}, time.Minute)
	b.Table.Ban(key, 0xff, start)
	b.Update()
	millis := func(d time.Duration) time.Time { return time.UnixMilli(start/1e6 + 1).Add(d).UTC() }
	want := []Ban{
		{Rule: "edge/x", Scope: "region", Key: "00000000000000ff", Began: millis(0), Ends: millis(time.Minute)},
		{Rule: "r", Scope: "global", Address: "2001:db8:1:2::/64", Began: millis(0), Ends: millis(time.Minute)},
		{Rule: "r", Scope: "global", Address: "192.0.2.0/24", Began: millis(0), Ends: millis(time.Hour), Manual: true,
			By: "alice", Reason: "scanner"},
	}
	if got := slices.Collect(b.List(everything)); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	if got := slices.Collect(b.List(func(rule string) bool { return rule == "edge/x" })); len(got) != 1 {
		t.Errorf("of one rule: %+v", got)
	}
	if got := b.Counts(); got["r"] != 2 || got["edge/x"] != 1 {
		t.Errorf("%v", got)
	}
	b.Table.LiftBan(key, 0xff, start+1)
	if b.pass(time.Second); len(b.shown()) != 2 {
		t.Errorf("after the lift: %v", b.shown())
	}
	if b.pass(time.Minute - time.Second); len(b.shown()) != 2 {
		t.Error("it is over a millisecond too early")
	}
	if b.pass(time.Millisecond); !slices.Equal(b.shown(), []string{"192.0.2.0/24"}) {
		t.Errorf("after the ends: %v", b.shown())
	}
	if b.pass(time.Hour); len(b.shown()) != 0 || len(b.meters) != 0 || b.bans != 0 {
		t.Errorf("at last: %v, %d meters", b.shown(), len(b.meters))
	}
}

// Names that mean nothing, as a peer may send them, are nobody's bans.
func TestRegistryIgnoresNonsense(t *testing.T) {
	b := newBanned(t)
	for _, name := range []string{"%ban/", "%ban/k/a/b", "%ban/4.99/a/b/r", "%ban/6.8/a/\n/r"} {
		m := counters.Meter{Rule: name, Algorithm: counters.Ban, Window: time.Minute, Sub: time.Minute}
		b.Merge([]counters.Slot{{Meter: &m, Key: 1, Index: m.Index(start), Origin: 2,
			Count: uint64((start + int64(time.Minute)) / 1e6)}}, start)
	}
	if b.Update(); len(b.shown()) > 0 || b.Manual() != nil {
		t.Errorf("%v", b.shown())
	}
	// a key that is no address is listed as it is, and exported as nothing
	bans := named(t, banname.Name{Rule: "r", Keys: banname.IPv4Prefixes, Bits: 24, Reason: "x"}, time.Minute)
	b.Table.Ban(bans, 0xffffffff_c0000201, start) // bits beyond the length
	b.Table.Ban(bans, 0x20010db8_00000000, start) // another family
	if b.Update(); len(b.exported()) != 0 || len(b.shown()) != 2 {
		t.Errorf("%v, %v", b.exported(), b.shown())
	}
}

// A full registry takes manual bans in place of rules' own, which come back once there is room, and says what is not
// there.
func TestAFullRegistry(t *testing.T) {
	b := atMost(t, 8, counters.MinMemory)
	for i := range 10 { // two do not fit
		b.ban(t, fmt.Sprintf("192.0.2.%d/32", i), "", time.Hour)
	}
	ends := func(addr string) int64 { return b.Manual().Ends("r", 0, netip.MustParseAddr(addr)) }
	b.ban(t, "198.51.100.0/24", "by hand", 2*time.Hour)
	if ends("198.51.100.7") == 0 || len(b.shown()) != 8 || b.Unlisted() != 3 ||
		!b.log.HasLine("they hold all the same") {
		t.Errorf("a ban by hand is not there: %v, %d unlisted\n%s", b.shown(), b.Unlisted(), b.log)
	}
	for i := range 9 {
		if room := b.HasRoom(1); room != (i < 7) || b.HasRoom(8) {
			t.Errorf("with %d bans by hand there is room for another: %v", i+1, room)
		}
		b.ban(t, fmt.Sprintf("203.0.%d.0/24", i), "by hand", time.Duration(i+1)*time.Minute)
	}
	for i := range 9 {
		if holds := ends(fmt.Sprintf("203.0.%d.1", i)) > 0; holds != (i < 7) {
			t.Errorf("ban %d by hand holds: %v", i, holds)
		}
	}
	if b.Refused() != 2 || !b.log.HasLine("those beyond do not hold on this node") {
		t.Errorf("%d bans were refused\n%s", b.Refused(), b.log)
	}
	b.pass(6 * time.Minute)
	for range 2 { // searches of the table have pauses
		b.pass(6 * time.Second)
	}
	if ends("203.0.8.1") == 0 || ends("198.51.100.7") == 0 || len(b.shown()) != 8 {
		t.Errorf("with room there are %v", b.shown())
	}
	for range 2 {
		b.pass(time.Hour / 2)
	}
	if got := b.shown(); !slices.Equal(got, []string{"198.51.100.0/24"}) || b.manuals != 1 {
		t.Errorf("at last there are %v", got)
	}
}

// Whatever begins, ends and is lifted: every ban by hand for which there is room holds, the counts are right, and
// nothing is listed that is over.
func TestAFullRegistryHoldsManualBans(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		b := atMost(t, 6, counters.MinMemory)
		byHand := make(map[string]int64) // their ends
		for range rapid.IntRange(1, 40).Draw(r, "steps") {
			addr := fmt.Sprintf("192.0.2.%d/32", rapid.IntRange(0, 7).Draw(r, "address"))
			lasts := time.Duration(rapid.IntRange(1, 3).Draw(r, "minutes")) * time.Minute
			switch step := rapid.IntRange(0, 4).Draw(r, "step"); {
			case step < 2:
				b.ban(t, addr, "", lasts)
			case step == 2 && b.HasRoom(1):
				b.ban(t, addr, lasts.String(), lasts)
				byHand[addr] = max(byHand[addr], b.clock.Load()+int64(lasts))
			case step == 3:
				bans, key := b.named(t, addr, "", lasts)
				b.Table.LiftBan(bans, key, b.clock.Load())
				b.Update()
			default:
				b.pass(time.Duration(rapid.IntRange(1, 90).Draw(r, "seconds")) * time.Second)
			}
			bans, manuals := 0, 0
			for _, m := range b.meters {
				if bans += len(m.ends); m.name.Keys.Manual() {
					manuals += len(m.ends)
				}
			}
			if bans != b.bans || manuals != b.manuals || bans > b.max || len(b.shown()) != bans {
				r.Fatalf("%d bans, %d by hand, are counted as %d and %d; listed are %v", bans, manuals, b.bans,
					b.manuals, b.shown())
			}
			for addr, ends := range byHand {
				p := netip.MustParsePrefix(addr)
				if ends > b.clock.Load() && (b.Manual() == nil || b.Manual().Ends("r", 0, p.Addr()) < ends) {
					r.Fatalf("the ban of %s by hand does not hold", addr)
				}
			}
		}
	})
}

func TestManualBans(t *testing.T) {
	b := newBanned(t)
	if b.Manual() != nil {
		t.Error("there are manual bans")
	}
	b.ban(t, "192.0.2.7/32", "", time.Hour) // a rule's own
	if b.Manual() != nil {
		t.Error("a rule's own ban is manual")
	}
	b.ban(t, "192.0.2.0/24", "x", time.Minute)
	b.ban(t, "192.0.0.0/16", "y", 30*time.Second)
	b.ban(t, "2001:db8::/32", "z", time.Minute)
	joe := named(t, banname.Name{Rule: "r", Keys: banname.ManualKeys, Reason: "x"}, time.Minute)
	b.Table.Ban(joe, 77, start)
	b.Update()
	left := func(key counters.Key, addr string) time.Duration {
		a, _ := netip.ParseAddr(addr)
		if ends := b.Manual().Ends("r", key, a); ends > 0 {
			return time.Duration(ends - start).Truncate(time.Second)
		}
		return 0
	}
	for addr, want := range map[string]time.Duration{"192.0.2.200": time.Minute, "192.0.3.1": 30 * time.Second,
		"192.1.0.1": 0, "2001:db8:ffff::1": time.Minute, "2001:db9::1": 0, "nonsense": 0} {
		if got := left(1, addr); got != want {
			t.Errorf("%s is banned for %v, want %v", addr, got, want)
		}
	}
	if left(77, "") != time.Minute || left(78, "") != 0 || b.Manual().Ends("other", 77, netip.Addr{}) != 0 {
		t.Error("keys are mistaken")
	}
	got := b.Manual().Around("r", netip.MustParsePrefix("192.0.2.0/24"), start)
	if fmt.Sprint(got) != "[192.0.0.0/16]" {
		t.Errorf("around it is %v", got)
	}
	b.Table.LiftBan(joe, 77, start)
	if b.Update(); left(77, "") != 0 {
		t.Error("it is lifted and holds")
	}
	if b.pass(2 * time.Minute); b.Manual() != nil {
		t.Error("manual bans do not end")
	}
}

// What is exported holds every banned address and no other, at any time, and no entry lies within another.
func TestExportedAddresses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := &Registry{meters: make(map[counters.Meter]*meter)}
		type given struct {
			p    netip.Prefix
			ends int64
		}
		var all []given
		for i := range rapid.IntRange(0, 12).Draw(t, "bans") {
			addr := netip.AddrFrom4([4]byte{10, 0, rapid.Byte().Draw(t, "c") & 3, rapid.Byte().Draw(t, "d")})
			most, least := 32, 20
			if rapid.Bool().Draw(t, "IPv6") {
				addr, most = netip.AddrFrom16([16]byte{0x20, 1, 0, 0, 0, 0, 0, rapid.Byte().Draw(t, "e")}), 64
			}
			p, _ := addr.Prefix(rapid.IntRange(least, most).Draw(t, "bits"))
			key, keys, _ := banname.PrefixKey(p)
			g := given{p, start + rapid.Int64Range(-2, 5).Draw(t, "ends")}
			b.meters[counters.Meter{Rule: fmt.Sprint(i)}] = &meter{
				name: banname.Name{Rule: "r", Keys: keys, Bits: uint8(p.Bits())},
				ends: map[counters.Key]int64{key: g.ends}}
			all = append(all, g)
		}
		before := []entry(nil)
		for now := start - 3; now < start+6; now++ {
			exported, _ := b.addresses(everyBan, now)
			kept := slices.Clone(before)
			diff(before, exported, func(old, young *entry) { // as a set would be changed
				if old != nil {
					kept = slices.DeleteFunc(kept, func(e entry) bool { return e == *old })
				}
				if young != nil {
					kept = append(kept, *young)
				}
			})
			slices.SortFunc(kept, func(a, b entry) int { return a.compare(&b) })
			if !slices.Equal(kept, exported) {
				t.Fatalf("changes lead to %v, not %v", texts(kept), texts(exported))
			}
			before = exported
			for _, g := range all {
				holders := 0
				for i := range exported {
					if p := exported[i].prefix(); p.Bits() <= g.p.Bits() && p.Contains(g.p.Addr()) {
						holders++
					}
				}
				if g.ends > now && holders != 1 {
					t.Fatalf("%v is held by %d of %v", g.p, holders, texts(exported))
				}
			}
			for i := range exported {
				p, ends := exported[i].prefix(), exported[i].ends
				if !slices.ContainsFunc(all, func(g given) bool { return g.p == p && g.ends == ends && ends > now }) {
					t.Fatalf("%v is not banned", p)
				}
			}
		}
	})
}

// A ban by hand that was refused holds as soon as another one would.
func TestARefusedManualBanHoldsOnceThereIsRoom(t *testing.T) {
	b := atMost(t, 16, counters.MinMemory)
	for i := range 16 {
		b.ban(t, fmt.Sprintf("203.0.%d.0/24", i), "by hand", time.Hour)
	}
	b.ban(t, "198.51.100.0/24", "refused", time.Hour)
	bans, key := b.named(t, "203.0.0.0/24", "by hand", time.Hour)
	b.Table.LiftBan(bans, key, b.clock.Load())
	b.Update()
	for range 2 { // searches of the table have pauses
		b.pass(6 * time.Second)
	}
	if b.Refused() != 1 || b.Manual().Ends("r", 0, netip.MustParseAddr("198.51.100.7")) == 0 {
		t.Errorf("%d were refused; there are %v", b.Refused(), b.shown())
	}
}
