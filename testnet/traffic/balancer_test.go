package traffic

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edgelimit/testnet/record"
)

// stoppingNodes answer, until the first is unready and, a linger later, gone.
type stoppingNodes struct {
	mu            sync.Mutex
	unready, gone time.Time
	liar          bool // it says that it is ready until it is gone
	stalls        int  // so many answers of its neighbour after that are late
	asked         map[string]int
	perNode       map[string]int
}

func (s *stoppingNodes) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := r.URL.Host == "a1"
	status, body := http.StatusOK, "ready"
	switch now := time.Now(); {
	case first && now.After(s.gone):
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	case r.URL.Path == "/readyz" && r.URL.Host == "a2" && now.After(s.gone) && s.stalls > 0:
		s.stalls--
		s.mu.Unlock()
		<-r.Context().Done()
		s.mu.Lock()
		return nil, r.Context().Err()
	case r.URL.Path == "/readyz":
		if s.asked[r.URL.Host]++; first && now.After(s.unready) && !s.liar {
			status = http.StatusServiceUnavailable
		}
	default:
		s.perNode[r.URL.Host]++
		body = `{"allowed":true,"limit":10,"remaining":1}`
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

type discard struct{}

func (discard) Write(record.Entry) error { return nil }

// Clients behind a balancer lose nothing while a node lingers, stay in the region, and see a node that is gone without
// having said so. One late answer does not make a node unready.
func TestBalanced(t *testing.T) {
	for name, c := range map[string]struct {
		liar   bool
		linger time.Duration
		stalls int
		fails  bool
	}{
		"it lingers":            {false, ReadyInterval + ReadyTimeout, 0, false},
		"no linger":             {false, 0, 0, true},
		"it lies":               {true, time.Second, 0, true},
		"the other one is late": {false, time.Second, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &stoppingNodes{unready: time.Now().Add(2 * time.Second), liar: c.liar, stalls: c.stalls,
					asked: map[string]int{}, perNode: map[string]int{}}
				s.gone = s.unready.Add(c.linger)
				o := Options{Rule: "r", Duration: 10 * time.Second, Balanced: true, Client: &http.Client{Transport: s},
					Streams: []Stream{{Identity: "x", Rate: 99, Spacing: Even}}}
				for _, n := range []string{"a1", "a2", "b1"} {
					o.Targets = append(o.Targets,
						Target{Node: n, Region: n[:1], URL: "http://" + n, Health: "http://" + n})
				}
				got, err := Run(t.Context(), o, discard{})
				if err != nil || (got.Failed > 0) != c.fails || got.Failed > 10 || got.Moved < 200 {
					t.Errorf("%+v, %v", got, err)
				}
				if got.Failed > 0 && got.FailedBy["dial: "+syscall.ECONNREFUSED.Error()] == 0 {
					t.Errorf("%v", got.FailedBy)
				}
				if b1 := s.perNode["b1"]; b1 < 320 || b1 > 340 || s.perNode["a2"] < s.perNode["a1"] ||
					s.asked["b1"] < 90 {
					t.Errorf("%v, asked %v", s.perNode, s.asked)
				}
			})
		})
	}
}

// Whose answers are late twice in a row is unready until it answers.
func TestLateTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stoppingNodes{gone: time.Now().Add(-time.Second), stalls: 3, asked: map[string]int{}}
		b := &balancer{targets: []Target{{Health: "http://a2"}}, unready: make([]atomic.Bool, 1)}
		late := false
		for i, want := range []bool{false, true, true, false} {
			if late = b.ask(t.Context(), &http.Client{Transport: s}, 0, late); b.unready[0].Load() != want {
				t.Errorf("answer %d (late: %t): unready is %t", i, late, !want)
			}
		}
	})
}

func TestBalancedNeedsHealth(t *testing.T) {
	o := Options{Rule: "r", Duration: time.Second, Balanced: true, Targets: []Target{{Node: "a", URL: "http://a"}},
		Streams: []Stream{{Identity: "x", Rate: 1}}}
	if err := o.Validate(); err == nil || !strings.Contains(err.Error(), "health listener") {
		t.Error(err)
	}
}
