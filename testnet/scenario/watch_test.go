package scenario

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/cluster"
	"github.com/edgelimit/edgelimit/testnet/record"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// countingNodes count 6 of every identity. Node b is down.
type countingNodes struct{}

func (countingNodes) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host == "b" {
		return nil, errors.New("down")
	}
	body := io.NopCloser(strings.NewReader(`{"allowed":true,"limit":10,"remaining":4}`))
	return &http.Response{StatusCode: http.StatusOK, Body: body, Request: r}, nil
}

// observations is a sink in memory.
type observations struct {
	mu  sync.Mutex
	all []record.Observation
}

func (o *observations) Write(e record.Entry) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, *e.Observation)
	return nil
}

func TestWatch(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		began := time.Now()
		w := Watch{
			Nodes: []cluster.Node{
				{Name: "a", Region: "east", HTTP: "http://a"},
				{Name: "b", Region: "west", HTTP: "http://b"},
				{Name: "c", Region: "west", HTTP: "http://c"},
			},
			Rule: "r", Identities: []string{"x", "y"},
			Client: &http.Client{Transport: countingNodes{}},
			Observe: func(_ context.Context, n cluster.Node) (cluster.Observation, error) {
				if n.Name == "c" {
					return cluster.Observation{}, errors.New("no metrics")
				}
				return cluster.Observation{
					Bounds: map[string]float64{"r": .5, "other": 9}, Members: 2, Breaker: "open", Started: began,
					Staleness: time.Second,
				}, nil
			},
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		k := new(observations)
		if err := w.Run(ctx, k); err != nil {
			t.Fatal(err)
		}
		if len(k.all) != 3 {
			t.Fatalf("%d observations, want those of one node at 0, 1 and 2 s", len(k.all))
		}
		for i, o := range k.all {
			if o.Node != "a" || o.Sent != began.Add(time.Duration(i)*time.Second).UnixNano() || o.Bound != .5 ||
				o.Members != 2 || o.Breaker != "open" || o.Boot == "" || o.Counts["x"] != 6 || o.Counts["y"] != 6 {
				t.Errorf("observed %+v", o)
			}
		}
	})
}
