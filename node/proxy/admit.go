package proxy

import (
	"net/http"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/rules"
)

// admission is what was decided on a request.
type admission struct {
	request rules.Request // memory that is used again
	layers  []counters.Decision
	denied  bool
	routes  int // that the request met
	charges
}

// reset returns an empty admission with the memory of this one.
func (a *admission) reset() admission {
	clear(a.request.Descriptors)
	return admission{request: rules.Request{Descriptors: a.request.Descriptors[:0]}, layers: a.layers[:0]}
}

// admit reports whether the request may pass now. If not it is answered, or its client has gone.
func (x *exchange) admit(r *http.Request) bool {
	var room [maxRoutes]*route
	met, ok := x.proxy.meet(r, room[:0])
	if !ok {
		x.deny(actions.DeniedTooManyValues, "the path has too many readings; send it plainly")
		return false
	}
	x.routes = len(met)
	for _, route := range met {
		if !x.ask(route, r) {
			x.end(r, nil)
			return false
		}
		if x.denied = !counters.VerdictOf(x.layers).Allowed; x.denied {
			x.end(r, nil)
			x.writeDenial()
			return false
		}
	}
	if answer.Wait(r.Context(), counters.VerdictOf(x.layers).Delay) != nil {
		x.end(r, nil)
		return false
	}
	return true
}

// ask appends the decisions of a route to the layers. It returns false if the request is denied whatever they are; then
// it is answered.
func (x *exchange) ask(route *route, r *http.Request) bool {
	p := x.proxy
	if out := route.actions.Describe(r, &x.request); out.Denied != "" {
		x.deny(out.Denied, out.Detail)
		return false
	}
	if len(x.request.Descriptors) == 0 {
		if p.hints.Due(time.Now()) {
			p.log.WarnContext(r.Context(), "a request passes without a descriptor: no rule limits it",
				"hint", route.actions.Hint(r))
		}
		return true
	}
	x.request.Cost = route.cost
	layers, pending, err := p.limiter.Begin(r.Context(), &x.request, x.layers)
	if err != nil {
		x.deny(actions.DeniedTooManyValues, err.Error())
		return false
	}
	if pending != nil {
		x.pending = append(x.pending, pending)
	}
	if len(layers) >= len(x.layers) { // else it could not decide
		x.layers = layers
	}
	return true
}

// deny answers a request that is denied whatever the rules are.
func (x *exchange) deny(reason, detail string) {
	x.denied = true
	answer.WriteDenied(x, http.StatusBadRequest, reason, detail)
}

// writeDenial answers a request that rules deny, with the operator's page if there is one.
func (x *exchange) writeDenial() {
	p := x.proxy
	retryAfter := x.headersOf(x.Header())
	if p.page == nil {
		answer.NewDenial(http.StatusTooManyRequests, x.layers, retryAfter).Write(x)
		return
	}
	x.Header().Set("Content-Type", p.pageType)
	x.WriteHeader(http.StatusTooManyRequests)
	_, _ = x.Write(p.page)
}

// headersOf writes the headers of the decisions, and returns the seconds of Retry-After.
func (x *exchange) headersOf(h http.Header) int64 { return x.proxy.headers.Write(h, x.layers) }
