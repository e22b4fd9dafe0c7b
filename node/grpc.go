package node

import (
	"fmt"

	"github.com/edgelimit/edgelimit/node/rlsapi"
)

// openGRPC makes Envoy's rate limit service, which answers at the HTTP door as well, and opens its own door if there is to be one.
func (n *Node) openGRPC() error {
	n.envoy = rlsapi.New(n, rlsapi.Options{
		Headers: n.cfg.Headers, Algorithm: n.cfg.ruleOptions().DefaultAlgorithm(), Learn: n.learner(&n.made[ofEnvoy]), Logger: n.log,
	})
	if n.cfg.GRPC == "" {
		return nil
	}
	l, err := listen(n.cfg.GRPC)
	if err != nil {
		return fmt.Errorf("open the grpc door: %w", err)
	}
	n.grpc = openedDoor("grpc", l, n.room("grpc"), n.log) // who is refused hears nothing: gRPC has no word for it before HTTP/2 is spoken
	n.grpc.server = rlsapi.NewServer(n.envoy, rlsapi.ServerOptions{Leaving: n.grpc.leaving, IdleTimeout: n.cfg.IdleTimeout})
	return nil
}
