package answer

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

var (
	allowedBurst = counters.Decision{
		Allowed: true, Rule: "burst", Window: time.Minute, Limit: 100, Remaining: 45, ResetAfter: 29*time.Second + 1,
	}
	allowedDaily = counters.Decision{
		Allowed: true, Rule: "daily", Window: 24 * time.Hour, Limit: 1000, Remaining: 900,
		ResetAfter: 80000 * time.Second,
	}
	deniedBurst = counters.Decision{
		Rule: "burst", Window: time.Minute, Limit: 100, RetryAfter: 1500*time.Millisecond + 1, ResetAfter: time.Minute,
	}
	neverBurst = counters.Decision{
		Rule: "burst", Window: time.Minute, Limit: 100, Remaining: 60, RetryAfter: counters.Never,
		ResetAfter: 40 * time.Second,
	}
)

func written(t *testing.T, families []string, jitter float64, layers ...counters.Decision) (http.Header, int64) {
	t.Helper()
	h, err := NewHeaders(families, func() time.Time { return time.Unix(1_700_000_000, 0) },
		func() float64 { return jitter })
	testkit.Must(t, err)
	before := slices.Clone(layers)
	dst := http.Header{}
	retryAfter := h.Write(dst, layers)
	if !slices.Equal(layers, before) {
		t.Errorf("the caller's layers became %v", layers)
	}
	return dst, retryAfter
}

