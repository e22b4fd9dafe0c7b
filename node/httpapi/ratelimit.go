package httpapi

import (
	"io"
	"net/http"
)

// Paths that Options.Ready has served as envoyproxy/ratelimit serves them.
const (
	healthcheckPath = "/healthcheck"
	jsonPath        = "/json"
)

// healthcheck answers OK if the node is ready, else 500 without a body.
func (a *api) healthcheck(w http.ResponseWriter) {
	if a.opt.Ready() != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header()["Content-Type"] = plainText
	_, _ = io.WriteString(w, "OK")
}

var plainText = []string{"text/plain; charset=utf-8"} // which nobody writes to

// ratelimitJSON answers /json to any method. What it refuses it refuses with the text of the status alone.
func (a *api) ratelimitJSON(w http.ResponseWriter, r *http.Request) {
	s := a.takeScratch(r)
	defer s.release()
	err := refusePage(r)
	if err == nil {
		err = s.read(w, r, maxBody)
	}
	if err == nil {
		err = a.envoy(w, r, s)
	}
	if err != nil {
		status := a.refusalOf(r.Context(), err).status
		http.Error(w, http.StatusText(status), status)
	}
}
