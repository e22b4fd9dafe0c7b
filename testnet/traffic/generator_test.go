package traffic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/record"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// kept is a sink in memory.
type kept struct {
	mu        sync.Mutex
	decisions []record.Decision
	fails     error
}

func (k *kept) Write(e record.Entry) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e.Decision != nil {
		k.decisions = append(k.decisions, *e.Decision)
	}
	return k.fails
}

// nodes answer in virtual time, without sockets.
type nodes struct {
	takes time.Duration
	fails map[string]error // by host
	mu    sync.Mutex
	asked []time.Duration // since the start of the test
	start time.Time
}

func (n *nodes) RoundTrip(r *http.Request) (*http.Response, error) {
	n.mu.Lock()
	n.asked = append(n.asked, time.Since(n.start))
	n.mu.Unlock()
	if err := n.fails[r.URL.Host]; err != nil {
		return nil, err
	}
	if n.takes > 0 {
		timer := time.NewTimer(n.takes)
		defer timer.Stop()
		select {
		case <-r.Context().Done():
			return nil, r.Context().Err()
		case <-timer.C:
		}
	}
	var c check
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil || c.Rule == "" || c.Identity == "" {
		return nil, fmt.Errorf("bad check %+v: %w", c, err)
	}
	body := fmt.Sprintf(`{"allowed":%v,"rule":"r","limit":10,"remaining":4}`, c.Identity != "denied")
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

var targets = []Target{{Node: "a", Region: "east", URL: "http://a"}, {Node: "b", Region: "west", URL: "http://b"}}

func options(streams ...Stream) Options {
	return Options{Rule: "r", Targets: targets, Streams: streams, Duration: 2 * time.Second, Seed: 7}
}

// virtual runs a load in virtual time.
func virtual(t *testing.T, o Options, n *nodes, judge func(t *testing.T, s Summary, err error, k *kept)) {
	t.Helper()
	testkit.VirtualTime(t, func(t *testing.T) {
		n.start = time.Now()
		o.Client = &http.Client{Transport: n}
		k := new(kept)
		s, err := Run(t.Context(), o, k)
		judge(t, s, err, k)
	})
}

func TestPacing(t *testing.T) {
	n := new(nodes)
	virtual(
		t,
		options(Stream{Identity: "x", Rate: 10, Spacing: Even}),
		n,
		func(t *testing.T, s Summary, err error, k *kept) {
			if err != nil || s.Offered != 20 || s.Allowed != 20 || len(k.decisions) != 20 || s.Late != 0 {
				t.Fatalf("%+v, %d recorded, %v", s, len(k.decisions), err)
			}
			for i, at := range n.asked {
				if want := time.Duration(i) * 100 * time.Millisecond; at != want {
					t.Errorf("request %d was sent at %v, want %v", i, at, want)
				}
			}
			perNode := map[string]int{}
			for _, d := range k.decisions {
				perNode[d.Node+d.Region]++
				if d.Identity != "x" || d.Cost != 1 || !d.Allowed || d.Limit != 10 || d.Remaining != 4 ||
					d.Error != "" ||
					d.Done < d.Sent {
					t.Errorf("recorded %+v", d)
				}
			}
			if perNode["aeast"] != 10 || perNode["bwest"] != 10 {
				t.Errorf("spread as %v", perNode)
			}
		},
	)
}

// What is sent when does not depend on how fast answers come, and is the same for the same seed.
func TestOpenLoop(t *testing.T) {
	var quick, slow nodes
	slow.takes = 500 * time.Millisecond
	o := options(Stream{Identity: "x", Rate: 40}, Stream{Identity: "denied", Rate: 20})
	virtual(t, o, &quick, func(t *testing.T, s Summary, err error, _ *kept) {
		if err != nil || s.Denied == 0 || s.Allowed == 0 || s.Denied+s.Allowed != s.Offered {
			t.Errorf("%+v, %v", s, err)
		}
	})
	virtual(t, o, &slow, func(t *testing.T, s Summary, err error, k *kept) {
		if err != nil || len(k.decisions) != s.Offered {
			t.Errorf("%+v, %d recorded, %v", s, len(k.decisions), err)
		}
	})
	if !slices.Equal(quick.asked, slow.asked) || len(quick.asked) < 60 {
		t.Errorf("%d requests to quick nodes and %d to slow ones, or at other times", len(quick.asked), len(slow.asked))
	}
	var other nodes
	o.Seed++
	virtual(t, o, &other, func(*testing.T, Summary, error, *kept) {})
	if slices.Equal(quick.asked, other.asked) {
		t.Error("another seed gives the same times")
	}
}

func TestFallingBehindIsSaid(t *testing.T) {
	o := options(Stream{Identity: "x", Rate: 10, Spacing: Even})
	o.Workers = 1
	virtual(t, o, &nodes{takes: 300 * time.Millisecond}, func(t *testing.T, s Summary, err error, k *kept) {
		if !errors.Is(err, ErrBehind) || s.Late <= maxLate || s.Offered != 20 || len(k.decisions) != 20 {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

func TestErrorsAreRecorded(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	o := options(Stream{Identity: "x", Rate: 10, Spacing: Even})
	virtual(t, o, &nodes{fails: map[string]error{"b": refused}}, func(t *testing.T, s Summary, err error, k *kept) {
		if err != nil || s.Failed != 10 || s.Allowed != 10 || len(k.decisions) != 20 ||
			!slices.Equal(s.Kinds(), []string{"dial: connection refused"}) {
			t.Errorf("%+v, %v", s, err)
		}
	})
	virtual(t, o, &nodes{takes: time.Minute}, func(t *testing.T, s Summary, err error, k *kept) {
		if err != nil || s.Failed != 20 || k.decisions[0].Error != "no answer in time" ||
			k.decisions[0].Done-k.decisions[0].Sent != int64(DefaultTimeout) {
			t.Errorf("%+v, %+v, %v", s, k.decisions[0], err)
		}
	})
}

// Who asks elsewhere records a node that may have decided, and not one that cannot have been reached.
func TestElsewhere(t *testing.T) {
	o := options(Stream{Identity: "x", Rate: 10, Spacing: Even})
	o.Elsewhere = true
	for err, recorded := range map[error]int{
		&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}: 20,
		&net.OpError{Op: "read", Err: syscall.ECONNRESET}:   30,
	} {
		virtual(t, o, &nodes{fails: map[string]error{"b": err}}, func(t *testing.T, s Summary, err error, k *kept) {
			if err != nil || s.Failed != 0 || s.Allowed != 20 || s.Moved != 10 || s.Lost != recorded-20 ||
				len(k.decisions) != recorded {
				t.Errorf("%+v, %d recorded, %v", s, len(k.decisions), err)
			}
		})
	}
	dead := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	virtual(
		t,
		o,
		&nodes{fails: map[string]error{"a": dead, "b": dead}},
		func(t *testing.T, s Summary, err error, k *kept) {
			if s.Failed != 20 || len(k.decisions) != 20 {
				t.Errorf("%+v, %d recorded", s, len(k.decisions))
			}
		},
	)
}

func TestWhatCannotBeRecordedIsAnError(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		o := options(Stream{Identity: "x", Rate: 10})
		o.Client = &http.Client{Transport: &nodes{start: time.Now()}}
		full := errors.New("disk full")
		if _, err := Run(t.Context(), o, &kept{fails: full}); !errors.Is(err, full) {
			t.Errorf("error %v", err)
		}
	})
}

func TestEndsWithItsContext(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		o := options(Stream{Identity: "x", Rate: 10, Spacing: Even})
		// Longer than is left when the context ends: what was sent is answered all the same.
		o.Client = &http.Client{Transport: &nodes{start: time.Now(), takes: 400 * time.Millisecond}}
		s, err := Run(ctx, o, new(kept))
		if err != nil || s.Failed != 0 || s.Offered < 10 || s.Offered > 11 {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

// Over real sockets every request that a server answered is in the record, and no other.
func TestRealServers(t *testing.T) {
	var mu sync.Mutex
	answered := map[string]int{}
	server := func(name string) *httptest.Server {
		return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if r.URL.Path != "/v1/check" || r.Method != http.MethodPost || !bytes.Contains(body, []byte(`"rule":"r"`)) {
				w.WriteHeader(http.StatusTeapot)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			answered[name]++
			if name == "b" && answered[name]%2 == 0 {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			fmt.Fprint(w, `{"allowed":true,"limit":10,"remaining":3}`)
		}))
	}
	o := Options{
		Rule:     "r",
		Duration: 500 * time.Millisecond,
		Timeout:  time.Minute,
		Streams:  []Stream{{Identity: "x", Rate: 200}},
	}
	for _, name := range []string{"a", "b"} {
		s := server(name)
		defer s.Close()
		o.Targets = append(o.Targets, Target{Node: name, Region: "east", URL: s.URL})
	}
	k := new(kept)
	s, err := Run(t.Context(), o, k)
	if errors.Is(err, ErrBehind) { // the machine is slow, which is not what this test is about
		err = nil
	}
	if err != nil || s.Offered != answered["a"]+answered["b"] || len(k.decisions) != s.Offered ||
		s.Failed != answered["b"]/2 ||
		s.Failed > 0 && s.FailedBy["status 503"] != s.Failed {
		t.Errorf("%+v, answered %v, %d recorded, %v", s, answered, len(k.decisions), err)
	}
}

func TestValidate(t *testing.T) {
	good := options(Stream{Identity: "x", Rate: 1})
	for want, change := range map[string]func(o *Options){
		"no rule":              func(o *Options) { o.Rule = "" },
		"no targets":           func(o *Options) { o.Targets = nil },
		`target "a" at "8111"`: func(o *Options) { o.Targets = []Target{{Node: "a", Region: "east", URL: "8111"}} },
		"no streams":           func(o *Options) { o.Streams = nil },
		"without an identity":  func(o *Options) { o.Streams = []Stream{{Rate: 1}} },
		"a rate of NaN":        func(o *Options) { o.Streams = []Stream{{Identity: "x", Rate: math.NaN()}} },
		`spacing "odd"`:        func(o *Options) { o.Streams = []Stream{{Identity: "x", Rate: 1, Spacing: "odd"}} },
		"1 weights": func(o *Options) {
			o.Streams = []Stream{{Identity: "x", Rate: 1,
				Weights: []float64{1}}}
		},
		"a weight of -1": func(o *Options) {
			o.Streams = []Stream{{Identity: "x", Rate: 1,
				Weights: []float64{-1, 1}}}
		},
		"at most 20000 a second":  func(o *Options) { o.Streams = []Stream{{Identity: "x", Rate: 1e6}} },
		"more than 0 and at most": func(o *Options) { o.Duration = 2 * time.Hour },
		"none may be below 0":     func(o *Options) { o.Workers = -1 },
	} {
		o := good
		change(&o)
		if _, err := Run(t.Context(), o, new(kept)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
}
