package actions

import (
	"cmp"
	"encoding/base64"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func token(payload string) string {
	return "Bearer e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".c2lnbmF0dXJl"
}

// valueOf is what a source makes of a request: its values with " | " between them; "-" if it is missing, "denied" if
// that is what is.
func valueOf(t *testing.T, source, target string, lines ...string) string {
	t.Helper()
	c := DefaultConfig()
	c.Descriptors = []Descriptor{{{"k", source}}}
	a, err := New(c)
	testkit.Must(t, err)
	r, err := http.NewRequest("PATCH", target, nil)
	testkit.Must(t, err)
	r.RemoteAddr = "192.0.2.1:99"
	for i := 0; i < len(lines); i += 2 {
		r.Header.Add(lines[i], lines[i+1])
	}
	var req rules.Request
	if out := a.Describe(r, &req); out.Denied != "" {
		return "denied"
	}
	var all []string
	for _, d := range req.Descriptors {
		all = append(all, d[0].Value)
	}
	return cmp.Or(strings.Join(all, " | "), "-")
}

func TestSources(t *testing.T) {
	tests := []struct {
		source, target string
		lines          []string
		want           string
	}{
		{"client", "/", nil, "192.0.2.1"},
		{"method", "/", nil, "PATCH"},
		{"host", "http://Shop.Example:80/", nil, "shop.example"},
		{"host", "/", nil, "-"},
		{"path", "/login?a=1", nil, "/login"},
		{"path", "/%6Cogin", nil, "/login"},
		{"path", "http://h//x/..//./login/", nil, "/login | /x/.././login | /.././login | /"},
		{"path", "/../..", nil, "/ | /../.."},
		{"header x-api-key", "/", []string{"X-Api-Key", "k1"}, "k1"},
		{"header X-API-Key", "/", []string{"X-Api-Key", "k1", "X-Api-Key", "k2"}, "k1 | k2"},
		{"header X-API-Key", "/", []string{"X-Api-Key", "k1", "X-Api-Key", "k1"}, "k1"},
		{"header X-Api-Key", "/", []string{"X-Api-Key", "", "X-Api-Key", "k1\t"}, "k1"},
		{"header X-Api-Key", "/", []string{"X_Api-Key", "k1"}, "k1"},
		{"header X-Api-Key", "/", []string{"X.Api+Key", "k1", "X-Api~key", "k1"}, "k1"},
		{"header X-Api-Key", "/", []string{"X-Api-Keys", "k1", "X-ApiKey", "k1", "Xx-Api-Key", "k1"}, "-"},
		{"header X-Api-Key", "/", []string{"X-Api-Key", "\xa0k1", "X-Api-Key", "k1\x85\u3000\ufeff"}, "k1"},
		{"header X-Api-Key", "/", []string{"X-Api-Key", "voil\u00e0"}, "voil\u00e0 | voil\xc3"},
		{"header X-Api-Key", "/", []string{"X-Api-Key", ""}, "-"},
		{"cookie session", "/", []string{"Cookie", "a=b; session=s1"}, "s1"},
		{"cookie session", "/", []string{"Cookie", "session=s1", "Cookie", "session=s2"}, "s1 | s2"},
		{"cookie session", "/", []string{"Cookie", "\"; session=\"s%31\"; b=\x01; session=s1; session="}, "s1"},
		{"cookie session", "/", []string{"Cookie", "a=b, Session=s1"}, "s1"},
		{"cookie session", "/", []string{"Cookie", `session="s\061x`}, "s1x | s1"},
		{"cookie session", "/", []string{"Cookie", "session=a b; session=a+b; session=a%2Bb"}, "a+b"},
		{"cookie session", "/", []string{"Cookie", "session[0]=s1;=session=s2"}, "s1 | s2"},
		{"cookie session", "/", []string{"Cookie", "session"}, "-"},
		{"cookie session", "/", []string{"Cookie", "\u00a0session=s1;\xa0session\x85=s1"}, "s1"},
		{"cookie session", "/", []string{"Cookie", "session=\u2028s1\u3000\xa0;session=\ufeff\"s1\"\u00a0"}, "s1"},
		{"cookie session", "/", []string{"Cookie", `session=j:"s\u0031"`}, `s1 | j:"s\u0031"`},
		{"cookie session", "/", []string{"Cookie", `session=j%3A%5B%22s1%22%5D; session=j:7.0`},
			`s1 | j:["s1"] | 7 | j:7.0`},
		{"cookie session", "/", []string{"Cookie", "[session]=s1"}, "s1"},
		{"cookie session", "/", nil, "-"},
		{"query token", "/?token=a%20b&x", nil, "a b"},
		{"query token", "/?token=a&token=b", nil, "a | b"},
		{"query token", "/?token=a&token=%61&token=&token", nil, "a"},
		{"query token", "/?token=%zz", nil, "%zz"},
		{"query token", "/?token=a&x=%zz&;", nil, "a"},
		{"query token", "/?token=a;b=1", nil, "a;b=1 | a"},
		{"query token", "/?x=1;token=a", nil, "a"},
		{"query token", "/?" + strings.Repeat("&", 12_000) + "token=a", nil, "a"},
		{"query token", "/?+Token[]=%u0061", nil, "a"},
		{"query a_b", "/?a.b=1", nil, "1"},
		{"query token", "/?token=1&token=2&token=3&token=4&token=5&token=6&token=7&token=8&token=9", nil, "denied"},
		{"query token", "/?tokens=1&toke=2&=token&token_x=3&x[token]=4", nil, "-"},
		{"query token", "/?[token]=a&%5Btoken%5D[x]=b&]token=c&token]=d&[[token]][0]=e", nil, "a | b | c | d | e"},
		{"query token", "/?+%09token=a&%C2%A0token%00x=b", nil, "a | b"},
		{"text api v2", "/", nil, "api v2"},
		{"template /tenants/{tenant}/*", "/tenants/acme/orders/7", nil, "acme"},
		{"template /tenants/{tenant}/*", "/Tenants/acme/orders/7", nil, "acme"},
		{"template /tenants/{tenant}/*", "/tenants/acme;a=1/orders/7", nil, "acme;a=1 | acme"},
		{"template /tenants/{tenant}/*", "/tenants/acme", nil, "-"},
		{"template /tenants/{tenant}", "/tenants/acme/", nil, "acme"},
		{"template /tenants/{tenant}", "/tenants/acme/orders", nil, "-"},
		{"template /tenants/{tenant}", "/tenants", nil, "-"},
		{"template /*/users/{id}", "/v1/users/7", nil, "7"},
		{"template /*/users/{id}", "/users/7", nil, "-"},
		{"template /{tenant}", "/", nil, "-"},
		{"jwt sub", "/", []string{"Authorization", token(`{"sub":"ann","n":7}`)}, "ann"},
		{"jwt sub", "/", []string{"Authorization", "Basic YTpi", "Authorization", token(`{"sub":"ann","n":7}`)}, "ann"},
		{"jwt sub", "/", []string{"Authorization", token(`{"sub":"ann"}`), "Authorization", token(`{"sub":"bob"}`)},
			"ann | bob"},
		{"jwt sub", "/", []string{"Authorization", strings.Replace(token(`{"sub":"ann"}`), " ", "\t ", 1)}, "ann"},
		{"jwt sub", "/", []string{"Authorization", "Bearer " + token(`{"sub":"ann"}`) + " "}, "ann"},
		{"jwt sub", "/", []string{"Authorization",
			"Bearer e30." + base64.StdEncoding.EncodeToString([]byte(`{"sub":"ann??>"}`)) + ".c2ln"}, "ann??>"},
		{"jwt n", "/", []string{"Authorization", strings.Replace(token(`{"sub":"ann","n":7}`), "Bearer", "bearer", 1)},
			"7"},
		{"jwt x", "/", []string{"Authorization", token(`{"sub":"ann"}`)}, "-"},
		{"jwt sub", "/", []string{"Authorization", token(`{"sub":"ann","sub":"bob"}`)}, "ann | bob"},
		{"jwt sub", "/", []string{"Authorization", token(`{"sub":null}`)}, "-"},
		{"jwt sub", "/", []string{"Authorization", token(`{"sub":["ann",7]}`)}, "ann | 7"},
		{"jwt sub", "/", []string{"Authorization", token(`{"sub":{"ann":1}}`)}, UnreadableValue},
		{"jwt sub", "/", []string{"Authorization", token(`{"sub":"ann"`)}, "ann"},
		{"jwt sub", "/", []string{"Authorization", token(`["sub","ann"]`)}, UnreadableValue},
		{"jwt sub", "/", []string{"Authorization", token(``)}, UnreadableValue},
		{"jwt sub", "/", []string{"Authorization", "Basic YTpi+" + token(`{"sub":"ann"}`)}, "ann"},
		{"jwt sub", "/", []string{"Authorization", token(`{"sub":"ann"}`) + "Bearer"}, "ann"},
		{"jwt sub", "/", []string{"Authorization", "Bearer e30.!.x"}, UnreadableValue},
		{"jwt sub", "/", []string{"Authorization", "Bearer e30.e30"}, "-"}, // read, and without the claim
		{"jwt sub", "/", []string{"Authorization", "Bearer opaque"}, "-"},
		{"jwt sub", "/", []string{"Authorization", strings.Replace(token(`{"sub":"ann"}`), " ", "\xa0", 1)}, "ann"},
		{"jwt sub", "/", []string{"Authorization", strings.Replace(token(`{"sub":"ann"}`), " ", "\u3000", 1)}, "ann"},
		{"jwt sub", "/", []string{"Authorization", "\x85" + token(`{"sub":"ann"}`) + "\ufeff"}, "ann"},
		{"jwt sub", "/", []string{"Authorization", "Basic YTpi"}, "-"},
	}
	for _, tt := range tests {
		if got := valueOf(t, tt.source, tt.target, tt.lines...); got != tt.want {
			t.Errorf("%s of %.80s %q: %q, want %q", tt.source, tt.target, tt.lines, got, tt.want)
		}
	}
}

// TestSpellings: every spelling of a header's name that some server takes for it is that header, and the proxy's
// canonical form of it.
func TestSpellings(t *testing.T) {
	for n := range 16 {
		name := []byte("X-Long-Api-Key-Id")
		for bit, at := range []int{1, 6, 10, 14} {
			if n>>bit&1 == 1 {
				name[at] = "_.+~"[bit]
			}
		}
		if got := valueOf(t, "header X-Long-Api-Key-Id", "/", string(name), "k1"); got != "k1" {
			t.Errorf("%s: %q", name, got)
		}
		if !SameName(string(name), "X-Long-Api-Key-Id") {
			t.Errorf("%s is another name", name)
		}
	}
}

// TestDescriptorsWithoutASource: a descriptor is complete or left out, and keeps the order of its entries.
func TestDescriptorsWithoutASource(t *testing.T) {
	var c Config
	err := yaml.Unmarshal(
		[]byte("domain: d\ndescriptors: [{path: path, key: header X-Api-Key}, {z: client, a: method}]"), &c)
	testkit.Must(t, err)
	a, err := New(c)
	testkit.Must(t, err)
	r := through("192.0.2.1:1")
	r.Method, r.URL = "GET", mustURL(t, "/p")
	req := rules.Request{Rule: "left over", Cost: 7}
	a.Describe(r, &req)
	want := rules.Request{
		Domain:      "d",
		Descriptors: [][]rules.Entry{{{Key: "z", Value: "192.0.2.1"}, {Key: "a", Value: "GET"}}},
		Client:      netip.MustParseAddr("192.0.2.1"),
	}
	if !reflect.DeepEqual(req, want) {
		t.Errorf("%+v, want %+v", req, want)
	}
}

func TestDescribeOriginal(t *testing.T) {
	forwarded := []string{"X-Forwarded-Method", "DELETE", "X-Forwarded-Host", "a.example", "X-Forwarded-Uri", "/a/?q=1"}
	original := []string{"X-Original-Method", "put", "X-Original-Host", "B.Example:80", "X-Original-Uri",
		"http://b.example/b%2Fc?q=2"}
	tests := []struct {
		name, family, sender string
		lines                []string
		want                 string
	}{
		{"x-forwarded", "", "10.0.0.1:1", forwarded, "DELETE a.example /a 1"},
		{"x-original", "x-original", "10.0.0.1:1", original, "PUT b.example /b/c 2"},
		{"the other family", "x-original", "10.0.0.1:1", forwarded, ""},
		{"both", "x-original", "10.0.0.1:1", append(forwarded, original...), "PUT b.example /b/c 2"},
		{"an untrusted sender", "", "192.0.2.1:1", forwarded, ""},
		{"ingress-nginx", "x-original", "10.0.0.1:1", []string{"X-Original-Method", "PUT", "X-Original-Url",
			"https://b.example/b?q=2"}, "PUT b.example /b 2"},
		{
			"ingress-nginx, and the client", "x-original", "10.0.0.1:1",
			[]string{"X-Original-Method", "PUT", "X-Original-Url", "https://b.example/b?q=2", "X-Original-Uri",
				"/cheap?q=2"}, "PUT b.example /cheap | /b 2",
		},
		{"sent twice", "", "10.0.0.1:1", append([]string{"X-Forwarded-Uri", "/cheap?q=1"}, forwarded...),
			"DELETE a.example /cheap | /a 1"},
		{"sent too often", "", "10.0.0.1:1", append([]string{
			"X-Forwarded-Uri", "/1", "X-Forwarded-Uri", "/2", "X-Forwarded-Uri", "/3", "X-Forwarded-Uri", "/4",
		}, forwarded...), "denied"},
		{"two slashes", "", "10.0.0.1:1", append(forwarded[:4:4], "X-Forwarded-Uri", "//evil/../login?q=1"),
			"DELETE a.example /login | /evil/../login | /../login | / 1"},
		{"wrong escapes", "", "10.0.0.1:1", append(forwarded[:4:4], "X-Forwarded-Uri", "/log%zzin/?q=1"),
			"DELETE a.example /log%zzin 1"},
	}
	for _, tt := range tests {
		senders := NewSenders(func(Sender) {})
		a, err := New(Config{
			Domain: "d", TrustedProxies: []string{"10.0.0.0/8"}, OriginalHeaders: tt.family, Senders: senders,
			Descriptors: []Descriptor{{{"m", "method"}}, {{"h", "host"}}, {{"p", "path"}}, {{"q", "query q"}}},
		})
		testkit.Must(t, err)
		var req rules.Request
		out := a.DescribeOriginal(through(tt.sender, tt.lines...), &req)
		var got []string
		for i, d := range req.Descriptors {
			if req.Alternatives>>i&1 == 1 {
				got = append(got, "|")
			}
			got = append(got, d[0].Value)
		}
		if out.Denied != "" {
			got = []string{"denied"}
		}
		if got := senders.Total() == 1; got != strings.HasPrefix(tt.sender, "192.") {
			t.Errorf("%s: headers ignored: %v", tt.name, got)
		}
		if text := strings.Join(got, " "); text != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, text, tt.want)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	tests := []struct {
		c    Config
		want []string
	}{
		{Config{}, []string{"domain: it is empty", "descriptors: there are 0"}},
		{Config{Domain: "d", Descriptors: []Descriptor{{}}}, []string{"descriptor 1: it has 0 entries"}},
		{Config{Domain: "d", Descriptors: []Descriptor{{{"", "client"}}}}, []string{"a key is empty"}},
		{
			Config{
				Domain:      "d",
				Descriptors: []Descriptor{{{"a", "clients"}}, {{"b", "path x"}, {"c", "header"}, {"d", "template /a"}}},
			},
			[]string{`descriptor 1, a: "clients": want client, client_cert, method`,
				`descriptor 2, b: "path x": path stands alone`,
				`c: "header": write it as in "header X-Api-Key"`, "want a path with one {name}"},
		},
		{Config{Domain: "d", Descriptors: []Descriptor{{{"a", "template /a{b}"}}}}, []string{"are whole segments"}},
		{Config{Domain: "d", Descriptors: []Descriptor{{{"a", "client"}}}, OriginalHeaders: "x"},
			[]string{"x-forwarded, x-original"}},
		{Config{Domain: "d", Descriptors: []Descriptor{{{"a", "client"}}}, OnAmbiguous: Skip, PathCase: "x"},
			[]string{`on_ambiguous: "skip", want one of count, deny`, "any, exact"}},
		{Config{Domain: "d", Descriptors: []Descriptor{{{"a", "client"}, {OnMissing, "x"}}}},
			[]string{`on_missing: "x", want one of skip, count, deny`}},
		{Config{Domain: "d", Descriptors: []Descriptor{{{OnMissing, Deny}}, {{"a", "header host"}}}},
			[]string{"it has 0 entries", "write host"}},
		{Config{Domain: "d", Descriptors: []Descriptor{{{"a", "client"}}}, TrustedProxies: []string{"x"}},
			[]string{`trusted_proxies: "x"`}},
	}
	for _, tt := range tests {
		_, err := New(tt.c)
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v, want %q", tt.c, err, want)
			}
		}
	}
	var c Config
	if err := yaml.Unmarshal([]byte("descriptors:\n- [client]"), &c); err == nil ||
		!strings.Contains(err.Error(), "line 2") {
		t.Errorf("a descriptor that is a list: %v", err)
	}
}

