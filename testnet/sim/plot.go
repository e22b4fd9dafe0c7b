package sim

import (
	"fmt"
	"io"
	"time"

	"github.com/edgelimit/edgelimit/testnet/plot"
)

// WritePlot writes the run as an SVG picture; see package plot.
func (r *Report) WritePlot(w io.Writer) error { return plot.WriteSVG(w, r.series()) }

func (r *Report) series() plot.Series {
	s := plot.Series{
		Title: []string{
			fmt.Sprintf("%d regions of %d nodes, %d per %gs and client, %s at %g times the limit, gossip every %g ms",
				r.Regions, r.Nodes, r.Limit, r.WindowSeconds, r.Pattern, r.Load, r.IntervalMillis),
			fmt.Sprintf("net %+.2f %%, peak %+.2f %% of the limit, bound at most %.2f %%", r.NetPct, r.PeakPct,
				r.BoundPct),
		},
		Limit: float64(r.Limit), Window: time.Duration(r.WindowSeconds * float64(time.Second)), Clients: r.Keys,
		Duration: time.Duration(r.Seconds * float64(time.Second)), Samples: r.PerSecond,
	}
	for _, text := range r.Partitions {
		if p, err := ParsePartition(text); err == nil { // Partition.String wrote it
			s.Partitions = append(s.Partitions,
				plot.Partition{From: p.From, Until: p.Until, Label: "partition " + p.sides()})
		}
	}
	return s
}
