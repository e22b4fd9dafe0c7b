// Package envoy has a node answer Envoy's rate limit protocol: by gRPC at Config.GRPC, and as JSON at POST /json of its
// HTTP address. It is a package of its own because gRPC and Envoy's messages are more than all the rest of a node: only
// who imports this one links them.
//
//	cfg := node.DefaultConfig()
//	cfg.GRPC, cfg.Envoy = "127.0.0.1:8081", envoy.Service
package envoy

import (
	"time"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/rlsapi"
)

// Service is what node.Config.Envoy takes.
func Service(l node.EnvoyLimiter, opt node.EnvoyOptions) node.EnvoyService {
	return service{rlsapi.New(l, opt)}
}

type service struct{ *rlsapi.Service }

// Server implements node.EnvoyService.
func (s service) Server(leaving <-chan struct{}, idle time.Duration) node.EnvoyServer {
	return rlsapi.NewServer(s.Service, rlsapi.ServerOptions{Leaving: leaving, IdleTimeout: idle})
}
