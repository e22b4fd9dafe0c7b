package httpapi

import (
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/rules"
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

func TestCheckTranslatesRequests(t *testing.T) {
	entries := func(kv ...string) []rules.Entry {
		es := []rules.Entry{}
		for i := 0; i < len(kv); i += 2 {
			es = append(es, rules.Entry{Key: kv[i], Value: kv[i+1]})
		}
		return es
	}
	tests := []struct {
		body string
		want rules.Request
	}{
		{`{"rule":"login","identity":"1.2.3.4","cost":7}`, rules.Request{Rule: "login", Identity: "1.2.3.4", Cost: 7}},
		{`{"domain":"edge","rule":"login","peek":true}`, rules.Request{Domain: "edge", Rule: "login",
			Peek: true, Cost: 1}},
		{` { "peek" : false , "cost" : 0 } ` + "\n", rules.Request{Peek: true}},
		{`{"rule":"login","peek":true,"cost":3}`, rules.Request{Rule: "login", Peek: true, Cost: 3}},
		{`{}`, rules.Request{Cost: 1}},
		{`{"cost":18446744073709551615}`, rules.Request{Cost: 1<<64 - 1}},
		{
			`{"domain":"edge","descriptors":[[{"key":"path","value":"/login"},{"value":"a","key":"b"}],` +
				`[{"key":"bare"}],[]],"cost":1,"peek":false}`,
			rules.Request{
				Domain:      "edge",
				Cost:        1,
				Descriptors: [][]rules.Entry{entries("path", "/login", "b", "a"), entries("bare", ""), entries()},
			},
		},
		{`{"dom\u0061in":"\u00e9\"\\\/\n\ud83d\ude00","descriptors":[[{"key":"é]}\"","value":"{[,:"}]]}`,
			rules.Request{Domain: "é\"\\/\n😀", Cost: 1, Descriptors: [][]rules.Entry{entries("é]}\"", "{[,:")}}},
		{"{\"identity\":\"\"\r\n,\t\"descriptors\" : [ ] }", rules.Request{Cost: 1}},
	}
	l := always(counters.Decision{Allowed: true})
	h := New(l, quiet())
	for i, tt := range tests {
		if w := post(h, "/v1/check", tt.body); w.Code != 200 {
			t.Fatalf("%s: %d %s", tt.body, w.Code, w.Body)
		}
		if got := l.asked[i]; !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s\nasked %+v\nwant  %+v", tt.body, got, tt.want)
		}
	}
}

// Checks and reports charge what they say, and nothing for 0.
func TestCostsOfBodies(t *testing.T) {
	for _, c := range testkit.Costs {
		l := always(counters.Decision{Allowed: true})
		o := quiet()
		o.Reporter = l
		h := New(l, o)
		for _, path := range []string{"/v1/check", "/v1/report"} {
			w := post(h, path, `{"rule":"r","cost":`+c.Text+`}`)
			if c.OK != (w.Code == 200) || !c.OK && w.Code != 400 {
				t.Errorf("%s of %.30q: %d %s", path, c.Text, w.Code, w.Body)
			}
		}
		for _, got := range l.asked {
			if got.Peek != (c.Cost == 0) || got.Cost != c.Cost {
				t.Errorf("%.30q: asked %+v", c.Text, got)
			}
		}
	}
}

