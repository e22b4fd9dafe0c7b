package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/edgelimit/edgelimit/node/limits"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/status"
)

// Status is what a node answers operators about itself and its cluster. Errors wrap rules.ErrUnknownRule or
// rules.ErrInvalidRequest.
type Status interface {
	Status() status.Status
	// TopDenied returns whom a rule, or with an empty name each, denied most.
	TopDenied(rule string, n int) ([]status.Denied, error)
	// Inspect returns what the node knows of an identity under a rule, and charges nothing.
	Inspect(ctx context.Context, rule, identity string) (status.Inspection, error)
	// Settings returns the effective configuration.
	Settings() ([]status.Setting, error)
	Events() *status.Events
}

const (
	defaultTop = 20
	maxTop     = 1000
	maxStreams = 32 // of events and of status, together
	// keepAlive is how often a stream without news says that it lives.
	keepAlive = 15 * time.Second
	// writeTimeout is how long a client may take to read what it is sent.
	writeTimeout = 10 * time.Second
)

// statusAPI serves what is read only.
type statusAPI struct {
	node    Status
	bare    bool // only what Dashboard says
	log     *slog.Logger
	streams *limits.Budget
	feed    *feed
}

func (a *statusAPI) register(mux *http.ServeMux) {
	a.feed = newFeed(a.node)
	mux.HandleFunc("/api/status", a.serveStatus)
	mux.HandleFunc("/api/events", a.serveEvents)
	if a.bare {
		return
	}
	get := func(path string, answer func(r *http.Request) (any, error)) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if !isGet(w, r) {
				return
			}
			v, err := answer(r)
			if err != nil {
				refuseError(w, err, a.log, "a request about the status failed")
				return
			}
			replyOnce(w, v)
		})
	}
	get("/api/members", func(*http.Request) (any, error) {
		members := []status.Member{}
		for _, r := range a.node.Status().Regions {
			members = append(members, r.Members...)
		}
		return map[string]any{"members": members}, nil
	})
	get("/api/top", func(r *http.Request) (any, error) {
		n, err := number(r, "n", defaultTop)
		if err != nil || n < 1 || n > maxTop {
			return nil, fmt.Errorf("%w: n is a number from 1 to %d", rules.ErrInvalidRequest, maxTop)
		}
		top, err := a.node.TopDenied(r.URL.Query().Get("rule"), int(n))
		return map[string]any{"top": top}, err
	})
	get("/api/inspect", func(r *http.Request) (any, error) {
		q := r.URL.Query()
		if !q.Has("rule") || !q.Has("identity") {
			return nil, fmt.Errorf("%w: say rule=NAME and identity=WHO", rules.ErrInvalidRequest)
		}
		return a.node.Inspect(r.Context(), q.Get("rule"), q.Get("identity"))
	})
	get("/api/config", func(*http.Request) (any, error) {
		settings, err := a.node.Settings()
		return map[string]any{"settings": settings}, err
	})
}

func isGet(w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return true
	}
	w.Header().Set("Allow", "GET, HEAD")
	refuse(w, http.StatusMethodNotAllowed, "this is read with GET")
	return false
}

// number returns a parameter of the query, or another number without it.
func number(r *http.Request, name string, otherwise uint64) (uint64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	return strconv.ParseUint(text, 10, 63)
}

// replyOnce replies with what is true now, and not to be kept.
func replyOnce(w http.ResponseWriter, v any) {
	w.Header().Set("Cache-Control", "no-store")
	reply(w, v)
}

// serveStatus answers with the status, or streams it: an event status every feedInterval.
func (a *statusAPI) serveStatus(w http.ResponseWriter, r *http.Request) {
	if !isGet(w, r) {
		return
	}
	if !wantsStream(r) {
		replyOnce(w, a.node.Status())
		return
	}
	a.stream(w, r, func(s *stream) {
		for {
			event, next, err := a.feed.frame()
			if err != nil || !s.write(event) || !s.wait(nil, next) {
				return
			}
		}
	})
}

