package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

// quotaExceeded is the problem type of a denial, from draft-ietf-httpapi-ratelimit-headers-11, section 5.1.
const quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// maxDetail bounds what of a client's own words is said back to it, in bytes.
const maxDetail = 512

// problem is a problem document (RFC 9457). The embedded parts are present in denials only.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	*denial
	*standing
}

// denial is what a denial says beside the standard members. It names rules as they are, where headers have to encode them.
type denial struct {
	ViolatedPolicies []string `json:"violated-policies"`
	Error            string   `json:"error"`
	Message          string   `json:"message"`
	RetryAfter       int64    `json:"retry_after"` // seconds as in Retry-After; -1 when no wait helps
}

// ProblemType is the media type of problem documents.
const ProblemType = "application/problem+json"

func (p *problem) write(w http.ResponseWriter) {
	body := p.body()
	w.Header().Set("Content-Type", ProblemType)
	w.WriteHeader(p.Status)
	w.Write(body)
}

func (p *problem) body() []byte {
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings and numbers only: it cannot fail
	}
	return append(body, '\n')
}

// refusal is an error that a client is told, with the status that fits it.
type refusal struct {
	status int
	detail string
}

func (r *refusal) Error() string { return r.detail }

func refuse(status int, format string, args ...any) error {
	return &refusal{status: status, detail: fmt.Sprintf(format, args...)}
}

// refusalFor turns any error into what its client may know of it. Errors that are the node's own are logged.
func (d *door) refusalFor(ctx context.Context, err error) *refusal {
	if r, ok := errors.AsType[*refusal](err); ok {
		return &refusal{status: r.status, detail: clip(r.detail)}
	}
	switch {
	case errors.Is(err, rules.ErrUnknownRule):
		return &refusal{http.StatusNotFound, clip(err.Error()) + ": use the name of one of this node's rules"}
	case errors.Is(err, rules.ErrInvalidRequest):
		return &refusal{http.StatusBadRequest, clip(err.Error())}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &refusal{http.StatusServiceUnavailable, "the node did not decide in time: try again"}
	}
	d.opt.Logger.LogAttrs(ctx, slog.LevelError, "a check failed", slog.Any("error", err))
	return &refusal{http.StatusInternalServerError, "the node failed to decide: try again, and see its log"}
}

func (d *door) refuse(w http.ResponseWriter, r *http.Request, err error) {
	f := d.refusalFor(r.Context(), err)
	if f.status == http.StatusServiceUnavailable {
		w.Header()["Retry-After"] = inASecond
	}
	(&problem{Type: "about:blank", Title: http.StatusText(f.status), Status: f.status, Detail: f.detail}).write(w)
}

// inASecond is a value of Retry-After, which nobody writes to.
var inASecond = []string{"1"}

// Full is what a listener says to a client that it has no room for, before it closes the connection: a whole response, 503.
func Full() string {
	p := problem{Type: "about:blank", Title: http.StatusText(http.StatusServiceUnavailable), Status: http.StatusServiceUnavailable,
		Detail: "the node has as many connections as it may: try again in a second, or another node"}
	body, err := json.Marshal(&p)
	if err != nil {
		panic(err) // strings and numbers only: it cannot fail
	}
	return fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\nRetry-After: 1\r\nConnection: close\r\n\r\n%s\n",
		p.Status, p.Title, len(body)+1, body)
}

// clip shortens text that may hold a client's words and makes it valid UTF-8.
func clip(s string) string {
	if len(s) > maxDetail {
		s = s[:maxDetail] + "..."
	}
	return strings.ToValidUTF8(s, "?")
}

// WriteDenial answers a request with 429 and a problem document that says what its layers denied, and how long to wait: what
// Headers.Write returned, which has to be called before.
func WriteDenial(w http.ResponseWriter, layers []counters.Decision, retryAfter int64) {
	deny(w, http.StatusTooManyRequests, counters.VerdictOf(layers), layers, retryAfter, nil)
}

// Denial returns the problem document that WriteDenial writes, for protocols that are no HTTP.
func Denial(layers []counters.Decision, retryAfter int64) []byte {
	return problemOf(http.StatusTooManyRequests, counters.VerdictOf(layers), layers, retryAfter, nil).body()
}

// deny writes the denial for a verdict whose headers are set already; retryAfter is what they say. The status is 429 where nothing
// forces another. at may be nil.
func deny(w http.ResponseWriter, status int, v counters.Verdict, layers []counters.Decision, retryAfter int64, at *standing) {
	problemOf(status, v, layers, retryAfter, at).write(w)
}

func problemOf(status int, v counters.Verdict, layers []counters.Decision, retryAfter int64, at *standing) *problem {
	message := Advice(&v.Governing, retryAfter)
	return &problem{
		Type:     quotaExceeded,
		Title:    "Quota Exceeded",
		Status:   status,
		Detail:   message,
		denial:   &denial{ViolatedPolicies: Violated(layers), Error: "rate_limit_exceeded", Message: message, RetryAfter: retryAfter},
		standing: at,
	}
}

// Advice says what a denied client can do: g is the decision that governs, retryAfter what Headers.Write returned.
func Advice(g *counters.Decision, retryAfter int64) string {
	if g.RetryAfter == counters.Never && g.Limit == 0 {
		return fmt.Sprintf("rule %q admits nothing here: no wait helps", g.Rule)
	}
	if g.RetryAfter == counters.Never {
		return fmt.Sprintf("the cost is above the whole limit of %d per %v of rule %q: no wait helps, ask for less", g.Limit, g.Window, g.Rule)
	}
	return fmt.Sprintf("rule %q admits %d per %v: try again in %v", g.Rule, g.Limit, g.Window, time.Duration(retryAfter)*time.Second)
}

// Violated lists the rules of the denied layers, each once.
func Violated(layers []counters.Decision) []string {
	names := []string{}
	seen := make(map[string]bool, len(layers))
	for i := range layers {
		if d := &layers[i]; !d.Allowed && d.Rule != "" && !seen[d.Rule] {
			seen[d.Rule] = true
			names = append(names, d.Rule)
		}
	}
	return names
}
