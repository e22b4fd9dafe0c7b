package admin

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/edgelimit/edgelimit/node/bans"
	"github.com/edgelimit/edgelimit/node/certs"
	"github.com/edgelimit/edgelimit/node/rules"
)

// Bans is what operators may do with bans. Errors of a request wrap rules.ErrUnknownRule, rules.ErrInvalidRequest or
// ErrNoBan.
type Bans interface {
	// ListBans returns the bans in force, of one rule or with an empty name of all.
	ListBans(rule string) (iter.Seq[bans.Ban], error)
	AddBan(req BanRequest, by Operator) (AddedBans, error)
	RemoveBans(req BanRequest, by Operator) (RemovedBans, error)
}

// ErrNoBan means that nothing which a request matches can be banned, or that there is no ban to remove.
var ErrNoBan = errors.New("no rule that this meets has a ban: there is nothing to remove")

// Operator is who asks.
type Operator struct {
	Name string     // that of the token, or of the client's certificate; empty without one
	Addr netip.Addr // invalid over a Unix socket
}

// String returns who it is for logs.
func (o Operator) String() string {
	text := "admin unix socket"
	if o.Addr.IsValid() {
		text = "admin " + o.Addr.String()
	}
	if o.Name != "" {
		text += " " + o.Name
	}
	return text
}

// BanRequest says whom to ban, or whose bans to remove: a rule and an identity (of a rule that counts addresses also a
// prefix), a rule and a key from a list, or descriptors.
type BanRequest struct {
	Domain      string          `json:"domain"`
	Descriptors [][]rules.Entry `json:"descriptors"`
	Rule        string          `json:"rule"`
	Identity    string          `json:"identity"`
	Key         string          `json:"key"`

	// For bans to add:
	For    int64  `json:"for_ms"`
	Reason string `json:"reason"`
	Force  bool   `json:"force"` // whatever the prefix holds
}

// AddedBans are the bans that a request began.
type AddedBans struct {
	Bans []bans.Ban `json:"bans"`
	// Warnings are what may not have been meant.
	Warnings []string `json:"warnings"`
	// Interval is the gossip interval in milliseconds: within about that time other nodes follow.
	Interval int64 `json:"interval_ms"`
}

// RemovedBans is what a removal did.
type RemovedBans struct {
	// Rules are those that the request matched, and that have bans or had a manual one.
	Rules []RemovedBan
	// Interval is the gossip interval: within about that time the lifts are at the other nodes that can be reached.
	Interval time.Duration
}

// RemovedBan is one of these rules.
type RemovedBan struct {
	Rule  string
	Scope string // global, region or node: where the lift takes effect
	// Left is how long the longest ban would have lasted; 0: this node knew of none.
	Left time.Duration
	// RetryAfter is how long the limit itself still denies, as counts stay: a request before that is denied and, where
	// the rule bans, begins a ban anew. 0: it admits at once.
	RetryAfter time.Duration
	// Around are prefixes with manual bans, which still hold.
	Around []string
}

// MarshalJSON implements json.Marshaler.
func (u RemovedBans) MarshalJSON() ([]byte, error) {
	type rule struct {
		Rule       string   `json:"rule"`
		Scope      string   `json:"scope"`
		Left       int64    `json:"banned_ms"`
		RetryAfter int64    `json:"retry_after_ms"`
		Around     []string `json:"around"`
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
		reply.Rules = append(reply.Rules,
			rule{r.Rule, r.Scope, ceilMillis(r.Left), ceilMillis(r.RetryAfter), append([]string{}, r.Around...)})
	}
	return json.Marshal(reply)
}

// ceilMillis rounds up, so that a ban that is left is never reported as 0.
func ceilMillis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// bansAPI serves /api/bans.
type bansAPI struct {
	bans Bans
	log  *slog.Logger
}

func (a *bansAPI) register(mux *http.ServeMux) {
	mux.HandleFunc("/api/bans", func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodGet, http.MethodHead:
			a.list(w, r)
		case http.MethodPost:
			a.change(w, r, func(req BanRequest, by Operator) (any, error) { return a.bans.AddBan(req, by) })
		default:
			w.Header().Set("Allow", "GET, HEAD, POST")
			refuse(w, http.StatusMethodNotAllowed, "bans are listed with GET, and begun with POST and a JSON body")
		}
	})
	mux.HandleFunc("/api/bans/remove", func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			refuse(w, http.StatusMethodNotAllowed, "bans are removed with POST and a JSON body")
			return
		}
		a.change(w, r, func(req BanRequest, by Operator) (any, error) {
			if req.For != 0 || req.Reason != "" || req.Force {
				return nil, fmt.Errorf("%w: for_ms, reason and force are for bans to add", rules.ErrInvalidRequest)
			}
			return a.bans.RemoveBans(req, by)
		})
	})
}

// list streams the bans: 100,000 are 20 MB.
func (a *bansAPI) list(w http.ResponseWriter, r *http.Request) {
	all, err := a.bans.ListBans(r.URL.Query().Get("rule"))
	if err != nil {
		refuseError(w, err, a.log, "a request about bans failed")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	out := bufio.NewWriterSize(w, 32<<10)
	_, _ = out.WriteString(`{"bans":[`)
	separator := ""
	for b := range all {
		text, err := json.Marshal(b)
		if err != nil {
			a.log.Error("a ban cannot be listed", "error", err) // texts and times have no such error
			return
		}
		_, _ = out.WriteString(separator)
		if _, err := out.Write(text); err != nil {
			return // nobody reads any more
		}
		separator = ",\n"
	}
	_, _ = out.WriteString("]}\n")
	_ = out.Flush()
}

// change does what a request with a body asks for.
func (a *bansAPI) change(w http.ResponseWriter, r *http.Request, do func(BanRequest, Operator) (any, error)) {
	var req BanRequest
	if status, err := readJSON(w, r, &req); err != nil {
		refuse(w, status, err.Error())
		return
	}
	done, err := do(req, operatorOf(r))
	if err != nil {
		refuseError(w, err, a.log, "a request about bans failed")
		return
	}
	reply(w, done)
}

func operatorOf(r *http.Request) Operator {
	o := Operator{Name: certs.ClientName(r.TLS)}
	if name, _ := r.Context().Value(tokenName{}).(string); name != "" {
		o.Name = name
	}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		o.Addr, _ = netip.ParseAddr(host)
		o.Addr = o.Addr.Unmap()
	}
	return o
}

// readJSON decodes a body of one JSON object without unknown fields. On an error it returns the status to refuse it by.
func readJSON(w http.ResponseWriter, r *http.Request, to any) (status int, err error) {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		return http.StatusUnsupportedMediaType, errors.New("send JSON, with Content-Type: application/json")
	}
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	dec.DisallowUnknownFields()
	if err := dec.Decode(to); err != nil {
		if _, tooLong := errors.AsType[*http.MaxBytesError](err); tooLong {
			return http.StatusRequestEntityTooLarge, fmt.Errorf("the body is longer than %d bytes", maxBody)
		}
		return http.StatusBadRequest, fmt.Errorf("the body is not what this path takes: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return http.StatusBadRequest, errors.New("there is something behind the body's object: send one object")
	}
	return 0, nil
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}
