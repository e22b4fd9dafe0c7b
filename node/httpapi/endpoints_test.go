package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

func TestLimiterCheckAllowed(t *testing.T) {
	l := always(allowedBurst)
	w := post(New(l, quiet()), "/limiter/check", `{"rule_id":"login","identity":"1.2.3.4"}`)
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("status %d, Content-Type %q", w.Code, w.Header().Get("Content-Type"))
	}
	// The clock of quiet stands 1 ns after a second, the reset is 29 s and 1 ns away.
	wantJSON(t, w.Body.String(), `{"allowed":true,"remaining":45,"reset_at":1700000030}`)
	if want := []rules.Request{{Rule: "login", Identity: "1.2.3.4"}}; !reflect.DeepEqual(l.asked, want) {
		t.Errorf("asked %+v, want %+v", l.asked, want)
	}
	if got := w.Header().Get("Ratelimit"); got != `"burst";r=45;t=30` {
		t.Errorf("RateLimit: %s", got)
	}
	if got := w.Header().Get("Retry-After") + w.Header().Get("Cache-Control"); got != "" {
		t.Errorf("an allowed answer has the headers of a denial: %q", got)
	}
}

func TestLimiterCheckDenied(t *testing.T) {
	w := post(New(always(deniedBurst), quiet()), "/limiter/check", `{"identity":"1.2.3.4","rule_id":"login"}`)
	if w.Code != 429 || w.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("status %d, Content-Type %q", w.Code, w.Header().Get("Content-Type"))
	}
	wantJSON(t, w.Body.String(), `{
		"allowed":false, "remaining":0, "reset_at":1700000061,
		"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",
		"title":"Quota Exceeded", "status":429,
		"detail":"rule \"burst\" admits 100 per 1 min: try again in 2 s",
		"violated-policies":["burst"],
		"error":"rate_limit_exceeded",
		"message":"rule \"burst\" admits 100 per 1 min: try again in 2 s",
		"retry_after":2}`)
	for name, want := range map[string]string{"Retry-After": "2", "Cache-Control": "no-store",
		"Ratelimit": `"burst";r=0;t=2`, "X-Ratelimit-Reset": "60"} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestLimiterCheckNever(t *testing.T) {
	w := post(New(always(neverBurst), quiet()), "/limiter/check", `{"rule_id":"login"}`)
	if w.Code != 429 || !strings.Contains(w.Body.String(), `"retry_after":-1`) || w.Header()["Retry-After"] != nil {
		t.Errorf("status %d, Retry-After %q, body %s", w.Code, w.Header()["Retry-After"], w.Body)
	}
}

func TestLimiterCheckRefusesBodies(t *testing.T) {
	tests := []struct{ body, detail string }{
		{`{"rule_id":1}`, "rule_id is a number"},
		{`{"rule":"login"}`, `no field "rule" (at byte 1): it may have rule_id, identity`},
		{`{"rule_id":"a","cost":2}`, `no field "cost"`},
		{`{"rule_id":"a","rule_id":"b"}`, "rule_id twice"},
		{`{"identity":["a"]}`, "identity is an array"},
		{`"login"`, "a check is a string"},
		{``, "empty"},
	}
	for _, tt := range tests {
		l := always(allowedBurst)
		detail := wantProblem(t, post(New(l, quiet()), "/limiter/check", tt.body), 400)
		if !strings.Contains(detail, tt.detail) || len(l.asked) != 0 {
			t.Errorf("%s: %q does not say %q, or asked %v", tt.body, detail, tt.detail, l.asked)
		}
	}
}

// Whatever a limiter leaves out, a denial stays one.
func TestDenialWithoutARule(t *testing.T) {
	w := post(New(always(allowedDaily, counters.Decision{}), quiet()), "/limiter/check", `{"rule_id":"a"}`)
	if w.Code != 429 || !strings.Contains(w.Body.String(), `"allowed":false`) {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
}

// answering returns an API whose /json answers as given and records its requests.
func answering(allowed bool, err error) (h http.Handler, asked *[]string) {
	asked = new([]string)
	opt := quiet()
	opt.Envoy = func(_ context.Context, body []byte) ([]byte, bool, error) {
		*asked = append(*asked, string(body))
		return []byte(`{"overallCode":"OK"}`), allowed, err
	}
	return New(always(), opt), asked
}

func TestEnvoy(t *testing.T) {
	for allowed, status := range map[bool]int{true: 200, false: 429} {
		h, asked := answering(allowed, nil)
		w := post(h, "/json", `{"domain":"edge"}`)
		if w.Code != status || w.Body.String() != `{"overallCode":"OK"}` ||
			w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("allowed %v: %d %s %v", allowed, w.Code, w.Body, w.Header())
		}
		if len(*asked) != 1 || (*asked)[0] != `{"domain":"edge"}` {
			t.Errorf("asked %q", *asked)
		}
	}
}

