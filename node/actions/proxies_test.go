package actions

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// through is a request that a sender made with these header lines: name, value, name, value.
func through(sender string, lines ...string) *http.Request {
	r := &http.Request{RemoteAddr: sender, Header: http.Header{}}
	for i := 0; i < len(lines); i += 2 {
		r.Header.Add(lines[i], lines[i+1])
	}
	return r
}

func proxiesOf(t testing.TB, header string, trusted ...string) proxies {
	t.Helper()
	p, err := newProxies(trusted, header)
	testkit.Must(t, err)
	return p
}

func clientOf(p proxies, r *http.Request) netip.Addr {
	client, _ := p.client(r)
	return client
}

func TestClient(t *testing.T) {
	const proxy = "10.0.0.1:4711"
	tests := []struct {
		name, header, sender string
		lines                []string
		want                 string
	}{
		{"no header", XForwardedFor, proxy, nil, "10.0.0.1"},
		{"untrusted sender", XForwardedFor, "192.0.2.9:1", []string{"X-Forwarded-For", "198.51.100.1"}, "192.0.2.9"},
		{"one hop", XForwardedFor, proxy, []string{"X-Forwarded-For", "192.0.2.1"}, "192.0.2.1"},
		{"made up to the left", XForwardedFor, proxy, []string{"X-Forwarded-For", "198.51.100.1, 192.0.2.1"},
			"192.0.2.1"},
		{"two trusted hops", XForwardedFor, proxy, []string{"X-Forwarded-For", "198.51.100.1, 192.0.2.1, 10.1.2.3"},
			"192.0.2.1"},
		{"all trusted", XForwardedFor, proxy, []string{"X-Forwarded-For", "10.9.9.9, 10.1.2.3"}, "10.9.9.9"},
		{"several lines", XForwardedFor, proxy,
			[]string{"X-Forwarded-For", "198.51.100.1", "X-Forwarded-For", "192.0.2.1"}, "192.0.2.1"},
		{"no address", XForwardedFor, proxy, []string{"X-Forwarded-For", "198.51.100.1, nobody"}, "10.0.0.1"},
		{"no address beyond a proxy", XForwardedFor, proxy, []string{"X-Forwarded-For", "nobody, 10.1.2.3"},
			"10.1.2.3"},
		{"a zone", XForwardedFor, proxy, []string{"X-Forwarded-For", "fe80::1%eth0"}, "10.0.0.1"},
		{"a port", XForwardedFor, proxy, []string{"X-Forwarded-For", "192.0.2.1:55"}, "192.0.2.1"},
		{"IPv6", XForwardedFor, proxy, []string{"X-Forwarded-For", "2001:db8::1"}, "2001:db8::1"},
		{"IPv6 in brackets", XForwardedFor, proxy, []string{"X-Forwarded-For", "[2001:db8::1]"}, "2001:db8::1"},
		{"IPv6 with a port", XForwardedFor, proxy, []string{"X-Forwarded-For", "[2001:db8::1]:443"}, "2001:db8::1"},
		{"IPv4 in brackets", XForwardedFor, proxy, []string{"X-Forwarded-For", "[192.0.2.1]"}, "10.0.0.1"},
		{"IPv4 as IPv6", XForwardedFor, proxy, []string{"X-Forwarded-For", "::ffff:192.0.2.1"}, "192.0.2.1"},
		{"trusted as IPv6", XForwardedFor, "[::ffff:10.0.0.1]:9", []string{"X-Forwarded-For", "192.0.2.1"},
			"192.0.2.1"},
		{"empty members", XForwardedFor, proxy, []string{"X-Forwarded-For", " , 192.0.2.1 ,, "}, "192.0.2.1"},
		{"another header", XForwardedFor, proxy, []string{"X-Real-Ip", "192.0.2.1", "Forwarded", "for=192.0.2.2"},
			"10.0.0.1"},
		{"a Unix socket", XForwardedFor, "@", []string{"X-Forwarded-For", "192.0.2.1"}, "192.0.2.1"},
		{"a Unix socket, nothing said", XForwardedFor, "", nil, "invalid IP"},

		{"real ip", XRealIP, proxy, []string{"X-Real-Ip", " 192.0.2.1 "}, "192.0.2.1"},
		{"real ip twice", XRealIP, proxy, []string{"X-Real-Ip", "192.0.2.1", "X-Real-Ip", "192.0.2.2"}, "10.0.0.1"},
		{"real ip, a list", XRealIP, proxy, []string{"X-Real-Ip", "192.0.2.1, 192.0.2.2"}, "10.0.0.1"},
		{"real ip, untrusted", XRealIP, "192.0.2.9:1", []string{"X-Real-Ip", "192.0.2.1"}, "192.0.2.9"},

		{"forwarded", Forwarded, proxy, []string{"Forwarded", "for=192.0.2.1;proto=https;by=10.0.0.1"}, "192.0.2.1"},
		{"forwarded, IPv6", Forwarded, proxy, []string{"Forwarded", `For="[2001:db8::1]:4711"`}, "2001:db8::1"},
		{"forwarded, two elements", Forwarded, proxy,
			[]string{"Forwarded", "for=198.51.100.1, proto=http; for=192.0.2.1"}, "192.0.2.1"},
		{"forwarded, hidden", Forwarded, proxy, []string{"Forwarded", "for=198.51.100.1, for=_hidden"}, "10.0.0.1"},
		{"forwarded, not said", Forwarded, proxy, []string{"Forwarded", "for=198.51.100.1, proto=https"}, "10.0.0.1"},
		{"forwarded, twice in one", Forwarded, proxy, []string{"Forwarded", "for=198.51.100.1;for=192.0.2.1"},
			"10.0.0.1"},
		{"forwarded, twice in one, one empty", Forwarded, proxy, []string{"Forwarded", `for=198.51.100.1;for=""`},
			"10.0.0.1"},
		{"forwarded, an open quote to the left", Forwarded, proxy,
			[]string{"Forwarded", `for="198.51.100.1, for=192.0.2.1`}, "192.0.2.1"},
		{"forwarded, an open quote before one with quotes", Forwarded, proxy,
			[]string{"Forwarded", `x=", for="[2001:db8::1]"`}, "2001:db8::1"},
		{"forwarded, a comma in quotes", Forwarded, proxy,
			[]string{"Forwarded", `for=192.0.2.1;host="a,for=198.51.100.1"`}, "192.0.2.1"},
		{"forwarded, a quoted quote", Forwarded, proxy,
			[]string{"Forwarded", `for=192.0.2.1;host="a\",for=198.51.100.1"`}, "192.0.2.1"},
	}
	for _, tt := range tests {
		p := proxiesOf(t, tt.header, "10.0.0.0/8", UnixPeers)
		if got := clientOf(p, through(tt.sender, tt.lines...)).String(); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// fake is what a client sends to be taken for somebody else: complete values of the header.
var fakes = []string{
	"", " ", ",", ",,,", "198.51.100.7", "198.51.100.7, 198.51.100.8", "10.0.0.1", "10.0.0.1, 10.0.0.2", "10.3.3.3,",
	"127.0.0.1", "::1", "[::1]", "unknown",
	"_gazonk", `"`, `""`, `\`, `\"`, `"\`, `"\"`, `x="`, `for="`, `for="198.51.100.7`, `for=198.51.100.7`,
	`for=198.51.100.7;by="`, `for="[2001:db8::7]"`,
	`for="[2001:db8::7`, `for=10.0.0.9`, `for=10.0.0.9, for="`, `For=198.51.100.7;FOR=10.0.0.2`, `;`, `;;=`, `=`, `for`,
	`for=`, `for=;`, `for=,`, "\t", "\x00", "\xff",
	"198.51.100.7:80", "[198.51.100.7]:80", "198.51.100.7%eth0", "fe80::1%10.0.0.1", "0x7f.1", "127.1", "010.0.0.1",
	"198.51.100.7\t", "198.51.100.7;10.0.0.1", "198.51.100.7 10.0.0.1",
	strings.Repeat("10.0.0.1, ", 500), strings.Repeat(`"`, 999), strings.Repeat(`\`, 999), strings.Repeat("a", 9000),
}

// appended are the forms in which a trusted proxy names the client.
var appended = map[string][]string{
	XForwardedFor: {"%s"},
	Forwarded: {
		"for=%s", `for="%s"`, `for="%s";proto=https;by="10.0.0.1"`, `proto=http;FOR="%s";host="a,b;c\"d"`,
		`by=10.0.0.1 ; for="%s"`,
	},
}

// TestNobodyIsSpoofed: whatever a client sends, in whichever header and however proxies hand it on, it is taken for
// itself.
func TestNobodyIsSpoofed(t *testing.T) {
	vectors := 0
	for header, forms := range appended {
		name := http.CanonicalHeaderKey(header)
		p := proxiesOf(t, header, "10.0.0.0/8")
		for _, fake := range fakes {
			for _, form := range forms {
				for _, real := range []string{"192.0.2.1", "2001:db8::1"} {
					hop := real
					if header == Forwarded && strings.Contains(real, ":") {
						if !strings.Contains(form, `"%s"`) {
							continue // such an address needs quotes
						}
						hop = "[" + real + "]"
					}
					said, inner := fmt.Sprintf(form, hop), fmt.Sprintf(form, "10.0.0.2")
					for _, r := range []*http.Request{
						through("10.0.0.1:1", name, fake+", "+said), through("10.0.0.1:1", name, fake+","+said),
						through("10.0.0.1:1", name, fake, name, said),
						through("10.0.0.1:1", name, fake+", "+said+", "+inner),
						through("10.0.0.1:1", name, fake, name, said, "X-Real-Ip", fake),
					} {
						vectors++
						if got := clientOf(p, r).String(); got != real {
							t.Errorf("%q: %s, want %s", r.Header, got, real)
						}
					}
				}
			}
			for _, direct := range []string{"192.0.2.1:1", "[2001:db8::1]:1"} {
				vectors++
				r := through(direct, name, fake, "X-Real-Ip", fake)
				if got := clientOf(p, r).String(); !strings.Contains(direct, got) {
					t.Errorf("%q straight from %s: %s", fake, direct, got)
				}
			}
		}
	}
	if vectors < 500 {
		t.Errorf("only %d vectors", vectors)
	}
	t.Logf("%d vectors", vectors)
}

// FuzzClient: what a client sent stands to the left of what the proxy appends, and changes nothing.
func FuzzClient(f *testing.F) {
	for _, fake := range fakes {
		f.Add(fake)
	}
	xff, forwarded := proxiesOf(f, XForwardedFor, "10.0.0.0/8"), proxiesOf(f, Forwarded, "10.0.0.0/8")
	f.Fuzz(func(t *testing.T, fake string) {
		r := through("10.0.0.1:1", "X-Forwarded-For", fake+", 192.0.2.1")
		if got := clientOf(xff, r).String(); got != "192.0.2.1" {
			t.Errorf("X-Forwarded-For, %q: %s", fake, got)
		}
		for _, form := range appended[Forwarded] {
			r := through("10.0.0.1:1", "Forwarded", fake+", "+fmt.Sprintf(form, "192.0.2.1"))
			if got := clientOf(forwarded, r).String(); got != "192.0.2.1" {
				t.Errorf("%q, %q: %s", form, fake, got)
			}
		}
		clientOf(xff, through("10.0.0.1:1", "X-Forwarded-For", fake)) // whatever comes out
		clientOf(forwarded, through("10.0.0.1:1", "Forwarded", fake))
	})
}

func TestProxiesAreChecked(t *testing.T) {
	for _, trusted := range []string{"", "proxy.example", "10.0.0.0/33", "10.0.0.0/8/8", "fe80::1%eth0",
		"::ffff:0.0.0.0/95", "UNIX"} {
		if _, err := newProxies([]string{"192.0.2.1", trusted}, ""); err == nil {
			t.Errorf("%q is taken for a proxy", trusted)
		} else if !strings.Contains(err.Error(), "10.0.0.0/8") {
			t.Errorf("%q: %v", trusted, err)
		}
	}
	if _, err := New(Config{ClientHeader: "x-client"}); err == nil || !strings.Contains(err.Error(), XForwardedFor) {
		t.Errorf("a header that nobody knows: %v", err)
	}
}
