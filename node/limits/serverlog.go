package limits

import (
	"bytes"
	"log"
	"log/slog"
	"sync"
	"time"
)

// serverLines bounds the lines of a server's log in a second: whoever can connect can cause them.
const serverLines = 20

// ServerLog returns the ErrorLog of an http.Server. Its lines are warnings of one message, whose attribute detail is
// net/http's text; so many a second, and how many were left out.
func ServerLog(to *slog.Logger) *log.Logger { return log.New(&serverLog{to: to}, "", 0) }

type serverLog struct {
	to      *slog.Logger
	mu      sync.Mutex
	second  int64
	lines   int
	dropped int
}

// Write implements io.Writer for log.Logger, which calls it once a line.
func (s *serverLog) Write(line []byte) (int, error) {
	s.mu.Lock()
	left := 0
	if now := time.Now().Unix(); now != s.second {
		left = s.dropped
		s.second, s.lines, s.dropped = now, 0, 0
	}
	s.lines++
	fits := s.lines <= serverLines
	if !fits {
		s.dropped++
	}
	s.mu.Unlock()
	if left > 0 {
		s.to.Warn("http server: lines left out of this log", "lines", left)
	}
	if fits {
		s.to.Warn("http server", "detail", string(bytes.TrimSpace(line)))
	}
	return len(line), nil
}