// What is no request of Envoy's is refused as at the other paths, and nobody is asked.
func TestEnvoyRefuses(t *testing.T) {
	h, asked := answering(true, nil)
	for body, status := range map[string]int{"": 400, "{": 400, "\xff": 400, strings.Repeat("[", 40) +
		strings.Repeat("]", 40): 400,
		`"` + strings.Repeat("x", maxBody) + `"`: 413} {
		wantProblem(t, post(h, "/json", body), status)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/json", nil))
	wantProblem(t, w, 405)
	if len(*asked) != 0 {
		t.Errorf("asked %q", *asked)
	}
	wantProblem(t, post(New(always(), quiet()), "/json", `{}`), 404)
	for err, status := range map[error]int{fmt.Errorf("%w: no domain", rules.ErrInvalidRequest): 400,
		context.DeadlineExceeded: 503, errors.New("secret"): 500} {
		h, _ := answering(false, err)
		wantProblem(t, post(h, "/json", `{}`), status)
	}
}

// TestReport: it is translated as a check is, and never refused for what is left.
func TestReport(t *testing.T) {
	const body = `{"domain":"edge","descriptors":[[{"key":"user","value":"x"}]],"cost":250}`
	l := always(deniedBurst)
	w := post(reporting(l), "/v1/report?status=1", body)
	if w.Code != 200 || w.Header().Get("RateLimit") != `"burst";r=0;t=2` ||
		w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	wantJSON(t, w.Body.String(), verdictJSON(false, `"burst"`, 100, 0, 60000, 1501, 0, "enforce", false))
	want := []rules.Request{{Domain: "edge", Descriptors: [][]rules.Entry{{{Key: "user", Value: "x"}}}, Cost: 250}}
	if !reflect.DeepEqual(l.asked, want) || l.reported != 1 {
		t.Errorf("charged %+v, want %+v", l.asked, want)
	}
	for response, want := range map[string]rules.Response{
		`{"status":401}`: {Status: 401, Cost: 250},
		`{"bytes":3,"duration_ms":18446744073709551615,"status":200}`: {Status: 200, Bytes: 3, Cost: 250,
			Duration: 1 << 42 * time.Millisecond},
	} {
		l := always(deniedBurst)
		post(reporting(l), "/v1/report", body[:len(body)-1]+`,"response":`+response+`}`)
		if len(l.asked) != 1 || l.asked[0].Response == nil || !reflect.DeepEqual(*l.asked[0].Response, want) {
			t.Errorf("%s: charged %+v, want %+v", response, l.asked, want)
		}
	}
	wantProblem(t, post(New(l, quiet()), "/v1/check", `{"rule":"r","response":{"status":200}}`), http.StatusBadRequest)
}

// TestReportAfterCheck: nothing of a report is left in the memory that the next check uses.
func TestReportAfterCheck(t *testing.T) {
	l := always(allowedBurst)
	h := reporting(l)
	for i := range 100 {
		post(h, "/v1/report", `{"rule":"r"}`)
		post(h, "/v1/check", `{"rule":"r"}`)
		post(h, "/limiter/check", `{"rule_id":"r"}`)
		if l.reported != i+1 || len(l.asked) != 3*(i+1) {
			t.Fatalf("%d reports of %d", l.reported, len(l.asked))
		}
	}
}

func TestReportRefusals(t *testing.T) {
	for _, tt := range []struct {
		body   string
		err    error
		status int
		detail string
	}{
		{`{"rule":"r","costs":1}`, nil, 400, `no field "costs"`},
		{`{"rule":"r"`, nil, 400, "not JSON"},
		{`{"rule":"r","response":{}}`, nil, 400, "the response's status is 0: give one of 100 to 599"},
		{`{"rule":"r","response":{"status":600}}`, nil, 400, "the response's status is 600"},
		{`{"rule":"r","response":{"status":-1}}`, nil, 400, "status is -1"},
		{`{"rule":"r","response":null}`, nil, 400, "a response is null"},
		{`{"rule":"r"}`, rules.ErrUnknownRule, 404, "unknown rule"},
		{`{"rule":"r"}`, rules.ErrInvalidRequest, 400, "invalid request"},
		{`{"rule":"r"}`, errors.New("a secret"), 500, "failed"},
	} {
		if detail := wantProblem(t, post(reporting(failing(tt.err)), "/v1/report", tt.body),
			tt.status); !strings.Contains(
			detail, tt.detail) {
			t.Errorf("%s: %q, want %q", tt.body, detail, tt.detail)
		}
	}
	l := always(allowedBurst)
	wantProblem(t, post(New(l, quiet()), "/v1/report", `{"rule":"r"}`), http.StatusNotFound)
	w := httptest.NewRecorder()
	reporting(l).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/report", nil))
	wantProblem(t, w, http.StatusMethodNotAllowed)
	if len(l.asked) != 0 {
		t.Errorf("asked %+v", l.asked)
	}
}

func TestBatchAnswersInOrder(t *testing.T) {
	l := &fake{answer: func(req *rules.Request) ([]counters.Decision, error) {
		switch req.Rule {
		case "burst":
			return []counters.Decision{allowedBurst}, nil
		case "denied":
			return []counters.Decision{deniedBurst}, nil
		case "broken":
			return nil, fmt.Errorf("a secret")
		case "":
			return nil, fmt.Errorf("%w: name a rule", rules.ErrInvalidRequest)
		}
		return nil, fmt.Errorf("%w %q", rules.ErrUnknownRule, req.Rule)
	}}
	w := post(New(l, quiet()), "/v1/check/batch?status=1", `{"checks":[
		{"rule":"burst"}, {"rule":"denied","identity":"]}"}, {"rule":"nope"}, {"rule":1},
		{"rule":"burst","x":{"a":[1,{}]}},
		7, null, "}", [[]], {"cost":-1,"rule":"burst"}, {}, {"rule":"broken"}, {"rule":"burst"} ]}`)
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("status %d, Content-Type %q", w.Code, w.Header().Get("Content-Type"))
	}
	allowed := verdictJSON(true, `"burst"`, 100, 45, 29001, 0, 0, "enforce", false)
	denied := verdictJSON(false, `"burst"`, 100, 0, 60000, 1501, 0, "enforce", false)
	bad := func(status int, detail string) string {
		return fmt.Sprintf(`{"error":{"status":%d,"detail":%q}}`, status, detail)
	}
	wantJSON(t, w.Body.String(), `{"results":[`+strings.Join([]string{
		allowed,
		denied,
		bad(404, `unknown rule "nope": use the name of one of this node's rules`),
		bad(400, "rule is a number (at byte 8): give a string"),
		bad(
			400,
			`a check has no field "x" (at byte 16): it may have domain, descriptors, rule, identity, cost, peek, `+
				`request_id, response`,
		),
		bad(400, "a check is a number (at byte 0): give an object"),
		bad(400, "a check is null (at byte 0): give an object"),
		bad(400, "a check is a string (at byte 0): give an object"),
		bad(400, "a check is an array (at byte 0): give an object"),
		bad(400, "cost is -1 (at byte 8): give a whole number, not negative, in plain digits"),
		bad(400, "invalid request: name a rule"),
		bad(500, "the node failed to decide: try again, and see its log"),
		allowed,
	}, ",")+`]}`)
	for name := range w.Header() {
		if strings.Contains(strings.ToLower(name), "ratelimit") || name == "Retry-After" {
			t.Errorf("a batch has no one limit to tell of in %s", name)
		}
	}
}

