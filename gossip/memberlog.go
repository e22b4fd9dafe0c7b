package gossip

import (
	"bytes"
	"context"
	"log"
	"log/slog"
	"sync"
	"time"
)

// logLines bounds the lines of a log in a second: whoever can send packets can cause them.
const logLines = 20

// bridgeLog returns the logger for memberlist. Its lines have the form "[LEVEL] memberlist: text".
func bridgeLog(to *slog.Logger, pool string) *log.Logger {
	return log.New(&logBridge{to: to.With("pool", pool)}, "", 0)
}

type logBridge struct {
	to    *slog.Logger
	limit logLimit
}

var logLevels = map[string]slog.Level{
	"DEBUG": slog.LevelDebug, "INFO": slog.LevelDebug, "WARN": slog.LevelWarn, "ERR": slog.LevelWarn,
	"ERROR": slog.LevelWarn,
}

// Write implements io.Writer for log.Logger, which calls it once a line.
func (b *logBridge) Write(line []byte) (int, error) {
	n := len(line)
	level := slog.LevelDebug
	if word, text, ok := bytes.Cut(line, []byte("] ")); ok && len(word) > 0 && word[0] == '[' {
		level, line = logLevels[string(word[1:])], text
	}
	if bytes.Contains(line, []byte(errNoGateway.Error())) {
		level = slog.LevelDebug
	}
	if !b.to.Enabled(context.Background(), level) || !b.limit.admit(b.to) {
		return n, nil
	}
	line = bytes.TrimPrefix(bytes.TrimSpace(line), []byte("memberlist: "))
	b.to.Log(context.Background(), level, "memberlist", "detail", string(line))
	return n, nil
}

// logLimit lets some lines a second into a log. The zero value is ready; it is safe for concurrent use.
type logLimit struct {
	mu      sync.Mutex
	second  time.Time
	lines   int
	dropped int
}

// admit reports whether one more line may be logged. When a new second begins, it logs how many were not.
func (l *logLimit) admit(to *slog.Logger) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now().Truncate(time.Second); now != l.second {
		if l.dropped > 0 {
			to.Warn("gossip: lines left out of this log", "lines", l.dropped)
		}
		l.second, l.lines, l.dropped = now, 0, 0
	}
	if l.lines++; l.lines > logLines {
		l.dropped++
		return false
	}
	return true
}
