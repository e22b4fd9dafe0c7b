package gossip

import "github.com/edgelimit/edgelimit/testnet/testkit"

func init() { testkit.FewerChecks() }
