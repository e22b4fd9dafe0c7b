package httpapi

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/node/rules"
)

// FuzzCheckBody: no body makes the API panic or say anything but what is documented, and what it makes of a body that
// it takes is what encoding/json makes of it.
func FuzzCheckBody(f *testing.F) {
	for _, seed := range []string{
		typicalBody, `{"rule":"login","identity":"1.2.3.4","cost":7,"peek":true}`,
		`{"rule_id":"login","identity":"a\ud83d\ude00\"\\"}`,
		`{"checks":[{"rule":"a"},{"cost":-1},[{"}":"]"}],"x",1e9,null]}`,
		`{"descriptors":[[{"key":"k"}],[]],"cost":18446744073709551615}`,
		` [ { } ] `, `{"rule":"r"}{}`, `"\u0000"`, `-0.5e+7`, "{\"a\xff\":1}", ``,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		l := always(allowedBurst)
		h := reporting(l)
		for _, path := range []string{"/v1/check", "/v1/check/batch", "/v1/report", "/limiter/check"} {
			l.asked, l.reported = nil, 0
			r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if !json.Valid(w.Body.Bytes()) {
				t.Fatalf("%s: no JSON: %s", path, w.Body)
			}
			switch w.Code {
			case 200:
				sameAsStandardLibrary(t, path, body, l.asked)
				if (l.reported == 1) != (path == "/v1/report") {
					t.Fatalf("%s: %d are charged", path, l.reported)
				}
			case 400, 413:
				wantProblem(t, w, w.Code)
				if len(l.asked) != 0 {
					t.Fatalf("%s: refused, but asked %v", path, l.asked)
				}
			default:
				t.Fatalf("%s: status %d", path, w.Code)
			}
		}
	})
}

type standardCheck struct {
	Domain      string
	Descriptors [][]rules.Entry
	Rule        string
	Identity    string
	Cost        json.Number
	Peek        bool
}

func (c *standardCheck) request() rules.Request {
	cost, _ := rules.ParseCost(cmp.Or(c.Cost.String(), "1"))
	return rules.Request{
		Domain: c.Domain, Descriptors: c.Descriptors, Rule: c.Rule, Identity: c.Identity, Cost: cost,
		Peek: c.Peek || cost == 0,
	}
}

func sameAsStandardLibrary(t *testing.T, path, body string, asked []rules.Request) {
	t.Helper()
	decode := func(text string, dst any) error {
		dec := json.NewDecoder(strings.NewReader(text))
		dec.DisallowUnknownFields()
		return dec.Decode(dst)
	}
	var want []rules.Request
	switch path {
	case "/v1/check", "/v1/report":
		var c standardCheck
		if err := decode(body, &c); err != nil {
			t.Fatalf("encoding/json refuses %s: %v", body, err)
		}
		want = append(want, c.request())
	case "/limiter/check":
		var c struct {
			RuleID   string `json:"rule_id"`
			Identity string
		}
		if err := decode(body, &c); err != nil {
			t.Fatalf("encoding/json refuses %s: %v", body, err)
		}
		want = append(want, rules.Request{Rule: c.RuleID, Identity: c.Identity})
	default:
		var batch struct{ Checks []json.RawMessage }
		if err := decode(body, &batch); err != nil {
			t.Fatalf("encoding/json refuses %s: %v", body, err)
		}
		// Which checks were refused is the other paths' matter; here only that none was made up or moved.
		for _, raw := range batch.Checks {
			var c standardCheck
			if decode(string(raw), &c) == nil && len(want) < len(asked) && same(c.request(), asked[len(want)]) {
				want = append(want, c.request())
			}
		}
	}
	if len(want) != len(asked) {
		t.Fatalf("%s: asked %+v, want %+v", path, asked, want)
	}
	for i := range want {
		if !same(want[i], asked[i]) {
			t.Fatalf("%s: asked %+v, want %+v", path, asked[i], want[i])
		}
	}
}

// same compares requests; whether a list is empty or missing makes no difference.
func same(a, b rules.Request) bool {
	if len(a.Descriptors) != len(b.Descriptors) {
		return false
	}
	for i := range a.Descriptors {
		if len(a.Descriptors[i]) != len(b.Descriptors[i]) {
			return false
		}
		for j := range a.Descriptors[i] {
			if a.Descriptors[i][j] != b.Descriptors[i][j] {
				return false
			}
		}
	}
	a.Descriptors, b.Descriptors = nil, nil
	return reflect.DeepEqual(a, b)
}
