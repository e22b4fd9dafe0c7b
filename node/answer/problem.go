package answer

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/text"
)

// quotaExceeded is the problem type of a denial, from draft-ietf-httpapi-ratelimit-headers-11, section 5.1.
const quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// ProblemType is the media type of problem documents.
const ProblemType = "application/problem+json"

// Problem is a problem document (RFC 9457).
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	*denial
}

// denial holds the members that only denials have. Rule names are as they are: headers have to encode them.
type denial struct {
	ViolatedPolicies []string `json:"violated-policies"`
	Error            string   `json:"error"`
	Message          string   `json:"message"`
	RetryAfter       int64    `json:"retry_after"` // seconds as in Retry-After; -1 when no wait helps
}

// NewProblem returns the problem document of a status without a type of its own.
func NewProblem(status int, detail string) *Problem {
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail}
}

// NewDenial returns the problem document of a denial by layers; retryAfter is what Headers.Write returned.
func NewDenial(status int, layers []counters.Decision, retryAfter int64) *Problem {
	v := counters.VerdictOf(layers)
	message := Advice(&v.Governing, retryAfter)
	return &Problem{quotaExceeded, "Quota Exceeded", status, message,
		&denial{Violated(layers), "rate_limit_exceeded", message, retryAfter}}
}

// JSON returns the document with a line break at its end.
func (p *Problem) JSON() []byte {
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings and numbers only: it cannot fail
	}
	return append(body, '\n')
}

// Write answers an HTTP request with the document.
func (p *Problem) Write(w http.ResponseWriter) { p.WriteBody(w, p.JSON()) }

// WriteBody is Write with another body: the document with more members.
func (p *Problem) WriteBody(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Type", ProblemType)
	w.WriteHeader(p.Status)
	_, _ = w.Write(body)
}

// These are values of headers, which nobody writes to.
var (
	noStore = []string{"no-store"}
	deny    = []string{"deny"}
)

// WriteDenied answers an HTTP request that is denied whatever the rules are. reason is that of an actions.Outcome; the
// detail says what to send instead.
func WriteDenied(w http.ResponseWriter, status int, reason, detail string) {
	h := w.Header()
	h["X-Rl-Decision"], h["X-Rl-Reason"], h["Cache-Control"] = deny, []string{reason}, noStore
	NewProblem(status, detail).Write(w)
}

// Advice says what a denied client can do. g is the governing decision, retryAfter what Headers.Write returned.
func Advice(g *counters.Decision, retryAfter int64) string {
	switch {
	case g.Failed && g.Rule == rules.UnavailableName:
		return fmt.Sprintf("requests cannot be decided now, and are denied meanwhile: try again in %v",
			text.Duration(time.Duration(retryAfter)*time.Second))
	case g.Failed:
		return fmt.Sprintf("rule %q cannot be decided now, and admits nothing meanwhile: try again in %v", g.Rule,
			text.Duration(time.Duration(retryAfter)*time.Second))
	case g.RetryAfter == counters.Never && g.Limit == 0:
		return fmt.Sprintf("rule %q admits nothing here: no wait helps", g.Rule)
	case g.RetryAfter == counters.Never:
		return fmt.Sprintf("the cost is above the whole limit of %d per %v of rule %q: no wait helps, ask for less",
			g.Limit, text.Duration(g.Window), g.Rule)
	}
	return fmt.Sprintf("rule %q admits %d per %v: try again in %v", g.Rule, g.Limit, text.Duration(g.Window),
		text.Duration(time.Duration(retryAfter)*time.Second))
}

// Violated lists the rules of the denied layers, each once.
func Violated(layers []counters.Decision) []string {
	names := []string{}
	for i := range layers {
		if d := &layers[i]; !d.Allowed && d.Rule != "" && !slices.Contains(names, d.Rule) {
			names = append(names, d.Rule)
		}
	}
	return names
}
