package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/bans"
	"github.com/edgelimit/edgelimit/node/bans/banname"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/netem"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// exporting are rules that count addresses.
const exporting = `
domain: test
descriptors:
  - key: remote_address
    rate_limit: {name: per_ip, window: 10s, requests_per_unit: 3, ban: 1h, export: address}
    allow: [203.0.113.9]
  - {key: remote_ip, rate_limit: {name: plain, window: 10s, requests_per_unit: 3}}
  - {key: user, rate_limit: {name: user, window: 10s, requests_per_unit: 3, ban: 1h}}
`

var testAddr = netip.MustParseAddr("127.0.0.1")

func peekAt(t *testing.T, n *Node, rule, identity string) Decision {
	t.Helper()
	return take(t, n, Request{Rule: rule, Identity: identity, Peek: true})
}

func addBan(t *testing.T, n *Node, rule, identity string, lasts time.Duration) AddedBans {
	t.Helper()
	done, err := n.AddBan(BanRequest{Rule: rule, Identity: identity, For: lasts.Milliseconds(), Reason: "why"},
		Operator{Name: "alice"})
	testkit.Must(t, err)
	return done
}

// listed are the bans that a node lists, as rule and whom.
func listed(t *testing.T, n *Node, rule string) (all []string) {
	t.Helper()
	list, err := n.ListBans(rule)
	testkit.Must(t, err)
	for b := range list {
		all = append(all, b.Rule+" "+b.Address+b.Key)
	}
	return all
}

// A manual ban denies as a rule's own does, for as long as it says, also by a rule without bans; a prefix denies
// everybody in it but those on the lists; a removal ends all.
func TestManualBans(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		n := idle(t, exporting)
		done := addBan(t, n, "plain", "192.0.2.0/24", time.Minute)
		if len(done.Bans) != 1 || done.Bans[0].Address != "192.0.2.0/24" || done.Bans[0].By != "alice" ||
			done.Bans[0].Reason != "why" || len(done.Warnings) > 0 {
			t.Errorf("%+v", done)
		}
		for identity, want := range map[string]bool{"192.0.2.7": true, "::ffff:192.0.2.8": true, "192.0.3.1": false,
			"nonsense": false} {
			d := take(t, n, Request{Rule: "plain", Identity: identity})
			if d.Banned != want || d.Allowed == want || want && (d.RetryAfter != time.Minute || d.Rule != "plain" ||
				d.Limit != 3 || d.Remaining != 0 || d.Failed) {
				t.Errorf("%s: %+v", identity, d)
			}
		}
		layers := [][]rules.Entry{by("user", "joe"), by("remote_ip", "192.0.2.9")}
		if d := take(t, n, Request{Descriptors: layers}); !d.Banned {
			t.Errorf("by descriptors: %+v", d)
		}
		if d := peekAt(t, n, "user", "joe"); d.Remaining != 3 {
			t.Errorf("another layer of a banned request is charged: %+v", d)
		}
		n.Shadow(true)
		if d := peekAt(t, n, "plain", "192.0.2.7"); !d.Allowed || d.Banned {
			t.Errorf("in shadow mode: %+v", d)
		}
		n.Shadow(false)
		addBan(t, n, "user", "joe", 2*time.Hour)
		got := listed(t, n, "user")
		if len(got) != 1 || strings.Contains(got[0], "joe") || len(got[0]) != len("user ")+16 {
			t.Errorf("of a user are listed %q", got)
		}
		addBan(t, n, "per_ip", "203.0.113.0/24", time.Minute)
		if peekAt(t, n, "per_ip", "203.0.113.9").Banned || !peekAt(t, n, "per_ip", "203.0.113.8").Banned {
			t.Error("the list of the rule does not go over a ban")
		}
		time.Sleep(time.Minute + time.Millisecond)
		if peekAt(t, n, "plain", "192.0.2.7").Banned || !peekAt(t, n, "user", "joe").Banned {
			t.Error("bans do not last as long as they say")
		}
		key := strings.Fields(listed(t, n, "user")[0])[1]
		removed, err := n.RemoveBans(BanRequest{Rule: "user", Key: key}, Operator{})
		if err != nil || len(removed.Rules) != 1 || removed.Rules[0].Left < time.Hour ||
			peekAt(t, n, "user", "joe").Banned {
			t.Errorf("by its key: %+v, %v", removed, err)
		}
	})
}