func TestBatchSizes(t *testing.T) {
	for _, n := range []int{0, 1, maxChecks, maxChecks + 1} {
		l := always(allowedBurst)
		w := post(New(l, quiet()), "/v1/check/batch",
			`{"checks":[`+strings.TrimSuffix(strings.Repeat(`{"rule":"r"},`, n), ",")+`]}`)
		if n > maxChecks {
			if detail := wantProblem(t, w, 400); !strings.Contains(detail, "more than 1000 checks") ||
				len(l.asked) != 0 {
				t.Errorf("%d checks: %q, %d of them decided", n, detail, len(l.asked))
			}
			continue
		}
		var got struct{ Results []json.RawMessage }
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusOK {
			t.Fatalf("%d checks: status %d, %v", n, w.Code, err)
		}
		if len(got.Results) != n || got.Results == nil || len(l.asked) != n {
			t.Errorf("%d checks: %d results, %d decided", n, len(got.Results), len(l.asked))
		}
	}
}

func TestBatchRefusesBodies(t *testing.T) {
	tests := []struct{ body, detail string }{
		{`{}`, `send {"checks":[...]}`},
		{`[]`, "a batch is an array"},
		{`{"checks":{}}`, "checks is an object"},
		{`{"checks":null}`, "checks is null"},
		{`{"checks":[],"checks":[]}`, "checks twice"},
		{`{"checks":[],"more":1}`, `no field "more"`},
		// What follows the good check must keep it from being charged.
		{`{"checks":[{"rule":"r"}],"more":1}`, `no field "more"`},
		{`{"checks":[{"rule":"r"}]} {`, "not JSON"},
		{`{"checks":[{"rule":"r"},]}`, "not JSON"},
		{`{"checks":[{"rule":"r"}]}{}`, "not JSON"},
		{`{"checks":[{"rule":"r"},` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + "]}",
			"nested more than 32 deep"},
		{`{"checks":[` + strings.Repeat(`{"rule":`, 33), "nested more than 32 deep"},
	}
	for _, tt := range tests {
		l := always(allowedBurst)
		detail := wantProblem(t, post(New(l, quiet()), "/v1/check/batch", tt.body), 400)
		if !strings.Contains(detail, tt.detail) || len(l.asked) != 0 {
			t.Errorf("%s: %q does not say %q, or %d checks were decided", tt.body, detail, tt.detail, len(l.asked))
		}
	}
}
