package actions

import (
	"slices"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// readings are what a source makes of an original request's target (or host, or method), as a proxy describes it.
func readings(t *testing.T, c Config, source, header, value string) []string {
	t.Helper()
	c.Descriptors, c.TrustedProxies = []Descriptor{{{"k", source}}}, []string{"10.0.0.1"}
	a, err := New(c)
	testkit.Must(t, err)
	var req rules.Request
	if out := a.DescribeOriginal(through("10.0.0.1:1", header, value), &req); out.Denied != "" {
		return []string{out.Denied}
	}
	var all []string
	for _, d := range req.Descriptors {
		all = append(all, d[0].Value)
	}
	return all
}

// TestNormalization pins the table of NORMALIZATION.md.
func TestNormalization(t *testing.T) {
	tests := []struct{ source, sent, want string }{
		{"path", "/login", "/login"},
		{"path", "/login/", "/login"},
		{"path", "//login", "/login /"},
		{"path", "//x/login", "/x/login /login"},
		{"path", "/a//login", "/a/login"},
		{"path", "/./login", "/login /./login"},
		{"path", "/x/../login", "/login /x/../login"},
		{"path", "/login/../x", "/x /login/../x"},
		{"path", "/.well-known/x", "/.well-known/x"},
		{"path", "/%6cogin", "/login"},
		{"path", "/%6Cogin", "/login"},
		{"path", "/x%2flogin", "/x/login"},
		{"path", "/x%2f%2e%2e%2flogin", "/login /x/../login"},
		{"path", "/%256cogin", "/%6cogin /login"},
		{"path", "/x/%252e%252e/login", "/x/%2e%2e/login /x/../login /login"},
		{"path", "/login#x", "/login#x /login"},
		{"path", "/login%23x", "/login#x /login"},
		{"path", "/#/../login", "/login /#/../login /"},
		{"path", "/login%3fx", "/login?x /login"},
		{"path", "/login%00.png", "/login\x00.png /login"},
		{"path", "/login;a=1", "/login;a=1 /login"},
		{"path", "/x/..;/login", "/x/..;/login /x/.. /x/../login / /login"},
		{"path", "/login%3ba=1", "/login;a=1 /login"},
		{"path", `/x\..\login`, `/x\..\login /x/../login /login`},
		{"path", `/x%5c..%5clogin`, `/x\..\login /x/../login /login`},
		{"path", "/login;a%2fb", "/login;a/b /login /login/b"},
		{"path", "/login;a/b", "/login;a/b /login /login/b"},
		{"path", `/\x/login`, `/\x/login /x/login /login`},
		{"path", "///x/login", "/x/login /login"},
		{"path", `//x\login`, `/x\login /x/login / /login`},
		{"path", "/x%2fy/%2e%2e/login", "/x/login /x/y/../login /login"},
		{"path", "/a//../login", "/login /a/../login /a/login"},
		{"path", "/login\xa0", "/login"},
		{"path", "/voilà", "/voilà /voil\xc3 /voil\ufffd"},
		{"path", "/login%C2%A0", "/login\u00a0 /login"},
		{"path", "/login%20", "/login  /login"},
		{"path", "/Login", "/Login /login"},
		{"path", "/wiki/caf%C3%A9", "/wiki/café"},
		{"path", "/log%zzin", "/log%zzin"},
		{"path", "http://shop.example/login?x", "/login"},
		{"path", "HTTPS://u@shop.example:80", "/"},
		{"path", "http:/login", "/login"},
		{"path", "\xa0/login\xa0", "/login"},
		{"path", "*", "/*"},
		{"path", "/x?/login", "/x"},
		{"path", "/%c0%ae%c0%ae/login", "/\xc0\xae\xc0\xae/login /\ufffd\ufffd\ufffd\ufffd/login"},
		{"path", "/login.", "/login."},
		{"path", "/login.json", "/login.json"},
		{"path", "/#;%252f\\Aa/../x", DeniedTooManyValues},

		{"query token", "/?token=a", "a"},
		{"query token", "/?token=a#1", "a#1 a"},
		{"query token", "/?x#&token=a", "a"},
		{"query token", "/x#?token=a", "a"},
		{"query token", "/?token=%61", "a"},
		{"query token", "/?token=a+b", "a b"},
		{"query token", "/?token=a%2Bb", "a+b"},
		{"query token", "/?TOKEN=a", "a"},
		{"query token", "/;token=a", "a"},
		{"query token", "/;token=a?token=b", "b a"},
		{"query token", "/%3btoken=a", "a"},
		{"query token", "/x%3Ftoken=a&b", "a"},
		{"query token", "/?page=1?token=a", "a"},
		{"query token", "/?token=a\xa0", "a"},
		{"query token", "/?token=%20a+", "a"},
		{"query token", "/?to\tken=a", DeniedMalformed},
		{"query token", "/?token[=]=a", "]=a a"},
		{"query token", "/?token%5B=%5d=a", "]=a a"},
		{"query token", "/?token[x=b]=a", "b]=a a"},
		{"query token", "/?[token]x=a", "a"},
		{"query token", "/?token]x=a", "a"},

		{"host", "Shop.Example", "shop.example"},
		{"host", "shop.example:80", "shop.example"},
		{"host", "shop.example.:8080", "shop.example"},
		{"host", "shop.example:", "shop.example"},
		{"host", "[0:0::1]:80", "[::1]"},
		{"host", "a.example, b.example", "a.example b.example"},

		{"method", "get", "GET"},
		{"method", "HEAD", "HEAD"},
	}
	headers := map[string]string{
		"path":        "X-Forwarded-Uri",
		"query token": "X-Forwarded-Uri",
		"host":        "X-Forwarded-Host",
		"method":      "X-Forwarded-Method",
	}
	for _, tt := range tests {
		got := readings(t, DefaultConfig(), tt.source, headers[tt.source], tt.sent)
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s of %q: %q, want %q", tt.source, tt.sent, got, tt.want)
		}
	}
}

