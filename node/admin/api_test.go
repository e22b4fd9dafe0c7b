package admin

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node/bans"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/status"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

type readable interface{ Status }

// unguarded is the API of a node that asks nobody for a token.
func unguarded(n Node) http.Handler {
	log := slog.New(slog.DiscardHandler)
	return API(n, NewAccess(nil, nil, log), nil, log)
}

// operator notes what it is asked for.
type operator struct {
	readable
	asked []BanRequest
	by    string
	bans  []bans.Ban
	added AddedBans
	done  RemovedBans
	err   error
}

func (o *operator) RemoveBans(req BanRequest, by Operator) (RemovedBans, error) {
	o.asked, o.by = append(o.asked, req), by.String()
	return o.done, o.err
}

func (o *operator) AddBan(req BanRequest, by Operator) (AddedBans, error) {
	o.asked, o.by = append(o.asked, req), by.String()
	return o.added, o.err
}

func (o *operator) ListBans(rule string) (iter.Seq[bans.Ban], error) {
	o.asked = append(o.asked, BanRequest{Rule: rule})
	return slices.Values(o.bans), o.err
}

func (o *operator) KeyHolders() []status.KeyHolder {
	return []status.KeyHolder{{Node: "a", Region: "here", State: "this node", Keys: []string{"00"}}}
}

func send(o *operator, change func(*http.Request), body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "http://127.0.0.1:7949/api/bans/remove", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.RemoteAddr = "127.0.0.1:4711"
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	log := slog.New(slog.DiscardHandler)
	API(o, NewAccess(nil, nil, log), nil, log).ServeHTTP(w, r)
	return w
}

const login = `{"rule":"login","identity":"192.0.2.1"}`

func TestRemoveBans(t *testing.T) {
	o := &operator{done: RemovedBans{Interval: 100 * time.Millisecond, Rules: []RemovedBan{
		{"login", "global", 90 * time.Second, 1500 * time.Microsecond, []string{"192.0.0.0/16"}},
		{"wide", "node", 0, 0, nil}}}}
	w := send(o, nil, login)
	want := `{"lifted":1,"rules":[{"rule":"login","scope":"global","banned_ms":90000,"retry_after_ms":2,` +
		`"around":["192.0.0.0/16"]},` +
		`{"rule":"wide","scope":"node","banned_ms":0,"retry_after_ms":0,"around":[]}],"interval_ms":100}` + "\n"
	if w.Code != 200 || w.Body.String() != want || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%d %s\nwant %s", w.Code, w.Body, want)
	}
	layers := `[[{"key":"path","value":"/"},{"key":"client","value":"x"}],[{"key":"a","value":""}]]`
	if w = send(o, nil, `{"domain":"d","descriptors":`+layers+`}`); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if want := []BanRequest{{Rule: "login", Identity: "192.0.2.1"},
		{Domain: "d", Descriptors: [][]rules.Entry{{{Key: "path", Value: "/"}, {Key: "client", Value: "x"}},
			{{Key: "a"}}}}}; !reflect.DeepEqual(o.asked, want) || o.by != "admin 127.0.0.1" {
		t.Errorf("%q asks for %+v", o.by, o.asked)
	}
	if w = send(&operator{}, nil, login); w.Body.String() != `{"lifted":0,"rules":[],"interval_ms":0}`+"\n" {
		t.Errorf("%s", w.Body)
	}
}

func TestRemoveErrors(t *testing.T) {
	for err, want := range map[error]int{
		fmt.Errorf("%w \"x\"", rules.ErrUnknownRule): 404, rules.ErrInvalidRequest: 400, ErrNoBan: 400,
		errors.New("no room"): 503,
	} {
		w := send(&operator{err: err}, nil, login)
		if w.Code != want || !strings.Contains(w.Body.String(), strings.Split(err.Error(), " \"")[0]) ||
			w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%v: %d %s", err, w.Code, w.Body)
		}
	}
}

