package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

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
		{"rule":"burst"}, {"rule":"denied","identity":"]}"}, {"rule":"nope"}, {"rule":1}, {"rule":"burst","x":{"a":[1,{}]}},
		7, null, "}", [[]], {"cost":-1,"rule":"burst"}, {}, {"rule":"broken"}, {"rule":"burst"} ]}`)
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("status %d, Content-Type %q", w.Code, w.Header().Get("Content-Type"))
	}
	const allowed = `{"allowed":true,"rule":"burst","limit":100,"remaining":45,"reset_after_ms":29001,"retry_after_ms":0,"delay_ms":0,"mode":"enforce","degraded":false}`
	const denied = `{"allowed":false,"rule":"burst","limit":100,"remaining":0,"reset_after_ms":60000,"retry_after_ms":1501,"delay_ms":0,"mode":"enforce","degraded":false}`
	bad := func(status int, detail string) string {
		return fmt.Sprintf(`{"error":{"status":%d,"detail":%q}}`, status, detail)
	}
	wantJSON(t, w.Body.String(), `{"results":[`+strings.Join([]string{
		allowed,
		denied,
		bad(404, `unknown rule "nope": use the name of one of this node's rules`),
		bad(400, "rule is a number (at byte 8): give a string"),
		bad(400, `a check has no field "x" (at byte 16): it may have domain, descriptors, rule, identity, cost, peek, request_id`),
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
	for _, n := range []int{0, 1, MaxChecks, MaxChecks + 1} {
		l := always(allowedBurst)
		w := post(New(l, quiet()), "/v1/check/batch", `{"checks":[`+strings.TrimSuffix(strings.Repeat(`{"rule":"r"},`, n), ",")+`]}`)
		if n > MaxChecks {
			if detail := wantProblem(t, w, 400); !strings.Contains(detail, "more than 1000 checks") || len(l.asked) != 0 {
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
	}
	for _, tt := range tests {
		l := always(allowedBurst)
		detail := wantProblem(t, post(New(l, quiet()), "/v1/check/batch", tt.body), 400)
		if !strings.Contains(detail, tt.detail) || len(l.asked) != 0 {
			t.Errorf("%s: %q does not say %q, or %d checks were decided", tt.body, detail, tt.detail, len(l.asked))
		}
	}
}
