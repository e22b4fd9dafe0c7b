package admin

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/text"
)

// playgroundPath is asked with POST, and changes nothing that counts.
const playgroundPath = "/api/playground"

// Bounds of a PlaygroundRequest.
const (
	maxPlaygroundLimit    = 50
	minPlaygroundWindow   = 2 * time.Second
	maxPlaygroundWindow   = time.Minute
	maxPlaygroundRequests = 20
)

// playgroundAlgorithms are what a viewer compares, in the order of the page.
var playgroundAlgorithms = [...]counters.Algorithm{counters.FixedWindow, counters.SlidingWindow, counters.SlidingLog,
	counters.TokenBucket, counters.LeakyBucket, counters.LeakyQueue}

// playground decides on requests that count nowhere else, by every algorithm, so that a viewer can compare them. All
// viewers share one table, as clients do: a session is a key, which goes when it counts nothing or the table is full.
// So there is no session to make, to keep or to end, and what the table may take bounds what viewers can. The table is
// made by the first request. It is safe for concurrent use.
type playground struct {
	now   func() time.Time
	once  sync.Once
	table *counters.Table
}

// PlaygroundRequest asks for decisions in the playground.
type PlaygroundRequest struct {
	Session  string `json:"session"`   // 16 hexadecimal digits that the viewer chose
	Limit    uint64 `json:"limit"`     // 1 to 50; another limit or window starts anew
	Window   int64  `json:"window_ms"` // whole seconds, 2 to 60
	Requests int    `json:"requests"`  // sent at once, each of a cost of 1: 0 to 20; 0 only looks
}

// playgroundDecision is the engine's answer to one request, or to a peek.
type playgroundDecision struct {
	Allowed    bool  `json:"allowed"`
	Delay      int64 `json:"delay_ms"`
	RetryAfter int64 `json:"retry_after_ms"`
}

// playgroundState is what the engine answers for one algorithm.
type playgroundState struct {
	Algorithm string               `json:"algorithm"`
	Decisions []playgroundDecision `json:"decisions"` // of the requests, in their order
	Next      playgroundDecision   `json:"next"`      // what a request would get now: a peek
	Remaining uint64               `json:"remaining"`
	// Level is the part of the limit in use, 0 to 1. That of a bucket falls evenly to 0 within ResetAfter.
	Level      float64 `json:"level"`
	ResetAfter int64   `json:"reset_after_ms"`
	Elapsed    int64   `json:"elapsed_ms"` // of the fixed window that holds now; 0 for other algorithms
}

func (p *playground) register(mux *http.ServeMux) {
	mux.HandleFunc(playgroundPath, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			refuse(w, http.StatusMethodNotAllowed, "the playground is asked with POST and a JSON body")
			return
		}
		var req PlaygroundRequest
		if status, err := readJSON(w, r, &req); err != nil {
			refuse(w, status, err.Error())
			return
		}
		states, err := p.play(req)
		if err != nil {
			refuse(w, http.StatusBadRequest, err.Error())
			return
		}
		reply(w, map[string][]playgroundState{"algorithms": states})
	})
}

// play sends the requests to every algorithm. Errors wrap rules.ErrInvalidRequest.
func (p *playground) play(req PlaygroundRequest) ([]playgroundState, error) {
	session, err := strconv.ParseUint(req.Session, 16, 64)
	window := time.Duration(req.Window) * time.Millisecond
	switch {
	case err != nil || len(req.Session) != 16:
		err = errors.New("session: give 16 hexadecimal digits")
	case req.Limit < 1 || req.Limit > maxPlaygroundLimit:
		err = fmt.Errorf("limit: give 1 to %d", maxPlaygroundLimit)
	case req.Window < minPlaygroundWindow.Milliseconds() || req.Window > maxPlaygroundWindow.Milliseconds() ||
		window%time.Second != 0:
		err = fmt.Errorf("window_ms: give whole seconds, %v to %v",
			text.Duration(minPlaygroundWindow), text.Duration(maxPlaygroundWindow))
	case req.Requests < 0 || req.Requests > maxPlaygroundRequests:
		err = fmt.Errorf("requests: give 0 to %d", maxPlaygroundRequests)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", rules.ErrInvalidRequest, err)
	}
	p.once.Do(func() {
		p.table = counters.NewTable(counters.Config{Origin: 1, Seed: rand.Uint64(), Memory: counters.MinMemory})
	})
	// The window is part of the meter, the limit is not: a bucket's level would mean something else under another one.
	key := counters.Key(session + req.Limit)
	now := p.now()
	states := make([]playgroundState, 0, len(playgroundAlgorithms))
	for _, algorithm := range playgroundAlgorithms {
		limit, err := counters.NewLimit(counters.NewMeter("playground", algorithm, window), req.Limit)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", rules.ErrInvalidRequest, err)
		}
		states = append(states, p.send(limit, key, req.Requests, now))
	}
	return states, nil
}

// send sends n requests at once under one limit, and looks at what is left.
func (p *playground) send(limit *counters.Limit, key counters.Key, n int, now time.Time) playgroundState {
	s := playgroundState{Algorithm: limit.Meter().Algorithm.String(), Decisions: make([]playgroundDecision, 0, n)}
	for range n {
		s.Decisions = append(s.Decisions, newPlaygroundDecision(p.table.Take(limit, key, 1, now.UnixNano())))
	}
	d := p.table.Take(limit, key, 0, now.UnixNano())
	s.Next, s.Remaining, s.ResetAfter = newPlaygroundDecision(d), d.Remaining, ceilMillis(d.ResetAfter)
	switch limit.Meter().Algorithm {
	case counters.TokenBucket, counters.LeakyBucket, counters.LeakyQueue:
		s.Level = float64(d.ResetAfter) / float64(limit.Lasts())
	case counters.FixedWindow:
		s.Elapsed = (now.UnixNano() % int64(d.Window)) / int64(time.Millisecond)
		fallthrough
	default:
		s.Level = float64(d.Limit-d.Remaining) / float64(d.Limit)
	}
	return s
}

func newPlaygroundDecision(d counters.Decision) playgroundDecision {
	return playgroundDecision{d.Allowed, ceilMillis(d.Delay), ceilMillis(d.RetryAfter)}
}
