package node

import (
	"context"
	"time"

	"github.com/edgelimit/edgelimit/node/ratelimit"
	"github.com/edgelimit/edgelimit/node/rules"
)

// EnvoyService is Envoy's rate limit service. envoy.Service of package node/envoy makes it; a node without it links no
// gRPC. It is safe for concurrent use.
type EnvoyService interface {
	// JSON answers a request in protobuf's JSON, as POST /json receives it. Errors are those of httpapi.Envoy.
	JSON(ctx context.Context, body []byte) (answer []byte, allowed bool, err error)
	// Server returns a gRPC server of the service. Its health turns to not serving when leaving is closed. A connection
	// may be without requests for as long as idle; 0 means the default.
	Server(leaving <-chan struct{}, idle time.Duration) EnvoyServer
	// Stats returns its totals.
	Stats() EnvoyStats
}

// EnvoyLimiter is what an EnvoyService asks: a node. Each method is as Node's.
type EnvoyLimiter interface {
	HasDomain(name string) bool
	Compatible(domain string) bool
	DecideMet(ctx context.Context, req *Request, layers []Decision, met []*rules.Rule) ([]Decision, error)
}

// EnvoyServer is the gRPC server of an EnvoyService, with totals since it was made.
type EnvoyServer interface {
	Server
	// Panics returns how many requests ended in a panic.
	Panics() uint64
	// Incomplete returns how many requests were dropped before they had arrived completely: late ones took too long,
	// dropped ones made room for newer ones.
	Incomplete() (late, dropped uint64)
}

// EnvoyOptions are what a node gives its EnvoyService.
type EnvoyOptions = ratelimit.ServiceOptions

// EnvoyStats are the totals of an EnvoyService.
type EnvoyStats = ratelimit.ServiceStats

// openGRPC makes Envoy's rate limit service, if there is one, which the HTTP API serves as well, and its own listener
// if that has an address.
func (n *Node) openGRPC() error {
	if n.cfg.Envoy == nil {
		return nil
	}
	opt := EnvoyOptions{
		Headers: n.cfg.Headers, Algorithm: n.cfg.ruleOptions().DefaultAlgorithm(), Learn: n.learnAdHoc(envoyAPI),
		Ratelimit: n.cfg.Ratelimit, Shadow: n.shadow.Load, Stats: n.stats, Budgets: n.budgets,
		Logger: n.log,
	}
	if n.compatible() {
		opt.HealthName = "ratelimit"
	}
	n.envoy = n.cfg.Envoy(n.timedBy("grpc"), opt)
	if n.cfg.GRPC == "" {
		return nil
	}
	l, err := n.listen("grpc") // without a refusal: gRPC has none before HTTP/2 begins
	if err != nil {
		return err
	}
	server := n.envoy.Server(n.unready, n.cfg.IdleTimeout)
	l.Server, l.Panics, l.Protocols = server, server.Panics, []string{"h2"}
	return nil
}