// The address of whom a rule bans is listed, and lifted by it; prefixes around it are named.
func TestBansOfAddressesAreRemoved(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		n := idle(t, exporting)
		for _, identity := range []string{"192.0.2.7", "2001:db8:1:2::3", "nonsense", "ffff:ffff:c000:207::"} {
			takeSome(t, n, "per_ip", identity, 4)
			if !peekAt(t, n, "per_ip", identity).Banned {
				t.Errorf("%s is not banned", identity)
			}
		}
		got := listed(t, n, "per_ip")
		if len(got) != 4 || !slices.Contains(got, "per_ip 192.0.2.7") ||
			!slices.Contains(got, "per_ip 2001:db8:1:2::/64") {
			t.Errorf("listed are %q", got)
		}
		addBan(t, n, "per_ip", "192.0.2.7", 2*time.Hour) // the rule exports: in clear
		addBan(t, n, "per_ip", "192.0.0.0/16", 2*time.Hour)
		removed := unban(t, n, BanRequest{Rule: "per_ip", Identity: "192.0.2.7"})
		if r := removed.Rules[0]; r.Left < time.Hour || !slices.Equal(r.Around, []string{"192.0.0.0/16"}) {
			t.Errorf("%+v", removed)
		}
		unban(t, n, BanRequest{Rule: "per_ip", Identity: "192.0.0.0/16"})
		unban(t, n, BanRequest{Rule: "per_ip", Identity: "2001:db8:1:2::/64"})
		unban(t, n, BanRequest{Rule: "per_ip", Identity: "nonsense"})
		if got := listed(t, n, ""); len(got) != 1 { // the multicast one
			t.Errorf("left are %q", got)
		}
		time.Sleep(11 * time.Second)
		if d := take(t, n, Request{Rule: "per_ip", Identity: "192.0.2.7"}); !d.Allowed {
			t.Errorf("after the removal: %+v", d)
		}
	})
}

func TestBansAreRefused(t *testing.T) {
	n := idle(t, exporting)
	for _, test := range []struct {
		rule, identity, want string
		lasts                time.Duration
	}{
		{"per_ip", "0.0.0.0/0", "force it", time.Hour}, {"per_ip", "10.0.0.0/7", "force it", time.Hour},
		{"per_ip", "2000::/3", "force it", time.Hour}, {"per_ip", "192.0.2.1/24", "bits beyond", time.Hour},
		{"per_ip", "2001:db8::1/128", "counts IPv6 by /64: ban 2001:db8::/64", time.Hour},
		{"per_ip", "ff02::/64", "nobody's", time.Hour}, {"per_ip", "203.0.113.9", "lists", time.Hour},
		{"per_ip", "192.0.2.1", "a ban lasts", 0}, {"per_ip", "192.0.2.1", "a ban lasts", 367 * 24 * time.Hour},
		{"nobody", "x", "", time.Hour}, {"per_ip", "", "", time.Hour},
	} {
		_, err := n.AddBan(BanRequest{Rule: test.rule, Identity: test.identity, For: test.lasts.Milliseconds()},
			Operator{})
		if err == nil || !strings.Contains(err.Error(), test.want) ||
			!errors.Is(err, rules.ErrInvalidRequest) && !errors.Is(err, rules.ErrUnknownRule) {
			t.Errorf("%+v: %v", test, err)
		}
	}
	long := BanRequest{Rule: "user", Identity: "x", For: 1000, Reason: strings.Repeat("x", 201)}
	if _, err := n.AddBan(long, Operator{}); !errors.Is(err, rules.ErrInvalidRequest) {
		t.Errorf("a long reason: %v", err)
	}
	if got := listed(t, n, ""); len(got) > 0 {
		t.Errorf("banned are %q", got)
	}
	wide := BanRequest{Rule: "per_ip", Identity: "0.0.0.0/0", For: 60_000, Force: true}
	if done, err := n.AddBan(wide, Operator{Addr: testAddr}); err != nil || len(done.Warnings) != 3 ||
		!peekAt(t, n, "per_ip", "198.51.100.1").Banned {
		t.Errorf("by force: %+v, %v", done, err)
	}
}

