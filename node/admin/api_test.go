package admin

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// operator notes what it is asked for.
type operator struct {
	asked []rules.Request
	by    string
	done  Unbanned
	err   error
}

func (o *operator) Unban(req rules.Request, by string) (Unbanned, error) {
	o.asked, o.by = append(o.asked, req), by
	return o.done, o.err
}

func send(o *operator, change func(*http.Request), body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "http://127.0.0.1:9101/api/unban", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.RemoteAddr = "127.0.0.1:4711"
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	API(o.Unban, slog.New(slog.DiscardHandler)).ServeHTTP(w, r)
	return w
}

const login = `{"rule":"login","identity":"192.0.2.1"}`

func TestUnban(t *testing.T) {
	o := &operator{done: Unbanned{Interval: 100 * time.Millisecond, Rules: []UnbannedRule{
		{"login", "global", 90 * time.Second, 1500 * time.Microsecond}, {"wide", "node", 0, 0}}}}
	w := send(o, nil, login)
	want := `{"lifted":1,"rules":[{"rule":"login","scope":"global","banned_ms":90000,"retry_after_ms":2},` +
		`{"rule":"wide","scope":"node","banned_ms":0,"retry_after_ms":0}],"interval_ms":100}` + "\n"
	if w.Code != 200 || w.Body.String() != want || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%d %s\nwant %s", w.Code, w.Body, want)
	}
	layers := `[[{"key":"path","value":"/"},{"key":"client","value":"x"}],[{"key":"a","value":""}]]`
	if w = send(o, nil, `{"domain":"d","descriptors":`+layers+`}`); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if want := []rules.Request{{Rule: "login", Identity: "192.0.2.1"},
		{Domain: "d", Descriptors: [][]rules.Entry{{{Key: "path", Value: "/"}, {Key: "client", Value: "x"}},
			{{Key: "a"}}}}}; !reflect.DeepEqual(o.asked, want) || o.by != "admin 127.0.0.1:4711" {
		t.Errorf("%q asks for %+v", o.by, o.asked)
	}
	if w = send(&operator{}, nil, login); w.Body.String() != `{"lifted":0,"rules":[],"interval_ms":0}`+"\n" {
		t.Errorf("%s", w.Body)
	}
}

func TestUnbanErrors(t *testing.T) {
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

// What is no unban lifts nothing.
func TestUnbanRefuses(t *testing.T) {
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
		{"a page whose name leads here", host("evil.example:9101"), login, 403},
		{"such a page, of the same origin", func(r *http.Request) {
			r.Host = "evil.example:9101"
			r.Header.Set("Origin", "http://evil.example:9101")
			r.Header.Set("Sec-Fetch-Site", "same-origin")
		}, login, 403},
		{"a name that begins like localhost", host("localhost.evil.example"), login, 403},
		{"a name that begins like an address", host("127.0.0.1.evil.example"), login, 403},
		{"no host", host(""), login, 403},
		{"an address that is not this machine's", host("192.0.2.1:9101"), login, 403},
	} {
		o := &operator{}
		w := send(o, test.change, test.body)
		if w.Code != test.status || len(o.asked) > 0 || !strings.Contains(w.Body.String(), `"detail":"`) {
			t.Errorf("%s: %d %s, asked %v", test.name, w.Code, w.Body, o.asked)
		}
	}
	for _, name := range []string{"localhost", "LOCALHOST:1", "127.0.0.1", "127.9.9.9:80", "[::1]:9101", "[::1]",
		"::1"} {
		if w := send(&operator{}, host(name), login); w.Code != 200 {
			t.Errorf("asked for %s: %d %s", name, w.Code, w.Body)
		}
	}
	same := func(r *http.Request) {
		r.Header.Set("Origin", "http://127.0.0.1:9101")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	if w := send(&operator{}, same, login); w.Code != 200 {
		t.Errorf("a page of its own: %d %s", w.Code, w.Body)
	}
}

// Over TLS any name of the node may be asked for, as browsers compare it with the certificate. The operator is the name
// in a verified certificate.
func TestUnbanOverTLS(t *testing.T) {
	client := testkit.NewAuthority(t, "ca").Issue(t, "alice", func(c *x509.Certificate) {
		c.DNSNames = []string{"alice.test"}
	})
	for _, tt := range []struct {
		chains [][]*x509.Certificate
		by     string
	}{
		{nil, "admin 192.0.2.7:4711"},
		{[][]*x509.Certificate{{client.Certificate}}, "admin 192.0.2.7:4711 alice.test"},
	} {
		o := new(operator)
		w := send(o, func(r *http.Request) {
			r.Host, r.RemoteAddr = "edge-1.test:9101", "192.0.2.7:4711"
			r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{client.Certificate},
				VerifiedChains: tt.chains}
		}, login)
		if w.Code != 200 || o.by != tt.by {
			t.Errorf("%d %s by %q, want %q", w.Code, w.Body, o.by, tt.by)
		}
	}
	page := func(r *http.Request) {
		r.TLS, r.Host = new(tls.ConnectionState), "edge-1.test:9101"
		r.Header.Set("Sec-Fetch-Site", "cross-site")
	}
	if o := new(operator); send(o, page, login).Code != 403 || len(o.asked) > 0 {
		t.Errorf("a page of another origin asks for %+v", o.asked)
	}
}
