package status

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/node/text"
)

// Event is a line of a node's log, of level info or above: something that happened at the node or to a peer.
type Event struct {
	// ID ascends, also over restarts of the node as long as its clock does.
	ID    uint64            `json:"id"`
	Time  time.Time         `json:"time"`
	Level string            `json:"level"` // info, warn or error
	Text  string            `json:"text"`  // constant for events of a kind
	Attrs map[string]string `json:"attrs,omitempty"`
	// Repeated counts the events of the same text that followed within the minute, and are not kept.
	Repeated int `json:"repeated,omitempty"`

	repeat uint64 // number of the latest of these, of all that the node counted
}

const (
	maxEvents   = 1024
	maxPerText  = maxEvents / 16 // of these, those with the same text
	maxInMinute = 8              // of a text; more are counted in Event.Repeated
	maxAttrs    = 16
	maxValue    = 300 // bytes of a text or an attribute
)

// Events are the latest events of a node. A flood of one kind pushes no other out: of each text the first few of a
// minute are kept, and a sixteenth of all. The methods are safe for concurrent use.
type Events struct {
	mu     sync.Mutex
	all    []Event
	byText map[string]*flood
	id     uint64
	repeat uint64        // how many were counted in Event.Repeated
	added  chan struct{} // closed when an event is added
	closed chan struct{}
	once   sync.Once
}

// flood is how many events of a text there are.
type flood struct {
	kept     int
	minute   int64 // of the latest
	inMinute int
}

// NewEvents returns no events. Their identifiers begin above those of a boot before now.
func NewEvents(now time.Time) *Events {
	return &Events{byText: make(map[string]*flood), id: uint64(max(1, now.UnixMicro())), added: make(chan struct{}),
		closed: make(chan struct{})}
}

// Add adds an event, whose ID it sets.
func (e *Events) Add(v Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f := e.byText[v.Text]
	if f == nil {
		f = new(flood)
		e.byText[v.Text] = f
	}
	if minute := v.Time.Unix() / 60; minute != f.minute {
		f.minute, f.inMinute = minute, 0
	}
	same := func(o Event) bool { return o.Text == v.Text }
	if f.inMinute++; f.inMinute > maxInMinute && f.kept > 0 {
		for i := len(e.all) - 1; ; i-- {
			if same(e.all[i]) {
				e.repeat++
				e.all[i].Repeated++
				e.all[i].repeat = e.repeat
				return
			}
		}
	}
	switch {
	case f.kept >= maxPerText:
		e.remove(slices.IndexFunc(e.all, same))
	case len(e.all) >= maxEvents:
		e.remove(0)
	}
	f.kept++
	e.byText[v.Text] = f // remove may have forgotten it
	e.id++
	v.ID = e.id
	e.all = append(e.all, v)
	close(e.added)
	e.added = make(chan struct{})
}

// remove removes an event. The lock is held.
func (e *Events) remove(i int) {
	text := e.all[i].Text
	if e.byText[text].kept--; e.byText[text].kept == 0 {
		delete(e.byText, text)
	}
	e.all = slices.Delete(e.all, i, i+1)
}

// Since returns the events whose ID is above id, the oldest first, and a channel that is closed when there are more.
func (e *Events) Since(id uint64) (later []Event, added <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	i, _ := slices.BinarySearchFunc(e.all, id+1, func(v Event, id uint64) int {
		if v.ID < id {
			return -1
		}
		return 1
	})
	return slices.Clone(e.all[i:]), e.added
}

// Repeated returns the kept events whose Event.Repeated has grown after a number of repetitions, the oldest first, and
// how many repetitions there are now. It wakes nobody: a flood would wake readers with each of its lines.
func (e *Events) Repeated(after uint64) (grown []Event, now uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.repeat > after {
		for _, v := range e.all {
			if v.repeat > after {
				grown = append(grown, v)
			}
		}
	}
	return grown, e.repeat
}

// Latest returns the ID of the latest event, and how many repetitions were counted.
func (e *Events) Latest() (id, repeats uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.id, e.repeat
}

// Close closes Closed, so that streams end. Events can be added and read as before.
func (e *Events) Close() { e.once.Do(func() { close(e.closed) }) }

// Closed is closed by Close.
func (e *Events) Closed() <-chan struct{} { return e.closed }

// Handler returns a handler that hands records to next, and adds those of level info or above to the events, whether
// next wants them or not.
func (e *Events) Handler(next slog.Handler) slog.Handler { return &recorder{Handler: next, events: e} }

type recorder struct {
	slog.Handler
	events *Events
	attrs  []slog.Attr // of With
	group  string
}

// Enabled implements slog.Handler.
func (r *recorder) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || r.Handler.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (r *recorder) Handle(ctx context.Context, rec slog.Record) error {
	if rec.Level >= slog.LevelInfo {
		v := Event{Time: rec.Time, Level: "info", Text: text.CleanUpTo(rec.Message, maxValue),
			Attrs: make(map[string]string)}
		if rec.Level >= slog.LevelError {
			v.Level = "error"
		} else if rec.Level >= slog.LevelWarn {
			v.Level = "warn"
		}
		add := func(prefix string, a slog.Attr) bool {
			if len(v.Attrs) < maxAttrs {
				value := a.Value.Resolve()
				if value.Kind() == slog.KindDuration {
					value = slog.StringValue(text.Duration(value.Duration()))
				}
				v.Attrs[text.CleanUpTo(prefix+a.Key, maxValue)] = text.CleanUpTo(value.String(), maxValue)
			}
			return len(v.Attrs) < maxAttrs
		}
		for _, a := range r.attrs {
			add("", a)
		}
		rec.Attrs(func(a slog.Attr) bool { return add(r.group, a) })
		r.events.Add(v)
	}
	if !r.Handler.Enabled(ctx, rec.Level) {
		return nil
	}
	return r.Handler.Handle(ctx, rec)
}

// WithAttrs implements slog.Handler.
func (r *recorder) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *r
	c.Handler, c.attrs = r.Handler.WithAttrs(attrs), slices.Clone(r.attrs)
	for _, a := range attrs {
		c.attrs = append(c.attrs, slog.Attr{Key: r.group + a.Key, Value: a.Value})
	}
	return &c
}

// WithGroup implements slog.Handler.
func (r *recorder) WithGroup(name string) slog.Handler {
	c := *r
	c.Handler, c.group = r.Handler.WithGroup(name), r.group+name+"."
	return &c
}