// An address under a banned prefix is denied by that prefix, and a removal says so: also under a rule that bans nobody
// by itself, and for a prefix within the banned one.
func TestRemovalsNamePrefixesAround(t *testing.T) {
	n := idle(t, exporting)
	addBan(t, n, "plain", "192.0.2.0/24", time.Hour)
	addBan(t, n, "per_ip", "2001:db8::/48", time.Hour)
	for _, test := range []struct{ rule, identity, around string }{
		{"plain", "192.0.2.7", "192.0.2.0/24"}, {"plain", "192.0.2.0/25", "192.0.2.0/24"},
		{"plain", "::ffff:192.0.2.7", "192.0.2.0/24"}, {"per_ip", "2001:db8:0:9::1", "2001:db8::/48"},
		{"per_ip", "2001:db8:0:9::/64", "2001:db8::/48"},
	} {
		removed, err := n.RemoveBans(BanRequest{Rule: test.rule, Identity: test.identity}, Operator{})
		if err != nil || len(removed.Rules) != 1 || !slices.Equal(removed.Rules[0].Around, []string{test.around}) ||
			removed.Rules[0].Left != 0 {
			t.Errorf("%s under %s: %+v, %v", test.identity, test.rule, removed, err)
		}
	}
	nobody := BanRequest{Rule: "plain", Identity: "198.51.100.7"}
	if _, err := n.RemoveBans(nobody, Operator{}); !errors.Is(err, ErrNoBan) {
		t.Errorf("of nobody: %v", err)
	}
}

