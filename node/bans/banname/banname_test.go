package banname_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/bans/banname"
)

func TestBanNames(t *testing.T) {
	for want, name := range map[string]banname.Name{
		"edge/remote_address":                       {Rule: "edge/remote_address"},
		"%ban/a64///edge/ip%@eu":                    {Rule: "edge/ip%@eu", Keys: banname.AddressKeys, Bits: 64},
		"%ban/k/al%2Fice/50%25 off%0A/edge/path=/x": {"edge/path=/x", banname.ManualKeys, 0, "al/ice", "50% off\n"},
		"%ban/4.0/a/ä/r":                            {"r", banname.IPv4Prefixes, 0, "a", "ä"},
		"%ban/6.48///r":                             {Rule: "r", Keys: banname.IPv6Prefixes, Bits: 48},
	} {
		if err := name.Validate(); err != nil || name.String() != want {
			t.Errorf("%+v is %q, %v; want %q", name, name.String(), err, want)
		}
		if got, ok := banname.Parse(want); !ok || got != name {
			t.Errorf("%q is %+v, %v; want %+v", want, got, ok, name)
		}
	}
	long := strings.Repeat("x", banname.MaxReason)
	for _, name := range []string{
		"", "%ban/", "%ban/k/a/b", "%ban/x/a/b/r", "%ban/4/a/b/r", "%ban/4.33/a/b/r", "%ban/4.024/a/b/r",
		"%ban/6.65/a/b/r", "%ban/k/a/b%2f/r", "%ban/k/a/%zz/r", "%ban/k/a/\n/r", "%ban/k/a/\xff/r", "%ban/k/a/b/",
		"%ban/a64/a/b/r", "%ban/k/a/b/%ban/k/a/b/r", "%ban/k/a/x" + long + "/r",
	} {
		if got, ok := banname.Parse(name); ok {
			t.Errorf("%q is taken for %+v", name, got)
		}
	}
	crowded := banname.Name{Rule: strings.Repeat("r", counters.MaxRuleName-100), Keys: banname.ManualKeys,
		Reason: long}
	if err := crowded.Validate(); err == nil || !strings.Contains(err.Error(), "shorten") {
		t.Errorf("a name that is too long: %v", err)
	}
}

// Whatever a peer calls its meters: a name is understood as what it says, or not at all.
func FuzzBanName(f *testing.F) {
	for _, seed := range []string{"%ban/a64///edge/ip", "%ban/k/a%2F/b/r", "%ban/4.24/a/b/r%@eu", "%ban/6.0///x",
		"plain"} {
		f.Add(seed, uint64(0xffffffff_c0000201))
	}
	f.Fuzz(func(t *testing.T, text string, key uint64) {
		name, ok := banname.Parse(text)
		if !ok {
			return
		}
		if name.String() != text || name.Validate() != nil {
			t.Fatalf("%q is %+v, which is %q, %v", text, name, name, name.Validate())
		}
		p := name.Prefix(counters.Key(key))
		if !p.IsValid() {
			return
		}
		if back, _, ok := banname.PrefixKey(p); !ok || uint64(back) != key {
			t.Fatalf("key %016x of %q is %v, whose key is %016x", key, text, p, uint64(back))
		}
	})
}

func TestAddressKeys(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.1": "192.0.2.1/32", "::ffff:192.0.2.1": "192.0.2.1/32", "0.0.0.0": "0.0.0.0/32",
		"255.255.255.254": "255.255.255.254/32", "2001:db8:1:2:3::4": "2001:db8:1:2::/64", "fe80::1": "fe80::/64",
	} {
		key, ok := banname.AddressKey(netip.MustParseAddr(text), 64)
		got := banname.Name{Rule: "r", Keys: banname.AddressKeys, Bits: 64}.Prefix(key)
		if !ok || got.String() != want {
			t.Errorf("%s: %v %v, want %s", text, got, ok, want)
		}
	}
	if key, ok := banname.AddressKey(netip.MustParseAddr("2001:db8:1:2::3"), 48); !ok ||
		banname.Prefix(key, 48).String() != "2001:db8:1::/48" {
		t.Errorf("by 48 bits: %016x %v", uint64(key), ok)
	}
	// no key of these may be that of somebody else
	for _, text := range []string{"::1", "ffff:ffff:c000:201::", "ff02::1", "224.0.0.1", "fe80::1%eth0"} {
		if key, ok := banname.AddressKey(netip.MustParseAddr(text), 64); ok {
			t.Errorf("%s has the key %016x", text, uint64(key))
		}
	}
	for _, text := range []string{"ffff:ffff:c000::/40", "ff00::/8", "2001:db8::/65", "192.0.2.1/24",
		"::ffff:1.2.3.0/120"} {
		if key, _, ok := banname.PrefixKey(netip.MustParsePrefix(text)); ok {
			t.Errorf("%s has the key %016x", text, uint64(key))
		}
	}
	for _, text := range []string{"0.0.0.0/0", "::/0", "10.0.0.0/8", "2001:db8::/32", "192.0.2.1/32", "fe80::/64"} {
		p := netip.MustParsePrefix(text)
		if key, _, ok := banname.PrefixKey(p); !ok || banname.Prefix(key, p.Bits()) != p {
			t.Errorf("%s: key %016x %v", text, uint64(key), ok)
		}
	}
}
