package accesslog

import (
	"fmt"
	"io"
	"iter"
)

// LineError says which line of a log is malformed. It is a *LineError wherever it is an error.
type LineError struct {
	Line int   // counted from 1
	Err  error // ErrTooLong, or wraps ErrFormat
}

// Error names the line and what is wrong with it. It does not repeat the line, which may be anything.
func (e *LineError) Error() string { return fmt.Sprintf("access log line %d: %v", e.Line, e.Err) }

// Unwrap returns Err.
func (e *LineError) Unwrap() error { return e.Err }

// Read reads a log from r, which may be compressed with gzip: it looks, whatever the name. It yields an entry for each line in
// their order, and for a malformed line a *LineError in its place, and reads on. An error of r itself, or of its compression, is
// yielded as the last.
//
// It holds one line at a time, of at most MaxLine bytes. The sequence can be iterated once; r is not closed.
func Read(r io.Reader) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		lines, err := NewLines(r)
		if err != nil {
			yield(Entry{}, err)
			return
		}
		for {
			line, err := lines.Next()
			var e Entry
			switch {
			case err == io.EOF:
				return
			case err == ErrTooLong:
			case err != nil:
				yield(Entry{}, err)
				return
			default:
				e, err = Parse(string(line))
			}
			if err != nil {
				err = &LineError{lines.Number(), err}
			}
			if !yield(e, err) {
				return
			}
		}
	}
}