// serveEvents answers with the events after since, or streams them: those after Last-Event-ID or since, and then each
// that comes. Without either a stream begins with all that there are. Every keepAlive it sends again, without an id of
// the stream, those whose Repeated has grown meanwhile.
func (a *statusAPI) serveEvents(w http.ResponseWriter, r *http.Request) {
	if !isGet(w, r) {
		return
	}
	since, err := number(r, "since", 0)
	if text := r.Header.Get("Last-Event-ID"); text != "" && err == nil {
		since, err = strconv.ParseUint(text, 10, 63)
	}
	if err != nil || since == math.MaxInt64 {
		refuse(w, http.StatusBadRequest, "since and Last-Event-ID are the id of an event")
		return
	}
	if !wantsStream(r) {
		events, _ := a.node.Events().Since(since)
		events = append([]status.Event{}, events...)
		for i := range events {
			a.strip(&events[i])
		}
		replyOnce(w, map[string]any{"events": events})
		return
	}
	a.stream(w, r, func(s *stream) {
		_, repeats := a.node.Events().Repeated(0)
		alive := time.Now()
		for {
			events, added := a.node.Events().Since(since)
			for _, e := range events {
				if a.strip(&e); !s.send("event", e.ID, e) {
					return
				}
				since = e.ID
			}
			if !s.wait(added, time.Until(alive.Add(keepAlive))) {
				return
			}
			if time.Since(alive) < keepAlive {
				continue
			}
			alive = time.Now()
			if events, repeats = a.node.Events().Repeated(repeats); len(events) == 0 && !s.write([]byte(": \n\n")) {
				return
			}
			for _, e := range events {
				if a.strip(&e); e.ID <= since && !s.send("event", 0, e) { // later ones are sent next
					return
				}
			}
		}
	})
}

// strip takes the attributes of an event, in which addresses may be, from those who see the dashboard alone.
func (a *statusAPI) strip(e *status.Event) {
	if a.bare {
		e.Attrs = nil
	}
}

// wantsStream reports whether a request asks for server-sent events.
func wantsStream(r *http.Request) bool { return r.Header.Get("Accept") == "text/event-stream" }

// stream is a response of server-sent events. Its methods return false once it is over: the client has gone or does not
// read, or the node stops.
type stream struct {
	w    http.ResponseWriter
	to   *http.ResponseController
	over <-chan struct{}
	node <-chan struct{}
}

// stream serves a stream, if there is a place for it.
func (a *statusAPI) stream(w http.ResponseWriter, r *http.Request, serve func(*stream)) {
	source := limits.SourceOfContext(r.Context())
	if a.streams.Take(source, 1) != "" {
		w.Header().Set("Retry-After", "5")
		refuse(w, http.StatusServiceUnavailable, "too many streams are open: close one")
		return
	}
	defer a.streams.Give(source, 1)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	s := &stream{w: w, to: http.NewResponseController(w), over: r.Context().Done(), node: a.node.Events().Closed()}
	if s.write([]byte(": \n\n")) { // so that the client has its headers
		serve(s)
	}
}

// send sends an event with a name, an identifier unless it is 0, and JSON, which has no line breaks.
func (s *stream) send(name string, id uint64, data any) bool {
	text, err := json.Marshal(data)
	if err != nil {
		return false
	}
	head := "event: " + name + "\n"
	if id != 0 {
		head += "id: " + strconv.FormatUint(id, 10) + "\n"
	}
	return s.write([]byte(head + "data: " + string(text) + "\n\n"))
}

func (s *stream) write(text []byte) bool {
	_ = s.to.SetWriteDeadline(time.Now().Add(writeTimeout)) // of a recorder in a test: none
	_, err := s.w.Write(text)
	return err == nil && s.to.Flush() == nil
}

// wait waits for news, or for a time.
func (s *stream) wait(news <-chan struct{}, at time.Duration) bool {
	timer := time.NewTimer(at)
	defer timer.Stop()
	select {
	case <-s.over:
		return false
	case <-s.node:
		return false
	case <-news:
	case <-timer.C:
	}
	return true
}