// No export blocks what is not one client: of no client, this machine's own, or a proxy's. Its bans deny all the same,
// and status, metrics and whoever begins one say that they are not exported; so are prefixes around such an address.
func TestProtectedAddressesAreNotExported(t *testing.T) {
	log, file := new(testkit.Log), filepath.Join(t.TempDir(), "deny")
	cfg := withListeners(quiet(exporting))
	cfg.Logger = log.Logger()
	cfg.Requests.TrustedProxies = []string{"198.51.100.8/30", "unix"}
	cfg.ProxyProtocol = map[string][]string{"http": {"2001:db8:7::/64"}}
	cfg.Bans.Exports = []bans.Export{{Format: "nginx", File: file}}
	n, err := New(cfg)
	testkit.Must(t, err)
	own := []net.Addr{&net.IPNet{IP: net.ParseIP("192.0.2.2"), Mask: net.CIDRMask(24, 32)},
		&net.IPNet{IP: net.ParseIP("2001:db8:5::5"), Mask: net.CIDRMask(64, 128)}}
	n.ownAddrs = func() ([]net.Addr, error) { return own, nil }
	protected := map[string]string{"127.0.0.1": "loopback", "127.9.9.9": "loopback", "0.0.0.0": "unspecified",
		"0.1.2.3": "unspecified", "255.255.255.255": "broadcast", "224.0.0.1": "multicast", "239.1.2.3": "multicast",
		"192.0.2.2": "this machine", "198.51.100.9": "trusted proxy", "198.51.100.8/30": "trusted proxy",
		"192.0.2.0/24": "this machine", "192.0.0.0/8": "this machine", "2001:db8:5::/64": "this machine",
		"2001:db8:5::/48": "this machine", "2001:db8:7::/64": "trusted proxy", "2001:db8::/32": "this machine",
		"fe80::/64": "link-local", "::ffff:127.0.0.1": "loopback"}
	blocked := []string{"192.0.2.1", "192.0.2.3", "198.51.100.12", "198.51.100.7", "1.0.0.0", "126.255.255.255",
		"128.0.0.0", "223.255.255.255", "255.255.255.254", "2001:db8:6::/64", "2001:db8:5:1::/64"}
	for identity, why := range protected {
		done := addBan(t, n, "per_ip", identity, time.Hour)
		warning := strings.Join(done.Warnings, "")
		if !strings.Contains(warning, why) || !strings.Contains(warning, "is not exported") ||
			!strings.Contains(identity, "/") && (strings.Contains(warning, "holds") ||
				!strings.HasPrefix(warning, strings.TrimPrefix(identity, "::ffff:")+" is in ")) {
			t.Errorf("ban of %s warns of %q", identity, done.Warnings)
		}
	}
	for _, identity := range blocked {
		if done := addBan(t, n, "per_ip", identity, time.Hour); len(done.Warnings) > 0 {
			t.Errorf("ban of %s warns of %q", identity, done.Warnings)
		}
	}
	if !peekAt(t, n, "per_ip", "127.0.0.1").Banned || !peekAt(t, n, "per_ip", "192.0.2.9").Banned {
		t.Error("what is not exported is not denied")
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	<-n.Serving()
	testkit.Eventually(t, "an export", func() bool { _, err := os.Stat(file); return err == nil })
	text, err := os.ReadFile(file)
	testkit.Must(t, err)
	var got []string
	for line := range strings.Lines(string(text)) {
		if address, ok := strings.CutPrefix(line, "deny "); ok {
			got = append(got, strings.TrimSuffix(address, ";\n"))
		}
	}
	slices.Sort(got)
	slices.Sort(blocked)
	if !slices.Equal(got, blocked) {
		t.Errorf("exported are %q, want %q", got, blocked)
	}
	stats := n.exporters[0].Stats
	testkit.Eventually(t, "statistics", func() bool { return stats().Spared == len(protected)-1 }) // one is ::ffff:
	want := "17 bans of addresses not exported to nginx:" + file + ", such as 0.0.0.0/32: they hold addresses of " +
		"this machine"
	if found := fmt.Sprint(n.Status().Summary); !strings.Contains(found, want) {
		t.Errorf("status: %s", found)
	}
	_, series := scrape(t, n.Addr("health"))
	if series["edgelimit_ban_export_spared export=nginx:"+file] != 17 {
		t.Errorf("%v", series)
	}
	stop()
	testkit.Must(t, <-ended)

	// An address that the machine gets later is protected from then on; where they are not known, nothing is exported.
	own = append(own, &net.IPNet{IP: net.ParseIP("192.0.2.3"), Mask: net.CIDRMask(24, 32)})
	if p, err := n.protection(); err != nil || !p.lists.Allows(netip.MustParsePrefix("192.0.2.3/32")) {
		t.Errorf("an address that is new on this machine is exported: %v", err)
	}
	n.ownAddrs = func() ([]net.Addr, error) { return nil, errors.New("no netlink") }
	if _, err := n.exports(&cfg.Bans.Exports[0]); err == nil || !strings.Contains(err.Error(), "no netlink") {
		t.Errorf("exported without knowing this machine's addresses: %v", err)
	}
}

// Where there is no room for all bans that a request asks for, or for all lifts, the error says which are done.
func TestBansWithoutRoom(t *testing.T) {
	n := idle(t, exporting)
	addBan(t, n, "user", "joe", time.Hour) // its meter has a number
	for i := 0; ; i++ {
		name := banname.Name{Rule: "x", Keys: banname.ManualKeys, Reason: strconv.Itoa(i)}
		b, err := name.Bans(time.Hour)
		testkit.Must(t, err)
		if _, kept := n.table.Ban(b, 1, n.clock.Now()); !kept {
			break
		}
	}
	both := BanRequest{Descriptors: [][]rules.Entry{by("remote_ip", "192.0.2.7"), by("user", "jim")},
		For: time.Hour.Milliseconds(), Reason: "why"}
	done, err := n.AddBan(both, Operator{Name: "alice"})
	if err == nil || !strings.Contains(err.Error(), "for user, but not for plain: there is no room") ||
		len(done.Bans) != 1 || done.Bans[0].Rule != "user" {
		t.Errorf("%+v, %v", done, err)
	}
	if peekAt(t, n, "plain", "192.0.2.7").Banned || !peekAt(t, n, "user", "jim").Banned {
		t.Error("the error names other rules than those that ban")
	}
	if _, err := n.RemoveBans(both, Operator{}); err == nil || !strings.Contains(err.Error(), "there is no room") ||
		!peekAt(t, n, "user", "jim").Banned {
		t.Errorf("without room for a lift: %v", err)
	}
}

// A ban by hand that the node could not enforce is refused.
func TestTooManyManualBans(t *testing.T) {
	n := idle(t, exporting)
	n.bans = bans.NewRegistry(n.table, 2, n.clock.Now, n.nameOf, n.log)
	takeSome(t, n, "per_ip", "192.0.2.1", 4)
	takeSome(t, n, "per_ip", "192.0.2.2", 4)
	n.bans.Update()
	addBan(t, n, "plain", "192.0.2.1", time.Hour)
	both := BanRequest{Descriptors: [][]rules.Entry{by("remote_ip", "192.0.2.7"), by("user", "jim")}, For: 1000}
	if _, err := n.AddBan(both, Operator{}); !errors.Is(err, errTooManyBans) || peekAt(t, n, "user", "jim").Banned {
		t.Errorf("two bans in place of one: %v", err)
	}
	addBan(t, n, "plain", "192.0.2.2", time.Hour)
	if !peekAt(t, n, "plain", "192.0.2.1").Banned || !peekAt(t, n, "plain", "192.0.2.2").Banned ||
		!peekAt(t, n, "per_ip", "192.0.2.1").Banned || n.bans.Unlisted() != 2 {
		t.Errorf("a full registry denies otherwise; %d are not listed", n.bans.Unlisted())
	}
}

// slowTable is a table that does not say when bans change.
type slowTable struct{ *counters.Table }

func (slowTable) WatchBans() <-chan struct{} { return nil }

// A ban by hand that the node has at its start holds when it begins to serve.
func TestBansHoldFromTheStart(t *testing.T) {
	n := idle(t, exporting)
	n.bans = bans.NewRegistry(slowTable{n.table}, bans.MaxBans, n.clock.Now, n.nameOf, n.log)
	name := banname.Name{Rule: "test/user", Keys: banname.ManualKeys, Reason: "why"}
	b, err := name.Bans(time.Hour)
	testkit.Must(t, err)
	n.table.Ban(b, 1, n.clock.Now())
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	select {
	case <-n.Serving():
		if n.bans.Manual() == nil {
			t.Error("it serves before it knows its bans")
		}
	case <-time.After(testkit.Patience):
		t.Error("it does not serve")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// How long the limit still denies whose ban is lifted goes by the limit of that identity.
func TestRemovalsKnowOverrides(t *testing.T) {
	n := idle(t, exporting)
	matches, err := n.policy.Load().set.Match(&Request{Rule: "user", Identity: "joe"}, n.secret, nil)
	testkit.Must(t, err)
	set := ruleSet(exporting)
	override := rules.Override{Rule: "test/user", Key: matches[0].Key, Max: 10, Window: 10 * time.Second}
	if refused := set.Override([]rules.Override{override}); len(refused) > 0 {
		t.Fatal(refused)
	}
	n.SetRules(set)
	takeSome(t, n, "user", "joe", 5)
	addBan(t, n, "user", "joe", time.Hour)
	if r := unban(t, n, BanRequest{Rule: "user", Identity: "joe"}).Rules[0]; r.Left == 0 || r.RetryAfter != 0 {
		t.Errorf("5 of 10 are taken: %+v", r)
	}
}

// Manual bans reach all nodes and those that join later; both sides of a partition keep theirs, and agree after it.
func TestManualBansAreShared(t *testing.T) {
	t.Parallel()
	links := netem.NewLinks(1)
	member := func(id string, join ...string) Config {
		cfg := through(links, id, gossiping(id, "eu", join...))
		cfg.RuleSet = ruleSet(exporting)
		return cfg
	}
	first := launch(t, member("a")).ready(t)
	second := launch(t, member("b", first.Addr("lan"))).ready(t)
	allMembers(t, first, second)
	addBan(t, first.Node, "plain", "192.0.2.0/24", time.Hour)
	testkit.Eventually(t, "the ban at the other node",
		func() bool { return peekAt(t, second.Node, "plain", "192.0.2.7").Banned })
	links.Partition("a")
	addBan(t, first.Node, "user", "joe", time.Hour)
	addBan(t, second.Node, "user", "jim", time.Hour)
	unban(t, second.Node, BanRequest{Rule: "plain", Identity: "192.0.2.0/24"})
	if !peekAt(t, first.Node, "plain", "192.0.2.7").Banned || peekAt(t, second.Node, "user", "joe").Banned {
		t.Error("the partition does not part")
	}
	links.Heal()
	testkit.Eventually(t, "both agree after the heal", func() bool {
		for _, n := range []*running{first, second} {
			if peekAt(t, n.Node, "plain", "192.0.2.7").Banned || !peekAt(t, n.Node, "user", "joe").Banned ||
				!peekAt(t, n.Node, "user", "jim").Banned {
				return false
			}
		}
		return true
	})
	third := launch(t, member("c", second.Addr("lan"))).ready(t)
	testkit.Eventually(t, "the bans at a node that joins", func() bool {
		return peekAt(t, third.Node, "user", "joe").Banned && peekAt(t, third.Node, "user", "jim").Banned
	})
	if got := listed(t, third.Node, ""); len(got) != 2 || !slices.Equal(got, listed(t, first.Node, "")) {
		t.Errorf("it lists %q, another %q", got, listed(t, first.Node, ""))
	}
}

// Whom one node bans is in the kernel of another within a second of the denial, and out of it at the end and when the
// ban is lifted.
func TestBansReachTheKernel(t *testing.T) {
	if !testkit.Namespace(t) {
		return
	}
	file := filepath.Join(t.TempDir(), "haproxy.lst")
	member := func(id string, join ...string) Config {
		cfg := gossiping(id, "eu", join...)
		cfg.Gossip.Interval = 100 * time.Millisecond
		cfg.RuleSet = ruleSet(strings.Replace(exporting, "ban: 1h, export", "ban: 2s, export", 1))
		return cfg
	}
	first := launch(t, member("a")).ready(t)
	cfg := withListeners(member("b", first.Addr("lan")))
	cfg.Bans.Exports = []bans.Export{{Format: "nftables", Apply: true, Rules: []string{"per_ip"}},
		{Format: "haproxy", File: file}}
	second := launch(t, cfg).ready(t)
	allMembers(t, first, second)
	has := func(text string) func() bool {
		return func() bool {
			list, err := os.ReadFile(file)
			sets, failed := exec.Command("nft", "list", "table", "inet", "edgelimit").Output()
			return err == nil && failed == nil && strings.Contains(string(sets), text) &&
				strings.Contains(string(list), text)
		}
	}
	lacks := func(text string) func() bool { // both
		return func() bool {
			list, err := os.ReadFile(file)
			sets := testkit.Run(t, "nft", "list", "table", "inet", "edgelimit")
			return err == nil && !strings.Contains(sets+string(list), text)
		}
	}
	testkit.Eventually(t, "an empty set", func() bool {
		_, err := os.Stat(file)
		return err == nil && second.exporters[0].Stats().Failures == 0 && has("")()
	})
	const within = time.Second
	takeSome(t, first.Node, "per_ip", "192.0.2.7", 4)
	began := time.Now()
	testkit.EventuallyWithin(t, within, "the ban in the kernel", has("192.0.2.7"))
	t.Logf("in the kernel and the file after %v", time.Since(began))
	testkit.EventuallyWithin(t, 2*time.Second+within-time.Since(began), "its end in the kernel", lacks("192.0.2.7"))
	addBan(t, first.Node, "per_ip", "198.51.100.0/24", time.Hour)
	testkit.EventuallyWithin(t, within, "a manual ban in the kernel", has("198.51.100.0/24"))
	unban(t, first.Node, BanRequest{Rule: "per_ip", Identity: "198.51.100.0/24"})
	testkit.EventuallyWithin(t, within, "its removal in the kernel", lacks("198.51.100"))
	addBan(t, first.Node, "per_ip", "198.51.100.7", time.Hour)
	testkit.Eventually(t, "another ban in the kernel", has("198.51.100.7"))
	export := "export=nftables:edgelimit/banned"
	stats := second.exporters[0].Stats
	testkit.Eventually(t, "its statistics", func() bool { return stats().Entries == 1 })
	_, series := scrape(t, second.Addr("health"))
	if series["edgelimit_bans rule=per_ip"] != 1 || series["edgelimit_ban_export_entries "+export] != 1 ||
		series["edgelimit_ban_export_failures_total "+export] != 0 ||
		series["edgelimit_ban_export_age_seconds "+export] > 60 {
		t.Errorf("%v", series)
	}
}

// Where clients may choose whom a rule has blocked, the operator is warned.
func TestExportsWarn(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"":                        func(*Config) {},
		"which clients can forge": func(c *Config) { c.Requests.Descriptors[0][0].Source = "header X-Client" },
		"can name any address":    func(c *Config) { c.Requests.TrustedProxies = []string{"0.0.0.0/0"} },
	} {
		cfg := withListeners(quiet(exporting))
		cfg.Requests.Domain = "test"
		cfg.Requests.Descriptors = []actions.Descriptor{{{Key: "remote_address", Source: "client"}}}
		change(&cfg)
		var about []string
		for _, w := range cfg.Warnings(cfg.RuleSet) {
			if strings.Contains(w.Text, "export: address") {
				about = append(about, w.Text)
			}
		}
		if len(about) > 1 || (len(about) == 1) != (want != "") || !strings.Contains(strings.Join(about, ""), want) {
			t.Errorf("%q: %q", want, about)
		}
	}
}
