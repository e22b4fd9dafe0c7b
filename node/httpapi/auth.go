package httpapi

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/rules"
)

// These are values of the headers X-RL-Decision and, where no rule was asked, X-RL-Reason. Nobody writes to them.
var (
	noDescriptor   = []string{actions.NoDescriptor}
	authAllow      = []string{"allow"}
	authDeny       = []string{"deny"}
	authShadowDeny = []string{"shadow-deny"} // a rule in shadow mode would have denied it
)

// denyStatus holds the statuses of denials that the path may ask for: proxies differ in which of them they hand on.
var denyStatus = map[string]int{
	"429": http.StatusTooManyRequests,
	"403": http.StatusForbidden,
	"401": http.StatusUnauthorized,
}

// authPath is the path of forward-auth. Its parameters follow in the path: /deny/STATUS, /on_failure/WORD and
// /domain/NAME. The query is ignored: proxies such as Caddy append that of the client.
const authPath = "/v1/auth"

// authUsage says how /v1/auth is asked.
const authUsage = "forward-auth is asked at /v1/auth, with any of /deny/403 (or 401, 429), /on_failure/closed (or " +
	"open, local) and /domain/NAME behind it, in this order"

// parseAuthPath returns the path's parameters: the status of denials, and the domain and what happens to requests that
// cannot be decided if it has them.
func parseAuthPath(path string) (status int, onFailure rules.Failure, domain string, ok bool) {
	rest, status := path[len(authPath):], http.StatusTooManyRequests
	if word, after, found := parameter(rest, "/deny/"); found {
		if status, ok = denyStatus[word]; !ok {
			return 0, 0, "", false
		}
		rest = after
	}
	if word, after, found := parameter(rest, "/on_failure/"); found {
		if onFailure, ok = rules.ParseFailure(word); !ok || word == "" {
			return 0, 0, "", false
		}
		rest = after
	}
	if rest == "" {
		return status, onFailure, "", true
	}
	domain, ok = strings.CutPrefix(rest, "/domain/")
	return status, onFailure, domain, ok && domain != ""
}

// parameter splits a path that begins with a name into the segment behind that and the rest.
func parameter(path, name string) (word, rest string, found bool) {
	after, found := strings.CutPrefix(path, name)
	word, _, _ = strings.Cut(after, "/")
	return word, after[len(word):], found
}

// auth answers /v1/auth: whether the request that a proxy describes may pass. The request's own method, query and body
// are ignored.
func (a *api) auth(w http.ResponseWriter, r *http.Request) error {
	if a.opt.Actions == nil {
		return refusef(http.StatusNotFound, "forward-auth is not configured here")
	}
	status, onFailure, domain, ok := parseAuthPath(r.URL.Path)
	if !ok {
		return refusef(http.StatusNotFound, authUsage)
	}
	s := a.takeScratch(r)
	defer s.release()
	out := a.opt.Actions.DescribeOriginal(r, &s.req)
	a.remind(r, s, &out)
	if out.Denied != "" {
		answer.WriteDenied(w, status, out.Denied, out.Detail)
		return nil
	}
	s.req.Domain, s.req.OnFailure = cmp.Or(domain, s.req.Domain), onFailure
	v := counters.Verdict{Allowed: true}
	if len(s.req.Descriptors) == 0 { // no rule can match
		w.Header()["X-Rl-Reason"] = noDescriptor
	} else {
		var err error
		v, err = a.ask(r, s, false)
		d, word := cmp.Or(onFailure, a.opt.OnFailure).Undecided()
		switch {
		case answer.TooManyValues(&s.req, err):
			answer.WriteDenied(w, status, actions.DeniedTooManyValues, err.Error())
			return nil
		case err != nil && word:
			a.logFailure(r.Context(), err)
			s.layers = append(s.layers[:0], d)
			v = counters.VerdictOf(s.layers)
		case err != nil:
			return a.undecided(r.Context(), err)
		}
	}
	retryAfter := a.headers.Write(w.Header(), s.layers)
	w.Header()["X-Rl-Decision"] = decisionWord(v, s.layers)
	if v.Delay > 0 { // for proxies that can wait
		ms := strconv.FormatInt(answer.RoundUp(v.Delay, time.Millisecond), 10)
		w.Header()["X-Rl-Delay-Ms"] = []string{ms}
	}
	if !v.Allowed {
		answer.NewDenial(status, s.layers, retryAfter).Write(w)
	}
	return nil
}

// undecided returns the refusal of a request that the node cannot decide: 503, for which a proxy may be fail-open. 500
// is left to panics, as a request may cause one.
func (a *api) undecided(ctx context.Context, err error) error {
	f := a.refusalOf(ctx, err)
	if f.status == http.StatusInternalServerError {
		f.status = http.StatusServiceUnavailable
	}
	return f
}

// remind logs, once a minute each, requests that lack what limits need, and queries that earlier versions read.
func (a *api) remind(r *http.Request, s *scratch, out *actions.Outcome) {
	ctx, log, q := r.Context(), a.opt.Logger, r.URL.RawQuery
	if (strings.HasPrefix(q, "deny=") || strings.HasPrefix(q, "domain=")) && a.queries.Due(a.opt.Now()) {
		log.LogAttrs(ctx, slog.LevelWarn, "the query of /v1/auth is ignored", slog.String("hint", "to set it in your "+
			"proxy, write /v1/auth/deny/403 or /v1/auth/domain/NAME; a client may have sent it"))
	}
	bare := len(s.req.Descriptors) == 0
	if out.Denied == "" && bare && a.hints.Due(a.opt.Now()) {
		log.LogAttrs(ctx, slog.LevelWarn, "a request passes without a descriptor: no rule limits it",
			slog.String("hint", a.opt.Actions.Hint(r)))
	}
}

func decisionWord(v counters.Verdict, layers []counters.Decision) []string {
	if !v.Allowed {
		return authDeny
	}
	for i := range layers {
		if layers[i].Waived && layers[i].Mode == counters.Shadow {
			return authShadowDeny
		}
	}
	return authAllow
}
