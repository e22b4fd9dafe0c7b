package recipes

import "net/http"

// Outcome is what becomes of a request after a proxy has asked edgelimit about it.
type Outcome string

// The outcomes. A recipe that is fail-closed answers 503 for Unavailable.
const (
	Passed      Outcome = "passed"      // to the application
	Denied      Outcome = "denied"      // with edgelimit's denial
	Unavailable Outcome = "unavailable" // to the application, without a limit: the recipe is fail-open
	Unreadable  Outcome = "unreadable"  // 400
	Stopped     Outcome = "stopped"     // 503
)

// NoAnswer is the status where edgelimit does not answer: nobody listens, or not in time, or the connection ends first.
const NoAnswer = 0

// OutcomeOf returns what every recipe does with an answer of edgelimit's, by its status and its X-RL-Decision. It is
// the only place that says what a recipe is open for: what no client can cause. These are no answer; 404, as a proxy
// asks at a fixed URL; and 502, 503 and 504, which say as little about a request. A client can cause other 4xx (by long
// headers, by Expect), and 500, 501 and 505 (by what the server that answers stumbles over).
func OutcomeOf(status int, decision string) Outcome {
	switch {
	case decision == "deny":
		return Denied
	case status == http.StatusOK && (decision == "allow" || decision == "shadow-deny"):
		return Passed
	case status == NoAnswer, status == http.StatusNotFound, status == http.StatusBadGateway,
		status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout:
		return Unavailable
	case status >= 400 && status < 500:
		return Unreadable
	}
	return Stopped
}