func TestHeaders(t *testing.T) {
	subsecond := counters.Decision{
		Allowed: true, Rule: "fast", Window: 1500 * time.Millisecond, Limit: 3, Remaining: 2,
		ResetAfter: time.Millisecond,
	}
	huge := counters.Decision{Allowed: true, Rule: "huge", Limit: 1<<64 - 1, Remaining: 1 << 60}
	otherBurst := allowedBurst
	otherBurst.Remaining = 99
	all := []string{Draft11, LegacyDelta}
	tests := []struct {
		name     string
		families []string
		layers   []counters.Decision
		want     map[string]string
	}{
		{
			"allowed, tightest first",
			all,
			[]counters.Decision{allowedDaily, {Allowed: true}, allowedBurst},
			map[string]string{
				"Ratelimit-Policy":  `"burst";q=100;w=60, "daily";q=1000;w=86400`,
				"Ratelimit":         `"burst";r=45;t=30, "daily";r=900;t=80000`,
				"X-Ratelimit-Limit": "100", "X-Ratelimit-Remaining": "45", "X-Ratelimit-Reset": "30"},
		},
		{"denied", all, []counters.Decision{allowedDaily, deniedBurst}, map[string]string{
			"Ratelimit-Policy":  `"burst";q=100;w=60, "daily";q=1000;w=86400`,
			"Ratelimit":         `"burst";r=0;t=2, "daily";r=900;t=80000`,
			"X-Ratelimit-Limit": "100", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "60",
			"Retry-After": "2", "X-Ratelimit-Retry-After": "2", "Cache-Control": "no-store"}},
		{"never", all, []counters.Decision{neverBurst}, map[string]string{
			"Ratelimit-Policy": `"burst";q=100;w=60`, "Ratelimit": `"burst";r=60;t=40`,
			"X-Ratelimit-Limit": "100", "X-Ratelimit-Remaining": "60", "X-Ratelimit-Reset": "40",
			"Cache-Control": "no-store"}},
		{"the default", nil, []counters.Decision{allowedBurst}, map[string]string{
			"Ratelimit-Policy": `"burst";q=100;w=60`, "Ratelimit": `"burst";r=45;t=30`,
			"X-Ratelimit-Limit": "100", "X-Ratelimit-Remaining": "45", "X-Ratelimit-Reset": "30"}},
		{"epoch", []string{LegacyEpoch}, []counters.Decision{deniedBurst}, map[string]string{
			"X-Ratelimit-Limit": "100", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "1700000060",
			"Retry-After": "2", "X-Ratelimit-Retry-After": "2", "Cache-Control": "no-store"}},
		{"epoch, rounded up", []string{LegacyEpoch}, []counters.Decision{allowedBurst}, map[string]string{
			"X-Ratelimit-Limit": "100", "X-Ratelimit-Remaining": "45", "X-Ratelimit-Reset": "1700000030"}},
		{"draft only", []string{Draft11}, []counters.Decision{deniedBurst}, map[string]string{
			"Ratelimit-Policy": `"burst";q=100;w=60`, "Ratelimit": `"burst";r=0;t=2`, "Retry-After": "2",
			"Cache-Control": "no-store"}},
		{"off", []string{HeadersOff}, []counters.Decision{allowedBurst}, map[string]string{}},
		{"off, denied", []string{HeadersOff}, []counters.Decision{deniedBurst},
			map[string]string{"Retry-After": "2", "Cache-Control": "no-store"}},
		{"no rule", all, []counters.Decision{{Allowed: true}, {Allowed: true}}, map[string]string{}},
		{"no layer", all, nil, map[string]string{}},
		{"a window of no whole seconds", []string{Draft11}, []counters.Decision{subsecond}, map[string]string{
			"Ratelimit-Policy": `"fast";q=3`, "Ratelimit": `"fast";r=2;t=1`}},
		{"beyond an Integer", []string{Draft11}, []counters.Decision{huge}, map[string]string{
			"Ratelimit-Policy": `"huge";q=999999999999999`, "Ratelimit": `"huge";r=999999999999999;t=0`}},
		{
			"layers of one rule",
			[]string{Draft11},
			[]counters.Decision{otherBurst, allowedDaily, allowedBurst},
			map[string]string{
				"Ratelimit-Policy": `"burst";q=100;w=60, "daily";q=1000;w=86400`,
				"Ratelimit":        `"burst";r=45;t=30, "daily";r=900;t=80000`},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			header, _ := written(t, tt.families, 0, tt.layers...)
			got := map[string]string{}
			for name, values := range header {
				if len(values) != 1 || name != http.CanonicalHeaderKey(name) {
					t.Errorf("%s: %q", name, values)
				}
				got[name] = values[0]
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestHeadersKeepOthers(t *testing.T) {
	h, err := NewHeaders(nil, nil, nil)
	testkit.Must(t, err)
	dst := http.Header{"Ratelimit": {"stale"}, "X-Other": {"kept"}}
	h.Write(dst, []counters.Decision{allowedBurst})
	dst.Add("Ratelimit", "appended")
	if got := dst["X-Ratelimit-Limit"]; dst.Get("X-Other") != "kept" || len(got) != 1 || got[0] != "100" ||
		dst.Get("RateLimit") != `"burst";r=45;t=30` {
		t.Errorf("headers %q", dst)
	}
}

// Append returns the fields that Write sets.
func TestHeadersAppend(t *testing.T) {
	for _, families := range [][]string{nil, {Draft11}, {LegacyEpoch}, {HeadersOff}} {
		h, err := NewHeaders(families, func() time.Time { return time.Unix(1_700_000_000, 1) },
			func() float64 { return 0 })
		testkit.Must(t, err)
		for _, layers := range [][]counters.Decision{
			nil, {{Allowed: true}}, {allowedBurst}, {allowedBurst, {Rule: "never", RetryAfter: counters.Never}},
			{{Rule: "x", RetryAfter: 1e9}},
		} {
			written := make(http.Header)
			retryAfter := h.Write(written, layers)
			fields, again := h.Append([]Field{{"First", "1"}}, layers)
			if again != retryAfter || fields[0] != (Field{"First", "1"}) || len(fields) != 1+len(written) {
				t.Errorf("%v: %v and %d, want %v and %d", layers, fields, again, written, retryAfter)
			}
			for _, f := range fields[1:] {
				if got := written[f.Name]; len(got) != 1 || got[0] != f.Value {
					t.Errorf("%v: %s is %q, want %q", layers, f.Name, f.Value, got)
				}
			}
		}
	}
}

func TestUnixUp(t *testing.T) {
	for at, want := range map[time.Time]int64{
		time.Unix(10, 0): 10, time.Unix(10, 1): 11, time.Unix(10, 999_999_999): 11,
	} {
		if got := UnixUp(at); got != want {
			t.Errorf("%v: %d, want %d", at, got, want)
		}
	}
}

func TestRetryAfterJitter(t *testing.T) {
	for _, tt := range []struct {
		wait   time.Duration
		jitter float64
		want   int64
	}{
		{100 * time.Second, 0, 100},
		{100 * time.Second, 0.01, 101},
		{100 * time.Second, 0.5, 102},
		{100 * time.Second, 0.999999, 103},
		{10 * time.Millisecond, 0.999999, 1},
		{time.Second, 0.999999, 2},
		{366 * 24 * time.Hour, 0.999999, 32571072},
	} {
		d := deniedBurst
		d.RetryAfter = tt.wait
		header, got := written(t, nil, tt.jitter, d)
		if got != tt.want || header.Get("Retry-After") != fmt.Sprint(tt.want) ||
			header.Get("X-RateLimit-Retry-After") != fmt.Sprint(tt.want) {
			t.Errorf("%v with %v: %d and %q, want %d", tt.wait, tt.jitter, got, header, tt.want)
		}
	}
}

// Retry-After is never before the t of the denied policies, nor more than 3 % and the rounding after it.
func TestRetryAfterIsNeverEarlierThanT(t *testing.T) {
	h, err := NewHeaders(nil, nil, nil) // the real jitter
	testkit.Must(t, err)
	for wait := time.Duration(1); wait < 400*24*time.Hour; wait = wait*3/2 + 1 {
		d, shorter := deniedBurst, deniedBurst
		d.RetryAfter, shorter.Rule, shorter.RetryAfter = wait, "shorter", wait/2
		dst := http.Header{}
		got := h.Write(dst, []counters.Decision{shorter, d})
		for _, p := range parseList(t, dst.Get("Ratelimit")) {
			if int64(p.params["t"]) > got {
				t.Errorf("after %v: Retry-After %d, RateLimit %s", wait, got, dst.Get("Ratelimit"))
			}
		}
		if most := wait.Seconds()*1.03 + 1; float64(got) > most {
			t.Errorf("after %v: Retry-After %d, at most %v", wait, got, most)
		}
	}
}

func TestHeadersBounded(t *testing.T) {
	var layers []counters.Decision
	for i := range 32 {
		d := allowedBurst
		d.Rule, d.Remaining = strings.Repeat(string(rune('a'+i)), 200), uint64(32-i)
		layers = append(layers, d)
	}
	header, _ := written(t, []string{Draft11}, 0, layers...)
	policies, limits := parseList(t, header.Get("Ratelimit-Policy")), parseList(t, header.Get("Ratelimit"))
	if len(policies) != len(limits) || len(policies) < 2 ||
		max(len(header.Get("Ratelimit-Policy")), len(header.Get("Ratelimit"))) > maxField {
		t.Errorf("%d policies in %d bytes, %d limits in %d", len(policies), len(header.Get("Ratelimit-Policy")),
			len(limits), len(header.Get("Ratelimit")))
	}
	for i := range limits {
		if policies[i].name != limits[i].name || limits[i].params["r"] != uint64(i+1) {
			t.Errorf("place %d: policy %.9s, limit %.9s with %v left", i, policies[i].name, limits[i].name,
				limits[i].params)
		}
	}
	// The tightest is named however long it is.
	long := allowedBurst
	long.Rule = strings.Repeat("\xff", counters.MaxRuleName*2)
	header, _ = written(t, []string{Draft11}, 0, allowedDaily, long)
	if got := parseList(t, header.Get("Ratelimit-Policy")); len(got) != 1 || got[0].name != long.Rule {
		t.Errorf("%d policies", len(got))
	}
}

func TestHostileRuleNames(t *testing.T) {
	names := map[string]string{
		`say "hi"`:                     `"say \"hi\""`,
		`back\slash`:                   `"back\\slash"`,
		"split\r\nSet-Cookie: a=b\r\n": `"split%0D%0ASet-Cookie: a=b%0D%0A"`,
		"tab\tnul\x00del\x7f":          `"tab%09nul%00del%7F"`,
		"élan 😀":                       `"%C3%A9lan %F0%9F%98%80"`,
		"\xff":                         `"%FF"`,
		"100%":                         `"100%25"`,
		`a", "b`:                       `"a\", \"b"`,
	}
	for name, want := range names {
		d := deniedBurst
		d.Rule = name
		header, _ := written(t, nil, 0, allowedDaily, d)
		if got := header.Get("Ratelimit-Policy"); got != want+`;q=100;w=60, "daily";q=1000;w=86400` {
			t.Errorf("%q: RateLimit-Policy: %s", name, got)
		}
		if got := header.Get("Ratelimit"); got != want+`;r=0;t=2, "daily";r=900;t=80000` {
			t.Errorf("%q: RateLimit: %s", name, got)
		}
	}
}

// FuzzHeaderNames: whatever rules are called, a reader of the lists finds just those names again, and no header splits.
func FuzzHeaderNames(f *testing.F) {
	f.Add("burst", "daily")
	f.Add("a\", \"b;q=1", "\\")
	f.Add("\r\n", "%0D%0A")
	f.Add("é", "\xc3\xa9%")
	f.Fuzz(func(t *testing.T, first, second string) {
		a, b := deniedBurst, allowedDaily
		a.Rule, b.Rule = first, second
		header, _ := written(t, nil, 0, a, b)
		for name, values := range header {
			for _, v := range values {
				if i := strings.IndexFunc(v, func(r rune) bool { return r < ' ' || r > '~' }); i >= 0 {
					t.Fatalf("%s: %q", name, v)
				}
			}
		}
		want := slices.DeleteFunc(slices.Compact([]string{first, second}), func(s string) bool { return s == "" })
		for _, field := range []string{"Ratelimit-Policy", "Ratelimit"} {
			var got []string
			if v := header.Get(field); v != "" {
				for _, p := range parseList(t, v) {
					got = append(got, p.name)
				}
			}
			// A long list may end early, but not before its first policy.
			short := 3*(len(first)+len(second)) < maxField/2
			if len(got) < min(1, len(want)) || short && len(got) < len(want) || !slices.Equal(got, want[:len(got)]) {
				t.Fatalf("%s: %q, want %q", field, got, want)
			}
		}
	})
}

type item struct {
	name   string
	params map[string]uint64
}

// parseList reads a list of Strings with Integer parameters (RFC 9651, section 4.2) and undoes the percent-encoding.
func parseList(t *testing.T, s string) []item {
	t.Helper()
	var items []item
	for {
		if !strings.HasPrefix(s, `"`) {
			t.Fatalf("no String at %q", s)
		}
		var name strings.Builder
		i := 1
		for ; s[i] != '"'; i++ {
			if s[i] == '\\' {
				i++
			}
			name.WriteByte(s[i])
		}
		decoded, err := url.PathUnescape(name.String())
		testkit.Must(t, err)
		it := item{decoded, map[string]uint64{}}
		params, rest, more := strings.Cut(s[i+1:], ", ")
		for _, p := range strings.Split(params, ";")[1:] {
			key, value, _ := strings.Cut(p, "=")
			if it.params[key], err = strconv.ParseUint(value, 10, 64); err != nil || len(value) > 15 {
				t.Fatalf("parameter %q: %v", p, err)
			}
		}
		items = append(items, it)
		if !more {
			return items
		}
		s = rest
	}
}

// Clients of gRPC wait at least as long as those of HTTP, in milliseconds.
func TestPushback(t *testing.T) {
	h, err := NewHeaders(nil, nil, func() float64 { return 0.5 })
	testkit.Must(t, err)
	for wait, want := range map[time.Duration]int64{
		counters.Never: -1, 1: 1, time.Millisecond: 2, 2 * time.Second: 2030, 10 * time.Millisecond: 11,
	} {
		if got := h.Pushback(wait); got != want {
			t.Errorf("after %v: %d, want %d", wait, got, want)
		}
	}
}

func BenchmarkHeaders(b *testing.B) {
	h, err := NewHeaders(nil, nil, nil)
	testkit.Must(b, err)
	dst := http.Header{}
	for name, layers := range map[string][]counters.Decision{"one": {allowedBurst}, "denied of two": {allowedDaily,
		deniedBurst}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				h.Write(dst, layers)
			}
		})
	}
}

func TestHeadersAllocations(t *testing.T) {
	h, err := NewHeaders(nil, nil, nil)
	testkit.Must(t, err)
	dst, layers := http.Header{}, []counters.Decision{allowedDaily, deniedBurst}
	if got := testing.AllocsPerRun(200, func() { h.Write(dst, layers) }); got > 2 && !testkit.Enabled {
		t.Errorf("%v allocations, want the text and the list only", got)
	}
}

func TestProblemWritesItsJSON(t *testing.T) {
	p := NewDenial(429, []counters.Decision{{Rule: "x", Limit: 5, RetryAfter: 1e9}}, 2)
	w := httptest.NewRecorder()
	p.Write(w)
	if got := string(p.JSON()); got != w.Body.String() || w.Header().Get("Content-Type") != ProblemType ||
		w.Code != 429 {
		t.Errorf("%d %s, want %s", w.Code, w.Body, got)
	}
}
