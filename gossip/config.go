package gossip

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/edgelimit/edgelimit/node/text"
)

// Config says how a node takes part in a cluster.
type Config struct {
	NodeID      string // unique among the nodes of the region, at most MaxNodeID bytes
	Region      string // at most MaxRegion bytes
	Incarnation uint64 // different at every boot

	// Rules and Identity are the fingerprints that the node sends of itself, see Member. Cluster.AnnounceRules sends
	// another one of the rules.
	Rules, Identity uint64

	// Interval is T: how often the node sends to its peers what it admitted. Shorter means less over-admission and more
	// packets.
	Interval time.Duration
	// LAN is the pool of the nodes of one region, WAN that of all regions. Without either the node is alone; Run ticks
	// all the same.
	LAN, WAN *PoolConfig
	// Label separates clusters that can reach each other: packets of another label are dropped.
	Label string
	// Keys encrypt and authenticate gossip, 32 bytes each: the first encrypts, all decrypt. At most MaxKeys; none is
	// allowed on loopback only. Cluster.SetKeys replaces them.
	Keys [][]byte

	Logger *slog.Logger // nil: slog.Default
	// Now is the wall clock in Unix nanoseconds; nil: the system's.
	Now func() int64
	// WrapTransport, if set, stands between a pool and its sockets: where demo and testnet inject faults.
	WrapTransport func(pool string, t memberlist.NodeAwareTransport) memberlist.NodeAwareTransport
}

// PoolConfig says how a node takes part in a pool of nodes.
type PoolConfig struct {
	// Bind is the host:port to listen on, UDP and TCP. Port 0 picks a free one.
	Bind string
	// Advertise is the host:port under which the others reach the node; empty: Bind's, or a private address of the
	// machine.
	Advertise string
	// Seeds are host:port of nodes to join through. They are resolved again at every attempt, and need not answer at
	// the start.
	Seeds []string
	// Transport replaces the sockets at Bind.
	Transport memberlist.NodeAwareTransport
}

// Default pace of a cluster.
const (
	DefaultInterval = 100 * time.Millisecond
	DefaultLabel    = "edgelimit"
)

// Validate reports everything that is wrong with the configuration.
func (c *Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("gossip: "+format, args...))
		}
	}
	check(c.NodeID != "" && len(c.NodeID) <= MaxNodeID, "the node id must have 1 to %d bytes", MaxNodeID)
	check(c.Region != "" && len(c.Region) <= MaxRegion, "the region must have 1 to %d bytes", MaxRegion)
	check(c.Interval >= 10*time.Millisecond && c.Interval <= 10*time.Second, "interval %s is outside 10ms to 10s",
		text.Setting(c.Interval))
	if len(c.Keys) > 0 {
		err := validateKeys(c.Keys)
		check(err == nil, "%w", err)
	}
	for _, p := range []*PoolConfig{c.LAN, c.WAN} {
		if p == nil || p.Transport != nil {
			continue
		}
		host, _, err := net.SplitHostPort(p.Bind)
		check(err == nil, "address %q: %w", p.Bind, err)
		check(err != nil || len(c.Keys) > 0 || isLoopback(host), "%s is beyond loopback and needs a key: make one "+
			"with edgelimit keygen and give every node its file", p.Bind)
	}
	return errors.Join(errs...)
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}
