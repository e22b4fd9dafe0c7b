package proxy

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/rules"
)

// route is a Route that is ready for use. It is immutable.
type route struct {
	host, below string // a name; what names end with, with a dot in front. Empty: any
	path        string // without a slash at its end; empty: any
	method      string // empty: any
	exactCase   bool
	actions     *actions.Actions
	cost        uint64
	onFailure   rules.Failure
	free        bool // nothing is checked
}

// compile returns the route. What it leaves out is that of all requests.
func (r *Route) compile(requests actions.Config) (route, error) {
	below, wild := strings.CutPrefix(r.Host, "*")
	host := actions.CleanHost(r.Host)
	switch {
	case wild && (len(below) < 2 || below[0] != '.' || strings.Contains(below, "*")), !wild && host != r.Host,
		strings.ContainsAny(r.Host, " /"):
		return route{}, fmt.Errorf("host: %q, want a name in small letters without a port, or *.name", r.Host)
	case r.Path != "" && (r.Path[0] != '/' || strings.ContainsAny(r.Path, "*%?#")):
		return route{}, fmt.Errorf("path: %q, want the decoded beginning of paths, such as /api", r.Path)
	case r.Method != strings.ToUpper(r.Method):
		return route{}, fmt.Errorf("method: %q, want %q", r.Method, strings.ToUpper(r.Method))
	}
	requests.Domain = cmp.Or(r.Domain, requests.Domain)
	if len(r.Descriptors) > 0 {
		requests.Descriptors, requests.Derived = r.Descriptors, nil
	}
	made, err := actions.New(requests)
	compiled := route{host: host, path: strings.TrimSuffix(r.Path, "/"), method: r.Method, actions: made,
		exactCase: requests.PathCase == actions.PathCaseExact, cost: 1, onFailure: r.OnFailure,
		free: r.isFree()}
	if r.Cost != nil {
		compiled.cost = *r.Cost
	}
	if wild {
		compiled.host, compiled.below = "", below
	}
	return compiled, err
}

// isFree reports whether the requests of the route are not limited: its descriptors are an empty list.
func (r *Route) isFree() bool { return r.Descriptors != nil && len(r.Descriptors) == 0 }

func (r *route) matches(host, method, path string) bool {
	return (r.host == "" || r.host == host) && (r.below == "" || strings.HasSuffix(host, r.below)) &&
		(r.method == "" || r.method == method) && (r.path == "" || r.begins(path))
}

// begins reports whether the path of the route begins a path.
func (r *route) begins(path string) bool {
	n := len(r.path)
	if len(path) < n || len(path) > n && path[n] != '/' {
		return false
	}
	return path[:n] == r.path || !r.exactCase && strings.EqualFold(path[:n], r.path)
}

// maxRoutes is how many routes a request may meet by the readings of its path, the default one included.
const maxRoutes = actions.MaxValues

const tooManyReadings = "the path has too many readings; send it plainly"

// meet appends the routes that a request meets: the first that matches, for each reading of its path. A server behind
// may take any of the readings, and a client must not choose its limits by how it writes a path.
func (p *Proxy) meet(r *http.Request, met []*route) ([]*route, bool) {
	if len(p.routes) == 1 { // the one for all requests
		return append(met, &p.routes[0]), true
	}
	var room [maxRoutes]string
	paths, ok := p.requests.Paths(r, room[:0])
	if !ok {
		return met, false
	}
	host, method := actions.CleanHost(r.Host), strings.ToUpper(r.Method)
	for _, path := range paths {
		i := slices.IndexFunc(p.routes, func(c route) bool { return c.matches(host, method, path) })
		if first := &p.routes[i]; !slices.Contains(met, first) { // the last route matches all
			met = append(met, first)
		}
	}
	return met, true
}
