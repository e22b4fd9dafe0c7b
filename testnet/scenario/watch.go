package scenario

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/testnet/cluster"
	"github.com/edgelimit/edgelimit/testnet/record"
	"github.com/edgelimit/edgelimit/testnet/traffic"
)

// Watch records what nodes report of themselves while traffic runs.
type Watch struct {
	Nodes      []cluster.Node
	Observe    func(context.Context, cluster.Node) (cluster.Observation, error) // as cluster.Cluster does
	Rule       string                                                           // in requests, and in metrics
	Identities []string                                                         // whose counts are recorded
	Client     *http.Client                                                     // asks for the counts
}

// Run observes every node once a second until ctx ends. It skips a node that does not answer. It returns the first
// observation of each node that could not be recorded.
func (w Watch) Run(ctx context.Context, sink traffic.Sink) error {
	errs := make([]error, len(w.Nodes))
	var watching sync.WaitGroup
	for i, n := range w.Nodes {
		watching.Go(func() {
			ticker := time.NewTicker(time.Second)
			defer ticker.Stop()
			for ctx.Err() == nil && errs[i] == nil {
				if o, err := w.observe(ctx, n); err == nil {
					errs[i] = sink.Write(record.Entry{Observation: o})
				}
				select {
				case <-ctx.Done():
				case <-ticker.C:
				}
			}
		})
	}
	watching.Wait()
	return errors.Join(errs...)
}

func (w *Watch) observe(ctx context.Context, n cluster.Node) (*record.Observation, error) {
	sent := time.Now().UnixNano()
	counts, err := traffic.Counts(ctx, w.Client, targetOf(n), w.Rule, w.Identities)
	if err != nil {
		return nil, err
	}
	o, err := w.Observe(ctx, n)
	if err != nil {
		return nil, err
	}
	return &record.Observation{
		Sent: sent, Done: max(sent, time.Now().UnixNano()), Node: n.Name, Counts: counts,
		Boot: strconv.FormatInt(o.Started.UnixNano(), 10), Bound: o.Bounds[w.Rule], Staleness: o.Staleness,
		Members: o.Members, Breaker: o.Breaker,
	}, nil
}