// FuzzDescribe: rules accept the descriptors of any request that is not denied.
func FuzzDescribe(f *testing.F) {
	f.Add("session=1; x", token(`{"sub":"ann"}`), "/a%2f..//b?x")
	f.Add(`a="b`, "Bearer ..", "http://[::1/")
	f.Add("", "", "/"+strings.Repeat("\xd4", 4100)+"a%a%2f2d\x80\x00b") // too many values
	var wanted []Descriptor
	for _, k := range kinds {
		wanted = append(wanted, Descriptor{{k.word, cmp.Or(k.example, k.word)}})
	}
	a, err := New(Config{Domain: "d", Descriptors: wanted, TrustedProxies: []string{"10.0.0.1"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, cookie, authorization, uri string) {
		r := through("10.0.0.1:1", "Cookie", cookie, "Authorization", authorization, "X-Forwarded-Uri", uri)
		var req rules.Request
		if out := a.DescribeOriginal(r, &req); out.Denied != "" {
			return // a denied request has no valid descriptors
		}
		for _, d := range req.Descriptors {
			if d[0].Value == "" {
				t.Errorf("%s has an empty value", d[0].Key)
			}
			if d[0].Key == "path" && (d[0].Value[0] != '/' || strings.Contains(d[0].Value, "//")) {
				t.Errorf("path %q", d[0].Value)
			}
		}
	})
}

func mustURL(t *testing.T, target string) *url.URL {
	t.Helper()
	u, err := url.Parse(target)
	testkit.Must(t, err)
	return u
}
