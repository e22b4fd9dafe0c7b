package clientaddr_test

import (
	"fmt"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/node/clientaddr"
)

func TestOf(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.7":                "192.0.2.7",
		"::ffff:192.0.2.7":         "192.0.2.7",
		"64:ff9b::192.0.2.7":       "192.0.2.7",
		"::192.0.2.7":              "192.0.2.7",
		"2002:c000:207::1":         "192.0.2.7",
		"2002:c000:207:ffff::5":    "192.0.2.7",
		"2001:0:1:2:3:4:3fff:fdf8": "192.0.2.7",
		"2001:db8::c000:207":       "2001:db8::c000:207",
		"64:ff9b:1::192.0.2.7":     "64:ff9b:1::c000:207", // of RFC 8215: where the address stands is local
		"fe80::1%eth0":             "fe80::1",
		"::":                       "::",
		"::1":                      "::1",
		"::1:2":                    "::1:2",
		"::127.0.0.1":              "::7f00:1",
		"64:ff9b::10.0.0.1":        "64:ff9b::a00:1",
		"64:ff9b::127.0.0.1":       "64:ff9b::7f00:1",
		"2002:7f00:1::1":           "2002:7f00:1::1",
		"2002:a00:1::1":            "2002:a00:1::1",
		"2001:0:1:2:3:4:80ff:fffe": "2001:0:1:2:3:4:80ff:fffe", // 127.0.0.1
		"64:ff9b::255.255.255.255": "64:ff9b::ffff:ffff",       // broadcast
		"64:ff9b::224.0.0.1":       "64:ff9b::e000:1",          // multicast
		"::ffff:10.0.0.1":          "10.0.0.1",                 // mapped: the same socket address
	} {
		if got := clientaddr.Of(netip.MustParseAddr(text)).String(); got != want {
			t.Errorf("%s is counted as %s, want %s", text, got, want)
		}
	}
	if got := clientaddr.Of(netip.Addr{}); got.IsValid() {
		t.Errorf("no address is counted as %v", got)
	}
}

// TestOneHostOfIPv4IsOneClient holds, for each public IPv4 address, that all the addresses which carry it are one
// client, and that nothing else becomes it.
func TestOneHostOfIPv4IsOneClient(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Uint32().Draw(t, "address")
		host := netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
		any16 := rapid.Uint16()
		hi, lo := v>>16, v&0xffff
		carriers := []string{
			"::ffff:" + host.String(), "64:ff9b::" + host.String(), "::" + host.String(),
			fmt.Sprintf("2002:%x:%x:%x::%x", hi, lo, any16.Draw(t, "subnet"), any16.Draw(t, "interface")),
			fmt.Sprintf("2001:0:%x:%x:%x:%x:%x:%x", any16.Draw(t, "server"), any16.Draw(t, "server"),
				any16.Draw(t, "flags"), any16.Draw(t, "port"), ^hi&0xffff, ^lo&0xffff),
		}
		public := host.IsGlobalUnicast() && !host.IsPrivate() && v>>24 != 0
		for i, text := range carriers {
			addr := netip.MustParseAddr(text)
			got := clientaddr.Of(addr)
			if want := public || i == 0; (got == host) != want {
				t.Fatalf("%s is counted as %v: that it is as %v is %v", text, got, host, want)
			}
			if again := clientaddr.Of(got); again != got {
				t.Fatalf("%v is counted as %v", got, again)
			}
		}
	})
}
