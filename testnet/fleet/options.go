package fleet

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/edgelimit/edgelimit/testnet/netem"
)

// Options say what runs, and for how long.
type Options struct {
	Regions int // each with a Redis
	Nodes   int // in each region
	// For is how long load is offered before the rolling restart.
	For time.Duration
	// Restart restarts every node in turn after that, under load.
	Restart  bool
	Interval time.Duration // of gossip, T
	WAN      netem.Link    // what nodes do to what they send to other regions
	BasePort int           // the first of the ports on loopback: PortsPerNode for each node, and one for each region
	MaxProcs int           // GOMAXPROCS of a node
	Memory   int           // MiB, GOMEMLIMIT of a node

	HotClients   int     // clients that ask for HotLoad times their limit, at all nodes
	HotLoad      float64 // a multiple of the limit
	SmallClients int     // clients of SmallNodes nodes each, far below their limits
	Rate         float64 // requests a second of the small clients, and as many of those whose counts are compared

	Program  string    // the node's binary, of testnet/node
	Dir      string    // for logs and settings; it has to be there
	Progress io.Writer // if set, gets a line now and then
}

// PortsPerNode is the number of consecutive ports that a node takes: HTTP API, health, LAN and WAN gossip, the Redis
// protocol, gRPC.
const PortsPerNode = 6

// DefaultOptions returns those of 100 nodes. Their interval is five times as long as usual: at 100 ms, so many
// processes take more than two processors without a request.
func DefaultOptions() Options {
	return Options{
		Regions: 5, Nodes: 20, For: 5 * time.Minute, Restart: true, Interval: 500 * time.Millisecond,
		WAN:      netem.Link{Latency: 40 * time.Millisecond, Jitter: 10 * time.Millisecond, Loss: 0.01},
		BasePort: 21000, MaxProcs: 1, Memory: 64, HotClients: 3, HotLoad: 2, SmallClients: 1000, Rate: 40,
	}
}

// Ephemeral ports of Linux begin there.
const maxPort = 32_767

// Validate reports everything that is wrong with the options.
func (o *Options) Validate() error {
	var errs []error
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	wrong(o.Regions < 1 || o.Regions > 50, "%d regions: want 1 to 50", o.Regions)
	wrong(o.Nodes < 1 || o.Nodes > 200, "%d nodes a region: want 1 to 200", o.Nodes)
	wrong(o.Regions*o.Nodes < 2, "one node has nobody to agree with")
	wrong(o.For < time.Second || o.For > time.Hour, "load for %v: want 1s to 1h", o.For)
	wrong(o.Interval < 10*time.Millisecond || o.Interval > 10*time.Second, "an interval of %v: want 10ms to 10s",
		o.Interval)
	last := o.BasePort + o.Regions*o.Nodes*PortsPerNode + o.Regions - 1
	wrong(o.BasePort < 1024 || last > maxPort, "ports %d to %d: want 1024 to %d", o.BasePort, last, maxPort)
	wrong(o.MaxProcs < 1, "%d processors a node: want at least 1", o.MaxProcs)
	wrong(o.Memory < 16, "%d MiB a node: want at least 16", o.Memory)
	wrong(o.HotClients < 0 || o.HotClients > 100, "%d hot clients: want 0 to 100", o.HotClients)
	wrong(!(o.HotLoad > 0 && o.HotLoad <= 100), "a load of %v limits: want more than 0, at most 100", o.HotLoad)
	wrong(o.SmallClients < 1 || o.SmallClients > 1_000_000, "%d small clients: want 1 to 1000000", o.SmallClients)
	wrong(!(o.Rate > 0 && o.Rate <= 10_000), "%v requests a second: want more than 0, at most 10000", o.Rate)
	wrong(o.Program == "", "no program: name the binary of the nodes")
	wrong(o.Dir == "", "no folder for logs")
	return errors.Join(append(errs, o.WAN.Validate())...)
}
