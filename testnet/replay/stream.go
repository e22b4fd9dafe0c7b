package replay

import (
	"container/heap"
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/testnet/accesslog"
)

// request is what a line says. Its values are valid until the next one is asked for.
type request struct {
	at     int64 // ns since the Unix epoch
	values []string
}

// reading is what streams have in common: how lines are read, and what was found out about them.
type reading struct {
	ctx      context.Context
	parser   parser
	held     int // bytes of lines that a stream may hold
	progress func(Progress)
	lines    uint64
	newest   int64
	Problems
}

// Problems are lines and logs that could not be read.
type Problems struct {
	Malformed   uint64    `json:"malformed"`       // lines that were left out
	Shown       []Problem `json:"first_malformed"` // the first of them
	Failed      []string  `json:"failed_logs"`     // logs that could not be read to their end, and why
	Interrupted bool      `json:"interrupted"`     // the logs go on: this is what had been read
}

// Problem is a malformed line. Its text is what the log has, cut off: it may hold anything.
type Problem struct {
	Log    string `json:"log"`
	Line   int    `json:"line"`
	Reason string `json:"reason"`
	Text   string `json:"text"`
}

const (
	problemsShown = 5
	problemText   = 80 // bytes
	// Progress is told, and an interrupt heard, once in so many lines.
	linesAtOnce = 1 << 10
)

func (r *reading) malformed(name string, line int, text string, err error) {
	if r.Malformed++; len(r.Shown) < problemsShown {
		r.Shown = append(r.Shown, Problem{name, line, err.Error(), clip(text, problemText)})
	}
}

// clip copies the beginning of what may be long.
func clip(s string, most int) string {
	if len(s) > most {
		return s[:most] + "..."
	}
	return strings.Clone(s)
}

// stream is the requests of one log, sorted by time within a window. It is opened with its first request only, so that the windows of logs
// that come one after the other are not held at the same time.
type stream struct {
	*reading
	name   string
	log    *accesslog.Lines
	ended  bool
	filled bool
	seq    uint64
	held   int      // bytes of the lines in the window
	window []queued // a heap, the earliest at the top
	slots  []string // values: of each slot as many as the layout is wide
	free   []int32
}

type queued struct {
	at   int64
	seq  uint64 // requests of the same time stay in the order of their lines
	slot int32
	size int32
}

// openStream reads the first request. The error is that of a log of which not even the beginning can be read.
func (r *reading) openStream(l Log) (*stream, error) {
	log, err := accesslog.NewLines(l.Reader)
	if err != nil {
		return nil, err
	}
	s := &stream{reading: r, name: l.Name, log: log}
	s.fill(1)
	return s, nil
}

// fill reads until so many requests are in the window, or its lines take as much memory as they may.
func (s *stream) fill(most int) {
	for !s.ended && len(s.window) < most && (s.held < s.reading.held || len(s.window) == 0) {
		s.read()
	}
}

// read reads one line.
func (s *stream) read() {
	if s.lines%linesAtOnce == 0 {
		if s.ctx.Err() != nil {
			s.ended, s.Interrupted = true, true
			return
		}
		s.progress(Progress{Lines: s.lines, At: s.newest})
	}
	b, err := s.log.Next()
	switch {
	case err == io.EOF:
		s.ended = true
		return
	case errors.Is(err, accesslog.ErrTooLong):
		s.lines++
		s.malformed(s.name, s.log.Number(), "", err)
		return
	case err != nil && s.ctx.Err() != nil:
		s.ended, s.Interrupted = true, true
		return
	case err != nil:
		s.ended = true
		s.Failed = append(s.Failed, s.name+": "+err.Error())
		return
	}
	s.lines++
	line := string(b)
	if strings.TrimSpace(line) == "" {
		return
	}
	slot := s.slot()
	at, err := s.parser.parse(line, s.values(slot))
	if err != nil {
		s.free = append(s.free, slot)
		s.malformed(s.name, s.log.Number(), line, err)
		return
	}
	s.seq++
	s.newest = max(s.newest, at)
	s.held += len(line)
	s.push(queued{at, s.seq, slot, int32(len(line))})
}

// slot returns one that is free.
func (s *stream) slot() int32 {
	if n := len(s.free); n > 0 {
		slot := s.free[n-1]
		s.free = s.free[:n-1]
		return slot
	}
	width := s.parser.layout.width()
	s.slots = append(s.slots, make([]string, width)...)
	return int32(len(s.slots)/width - 1)
}

func (s *stream) values(slot int32) []string {
	width := s.parser.layout.width()
	return s.slots[int(slot)*width : int(slot+1)*width : int(slot+1)*width]
}

// earliest is the first request of the window.
func (s *stream) earliest() *queued { return &s.window[0] }

// early is how much earlier than the first line of a log a later one may be without being late, where there are several logs.
const early = int64(time.Minute)

// due is when the stream has to be looked at: its first request, or before its window is filled some time before that.
func (s *stream) due() int64 {
	if s.filled {
		return s.earliest().at
	}
	return s.earliest().at - early
}

// drop takes the first request out of the window, and reads on.
func (s *stream) drop() {
	q := s.pop()
	clear(s.values(q.slot))
	s.free = append(s.free, q.slot)
	s.held -= int(q.size)
	s.fill(Window)
}

func (a *queued) before(b *queued) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

func (s *stream) push(q queued) {
	s.window = append(s.window, q)
	w := s.window
	i := len(w) - 1
	for i > 0 && q.before(&w[(i-1)/2]) {
		w[i] = w[(i-1)/2]
		i = (i - 1) / 2
	}
	w[i] = q
}

func (s *stream) pop() queued {
	w := s.window
	top, last := w[0], w[len(w)-1]
	w = w[:len(w)-1]
	s.window = w
	for i := 0; i < len(w); {
		child := 2*i + 1
		if child+1 < len(w) && w[child+1].before(&w[child]) {
			child++
		}
		if child >= len(w) || !w[child].before(&last) {
			w[i] = last
			break
		}
		w[i] = w[child]
		i = child
	}
	return top
}

// merged is the requests of several logs in one order: a heap by the streams' first.
type merged struct {
	streams []*stream
	taken   bool // the first request of the first stream was handed out
}

// next returns the request that is next in time; it is not ok at the end.
func (m *merged) next() (q request, ok bool) {
	if m.taken {
		m.taken = false
		m.streams[0].drop()
		if len(m.streams[0].window) == 0 {
			heap.Pop(m)
		} else {
			heap.Fix(m, 0)
		}
	}
	if len(m.streams) == 0 {
		return request{}, false
	}
	s := m.streams[0]
	for ; !s.filled; s = m.streams[0] {
		s.filled = true
		s.fill(Window)
		heap.Fix(m, 0)
	}
	m.taken = true
	first := s.earliest()
	return request{first.at, s.values(first.slot)}, true
}

func (m *merged) Len() int           { return len(m.streams) }
func (m *merged) Less(i, j int) bool { return m.streams[i].due() < m.streams[j].due() }
func (m *merged) Swap(i, j int)      { m.streams[i], m.streams[j] = m.streams[j], m.streams[i] }
func (m *merged) Push(x any)         { m.streams = append(m.streams, x.(*stream)) }
func (m *merged) Pop() any {
	s := m.streams[len(m.streams)-1]
	m.streams = m.streams[:len(m.streams)-1]
	return s
}
