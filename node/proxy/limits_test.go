package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// A denied request reaches no upstream, and its client learns why and until when.
func TestDenial(t *testing.T) {
	p := open(t, always(exhausted), nil, backend(t, func(http.ResponseWriter, *http.Request) { t.Error("it arrives") }))
	for _, h2 := range []bool{false, true} {
		r, _ := http.NewRequestWithContext(t.Context(), "POST", p.url, strings.NewReader("body"))
		resp, body := do(t, clientOf(t, h2), r)
		var problem struct {
			Status   int
			Violated []string `json:"violated-policies"`
		}
		if err := json.Unmarshal([]byte(body), &problem); err != nil || problem.Status != 429 ||
			!slices.Equal(problem.Violated, []string{"burst"}) {
			t.Errorf("body %s, %v", body, err)
		}
		if resp.StatusCode != 429 || resp.Header.Get("Content-Type") != answer.ProblemType ||
			resp.Header.Get("Retry-After") < "7" || resp.Header.Get("Cache-Control") != "no-store" ||
			resp.Header.Get("RateLimit") != `"burst";r=0;t=7` {
			t.Errorf("%s %v", resp.Status, resp.Header)
		}
	}
}

func TestDenialPage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "slow down.html")
	testkit.Must(t, os.WriteFile(file, []byte("<p>slow down"), 0o600))
	p := open(t, always(exhausted), func(c *Config, _ *Options) { c.DenialPage = file }, "http://127.0.0.1:1")
	resp, body := get(t, p.url)
	if resp.StatusCode != 429 || body != "<p>slow down" ||
		resp.Header.Get("Content-Type") != "text/html; charset=utf-8" ||
		resp.Header.Get("Retry-After") == "" || resp.Header.Get("RateLimit") == "" {
		t.Errorf("%s %v %s", resp.Status, resp.Header, body)
	}
	r, _ := http.NewRequestWithContext(t.Context(), "HEAD", p.url, nil)
	if resp, body := do(t, clientOf(t, false), r); resp.StatusCode != 429 || body != "" || resp.ContentLength != 12 {
		t.Errorf("HEAD: %s %v %s", resp.Status, resp.Header, body)
	}
}

// A browser shows a page of another origin a denial only with headers of CORS, which are the operator's to choose.
func TestDenialHeaders(t *testing.T) {
	cors := map[string]string{"access-control-allow-origin": "https://shop.example",
		"Access-Control-Expose-Headers": "Retry-After, RateLimit", "Vary": "Origin"}
	up := backend(t, func(http.ResponseWriter, *http.Request) {})
	for denies, limiter := range map[bool]*script{true: always(exhausted), false: always(plenty)} {
		p := open(t, limiter, func(c *Config, _ *Options) { c.DenialHeaders = cors }, up)
		resp, _ := get(t, p.url, "Origin", "https://shop.example")
		for name, value := range cors {
			if got := resp.Header.Get(name); denies != (got == value) {
				t.Errorf("%s: %s is %q", resp.Status, name, got)
			}
		}
		if denies != (resp.StatusCode == 429 && resp.Header.Get("Retry-After") != "") {
			t.Errorf("%s %v", resp.Status, resp.Header)
		}
	}
}

