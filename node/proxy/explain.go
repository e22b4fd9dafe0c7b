package proxy

import (
	"net/http"
	"slices"

	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/rules"
)

// Meeting is a route that a request meets, and what it is decided on there.
type Meeting struct {
	Route       int                  // of Config.Routes, from 1; 0: none of them
	Descriptors []actions.Descriptor // that the route sends
	Request     rules.Request
	Denied      string // why it is denied whatever the rules are; empty: it is not
}

// Explain returns what a proxy of a valid configuration asks its limiter about a request, in turn. requests are the
// descriptors of all requests.
func (c *Config) Explain(requests actions.Config, r *http.Request) (all []Meeting, err error) {
	p := new(Proxy)
	if err := p.compile(c, requests); err != nil {
		return nil, err
	}
	met, ok := p.meet(r, nil)
	if !ok {
		return []Meeting{{Denied: tooManyReadings}}, nil
	}
	for _, one := range met {
		m := Meeting{Descriptors: requests.Descriptors}
		if i := slices.IndexFunc(p.routes, func(r route) bool { return r.actions == one.actions }); i < len(c.Routes) {
			m.Route = i + 1
			if own := c.Routes[i].Descriptors; own != nil {
				m.Descriptors = own
			}
		}
		if !one.free {
			m.Denied = one.actions.Describe(r, &m.Request).Detail
		}
		m.Request.SetCost(one.cost)
		all = append(all, m)
	}
	return all, nil
}