func TestCheckRefusesBodies(t *testing.T) {
	many := func(n int, what string) string { return strings.TrimSuffix(strings.Repeat(what+",", n), ",") }
	tests := []struct{ name, body, detail string }{
		{"nothing", "", "the body is empty"},
		{"white space", " \n", "not JSON"},
		{"half an object", `{"rule":"r"`, "not JSON: unexpected EOF at byte 11"},
		{"no JSON", `rule=r`, "not JSON: invalid character 'r' at start of value at byte 0"},
		{"trailing garbage", `{"rule":"r"} x`, "not JSON: it goes on at byte 13"},
		{"two objects", `{"rule":"r"}{"rule":"r"}`, "not JSON"},
		{"trailing comma", `{"rule":"r",}`, "not JSON"},
		{"not UTF-8", "{\"rule\":\"\xff\"}", "not UTF-8"},
		{"byte order mark", "\ufeff{}", "not JSON"},
		{"null", `null`, "a check is null (at byte 0): give an object"},
		{"an array", `[{"rule":"r"}]`, "a check is an array"},
		{"a string", `"rule"`, "a check is a string"},
		{"a number", `-1.5e3`, "a check is a number"},
		{"unknown field", `{"rule":"r","burst":1}`,
			`no field "burst" (at byte 12): it may have domain, descriptors, rule, identity, cost, peek, ` +
				`request_id, response`},
		{"an empty request_id", `{"rule":"r","request_id":""}`, "request_id has 0 bytes"},
		{
			"a long request_id",
			`{"rule":"r","request_id":"` + strings.Repeat("x", 129) + `"}`,
			"request_id has 129 bytes: give 1 to 128",
		},
		{"other letter case", `{"Rule":"r"}`, `no field "Rule"`},
		{"unknown field of an entry", `{"descriptors":[[{"key":"k","val":"v"}]]}`, `an entry has no field "val"`},
		{"hostile field", `{"\r\n\u0000` + strings.Repeat("x", 1000) + `":1}`, `no field "\r\n`},
		{"field twice", `{"cost":1,"cost":2}`, "cost twice"},
		{"rule is a number", `{"rule":1}`, "rule is a number (at byte 8): give a string"},
		{"rule is null", `{"rule":null}`, "rule is null"},
		{"identity is an object", `{"identity":{}}`, "identity is an object"},
		{"domain is true", `{"domain":true}`, "domain is true"},
		{"peek is a string", `{"peek":"true"}`, "peek is a string (at byte 8): give true or false"},
		{"peek is a number", `{"peek":1}`, "peek is a number"},
		{"cost is a string", `{"cost":"1"}`, "cost is a string (at byte 8): give a number"},
		{"cost is false", `{"cost":false}`, "cost is false"},
		{"negative cost", `{"cost":-1}`, "cost is -1 (at byte 8): give a whole number"},
		{"fractional cost", `{"cost":1.5}`, "cost is 1.5"},
		{"exponent", `{"cost":1e2}`, "cost is 1e2"},
		{"descriptors is an object", `{"descriptors":{}}`, "descriptors is an object (at byte 15): give an array"},
		{"a descriptor is an object", `{"descriptors":[{"key":"k"}]}`, "a descriptor is an object"},
		{"an entry is a string", `{"descriptors":[["k"]]}`, "an entry is a string"},
		{"a key is a number", `{"descriptors":[[{"key":1}]]}`, "key is a number"},
		{"a value is null", `{"descriptors":[[{"key":"k","value":null}]]}`, "value is null"},
		{"too many descriptors", `{"descriptors":[` + many(33, "[]") + `]}`, "more than 32 descriptors"},
		{"too many entries", `{"descriptors":[[` + many(33, "{}") + `]]}`, "more than 32 entries"},
		{"deep", strings.Repeat("[", 20000) + strings.Repeat("]", 20000), "a check is an array"},
		{"open and deep", strings.Repeat(`{"rule":`, 33), "rule is an object"},
		{"deep in a string only", `"` + strings.Repeat(`[\"`, 100) + `"`, "a check is a string"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := always(counters.Decision{Allowed: true})
			detail := wantProblem(t, post(New(l, quiet()), "/v1/check", tt.body), 400)
			if !strings.Contains(detail, tt.detail) {
				t.Errorf("detail %q does not say %q", detail, tt.detail)
			}
			if len(detail) > 2*maxDetail || len(l.asked) != 0 {
				t.Errorf("a detail of %d bytes; asked %v", len(detail), l.asked)
			}
		})
	}
}