// What asks for nothing like it removes nothing.
func TestRemoveRefuses(t *testing.T) {
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	host := func(host string) func(*http.Request) { return func(r *http.Request) { r.Host = host } }
	for _, test := range []struct {
		name   string
		change func(*http.Request)
		body   string
		status int
	}{
		{"GET", func(r *http.Request) { r.Method = "GET" }, "", 405},
		{"another path", func(r *http.Request) { r.URL.Path = "/api/ban" }, login, 404},
		{"no JSON", header("Content-Type", "text/plain"), login, 415},
		{"no type", func(r *http.Request) { r.Header.Del("Content-Type") }, login, 415},
		{"a form", header("Content-Type", "application/x-www-form-urlencoded"), login, 415},
		{"broken", nil, `{"rule":`, 400},
		{"empty", nil, "", 400},
		{"a misspelled field", nil, `{"rule":"login","identiy":"x"}`, 400},
		{"two objects", nil, login + login, 400},
		{"a long body", nil, `{"rule":"` + strings.Repeat("x", 70<<10) + `"}`, 413},
		// A page in a browser of the machine.
		{"a page of another site", header("Sec-Fetch-Site", "cross-site"), login, 403},
		{"a page of another port", header("Sec-Fetch-Site", "same-site"), login, 403},
		{"a page of another origin, in an old browser", header("Origin", "http://evil.example"), login, 403},
		{"a page of no origin", header("Origin", "null"), login, 403},
		{"a page of another port, in an old browser", header("Origin", "http://127.0.0.1:3000"), login, 403},
		{"a page whose name leads here", host("evil.example:7949"), login, 403},
		{"such a page, of the same origin", func(r *http.Request) {
			r.Host = "evil.example:7949"
			r.Header.Set("Origin", "http://evil.example:7949")
			r.Header.Set("Sec-Fetch-Site", "same-origin")
		}, login, 403},
		{"a name that begins like localhost", host("localhost.evil.example"), login, 403},
		{"a name that begins like an address", host("127.0.0.1.evil.example"), login, 403},
		{"no host", host(""), login, 403},
		{"an address that is not this machine's", host("192.0.2.1:7949"), login, 403},
	} {
		o := &operator{}
		w := send(o, test.change, test.body)
		if w.Code != test.status || len(o.asked) > 0 || !strings.Contains(w.Body.String(), `"detail":"`) {
			t.Errorf("%s: %d %s, asked %v", test.name, w.Code, w.Body, o.asked)
		}
	}
	for _, name := range []string{"localhost", "LOCALHOST:1", "127.0.0.1", "127.9.9.9:80", "[::1]:7949", "[::1]",
		"::1"} {
		if w := send(&operator{}, host(name), login); w.Code != 200 {
			t.Errorf("asked for %s: %d %s", name, w.Code, w.Body)
		}
	}
	same := func(r *http.Request) {
		r.Header.Set("Origin", "http://127.0.0.1:7949")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	if w := send(&operator{}, same, login); w.Code != 200 {
		t.Errorf("a page of its own: %d %s", w.Code, w.Body)
	}
}

// Over TLS any name of the node may be asked for, as browsers compare it with the certificate. The operator is the name
// in a verified certificate.
func TestRemoveOverTLS(t *testing.T) {
	client := testkit.NewAuthority(t, "ca").Issue(t, "alice", func(c *x509.Certificate) {
		c.DNSNames = []string{"alice.test"}
	})
	for _, tt := range []struct {
		chains [][]*x509.Certificate
		by     string
	}{
		{nil, "admin 192.0.2.7"},
		{[][]*x509.Certificate{{client.Certificate}}, "admin 192.0.2.7 alice.test"},
	} {
		o := new(operator)
		w := send(o, func(r *http.Request) {
			r.Host, r.RemoteAddr = "edge-1.test:7949", "192.0.2.7:4711"
			r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{client.Certificate},
				VerifiedChains: tt.chains}
		}, login)
		if w.Code != 200 || o.by != tt.by {
			t.Errorf("%d %s by %q, want %q", w.Code, w.Body, o.by, tt.by)
		}
	}
	page := func(r *http.Request) {
		r.TLS, r.Host = new(tls.ConnectionState), "edge-1.test:7949"
		r.Header.Set("Sec-Fetch-Site", "cross-site")
	}
	if o := new(operator); send(o, page, login).Code != 403 || len(o.asked) > 0 {
		t.Errorf("a page of another origin asks for %+v", o.asked)
	}
}

