package testkit

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"sync"
)

// Log collects what a logger or a process writes. It can be read at the same time.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns the text so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Logger returns a logger that writes text, debug messages as well.
func (l *Log) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// HasLine reports whether one line contains all the words.
func (l *Log) HasLine(words ...string) bool {
	for line := range strings.Lines(l.String()) {
		lacks := func(word string) bool { return !strings.Contains(line, word) }
		if !slices.ContainsFunc(words, lacks) {
			return true
		}
	}
	return false
}
