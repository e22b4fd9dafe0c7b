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

// admit reports whether the request may pass, once its turn has come. If not it is answered.
func (x *exchange) admit(r *http.Request) bool {
	var room [maxRoutes]*route
	met, ok := x.proxy.meet(r, room[:0])
	if !ok {
		x.deny(actions.DeniedTooManyValues, tooManyReadings)
		return false
	}
	x.routes = len(met)
	for _, route := range met {
		if route.free {
			continue
		}
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
	return true
}

// wait waits for the request's turn.
func (x *exchange) wait(r *http.Request) {
	// A chunked body may end in trailers, which net/http writes to the request.
	if r.ProtoMajor == 1 && r.ContentLength > 0 && r.Header["Expect"] == nil &&
		counters.VerdictOf(x.layers).Delay > 0 {
		x.body.readAhead(r.ContentLength)
	}
	kept := x.pending[:0]
	for _, p := range x.pending {
		charges, err := p.Wait(r.Context())
		if err != nil { // the client has gone
			x.end(r, nil)
			panic(http.ErrAbortHandler)
		}
		if charges {
			kept = append(kept, p)
		}
	}
	x.pending = kept
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
	x.request.SetCost(route.cost)
	x.request.OnFailure = route.onFailure
	x.request.Header, x.request.TargetBytes = r.Header, answer.TargetBytes(r)
	layers, pending, err := p.limiter.Begin(r.Context(), &x.request, x.layers)
	if err != nil && r.Context().Err() != nil { // the client left while a store was asked
		x.denied = true
		x.answer(answer.NewProblem(http.StatusServiceUnavailable, "the node did not decide in time: try again"))
		return false
	}
	if err != nil {
		x.deny(actions.DeniedTooManyValues, err.Error())
		return false
	}
	if pending != nil {
		x.pending = append(x.pending, pending)
	}
	x.layers = layers
	return true
}

// deny answers a request that is denied whatever the rules are.
func (x *exchange) deny(reason, detail string) {
	x.denied = true
	x.addDenialHeaders()
	if x.grpc {
		x.answer(answer.NewProblem(http.StatusBadRequest, detail))
		return
	}
	answer.WriteDenied(x, http.StatusBadRequest, reason, detail)
}

// writeDenial answers a request that rules deny, with the operator's page if there is one.
func (x *exchange) writeDenial() {
	p := x.proxy
	x.addDenialHeaders()
	retryAfter := x.headersOf(x.Header())
	if p.page == nil || x.grpc {
		x.answer(answer.NewDenial(http.StatusTooManyRequests, x.layers, retryAfter))
		return
	}
	x.Header().Set("Content-Type", p.pageType)
	x.WriteHeader(http.StatusTooManyRequests)
	_, _ = x.Write(p.page)
}

// addDenialHeaders adds the operator's own headers to a denial.
func (x *exchange) addDenialHeaders() {
	for name, value := range x.proxy.cfg.DenialHeaders {
		x.Header().Set(name, value)
	}
}

// headersOf writes the headers of the decisions, and returns the seconds of Retry-After.
func (x *exchange) headersOf(h http.Header) int64 { return x.proxy.headers.Write(h, x.layers) }