func TestPathCase(t *testing.T) {
	exact := DefaultConfig()
	exact.PathCase = PathCaseExact
	for sent, want := range map[string][]string{
		"/Login": {"/Login"}, "/Login;a": {"/Login;a", "/Login"}, "/A/../Login": {"/Login", "/A/../Login"},
	} {
		if got := readings(t, exact, "path", "X-Forwarded-Uri", sent); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", sent, got, want)
		}
	}
	if got := readings(t, exact, "template /tenants/{t}", "X-Forwarded-Uri", "/Tenants/a"); got != nil {
		t.Errorf("a template in another case: %q", got)
	}
}

// TestPlainPathsAllocateNothing: only what servers read differently costs memory.
func TestPlainPathsAllocateNothing(t *testing.T) {
	for _, p := range []string{"/", "/login", "/tenants/acme/login", "/a b/c.d-e_f~"} {
		at := target{path: p}
		if got := testing.AllocsPerRun(100, func() {
			var out values
			at.readPath(false, &out)
		}); got != 0 {
			t.Errorf("%s: %v allocations", p, got)
		}
	}
}

// TestWorkIsBounded: a path that costs too much to read is denied.
func TestWorkIsBounded(t *testing.T) {
	for _, p := range []string{
		strings.Repeat("/%2541;", 2000), strings.Repeat(`/..;#?\A`, 2000), strings.Repeat("/A", 8000),
	} {
		if got := readings(t, DefaultConfig(), "path", "X-Forwarded-Uri", p); len(got) > MaxValues {
			t.Errorf("%.20s: %d readings", p, len(got))
		}
	}
}

func BenchmarkReadings(b *testing.B) {
	for name, p := range map[string]string{"plain": "/tenants/acme/login", "capital": "/Tenants/acme/login",
		"parameters": "/tenants/acme/login;a=1", "worst": strings.Repeat(`/..;\A%25`, 1600)} {
		b.Run(name, func(b *testing.B) {
			at := splitTarget(p)
			b.ReportAllocs()
			for b.Loop() {
				var out values
				at.readPath(false, &out)
			}
		})
	}
}