// Files of the configuration that cannot be used are errors that name the setting.
func TestUnusableFiles(t *testing.T) {
	dir := t.TempDir()
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "page"), nil, 0o600))
	for want, change := range map[string]func(*Config){
		"denial_page: open":         func(c *Config) { c.DenialPage = filepath.Join(dir, "none.html") },
		"gives no content type":     func(c *Config) { c.DenialPage = filepath.Join(dir, "page") },
		"access_log: open":          func(c *Config) { c.AccessLog.File = filepath.Join(dir, "none", "a.log") },
		"upstreams: none":           func(c *Config) { c.Upstreams = nil },
		`denial_headers: "a b"`:     func(c *Config) { c.DenialHeaders = map[string]string{"a b": "c"} },
		`"a": "b\r\nc": want`:       func(c *Config) { c.DenialHeaders = map[string]string{"a": "b\r\nc"} },
		"says nothing of":           func(c *Config) { c.DenialHeaders = map[string]string{"content-length": "1"} },
		`"http://a/b": want`:        func(c *Config) { c.Upstreams = []string{"http://a/b"} },
		`"ftp://a": want`:           func(c *Config) { c.Upstreams = []string{"ftp://a"} },
		"routes: route 1: host":     func(c *Config) { c.Routes = []Route{{Host: "A:80"}} },
		"routes: route 1: path":     func(c *Config) { c.Routes = []Route{{Path: "api"}} },
		`method: "get", want "GET"`: func(c *Config) { c.Routes = []Route{{Method: "get"}} },
		"route 1: descriptor 1, a": func(c *Config) {
			c.Routes = []Route{{Descriptors: []actions.Descriptor{{{Key: "a", Source: "b"}}}}}
		},
		"timeouts.idle: 0s":         func(c *Config) { c.Timeouts.Idle = 0 },
		"timeouts.first_byte: -1s":  func(c *Config) { c.Timeouts.FirstByte = -time.Second },
		"retries: 11":               func(c *Config) { c.Retries = 11 },
		`format: "xml"`:             func(c *Config) { c.AccessLog.Format = "xml" },
		`health.path: "healthz"`:    func(c *Config) { c.Health.Path = "healthz" },
		"max_body_bytes: -1":        func(c *Config) { c.MaxBodyBytes = -1 },
		"max_header_bytes: 1,":      func(c *Config) { c.MaxHeaderBytes = 1 },
		"healthy 0 and unhealthy 3": func(c *Config) { c.Health.Healthy = 0 },
	} {
		cfg := DefaultConfig()
		cfg.Listen, cfg.Upstreams = "127.0.0.1:0", []string{"http://a"}
		change(&cfg)
		if _, err := New(always(plenty), cfg, Options{Requests: actions.DefaultConfig()}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// The client never sees more remaining than there is here or at the upstream.
func TestHeadersAreNeverLooser(t *testing.T) {
	ours := map[string]string{"Ratelimit": `"burst";r=45;t=30`, "Ratelimit-Policy": `"burst";q=100;w=60`,
		"X-Ratelimit-Limit": "100", "X-Ratelimit-Remaining": "45", "X-Ratelimit-Reset": "30"}
	for _, test := range []struct {
		name           string
		upstream, want map[string]string // want changes ours; "-" means absent
	}{
		{"none", nil, nil},
		{"a looser list", map[string]string{"Ratelimit": `"app";r=90;t=9`, "Ratelimit-Policy": `"app";q=200;w=60`},
			map[string]string{"Ratelimit": `"burst";r=45;t=30, "app";r=90;t=9`,
				"Ratelimit-Policy": `"burst";q=100;w=60, "app";q=200;w=60`}},
		{"a tighter list", map[string]string{"Ratelimit": `"a,\"b;r=1";r=3;t=9, "x";t=1`,
			"Ratelimit-Policy": `"a,\"b;r=1";q=9`},
			map[string]string{"Ratelimit": `"a,\"b;r=1";r=3;t=9, "x";t=1, "burst";r=45;t=30`,
				"Ratelimit-Policy": `"a,\"b;r=1";q=9, "burst";q=100;w=60`}},
		{"the same name, tighter", map[string]string{"Ratelimit": `"burst";r=3;t=9`, "Ratelimit-Policy": `"burst";q=9`},
			map[string]string{"Ratelimit": `"burst";r=3;t=9`, "Ratelimit-Policy": `"burst";q=9`}},
		{"the same name, looser", map[string]string{"Ratelimit": `"burst";r=46;t=9`,
			"Ratelimit-Policy": `"burst";q=99`}, nil},
		{"a tighter dictionary", map[string]string{"Ratelimit": `limit=9, remaining=3, reset=1`,
			"Ratelimit-Policy": `9;w=1`},
			map[string]string{"Ratelimit": `limit=9, remaining=3, reset=1`, "Ratelimit-Policy": `9;w=1`}},
		{"a looser dictionary", map[string]string{"Ratelimit": `limit=99, remaining=50, reset=1`,
			"Ratelimit-Policy": `99;w=1`}, nil},
		{"no list at all", map[string]string{"Ratelimit": `;;`, "Ratelimit-Policy": `"`}, nil},
		{"an unclosed list", map[string]string{"Ratelimit": `"a;r=1`}, nil},
		{"tighter numbers", map[string]string{"X-Ratelimit-Limit": "9", "X-Ratelimit-Remaining": "3",
			"X-Ratelimit-Reset": "77"},
			map[string]string{"X-Ratelimit-Limit": "9", "X-Ratelimit-Remaining": "3", "X-Ratelimit-Reset": "77"}},
		{"looser numbers", map[string]string{"X-Ratelimit-Limit": "99", "X-Ratelimit-Remaining": "46",
			"X-Ratelimit-Reset": "7"},
			nil},
		{"a limit alone", map[string]string{"X-Ratelimit-Limit": "9"}, nil},
		{"numbers that are none", map[string]string{"X-Ratelimit-Remaining": "many"}, nil},
		{"several numbers", map[string]string{"X-Ratelimit-Remaining": "90, 3;w=60"},
			map[string]string{"X-Ratelimit-Limit": "-", "X-Ratelimit-Remaining": "90, 3;w=60",
				"X-Ratelimit-Reset": "-"}},
		{"an older draft, looser", map[string]string{"Ratelimit-Limit": "99", "Ratelimit-Remaining": "98",
			"Ratelimit-Reset": "7"},
			map[string]string{"Ratelimit-Limit": "100", "Ratelimit-Remaining": "45", "Ratelimit-Reset": "30"}},
		{"an older draft, tighter", map[string]string{"Ratelimit-Limit": "9", "Ratelimit-Remaining": "8",
			"Ratelimit-Reset": "7"},
			map[string]string{"Ratelimit-Limit": "9", "Ratelimit-Remaining": "8", "Ratelimit-Reset": "7"}},
		{"yet another family", map[string]string{"X-Rate-Limit-Remaining": "98"},
			map[string]string{"X-Rate-Limit-Limit": "100", "X-Rate-Limit-Remaining": "45", "X-Rate-Limit-Reset": "30"}},
	} {
		p := open(t, always(plenty), nil, backend(t, func(w http.ResponseWriter, _ *http.Request) {
			for name, value := range test.upstream {
				w.Header().Set(name, value)
			}
		}))
		resp, _ := get(t, p.url)
		want := map[string]string{}
		for _, all := range []map[string]string{ours, test.want} {
			for name, value := range all {
				want[name] = value
			}
		}
		for name, value := range want {
			if got := strings.Join(resp.Header[name], "|"); got != strings.Trim(value, "-") {
				t.Errorf("%s: %s is %q, want %q", test.name, name, got, value)
			}
		}
	}
}

// As many policies as the largest header has take as long as their bytes, and not as their square.
func TestCombiningIsLinear(t *testing.T) {
	var limits, policies strings.Builder
	for i := range 300_000 { // some times as many as there is room for
		fmt.Fprintf(&limits, `"policy %d";r=%d, `, i, 100+i)
		fmt.Fprintf(&policies, `"policy %d";q=9, `, i)
	}
	h := http.Header{limitField: {limits.String()}, policyField: {policies.String()}}
	began := time.Now()
	combineLists(h, map[string]string{limitField: `"burst";r=45;t=30`, policyField: `"burst";q=100;w=60`}, 45)
	if got := h.Get(limitField); !strings.HasPrefix(got, `"burst";r=45;t=30, "policy 0"`) ||
		len(items(got)) != 300_001 || len(items(h.Get(policyField))) != 300_001 ||
		time.Since(began) > testkit.Patience {
		t.Errorf("%.100s after %v", got, time.Since(began))
	}
}

// With other families of headers the same holds, and without any the upstream's pass.
func TestHeaderFamilies(t *testing.T) {
	for family, want := range map[string][2]string{
		answer.HeadersOff: {"99", ""}, answer.Draft11: {"45", `"burst";r=45;t=30`}, answer.LegacyDelta: {"45", ""},
	} {
		p := open(t, always(plenty), func(_ *Config, o *Options) { o.Headers = []string{family} },
			backend(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-RateLimit-Remaining", "99") }))
		resp, _ := get(t, p.url)
		if got := resp.Header; got.Get("X-RateLimit-Remaining") != want[0] || got.Get("RateLimit") != want[1] {
			t.Errorf("%s: %v", family, got)
		}
	}
}

// Responses that the proxy makes itself have headers too.
func TestHeadersOfErrors(t *testing.T) {
	p := open(t, always(plenty), func(c *Config, _ *Options) { c.MaxBodyBytes = 3 }, "http://127.0.0.1:1")
	resp, body := get(t, p.url)
	if resp.StatusCode != 502 || resp.Header.Get("RateLimit") != `"burst";r=45;t=30` || strings.Contains(body,
		"127.0.0.1") {
		t.Errorf("%s %v %s", resp.Status, resp.Header, body)
	}
	if !p.log.HasLine("level=WARN", "upstream=http://127.0.0.1:1", "refused", "check that it runs") {
		t.Errorf("the log says %s", p.log)
	}
}

// A route whose descriptors are an empty list limits nothing; one without the setting has those of all requests.
func TestRouteWithoutDescriptors(t *testing.T) {
	l := always(exhausted)
	p := open(t, l, func(c *Config, o *Options) {
		c.Routes = []Route{{Method: "OPTIONS", Descriptors: []actions.Descriptor{}}, {Path: "/static",
			Descriptors: []actions.Descriptor{}}, {Path: "/limited"}}
	}, backend(t, func(http.ResponseWriter, *http.Request) {}))
	for request, want := range map[string]int{"OPTIONS /limited": 200, "GET /static/a.css": 200, "GET /limited": 429,
		"GET /": 429, "GET /static/..%2flimited": 429, "GET /staticky": 429} {
		method, path, _ := strings.Cut(request, " ")
		r, _ := http.NewRequestWithContext(t.Context(), method, p.url+path, nil)
		if resp, _ := do(t, clientOf(t, false), r); resp.StatusCode != want {
			t.Errorf("%s: %s, want %d", request, resp.Status, want)
		}
	}
	r, _ := http.NewRequestWithContext(t.Context(), "GET", "http://a/static/x", nil)
	r.RequestURI = "/static/x"
	all, err := p.cfg.Explain(actions.DefaultConfig(), r)
	if err != nil || len(all) != 1 || all[0].Route != 2 || len(all[0].Descriptors) > 0 ||
		len(all[0].Request.Descriptors) > 0 {
		t.Errorf("it is explained as %+v, %v", all, err)
	}
}

// The first route that matches has its own domain, descriptors and cost.
func TestRoutes(t *testing.T) {
	by := func(name string) []actions.Descriptor { return []actions.Descriptor{{{Key: name, Source: "text x"}}} }
	l := always(plenty)
	p := open(t, l, func(c *Config, o *Options) {
		o.Requests.Descriptors = by("other")
		c.Routes = []Route{
			{Host: "a.example", Path: "/login", Method: "POST", Domain: "auth", Descriptors: by("login"),
				Cost: new(uint64(5))},
			{Host: "*.b.example", Descriptors: by("below"), Cost: new(uint64(0))},
			{Path: "/API/", Descriptors: by("api")},
			{Method: "DELETE"},
		}
	}, backend(t, func(http.ResponseWriter, *http.Request) {}))
	for _, test := range []struct {
		method, host, path string
		want               string
	}{
		{"POST", "a.example", "/login", "login"},
		{"POST", "A.Example.:80", "/login/x?y", "login"},
		{"GET", "a.example", "/login", "other"},
		{"POST", "b.example", "/login", "other"},
		{"POST", "a.example", "/loginx", "other"},
		{"POST", "x.b.example", "/login", "below"},
		{"POST", "xb.example", "/login", "other"},
		{"GET", "c", "/api", "api"},
		{"GET", "c", "/Api/x", "api"},
		{"GET", "c", "/apix", "other"},
		{"DELETE", "c", "/", "other"},
		{"post", "a.example", "/login", "login"},
		// Each reading of the path counts.
		{"POST", "a.example", "/%6cogin", "login"},
		{"POST", "a.example", "/x/../login", "login other"},
		{"POST", "a.example", "/login;x", "login other"},
		{"POST", "a.example", "//a/login", "login other"},
		{"GET", "c", "/api/..;/x", "api other"},
	} {
		l.requests = nil
		r, err := http.NewRequestWithContext(t.Context(), test.method, p.url+test.path, nil)
		testkit.Must(t, err)
		do(t, clientOf(t, false), r, "Host", test.host)
		var got []string
		for _, req := range l.requests {
			got = append(got, req.Descriptors[0][0].Key)
			if login := got[len(got)-1] == "login"; login && (req.Domain != "auth" || req.Cost != 5) ||
				!login && (req.Domain != "edge" || req.Cost > 1) || req.Peek != (test.want == "below") {
				t.Errorf("%+v: domain %s, cost %d", test, req.Domain, req.Cost)
			}
		}
		slices.Sort(got)
		if strings.Join(got, " ") != test.want {
			t.Errorf("%+v: %q", test, got)
		}
	}
	if resp, _ := get(t, p.url+"/A%23;%3fB%5c%252f/../;x"); resp.StatusCode != 400 {
		t.Errorf("a path of too many readings gets %s", resp.Status)
	}
}

// The routes that a path in an odd form meets decide in turn, and the first that denies ends it.
func TestRoutesDecideInTurn(t *testing.T) {
	l := &script{answer: func(req *rules.Request) []counters.Decision {
		if req.Descriptors[0][0].Value == "second" {
			return []counters.Decision{exhausted}
		}
		return []counters.Decision{plenty}
	}}
	p := open(t, l, func(c *Config, _ *Options) {
		for path, is := range map[string]string{"/x": "first", "/a": "second"} {
			c.Routes = append(c.Routes, Route{Path: path,
				Descriptors: []actions.Descriptor{{{Key: "route", Source: "text " + is}}}})
		}
	}, "http://127.0.0.1:1")
	for path, want := range map[string][]string{
		"/x": {"first"}, "/a": {"second"}, "/x/..;/a": {"first", "second"}, "/a/..;/x": {"second"},
	} {
		l.requests = nil
		resp, _ := get(t, p.url+path)
		denied := resp.StatusCode == 429
		if got := l.seen("route"); !slices.Equal(got, want) || denied != slices.Contains(want, "second") {
			t.Errorf("%s gets %s, decided by %q, want %q", path, resp.Status, got, want)
		}
	}
}

// A request that the actions deny reaches no upstream, nor does one that cannot be counted.
func TestIrregularRequests(t *testing.T) {
	up := backend(t, func(http.ResponseWriter, *http.Request) {})
	l := always(plenty)
	p := open(t, l, func(_ *Config, o *Options) {
		o.Requests.Descriptors = []actions.Descriptor{{{Key: "key", Source: "header X-Key"},
			{Key: actions.OnMissing, Source: actions.Deny}}}
	}, up)
	if resp, body := get(t, p.url); resp.StatusCode != 400 || !strings.Contains(body, "header X-Key") ||
		resp.Header.Get("X-RL-Reason") != actions.DeniedMissing {
		t.Errorf("%s %s", resp.Status, body)
	}
	p = open(t, l, func(_ *Config, o *Options) {
		o.Requests.Descriptors = []actions.Descriptor{{{Key: "key", Source: "header X-Key"}}}
	}, up)
	if resp, _ := get(t, p.url); resp.StatusCode != 200 || !p.log.HasLine("without a descriptor", "hint=") ||
		p.Stats().Described[0].NoDescriptor != 1 {
		t.Errorf("without a descriptor: %s, %s", resp.Status, p.log)
	}
}

// A route says what happens to requests that cannot be decided, and the limiter learns of it. Of a request that meets
// several routes one that denies is enough.
func TestRouteOnFailure(t *testing.T) {
	up := backend(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "up") })
	for _, of := range []rules.Failure{rules.FailUnset, rules.FailOpen, rules.FailClosed, rules.FailLocal} {
		l := &script{err: errors.New("broken")}
		p := open(t, l, func(c *Config, o *Options) {
			c.Routes = []Route{{Path: "/feed", OnFailure: rules.FailOpen}, {Path: "/pay", OnFailure: rules.FailClosed},
				{Path: "/local", OnFailure: rules.FailLocal}}
			o.OnFailure = of
		}, up)
		others := 200
		if of == rules.FailClosed {
			others = 429
		}
		for _, test := range []struct {
			path   string
			status int
			asked  []rules.Failure
		}{
			{"/feed", 200, []rules.Failure{rules.FailOpen}},
			{"/pay", 429, []rules.Failure{rules.FailClosed}},
			{"/local", 200, []rules.Failure{rules.FailLocal}},
			{"/", others, []rules.Failure{rules.FailUnset}},
			{"/feed/..;/pay", 0, nil},
		} {
			l.mu.Lock()
			l.requests = nil
			l.mu.Unlock()
			resp, body := get(t, p.url+test.path)
			var asked []rules.Failure
			l.mu.Lock()
			for _, req := range l.requests {
				asked = append(asked, req.OnFailure)
			}
			l.mu.Unlock()
			if test.status == 0 { // it meets both routes, and before the second that of all requests
				if resp.StatusCode != 429 || of != rules.FailClosed && !slices.Contains(asked, rules.FailClosed) {
					t.Errorf("%v %s: %s, asked with %v", of, test.path, resp.Status, asked)
				}
				continue
			}
			if resp.StatusCode != test.status || (body == "up") != (test.status == 200) ||
				!slices.Equal(asked, test.asked) {
				t.Errorf("%v %s: %s %s, asked with %v", of, test.path, resp.Status, body, asked)
			}
			if test.status == 429 && (resp.Header.Get("Retry-After") == "" ||
				!strings.Contains(body, "cannot be decided now")) {
				t.Errorf("%v %s: %v %s", of, test.path, resp.Header, body)
			}
		}
		if !p.log.HasLine("could not be decided", "admitted=true") ||
			!p.log.HasLine("could not be decided", "admitted=false", "broken") {
			t.Errorf("the log says %s", p.log)
		}
	}
}

// A request that a queue delays waits for its turn, and leaves if its client does.
func TestQueue(t *testing.T) {
	var delay atomic.Int64
	delay.Store(int64(50 * time.Millisecond))
	l := &script{answer: func(*rules.Request) []counters.Decision {
		d := plenty
		d.Delay = time.Duration(delay.Load())
		return []counters.Decision{d}
	}}
	var arrived atomic.Int64
	p := open(t, l, nil, backend(t, func(http.ResponseWriter, *http.Request) { arrived.Add(1) }))
	began := time.Now()
	if resp, _ := get(t, p.url); resp.StatusCode != 200 || time.Since(began) < 50*time.Millisecond {
		t.Errorf("%s after %v", resp.Status, time.Since(began))
	}
	delay.Store(math.MaxInt64)
	ctx, cancel := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, "GET", p.url, nil)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if resp, err := clientOf(t, false).Do(r); err == nil {
			t.Errorf("it gets %s", resp.Status)
			_, _ = io.Copy(io.Discard, resp.Body)
		}
	}()
	testkit.Eventually(t, "it waits", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.requests) == 2
	})
	cancel()
	<-gone
	p.stop(testkit.Patience) // which waits for the request
	if arrived.Load() != 1 || p.Stats().Classes[4] != 1 {
		t.Errorf("%d arrived, %+v", arrived.Load(), p.Stats())
	}
}

