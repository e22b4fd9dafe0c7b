package load

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/testnet/multiregion"
	"github.com/edgelimit/edgelimit/testnet/record"
)

// Watch is what is recorded of the nodes while a load runs.
type Watch struct {
	Nodes []multiregion.Node
	// Observe asks a node for its metrics, as multiregion.Testnet does.
	Observe func(context.Context, multiregion.Node) (multiregion.Observation, error)
	// Rule is asked for by name, its bound by its full name.
	Rule, FullName string
	// Identities are those whose counts are recorded.
	Identities []string
	// Every is how often each node is observed; 0: once a second.
	Every time.Duration
	// Client asks for the counts; nil: one of its own.
	Client *http.Client
}

// observeTimeout is how long a node may take to tell its counts.
const observeTimeout = time.Second

// Run observes every node until ctx ends. A node that does not answer is not observed. It returns the first thing that could not be
// recorded.
func (w Watch) Run(ctx context.Context, sink Sink) error {
	if w.Every == 0 {
		w.Every = time.Second
	}
	if w.Client == nil {
		w.Client = NewClient(2)
		defer w.Client.CloseIdleConnections()
	}
	errs := make([]error, len(w.Nodes))
	var watching sync.WaitGroup
	for i, n := range w.Nodes {
		watching.Go(func() {
			ticker := time.NewTicker(w.Every)
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

func (w *Watch) observe(ctx context.Context, n multiregion.Node) (*record.Observation, error) {
	out := &record.Observation{Sent: time.Now().UnixNano(), Node: n.Name}
	counts, err := Counts(ctx, w.Client, Target{n.Name, n.Region, n.HTTP}, w.Rule, w.Identities)
	if err != nil {
		return nil, err
	}
	seen, err := w.Observe(ctx, n)
	if err != nil {
		return nil, err
	}
	out.Done = max(out.Sent, time.Now().UnixNano())
	out.Counts, out.Boot = counts, strconv.FormatInt(seen.Started.UnixNano(), 10)
	out.Bound, out.Staleness, out.Members, out.Breaker = seen.Bounds[w.FullName], seen.Staleness, seen.Members, seen.Breaker
	return out, nil
}

// Counts asks a node what it counts of each identity.
func Counts(ctx context.Context, client *http.Client, t Target, rule string, identities []string) (map[string]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	counts := make(map[string]uint64, len(identities))
	for _, identity := range identities {
		a, err := Peek(ctx, client, t, rule, identity)
		if err != nil {
			return nil, err
		}
		counts[identity] = a.Counted()
	}
	return counts, nil
}
