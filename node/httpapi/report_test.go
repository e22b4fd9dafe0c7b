package httpapi

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/node/rules"
)

// TestReport: it is translated as a check is, and never refused for what is left.
func TestReport(t *testing.T) {
	const body = `{"domain":"edge","descriptors":[[{"key":"user","value":"x"}]],"cost":250}`
	l := always(deniedBurst)
	w := post(reporting(l), "/v1/report?status=1", body)
	if w.Code != 200 || w.Header().Get("RateLimit") != `"burst";r=0;t=2` || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	wantJSON(t, w.Body.String(), `{"allowed":false,"rule":"burst","limit":100,"remaining":0,"reset_after_ms":60000,"retry_after_ms":1501,"delay_ms":0,"mode":"enforce","degraded":false}`)
	want := []rules.Request{{Domain: "edge", Descriptors: [][]rules.Entry{{{Key: "user", Value: "x"}}}, Cost: 250}}
	if !reflect.DeepEqual(l.asked, want) || l.reported != 1 {
		t.Errorf("charged %+v, want %+v", l.asked, want)
	}
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
		{`{"rule":"r"}`, rules.ErrUnknownRule, 404, "unknown rule"},
		{`{"rule":"r"}`, rules.ErrInvalidRequest, 400, "invalid request"},
		{`{"rule":"r"}`, errors.New("a secret"), 500, "failed"},
	} {
		if detail := wantProblem(t, post(reporting(failing(tt.err)), "/v1/report", tt.body), tt.status); !strings.Contains(detail, tt.detail) {
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
