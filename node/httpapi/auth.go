package httpapi

import (
	"net/http"
	"net/url"

	"github.com/edgelimit/edgelimit/counters"
)

// What /v1/auth says in the header X-RL-Decision. They are values of headers, which nobody writes to.
var (
	authAllow      = []string{"allow"}
	authDeny       = []string{"deny"}
	authShadowDeny = []string{"shadow-deny"} // a rule in shadow mode would have denied it
)

// denyStatus are the statuses that ?deny= may ask for: proxies differ in which of them they hand on.
var denyStatus = map[string]int{
	"": http.StatusTooManyRequests, "429": http.StatusTooManyRequests,
	"403": http.StatusForbidden, "401": http.StatusUnauthorized,
}

// auth answers /v1/auth: whether the request that a proxy asks about may pass. The request's own method and body mean nothing.
func (d *door) auth(w http.ResponseWriter, r *http.Request) {
	if d.opt.Actions == nil {
		d.refuse(w, r, refuse(http.StatusNotFound, "forward-auth is not configured here"))
		return
	}
	status, domain, err := authWants(r.URL.RawQuery)
	if err != nil {
		d.refuse(w, r, err)
		return
	}
	s := takeScratch()
	defer s.giveBack(&d.bodies)
	d.opt.Actions.DescribeOriginal(r, &s.req)
	if domain != "" {
		s.req.Domain = domain
	}
	v := counters.Verdict{Allowed: true}
	if len(s.req.Descriptors) > 0 { // otherwise no rule can be meant
		if v, err = d.ask(r, s); err != nil {
			d.refuse(w, r, err)
			return
		}
	}
	retryAfter := d.headers.Write(w.Header(), s.layers)
	w.Header()["X-Rl-Decision"] = decisionWord(v, s.layers)
	if !v.Allowed {
		deny(w, status, v, s.layers, retryAfter, nil)
	}
}

// authWants reads the query of /v1/auth: the status of denials, and the domain if another one than usual is meant.
func authWants(query string) (status int, domain string, err error) {
	if query == "" {
		return http.StatusTooManyRequests, "", nil
	}
	asked, err := url.ParseQuery(query)
	status, known := denyStatus[asked.Get("deny")]
	if err != nil || !known {
		return 0, "", refuse(http.StatusBadRequest, "deny is the status of denials: 429, 403 or 401")
	}
	return status, asked.Get("domain"), nil
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
