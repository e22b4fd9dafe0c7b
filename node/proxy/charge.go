package proxy

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/rules"
)

// charges are what the response to a request is charged.
type charges struct {
	pending []answer.Pending
	header  http.Header // of the response, those with a cost
}

// needBody reports whether a charge depends on the response's body.
func (c *charges) needBody() bool {
	for _, p := range c.pending {
		if p.NeedsBody() {
			return true
		}
	}
	return false
}

// end charges a response; nil: there is none.
func (x *exchange) end(r *http.Request, resp *rules.Response) {
	for _, p := range x.pending {
		after := p.End(context.WithoutCancel(r.Context()), resp, nil)
		if resp != nil && x.routes == 1 { // these are all layers
			x.layers = after
		}
	}
	x.charges = charges{}
}

// chargeHeader takes the costs out of a response's header, which are not for the client, and charges them, unless the
// charge has to wait for the end of the body. So the client learns what is left after its request.
func (x *exchange) chargeHeader(r *http.Request, resp *http.Response) {
	if len(x.pending) == 0 {
		return
	}
	x.header = make(http.Header)
	for _, p := range x.pending {
		for _, name := range p.CostHeaders() {
			if values := resp.Header[name]; values != nil {
				x.header[name] = values
				delete(resp.Header, name)
			}
		}
	}
	if !x.needBody() {
		x.end(r, &rules.Response{Status: resp.StatusCode, Header: x.header})
	}
}

// chargeEnd charges a response that has ended, and one that its client did not wait for, or broke the request off.
func (x *exchange) chargeEnd(r *http.Request, began time.Time) {
	if len(x.pending) == 0 {
		return
	}
	resp := &rules.Response{Header: x.header, Bytes: uint64(x.sent), Duration: time.Since(began)}
	if (x.status >= 200 || x.status == http.StatusSwitchingProtocols) && !x.body.unreadable() {
		resp.Status = cmp.Or(x.failed, x.status)
	}
	x.end(r, resp)
}
