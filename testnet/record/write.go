package record

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
)

// Writer writes a record. It is safe for concurrent use. After the first failure it writes nothing more, and counts the
// lines that are lost.
type Writer struct {
	header  Header
	regions map[string]string

	mu      sync.Mutex
	out     io.Writer
	closers []io.Closer
	buf     bytes.Buffer
	pending int   // entries in buf
	lost    int   // entries that could not be written
	failed  error // the first failure of out
	closed  bool
}

// flushAt is the size of the buffer at which it is written, in bytes.
const flushAt = 64 << 10

// line is a line of a record: just one of its fields is set.
type line struct {
	Header *Header `json:"header,omitempty"`
	Entry
}

// Create creates the file, which must not exist, and writes the header into it. It compresses where the name ends in
// ".gz".
func Create(name string, h Header) (*Writer, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, fmt.Errorf("create record: %w", err)
	}
	out, closers := io.Writer(f), []io.Closer{f}
	if strings.HasSuffix(name, ".gz") {
		z := gzip.NewWriter(f)
		out, closers = z, []io.Closer{z, f}
	}
	w, err := NewWriter(out, h)
	if err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(name))
	}
	w.closers = closers
	return w, nil
}

// NewWriter writes the header to w and returns a writer of uncompressed lines. It does not close w.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	h.Version = Version
	if err := h.Validate(); err != nil {
		return nil, fmt.Errorf("header of record: %w", err)
	}
	out := &Writer{header: h, regions: h.Regions(), out: w}
	return out, out.writeLine(line{Header: &out.header})
}

// Write writes an entry. It refuses an invalid one, which harms no other. A failure to write what was buffered is an
// error of this or a later call, and of Close.
func (w *Writer) Write(e Entry) error {
	if err := e.validate(&w.header, w.regions); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	return w.writeLine(line{Entry: e})
}

func (w *Writer) writeLine(l line) error {
	text, err := json.Marshal(l)
	if err == nil && len(text) >= maxLine {
		err = ErrTooLong
	}
	if err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
		return errors.New("write record: it is closed")
	case w.failed != nil:
		w.lost++
		return w.failed
	}
	w.buf.Write(text)
	w.buf.WriteByte('\n')
	w.pending++
	if w.buf.Len() < flushAt {
		return nil
	}
	return w.flush()
}

// flush writes the buffer. The lock is held.
func (w *Writer) flush() error {
	if w.failed == nil && w.buf.Len() > 0 {
		if _, err := w.out.Write(w.buf.Bytes()); err != nil {
			w.failed = fmt.Errorf("write record: %w", err)
			w.lost += w.pending
		}
		w.buf.Reset()
		w.pending = 0
	}
	return w.failed
}

// Close writes the buffer and closes the file. Its error says how many lines could not be written; where closing itself
// fails, any of the last may be missing. A second Close does nothing.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	var errs []error
	if err := w.flush(); err != nil {
		errs = append(errs, fmt.Errorf("%d lines are lost: %w", w.lost, err))
	}
	for _, c := range w.closers {
		if err := c.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close record: %w", err))
		}
	}
	return errors.Join(errs...)
}
