package actions

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// TestPolicies: what is missing or ambiguous is skipped, counted or denied as it is configured, and each is counted.
func TestPolicies(t *testing.T) {
	one, two := []string{"X-Api-Key", "a"}, []string{"X-Api-Key", "a", "X-Api-Key", "b"}
	unreadable := []string{"X-Api-Key", "a", "Authorization", "Bearer a.b"}
	nine := []string{"Cookie", "c=1;c=2;c=3;c=4;c=5;c=6;c=7;c=8;c=9", "X-Api-Key", "a"}
	tests := []struct {
		name, ambiguous, missing string
		lines                    []string
		want                     string // the values of key, sub and c, or why it is denied
		stats                    Stats
	}{
		{"plain", "", "", one, "a", Stats{}},
		{"two values", "", "", two, "a b", Stats{Ambiguous: Outcomes{Counted: 1}}},
		{"two values denied", Deny, "", two, DeniedAmbiguous, Stats{Ambiguous: Outcomes{Denied: 1}}},
		{"unreadable", Count, "", unreadable, "a " + UnreadableValue, Stats{Ambiguous: Outcomes{Counted: 1}}},
		{"unreadable denied", Deny, "", unreadable, DeniedAmbiguous, Stats{Ambiguous: Outcomes{Denied: 1}}},
		{"too many values", Count, "", nine, DeniedTooManyValues, Stats{Ambiguous: Outcomes{Denied: 1}}},
		{"missing", "", "", nil, "", Stats{NoDescriptor: 1, Missing: Outcomes{Skipped: 1}}},
		{"missing, skipped", "", Skip, nil, "", Stats{NoDescriptor: 1, Missing: Outcomes{Skipped: 1}}},
		{"missing, counted", "", Count, nil, MissingValue, Stats{Missing: Outcomes{Counted: 1}}},
		{"missing, denied", "", Deny, nil, DeniedMissing, Stats{Missing: Outcomes{Denied: 1}}},
	}
	for _, tt := range tests {
		key := Descriptor{{"key", "header X-Api-Key"}}
		if tt.missing != "" {
			key = append(key, Entry{OnMissing, tt.missing})
		}
		a, err := New(
			Config{
				Domain:      "d",
				OnAmbiguous: tt.ambiguous,
				Descriptors: []Descriptor{key, {{"sub", "jwt sub"}}, {{"c", "cookie c"}}},
			},
		)
		testkit.Must(t, err)
		var req rules.Request
		out := a.Describe(get(t, tt.lines...), &req)
		got := out.Denied
		if got == "" {
			var all []string
			for _, d := range req.Descriptors {
				all = append(all, d[0].Value)
			}
			got = strings.Join(all, " ")
		} else if !strings.Contains(out.Detail, "descriptor ") {
			t.Errorf("%s: detail %q", tt.name, out.Detail)
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		stats := a.Stats()
		if stats.Described != 1 {
			t.Errorf("%s: %d described", tt.name, stats.Described)
		}
		stats.Described = 0
		stats.Missing.Skipped -= min(stats.Missing.Skipped,
			skippedOf(tt.lines, out.Denied)) // of the others, which every request lacks
		if stats != tt.stats {
			t.Errorf("%s: %+v, want %+v", tt.name, stats, tt.stats)
		}
	}
}

// skippedOf is how many of the descriptors sub and c are skipped.
func skippedOf(lines []string, denied string) uint64 {
	text := strings.Join(lines, " ")
	switch {
	case strings.Contains(text, "Cookie"):
		return 1 // sub, before it is denied for the cookie
	case strings.Contains(text, "Bearer") && denied == "":
		return 1
	case denied != "":
		return 0
	}
	return 2
}

// TestCombinations: a descriptor of several sources is counted under each combination of their values, up to what a
// request may have.
func TestCombinations(t *testing.T) {
	a, err := New(
		Config{
			Domain:      "d",
			Descriptors: []Descriptor{{{"t", "text x"}}, {{"h", "header A"}, {"p", "path"}, {"q", "query q"}}},
		},
	)
	testkit.Must(t, err)
	ask := func(target string, values int) (string, *rules.Request) {
		r := get(t)
		r.URL = mustURL(t, target)
		for i := range values {
			r.Header.Add("A", string(rune('a'+i)))
		}
		var req rules.Request
		out := a.Describe(r, &req)
		return out.Denied, &req
	}
	denied, req := ask("/P?q=1&q=2", 3)
	if denied != "" || len(req.Descriptors) != 1+12 || req.Alternatives != 1<<13-1-3 {
		t.Errorf("%q, %v, alternatives %b", denied, req.Descriptors, req.Alternatives)
	}
	seen := map[string]bool{}
	for _, d := range req.Descriptors[1:] {
		seen[d[0].Value+d[1].Value+d[2].Value] = true
	}
	if len(seen) != 12 || !seen["a/P1"] || !seen["c/p2"] {
		t.Errorf("%v", seen)
	}
	if denied, _ := ask("/p?q=1&q=2&q=3&q=4&q=5&q=6&q=7&q=8", 4); denied != DeniedTooManyValues {
		t.Errorf("33 layers: %q", denied)
	}
	// A descriptor that lacks something at its end leaves no readings behind.
	if denied, req := ask("/P", 3); denied != "" || len(req.Descriptors) != 1 || req.Alternatives != 0 {
		t.Errorf("%q, %v, alternatives %b", denied, req.Descriptors, req.Alternatives)
	}
}

func TestUntrustedPeersAreCounted(t *testing.T) {
	a, err := New(
		Config{
			Domain:      "d",
			Descriptors: []Descriptor{{{"c", "client"}}, {{"p", "path"}}, {{"m", "method"}, {OnMissing, Count}}},
		},
	)
	testkit.Must(t, err)
	var req rules.Request
	r := through("192.0.2.1:1", "X-Forwarded-For", "198.51.100.1", "X-Forwarded-Uri", "/login")
	if out := a.DescribeOriginal(r, &req); len(req.Descriptors) != 2 ||
		req.Descriptors[0][0].Value != "192.0.2.1" {
		t.Errorf("%+v, %v", out, req.Descriptors)
	}
	want := Stats{Described: 1, Untrusted: Outcomes{Skipped: 1, Counted: 1}}
	if got := a.Stats(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if hint := a.Hint(r); !strings.Contains(hint, "192.0.2.1") || !strings.Contains(hint, "trusted_proxies") {
		t.Error(hint)
	}
	unix := through("@")
	a.DescribeOriginal(unix, &req)
	if got := a.Stats().Untrusted; got.Skipped != 3 {
		t.Errorf("a Unix socket: %+v", got)
	}
	if hint := a.Hint(unix); !strings.Contains(hint, "unix") {
		t.Error(hint)
	}
}

// A target and a host that a proxy cannot hand on as they are deny the request: what limits see is not what the
// application would get.
func TestMalformedOriginals(t *testing.T) {
	a, err := New(Config{Domain: "d", TrustedProxies: []string{"10.0.0.1"},
		Descriptors: []Descriptor{{{"t", "query token"}}, {{"h", "host"}}}})
	testkit.Must(t, err)
	for _, test := range []struct{ target, host, denied string }{
		{"/a?token=t1", "shop.example", ""}, {" /a?token=t1\t", "a.example, b.example", ""}, {"/\u00e4", "a", ""},
		{"/a?token=t1 HTTP/1.1", "a", DeniedMalformed}, {"/a b", "a", DeniedMalformed},
		{"", "a", DeniedMalformed}, {" ", "a", DeniedMalformed}, {"*", "a", ""},
		{"/a?token=t1", "\u00fc.example", DeniedMalformed}, {"/a?token=t1", "a\xff", DeniedMalformed},
	} {
		var req rules.Request
		out := a.DescribeOriginal(through("10.0.0.1:1", "X-Forwarded-Uri", test.target, "X-Forwarded-Host", test.host),
			&req)
		if out.Denied != test.denied || out.Denied != "" && len(req.Descriptors) > 0 {
			t.Errorf("%q of %q: %+v, %v", test.target, test.host, out, req.Descriptors)
		}
	}
}

// get is a request from 192.0.2.1 with these header lines.
func get(t testing.TB, lines ...string) *http.Request {
	t.Helper()
	r := through("192.0.2.1:1", lines...)
	r.Method, r.URL = "GET", &url.URL{Path: "/"}
	return r
}

// FuzzEvasion: whatever a client adds before, after or between what identifies it, it is counted as itself, or denied.
func FuzzEvasion(f *testing.F) {
	f.Add("x", "a=b", "x=1", "x/..")
	f.Add("", `"; a="`, "%zz&;#", "..;/..")
	f.Add("k2", "session=s2; session", "token=t2;token=t1", `\..\`)
	f.Add("\t", ",=\x00", "+token[]=1", "%252e%252e#?")
	a, err := New(Config{Domain: "d", TrustedProxies: []string{"10.0.0.1"}, Descriptors: []Descriptor{
		{
			{"key", "header X-Api-Key"},
		}, {{"session", "cookie session"}}, {{"token", "query token"}}, {{"path", "path"}}, {{"sub", "jwt sub"}},
	}})
	if err != nil {
		f.Fatal(err)
	}
	bearer := token(`{"sub":"ann"}`)
	f.Fuzz(func(t *testing.T, header, cookie, query, path string) {
		for _, first := range []bool{true, false} {
			order := func(a, b string) []string {
				if first {
					return []string{a, b}
				}
				return []string{b, a}
			}
			r := through("10.0.0.1:1")
			r.Header["X-Api-Key"] = order(header, "k1")
			r.Header["Cookie"] = []string{strings.Join(order(cookie, "session=s1"), ";")}
			r.Header["Authorization"] = order(header, bearer)
			r.Header["X-Forwarded-Uri"] = []string{
				"/login" + strings.ReplaceAll("/"+path, "?", "") + "?" + strings.Join(order(query, "token=t1"), "&"),
			}
			var req rules.Request
			if out := a.DescribeOriginal(r, &req); out.Denied != "" {
				continue
			}
			met := map[string]bool{}
			for _, d := range req.Descriptors {
				met[d[0].Key] = true
				met[d[0].Key+"="+d[0].Value] = true
			}
			for _, want := range []string{"key=k1", "session=s1", "token=t1", "path", "sub=ann"} {
				if !met[want] {
					t.Errorf("%q: %s is not counted: %v", r.Header, want, req.Descriptors)
				}
			}
		}
	})
}
