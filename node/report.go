package node

import (
	"context"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

// Report charges what a request cost, which may be known only once it is answered: req.Cost, 0 for 1, in all the layers that Decide would
// charge. It comes too late to be denied, so it is charged whatever room there is, each limit up to twice, and what is over the limit
// denies until it has left the window. Nobody is banned for it, and it is no decision that metrics count. It appends to layers what a peek
// tells right after. Errors are those of Take; nothing is charged then.
func (n *Node) Report(_ context.Context, req *Request, layers []Decision) ([]Decision, error) {
	var room [rules.MaxDescriptors]rules.Match
	p := n.policy.Load()
	found, err := p.set.Match(req, n.secret, room[:0])
	if err != nil {
		return layers, err
	}
	var charges [rules.MaxDescriptors]counters.Charge
	now := n.clock.Coarse()
	n.charge(req, found, now, charges[:len(found)])
	n.table.Report(charges[:len(found)], now)
	peek := *req
	peek.Peek = true
	return n.answer(p, &peek, found, layers), nil
}