// What was read of a body while its request waited reaches the upstream, with what comes later and the trailers; and
// nothing waits for the rest of it.
func TestBodiesOfQueuedRequests(t *testing.T) {
	d := plenty
	d.Delay = 20 * time.Millisecond
	parts := make(chan string, 10)
	p := open(t, always(d), func(c *Config, _ *Options) { c.MaxBodyBytes = 100_000 },
		backend(t, func(w http.ResponseWriter, r *http.Request) {
			first := make([]byte, 5)
			if _, err := io.ReadFull(r.Body, first); err == nil {
				parts <- string(first)
			}
			rest, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s%s %s", first, rest, r.Trailer.Get("Sum"))
		}))
	for _, size := range []int{5, 4096, 4097, 16 << 10, 16<<10 + 1, 99_999} {
		for _, length := range []int64{int64(size), -1} {
			body := strings.Repeat("0123456789", size/10+1)[:size]
			r, _ := http.NewRequestWithContext(t.Context(), "POST", p.url, strings.NewReader(body))
			r.ContentLength = length
			if length < 0 {
				r.Trailer = http.Header{"Sum": {"7"}}
			}
			want := body + " " + r.Trailer.Get("Sum")
			if resp, got := do(t, clientOf(t, false), r); resp.StatusCode != 200 || got != want {
				t.Errorf("%d bytes, length %d: %s, %d bytes", size, length, resp.Status, len(got))
			}
			<-parts
		}
	}
	conn := testkit.Dial(t, p.addr)
	_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nfirst")
	if got := <-parts; got != "first" {
		t.Errorf("before the rest has come the upstream has %q", got)
	}
	_, _ = io.WriteString(conn, "later")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	testkit.Must(t, err)
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); string(b) != "firstlater " {
		t.Errorf("%s %q", resp.Status, b)
	}
}

// A queued client that closes its side of the connection gets no response: its request was not served.
func TestQueuedClientThatGoesGetsNothing(t *testing.T) {
	d := plenty
	d.Delay = math.MaxInt64
	p := open(t, always(d), nil, "http://127.0.0.1:1")
	for _, request := range []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nbody"} {
		conn := testkit.Dial(t, p.addr)
		_, _ = io.WriteString(conn, request)
		_ = conn.(*net.TCPConn).CloseWrite()
		if b, _ := io.ReadAll(conn); len(b) != 0 {
			t.Errorf("%q gets %q", request, b)
		}
	}
}

// What strangers make net/http say is an attribute: the message is constant, so that it is counted as one kind.
func TestErrorLog(t *testing.T) {
	p := open(t, always(counters.Decision{}), nil, "http://127.0.0.1:1")
	p.server.ErrorLog.Print("http2: server connection error from 192.0.2.1:4711")
	if !p.log.HasLine(`msg="http server" detail="http2: server connection error from 192.0.2.1:4711"`) {
		t.Errorf("the log is %s", p.log)
	}
}
