package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/certs"
	"github.com/edgelimit/edgelimit/node/rules"
)

// Unban lifts the bans of a request's identity; by names the operator in the log. Errors of the request wrap
// rules.ErrUnknownRule, rules.ErrInvalidRequest or ErrNoBan.
type Unban func(req rules.Request, by string) (Unbanned, error)

// ErrNoBan means that no rule which a request matches has a ban.
var ErrNoBan = errors.New("no rule that this meets has a ban: there is nothing to lift")

// Unbanned is what an unban did.
type Unbanned struct {
	// Rules are the rules with a ban that the request matched.
	Rules []UnbannedRule
	// Interval is the gossip interval: within about that time the lift is at the other nodes that can be reached.
	Interval time.Duration
}

// UnbannedRule is one of these rules.
type UnbannedRule struct {
	Rule  string
	Scope string // global, region or node: where the lift takes effect
	// Left is how long the ban would have lasted; 0: this node knew of none.
	Left time.Duration
	// RetryAfter is how long the limit itself still denies, as counts stay: a request before that is denied and
	// begins a ban anew. 0: it admits at once.
	RetryAfter time.Duration
}

// MarshalJSON implements json.Marshaler.
func (u Unbanned) MarshalJSON() ([]byte, error) {
	type rule struct {
		Rule       string `json:"rule"`
		Scope      string `json:"scope"`
		Left       int64  `json:"banned_ms"`
		RetryAfter int64  `json:"retry_after_ms"`
	}
	reply := struct {
		Lifted   int    `json:"lifted"` // rules of which this node knew a ban
		Rules    []rule `json:"rules"`
		Interval int64  `json:"interval_ms"`
	}{Rules: []rule{}, Interval: u.Interval.Milliseconds()}
	for _, r := range u.Rules {
		if r.Left > 0 {
			reply.Lifted++
		}
		reply.Rules = append(reply.Rules, rule{r.Rule, r.Scope, ceilMillis(r.Left), ceilMillis(r.RetryAfter)})
	}
	return json.Marshal(reply)
}

// ceilMillis rounds up, so that a ban that is left is never reported as 0.
func ceilMillis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// maxBody is the longest accepted body, in bytes.
const maxBody = 64 << 10

// API returns the handler of
//
//	POST /api/unban   {"rule","identity"} or {"domain","descriptors":[[{"key","value"}]]}: see Unban
//
// Refusals are problem documents (RFC 9457). The node's own errors are logged.
func API(unban Unban, logger *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/api/unban", func(w http.ResponseWriter, r *http.Request) { serveUnban(w, r, unban, logger) })
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusNotFound, "nothing is served at this path: use /api/unban")
	})
	origins := http.NewCrossOriginProtection()
	origins.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusForbidden, "this is a web page of another origin: no page may ask here")
	}))
	h := origins.Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A page of a name that resolves to loopback (DNS rebinding) would pass as one of this origin. Over TLS the
		// browser compares the name with the node's certificate.
		if r.TLS == nil && !isLocal(r.Host) {
			refuse(w, http.StatusForbidden, "this is for localhost alone: ask for http://127.0.0.1 or http://localhost")
			return
		}
		h.ServeHTTP(w, r)
	})
}

// isLocal reports whether a Host header names loopback, whatever the port.
func isLocal(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

func serveUnban(w http.ResponseWriter, r *http.Request, unban Unban, log *slog.Logger) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		refuse(w, http.StatusMethodNotAllowed, "bans are lifted with POST and a JSON body")
		return
	}
	req, status, err := readUnban(w, r)
	if err != nil {
		refuse(w, status, err.Error())
		return
	}
	client := r.RemoteAddr
	if client == "" || client == "@" {
		client = "unix socket"
	}
	if name := certs.ClientName(r.TLS); name != "" {
		client += " " + name
	}
	done, err := unban(req, "admin "+client)
	switch {
	case err == nil:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(done)
	case errors.Is(err, rules.ErrUnknownRule):
		refuse(w, http.StatusNotFound, err.Error())
	case errors.Is(err, rules.ErrInvalidRequest), errors.Is(err, ErrNoBan):
		refuse(w, http.StatusBadRequest, err.Error())
	default:
		log.Error("an unban failed", "error", err)
		refuse(w, http.StatusServiceUnavailable, "the node could not lift the ban: "+err.Error())
	}
}

func readUnban(w http.ResponseWriter, r *http.Request) (req rules.Request, status int, err error) {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		return req, http.StatusUnsupportedMediaType, errors.New("send JSON, with Content-Type: application/json")
	}
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	dec.DisallowUnknownFields()
	var body struct {
		Domain      string          `json:"domain"`
		Descriptors [][]rules.Entry `json:"descriptors"`
		Rule        string          `json:"rule"`
		Identity    string          `json:"identity"`
	}
	if err := dec.Decode(&body); err != nil {
		if _, tooLong := errors.AsType[*http.MaxBytesError](err); tooLong {
			return req, http.StatusRequestEntityTooLarge, fmt.Errorf("the body is longer than %d bytes", maxBody)
		}
		return req, http.StatusBadRequest, fmt.Errorf("the body is no unban: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return req, http.StatusBadRequest, errors.New("there is something behind the body's object: send one object")
	}
	return rules.Request{Domain: body.Domain, Descriptors: body.Descriptors, Rule: body.Rule, Identity: body.Identity},
		0, nil
}

func refuse(w http.ResponseWriter, status int, detail string) {
	answer.NewProblem(status, strings.ToValidUTF8(detail, "?")).Write(w)
}