func TestCheckAnswers(t *testing.T) {
	degraded, delayed := allowedDaily, allowedBurst
	degraded.Degraded = true
	delayed.Delay = 3*time.Millisecond + 1
	delayedMore := allowedDaily
	delayedMore.Delay = 5 * time.Millisecond
	waived := deniedBurst
	waived.Allowed, waived.Waived, waived.RetryAfter, waived.Mode = true, true, 0, counters.Shadow
	tests := []struct {
		name   string
		layers []counters.Decision
		want   string
	}{
		{"waived by its mode", []counters.Decision{waived},
			verdictJSON(true, `"burst"`, 100, 0, 60000, 0, 0, "shadow", false)},
		{"what is enforced speaks for the request", []counters.Decision{waived, allowedDaily},
			verdictJSON(true, `"daily"`, 1000, 900, 80000000, 0, 0, "enforce", false)},
		{"allowed", []counters.Decision{allowedBurst},
			verdictJSON(true, `"burst"`, 100, 45, 29001, 0, 0, "enforce", false)},
		{"denied", []counters.Decision{deniedBurst},
			verdictJSON(false, `"burst"`, 100, 0, 60000, 1501, 0, "enforce", false)},
		{"never", []counters.Decision{neverBurst},
			verdictJSON(false, `"burst"`, 100, 60, 40000, -1, 0, "enforce", false)},
		{"no rule", []counters.Decision{{Allowed: true}},
			verdictJSON(true, `""`, 0, 0, 0, 0, 0, "enforce", false)},
		{"one layer of three denies", []counters.Decision{{Allowed: true}, allowedDaily, deniedBurst},
			verdictJSON(false, `"burst"`, 100, 0, 60000, 1501, 0, "enforce", false)},
		{"any layer is degraded, the longest delay holds", []counters.Decision{delayed, degraded, delayedMore},
			verdictJSON(true, `"burst"`, 100, 45, 29001, 0, 5, "enforce", true)},
		{"who is denied is not delayed",
			[]counters.Decision{delayed, {Rule: "x", Limit: 1, RetryAfter: time.Nanosecond}},
			verdictJSON(false, `"x"`, 1, 0, 0, 1, 0, "enforce", false)},
		{"a rule with a hostile name", []counters.Decision{{Allowed: true, Rule: "a\"b\\\r\n\x00é\xff</script>"}},
			verdictJSON(true, `"a\"b\\\r\n\u0000é\ufffd</script>"`, 0, 0, 0, 0, 0, "enforce", false)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := post(New(always(tt.layers...), quiet()), "/v1/check", `{"rule":"r"}`)
			if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" {
				t.Errorf("status %d, Content-Type %q", w.Code, w.Header().Get("Content-Type"))
			}
			wantJSON(t, w.Body.String(), tt.want)
		})
	}
}

func TestCheckStatus(t *testing.T) {
	h := New(always(allowedDaily, deniedBurst), quiet())
	for query, status := range map[string]int{"": 200, "?status=0": 200, "?status": 200, "?x=1": 200, "?status=1": 429,
		"?x=%zz&status=1": 429} {
		if w := post(h, "/v1/check"+query, `{"rule":"r"}`); w.Code != status {
			t.Errorf("%q: %d, want %d", query, w.Code, status)
		}
	}
	if w := post(New(always(allowedBurst), quiet()), "/v1/check?status=1", `{"rule":"r"}`); w.Code != 200 {
		t.Errorf("allowed with ?status=1: %d", w.Code)
	}
}

