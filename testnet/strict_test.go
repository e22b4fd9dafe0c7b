package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/cluster"
)

// shared is nodes in one process that share strict counts, and faults that cut one side off, unless they are harmless.
type shared struct {
	sync.Mutex
	did   []string
	limit int
	used  map[string]int
	cut   bool
	leaks int // requests admitted although the store is away
	stays bool
}

func (s *shared) note(what string) error {
	s.Lock()
	defer s.Unlock()
	s.did = append(s.did, what)
	return nil
}

func (s *shared) Partition(_ context.Context, region string, _ cluster.Direction) error {
	s.Lock()
	s.cut = true
	s.Unlock()
	return s.note("partition " + region)
}

func (s *shared) Heal(context.Context) error {
	s.Lock()
	s.cut = s.stays
	s.Unlock()
	return s.note("heal")
}

func (s *shared) Pause(context.Context, string) error           { return nil }
func (s *shared) Unpause(context.Context, string) error         { return nil }
func (s *shared) Nodes(context.Context) ([]cluster.Node, error) { return nil, nil }
func (s *shared) Redises(context.Context) ([]cluster.Redis, error) {
	s.Lock()
	defer s.Unlock()
	return []cluster.Redis{{Region: strictHome, Partitioned: s.cut}}, nil
}

// node returns the URL of a node that is cut off with the others, or stays with the store.
func (s *shared) node(t *testing.T, home bool) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var check struct {
			Descriptors [][]struct{ Key, Value string }
		}
		if err := json.NewDecoder(r.Body).Decode(&check); err != nil {
			t.Error(err)
		}
		s.Lock()
		defer s.Unlock()
		var a strictAnswer
		e := check.Descriptors[0][0]
		switch a.Degraded = s.cut && !home; {
		case a.Degraded && e.Key == strictClosed && s.leaks == 0:
		case a.Degraded && e.Key == strictClosed:
			s.leaks--
			a.Allowed = true
		case s.used[e.Value] < s.limit:
			s.used[e.Value]++
			a.Allowed = true
		}
		if err := json.NewEncoder(w).Encode(a); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// The command believes only what it should: of a limit that holds, and not of one that leaks.
func TestStrictFinds(t *testing.T) {
	for name, c := range map[string]struct {
		shared *shared
		want   string
	}{
		"good":                {&shared{limit: strictLimit}, ""},
		"too much":            {&shared{limit: strictLimit + 1}, "at first 101 requests of 100 were admitted"},
		"closed is open":      {&shared{limit: strictLimit, leaks: 1}, "cut off, 1 closed requests were admitted"},
		"it does not go back": {&shared{limit: strictLimit, stays: true}, "does not come back on the WAN"},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.shared
			s.used = make(map[string]int)
			o := strictOutage{faults: s, inside: []string{s.node(t, true)}, outside: []string{s.node(t, false)},
				patience: 50 * time.Millisecond, id: 1}
			r, err := o.play(t.Context())
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v, %v, want %q", r, err, c.want)
			}
			if err == nil && (r.closed != strictLimit || r.local != strictLimit) {
				t.Errorf("%+v", r)
			}
			if len(s.did) == 0 || s.did[len(s.did)-1] != "heal" || err == nil && !slices.Equal(s.did,
				[]string{"partition us-east", "heal"}) {
				t.Errorf("it did %q", s.did)
			}
		})
	}
}
