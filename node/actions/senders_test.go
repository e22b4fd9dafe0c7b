package actions

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edgelimit/node/rules"
)

// Who seems to be a proxy and is not configured as one is remembered, and said what to set; who may be a client that
// forges the header is not.
func TestSenders(t *testing.T) {
	type request struct {
		peer   string
		header []string
	}
	named := func(peer string, header ...string) request { return request{peer, header} }
	const xff = "X-Forwarded-For"
	add := func(lines string) string {
		flag := ""
		if only, ok := strings.CutPrefix(strings.TrimSuffix(lines, "]`"), "`trusted_proxies: ["); ok &&
			!strings.Contains(lines, " and ") {
			flag = " (edgelimit: --trusted-proxy " + only + ")"
		}
		return " | add " + lines + " to requests" + flag + " if it is yours"
	}
	untrusted := func(who, header string) string {
		return "requests from " + who + " carry " + header + ", but that address is not in trusted_proxies: all its " +
			"visitors count as one client"
	}
	for name, tt := range map[string]struct {
		requests []request
		want     string
	}{
		"a private balancer": {[]request{named("10.0.0.5:1", xff, "203.0.113.1")},
			untrusted("10.0.0.5", xff) + add("`trusted_proxies: [10.0.0.5]`")},
		"loopback": {[]request{named("[::1]:1", xff, "203.0.113.1")},
			untrusted("::1", xff) + add("`trusted_proxies: [::1]`")},
		"shared address space": {[]request{named("100.64.1.2:1", xff, "203.0.113.1")},
			untrusted("100.64.1.2", xff) + add("`trusted_proxies: [100.64.1.2]`")},
		"several of a network": {[]request{named("10.0.0.5:1", xff, "203.0.113.1"), named("10.0.0.6:1", xff, "x")},
			untrusted("10.0.0.0/24", xff) + add("`trusted_proxies: [10.0.0.0/24]`")},
		"a Unix socket": {[]request{named("@", xff, "203.0.113.1")},
			untrusted("the Unix socket", xff) + add("`trusted_proxies: [unix]`")},
		"another header": {[]request{named("10.0.0.5:1", "X-Real-Ip", "203.0.113.1")},
			untrusted("10.0.0.5", "X-Real-Ip") + add("`trusted_proxies: [10.0.0.5]` and `client_header: x-real-ip`")},
		"only the target": {[]request{named("10.0.0.5:1", "X-Forwarded-Uri", "/login")},
			untrusted("10.0.0.5", "X-Forwarded-Uri") + add("`trusted_proxies: [10.0.0.5]`")},
		"a trusted one with another header": {[]request{named("192.168.0.1:1", "Forwarded", "for=203.0.113.1")},
			"requests from 192.168.0.1 carry Forwarded, but client_header names another one: all its visitors count " +
				"as one client" + add("`client_header: forwarded`")},
		"a trusted one": {[]request{named("192.168.0.1:1", xff, "203.0.113.1", "Forwarded", "for=x")}, ""},
		"no header":     {[]request{named("10.0.0.5:1")}, ""},
		"a public balancer": {[]request{named("198.51.100.1:1", xff, "203.0.113.1"),
			named("198.51.100.1:1", xff, "x, 203.0.113.2")},
			untrusted("198.51.100.1", xff) + add("`trusted_proxies: [198.51.100.1]`")},
		"a client that forges one": {[]request{named("198.51.100.1:1", xff, "203.0.113.1"),
			named("198.51.100.1:1", xff, "203.0.113.1")}, ""},
		"an office": {[]request{named("198.51.100.1:1", xff, "10.1.1.1"),
			named("198.51.100.1:1", xff, "10.1.1.2")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var warned []Sender
				s := NewSenders(func(s Sender) { warned = append(warned, s) })
				a, err := New(Config{Domain: "d", TrustedProxies: []string{"192.168.0.0/16"}, Senders: s,
					Descriptors: []Descriptor{{{"c", "client"}}}})
				if err != nil {
					t.Fatal(err)
				}
				var req rules.Request
				for _, r := range tt.requests {
					a.DescribeOriginal(through(r.peer, r.header...), &req)
				}
				var got []string
				for _, s := range s.Recent(time.Now()) {
					got = append(got, s.Text()+" | "+s.Do())
				}
				if strings.Join(got, "\n") != tt.want || len(warned) != len(got) {
					t.Errorf("%q, warned of %d, want\n%q", got, len(warned), tt.want)
				}
				time.Sleep(senderLasts)
				if left := s.Recent(time.Now()); len(left) > 0 {
					t.Errorf("after ten minutes without requests: %+v", left)
				}
			})
		})
	}
}

// However many there are, memory and log are bounded, and the entrances share both.
func TestSendersAreBounded(t *testing.T) {
	warned := 0
	s := NewSenders(func(Sender) { warned++ })
	cfg := DefaultConfig()
	cfg.Senders = s
	first, _ := New(cfg)
	second, _ := New(cfg)
	var req rules.Request
	for i := range 1000 {
		for _, a := range []*Actions{first, second} {
			peer := fmt.Sprintf("10.%d.%d.1:1", i/256, i%256)
			a.DescribeOriginal(through(peer, "X-Forwarded-For", "203.0.113.1"), &req)
		}
	}
	if len(s.known) != maxSenders || warned != maxSenderLogs || s.Total() != 2000 {
		t.Errorf("%d are known, %d warnings of %d requests", len(s.known), warned, s.Total())
	}
	r := through("10.3.231.1:1", "X-Forwarded-For", "203.0.113.1")
	if n := testing.AllocsPerRun(100, func() { first.observe(r, false) }); n > 0 {
		t.Errorf("a request of a known sender allocates %v times", n)
	}
	r.Header = http.Header{}
	if n := testing.AllocsPerRun(100, func() { first.observe(r, false, first.original...) }); n > 0 {
		t.Errorf("a request without headers allocates %v times", n)
	}
}
