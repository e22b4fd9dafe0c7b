package httpapi

import (
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
		"detail":"rule \"burst\" admits 100 per 1m0s: try again in 2s",
		"violated-policies":["burst"],
		"error":"rate_limit_exceeded",
		"message":"rule \"burst\" admits 100 per 1m0s: try again in 2s",
		"retry_after":2}`)
	for name, want := range map[string]string{"Retry-After": "2", "Cache-Control": "no-store", "Ratelimit": `"burst";r=0;t=2`, "X-Ratelimit-Reset": "60"} {
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

func TestUnixUp(t *testing.T) {
	for at, want := range map[time.Time]int64{
		time.Unix(10, 0):           10,
		time.Unix(10, 1):           11,
		time.Unix(10, 999_999_999): 11,
	} {
		if got := unixUp(at); got != want {
			t.Errorf("%v: %d, want %d", at, got, want)
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
