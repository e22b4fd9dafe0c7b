package bans

import (
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/bans/banname"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestMain(m *testing.M) { testkit.MainWithoutLeaks(m) }

// start is a time like any other, and that of a clock which tests set.
const start = int64(1_700_000_000_123_456_789)

// banned is a table with the registry of its bans.
type banned struct {
	*counters.Table
	*Registry
	clock atomic.Int64
	log   *testkit.Log
}

func newBanned(t testing.TB) *banned { return atMost(t, MaxBans, 64<<20) }

// atMost is newBanned of a registry of so many bans, and a table of so many bytes.
func atMost(t testing.TB, max, memory int) *banned {
	t.Helper()
	b := &banned{Table: counters.NewTable(counters.Config{Origin: 1, Memory: memory}), log: new(testkit.Log)}
	b.clock.Store(start)
	b.Registry = NewRegistry(b.Table, max, b.clock.Load, func(rule string) string { return rule }, b.log.Logger())
	return b
}

// pass lets time pass, and the registry see it.
func (b *banned) pass(d time.Duration) {
	b.clock.Add(int64(d))
	b.Update()
}

// named returns the bans of a name.
func named(t testing.TB, name banname.Name, lasts time.Duration) *counters.Bans {
	t.Helper()
	m := counters.Meter{Rule: name.String(), Algorithm: counters.Ban, Window: lasts, Sub: lasts}
	bans, err := counters.NewBans(m)
	testkit.Must(t, err)
	return bans
}

// ban bans a prefix by hand, or with no reason an address as a rule does.
func (b *banned) ban(t testing.TB, text, reason string, lasts time.Duration) (*counters.Bans, counters.Key) {
	t.Helper()
	bans, key := b.named(t, text, reason, lasts)
	if _, kept := b.Table.Ban(bans, key, b.clock.Load()); !kept {
		t.Fatalf("%s is not banned", text)
	}
	b.Update()
	return bans, key
}

// named returns the bans of a prefix, and its key there.
func (b *banned) named(t testing.TB, text, reason string, lasts time.Duration) (*counters.Bans, counters.Key) {
	t.Helper()
	p := netip.MustParsePrefix(text)
	key, keys, ok := banname.PrefixKey(p)
	if !ok {
		t.Fatalf("%s has no key", text)
	}
	name := banname.Name{Rule: "r", Keys: keys, Bits: uint8(p.Bits()), By: "alice", Reason: reason}
	if reason == "" {
		name = banname.Name{Rule: "r", Keys: banname.AddressKeys, Bits: 64}
	}
	return named(t, name, lasts), key
}

func everything(string) bool { return true }

func always(*Export) (Selection, error) { return everyBan, nil }

func everyBan(*counters.Bans, *banname.Name) (Spares, bool) { return nil, true }

// shown is the addresses of a list.
func (b *banned) shown() (all []string) {
	for ban := range b.List(everything) {
		all = append(all, ban.Address+ban.Key)
	}
	slices.Sort(all)
	return all
}

// texts are entries as they are exported.
func texts(all []entry) (texts []string) {
	for i := range all {
		texts = append(texts, all[i].prefix().String())
	}
	return texts
}

func (b *banned) exported() []string {
	all, _ := b.addresses(everyBan, b.clock.Load())
	return texts(all)
}

var discard = slog.New(slog.DiscardHandler)