// A list comes as it is, one ban after the other, and says which rule it is of.
func TestListBans(t *testing.T) {
	began := time.Unix(1000, 0).UTC()
	o := &operator{bans: []bans.Ban{
		{Rule: "login", Scope: "global", Key: "00000000000000ff", Began: began, Ends: began.Add(time.Minute)},
		{Rule: "login", Scope: "node", Address: "192.0.2.0/24", Began: began, Ends: began, Manual: true, By: "a",
			Reason: "<b>"}}}
	get := func(r *http.Request) { r.Method, r.URL.Path, r.URL.RawQuery = "GET", "/api/bans", "rule=lo%20gin" }
	w := send(o, get, "")
	want := `{"bans":[{"rule":"login","scope":"global","key":"00000000000000ff","began":"1970-01-01T00:16:40Z",` +
		`"ends":"1970-01-01T00:17:40Z","manual":false},` + "\n" +
		`{"rule":"login","scope":"node","address":"192.0.2.0/24","began":"1970-01-01T00:16:40Z",` +
		`"ends":"1970-01-01T00:16:40Z","manual":true,"by":"a","reason":"\u003cb\u003e"}]}` + "\n"
	if w.Code != 200 || w.Body.String() != want || o.asked[0].Rule != "lo gin" {
		t.Errorf("%d %s\nwant %s", w.Code, w.Body, want)
	}
	if w := send(&operator{err: rules.ErrUnknownRule}, get, ""); w.Code != 404 {
		t.Errorf("of an unknown rule: %d %s", w.Code, w.Body)
	}
	if w := send(&operator{}, func(r *http.Request) { get(r); r.Host = "evil.example" }, ""); w.Code != 403 {
		t.Errorf("for a page whose name leads here: %d", w.Code)
	}
	if w := send(&operator{}, func(r *http.Request) { get(r); r.Method = "DELETE" }, ""); w.Code != 405 {
		t.Errorf("DELETE: %d", w.Code)
	}
}

func TestAddBan(t *testing.T) {
	add := func(r *http.Request) { r.URL.Path = "/api/bans" }
	o := &operator{added: AddedBans{Bans: []bans.Ban{{Rule: "r"}}, Warnings: []string{}, Interval: 100}}
	w := send(o, add, `{"rule":"r","identity":"10.0.0.0/8","for_ms":1000,"reason":"x","force":true}`)
	if want := (BanRequest{Rule: "r", Identity: "10.0.0.0/8", For: 1000, Reason: "x", Force: true}); w.Code != 200 ||
		!reflect.DeepEqual(o.asked[0], want) || !strings.Contains(w.Body.String(), `"interval_ms":100`) {
		t.Errorf("%d %s, asked for %+v", w.Code, w.Body, o.asked)
	}
	if w := send(o, nil, `{"rule":"r","identity":"x","for_ms":1000}`); w.Code != 400 || len(o.asked) != 1 {
		t.Errorf("a removal for a second: %d %s", w.Code, w.Body)
	}
}

// Whatever a body says: it is refused, or understood as JSON is.
func FuzzBanRequest(f *testing.F) {
	for _, seed := range []string{login, `{"rule":"r","key":"00000000000000ff","for_ms":-1}`,
		`{"descriptors":[[{}]]}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		o := &operator{}
		w := send(o, func(r *http.Request) { r.URL.Path = "/api/bans" }, body)
		if (w.Code == 200) != (len(o.asked) == 1) || w.Code >= 500 {
			t.Fatalf("%d %s, asked for %+v", w.Code, w.Body, o.asked)
		}
	})
}