func TestDenialIsAProblem(t *testing.T) {
	other := deniedBurst
	other.Rule, other.RetryAfter = "we \"quote\"", time.Second
	tests := []struct {
		name   string
		layers []counters.Decision
		want   string
	}{
		{"with a wait", []counters.Decision{allowedDaily, deniedBurst, deniedBurst, other}, `{
			"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",
			"title":"Quota Exceeded", "status":429,
			"detail":"rule \"burst\" admits 100 per 1 min: try again in 2 s",
			"violated-policies":["burst","we \"quote\""],
			"error":"rate_limit_exceeded",
			"message":"rule \"burst\" admits 100 per 1 min: try again in 2 s",
			"retry_after":2}`},
		{"without end", []counters.Decision{neverBurst}, `{
			"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",
			"title":"Quota Exceeded", "status":429,
			"detail":"the cost is above the whole limit of 100 per 1 min of rule \"burst\": no wait helps, ` +
			`ask for less",
			"violated-policies":["burst"],
			"error":"rate_limit_exceeded",
			"message":"the cost is above the whole limit of 100 per 1 min of rule \"burst\": no wait helps, ` +
			`ask for less",
			"retry_after":-1}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := post(New(always(tt.layers...), quiet()), "/v1/check?status=1", `{"rule":"r"}`)
			if w.Code != 429 || w.Header().Get("Content-Type") != "application/problem+json" {
				t.Errorf("status %d, Content-Type %q", w.Code, w.Header().Get("Content-Type"))
			}
			wantJSON(t, w.Body.String(), tt.want)
		})
	}
}

// A request must never see what the one before it left in the memory that they share.
func TestNothingLeaksBetweenRequests(t *testing.T) {
	l := always(counters.Decision{Allowed: true})
	h := New(l, quiet())
	post(
		h, "/v1/check",
		`{"domain":"d","rule":"r","identity":"i","cost":9,"peek":true,"descriptors":[[{"key":"k","value":"secret"},`+
			`{"key":"k2","value":"v2"}],[{"key":"k3"}]]}`,
	)
	post(h, "/v1/check", `{"descriptors":[[{"key":"a"}]]}`)
	post(h, "/limiter/check", `{}`)
	post(
		h, "/v1/check/batch",
		`{"checks":[{"descriptors":[[{"key":"b","value":"w"}]],"cost":2},{"descriptors":[[{}]]}]}`,
	)
	want := []rules.Request{
		{Descriptors: [][]rules.Entry{{{Key: "a"}}}, Cost: 1},
		{},
		{Descriptors: [][]rules.Entry{{{Key: "b", Value: "w"}}}, Cost: 2},
		{Descriptors: [][]rules.Entry{{{}}}, Cost: 1},
	}
	if got := l.asked[1:]; !reflect.DeepEqual(got, want) {
		t.Errorf("asked %+v\nwant  %+v", got, want)
	}
}

func TestRoundUp(t *testing.T) {
	for _, tt := range []struct {
		d, unit time.Duration
		want    int64
	}{
		{0, time.Second, 0},
		{1, time.Second, 1},
		{time.Second, time.Second, 1},
		{time.Second + 1, time.Second, 2},
		{time.Second, time.Millisecond, 1000},
		{counters.Never, time.Millisecond, -1},
		{1<<63 - 1, time.Second, 9223372037},
	} {
		if got := answer.RoundUp(tt.d, tt.unit); got != tt.want {
			t.Errorf("%d ns in %v: %d, want %d", tt.d, tt.unit, got, tt.want)
		}
	}
}

// The answer is written by hand; only the request's own allocations and those of the headers may remain.
func TestCheckAllocations(t *testing.T) {
	h := New(bareLimiter{allowedBurst}, quiet())
	w := httptest.NewRecorder()
	body := strings.NewReader("")
	r := httptest.NewRequest("POST", "/v1/check", nil)
	got := testing.AllocsPerRun(200, func() {
		body.Reset(typicalBody)
		r.Body, r.ContentLength = closer{body}, int64(len(typicalBody))
		w.Body.Reset()
		clear(w.Header())
		h.ServeHTTP(w, r)
	})
	// The body's reader (2), the body as text, the headers' text and list, Content-Type's list.
	if limit := 7.0; got > limit && !testkit.Enabled {
		t.Errorf("%v allocations, at most %v are expected", got, limit)
	}
}
