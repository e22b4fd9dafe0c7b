package node_test

import (
	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/envoy"
)

func init() { node.EnvoyForTests = envoy.Service }
