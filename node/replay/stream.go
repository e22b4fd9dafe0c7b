package replay

import (
	"cmp"
	"context"
	"io"
	"slices"
	"sort"
	"strings"
	"time"
)

// request is what a line says of a request.
type request struct {
	at     int64 // ns since the Unix epoch
	size   int   // bytes of the line
	values []string
}

// reader is what the streams of a run share.
type reader struct {
	ctx      context.Context
	parser   parser
	maxHeld  int // bytes of lines in a stream's window
	progress func(Progress)
	lines    uint64
	newest   int64 // the latest time read, ns since the Unix epoch
	Problems
}

// Problems are lines and logs that could not be read.
type Problems struct {
	Malformed   uint64    `json:"malformed"`       // lines that were left out
	Shown       []Problem `json:"first_malformed"` // the first of them
	Failed      []string  `json:"failed_logs"`     // logs that could not be read to their end, and why
	Interrupted bool      `json:"interrupted"`     // the logs go on; the report covers what had been read
}

// Problem is a malformed line. Its text is a prefix of the line, which may hold anything.
type Problem struct {
	Log    string `json:"log"`
	Line   int    `json:"line"`
	Reason string `json:"reason"`
	Text   string `json:"text"`
}

const (
	problemsShown = 5
	problemText   = 80      // bytes
	checkLines    = 1 << 10 // progress is reported and the context checked once in so many lines
)

// clip copies the first max bytes of s.
func clip(s string, max int) string {
	if len(s) > max {
		return s[:max] + "..."
	}
	return strings.Clone(s)
}

// stream reads the requests of one log, sorted by time within a window. It opens with its first request only, so that
// logs that follow each other do not hold their windows at the same time.
type stream struct {
	*reader
	name   string
	log    *lineReader
	ended  bool
	filled bool
	held   int        // bytes of the lines in the window
	window []*request // by time; requests of the same time in the order of their lines
}

// openStream reads the first request. The error is that of a log whose beginning cannot be read.
func (r *reader) openStream(l Log) (*stream, error) {
	log, err := newLineReader(l.Reader)
	if err != nil {
		return nil, err
	}
	s := &stream{reader: r, name: l.Name, log: log}
	s.fill(1)
	return s, nil
}

// fill reads until the window has max requests or its lines take the memory that they may.
func (s *stream) fill(max int) {
	for !s.ended && len(s.window) < max && (s.held < s.maxHeld || len(s.window) == 0) {
		s.read()
	}
}

// read reads one line.
func (s *stream) read() {
	if s.lines%checkLines == 0 {
		if s.ctx.Err() != nil {
			s.ended, s.Interrupted = true, true
			return
		}
		s.progress(Progress{Lines: s.lines, At: s.newest})
	}
	b, err := s.log.next()
	if err != nil && err != errTooLong {
		s.ended = true
		if s.ctx.Err() != nil && err != io.EOF {
			s.Interrupted = true
		} else if err != io.EOF {
			s.Failed = append(s.Failed, s.name+": "+err.Error())
		}
		return
	}
	s.lines++
	line := string(b)
	if err == nil && strings.TrimSpace(line) == "" {
		return
	}
	q := &request{size: len(line), values: make([]string, s.parser.layout.width())}
	if err == nil {
		q.at, err = s.parser.parse(line, q.values)
	}
	if err != nil {
		if s.Malformed++; len(s.Shown) < problemsShown {
			s.Shown = append(s.Shown, Problem{s.name, s.log.number, err.Error(), clip(line, problemText)})
		}
		return
	}
	s.newest = max(s.newest, q.at)
	s.held += q.size
	i := sort.Search(len(s.window), func(i int) bool { return s.window[i].at > q.at })
	s.window = slices.Insert(s.window, i, q) // near the end, because logs are nearly sorted
}

// overlap is how much earlier than a log's first line a later one may be without being late, among several logs.
const overlap = int64(time.Minute)

// due returns when the stream is next: at its first request, or, before its window is filled, the overlap earlier.
func (s *stream) due() int64 {
	if s.filled {
		return s.window[0].at
	}
	return s.window[0].at - overlap
}

// drop removes the first request from the window, and reads on.
func (s *stream) drop() {
	s.held -= s.window[0].size
	s.window[0] = nil // does not keep the line
	s.window = s.window[1:]
	s.fill(Window)
}

// merger merges the requests of several logs by time.
type merger struct {
	streams []*stream
	current *stream // of the request that next returned last
}

// next returns the next request in time, which is valid until the next call, or nil at the end.
func (m *merger) next() *request {
	if s := m.current; s != nil {
		m.current = nil
		if s.drop(); len(s.window) == 0 {
			m.streams = slices.DeleteFunc(m.streams, func(other *stream) bool { return other == s })
		}
	}
	for len(m.streams) > 0 {
		s := slices.MinFunc(m.streams, func(a, b *stream) int { return cmp.Compare(a.due(), b.due()) })
		if s.filled {
			m.current = s
			return s.window[0]
		}
		s.filled = true
		s.fill(Window)
	}
	return nil
}
