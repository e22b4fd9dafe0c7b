package accesslog

import (
	"bufio"
	"bytes"
	"compress/gzip"
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
		lines, err := uncompressed(r)
		if err != nil {
			yield(Entry{}, fmt.Errorf("open access log: %w", err))
			return
		}
		for n := 1; ; n++ {
			line, err := nextLine(lines)
			switch {
			case err == io.EOF:
				return
			case err == ErrTooLong:
				if !yield(Entry{}, &LineError{n, err}) {
					return
				}
				continue
			case err != nil:
				yield(Entry{}, fmt.Errorf("read access log, line %d: %w", n, err))
				return
			}
			e, err := Parse(string(line))
			if err != nil {
				err = &LineError{n, err}
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// uncompressed returns a reader of r's lines, with a buffer that a line and its end just fit into.
func uncompressed(r io.Reader) (*bufio.Reader, error) {
	const size = MaxLine + len("\r\n")
	plain := bufio.NewReaderSize(r, size)
	magic, err := plain.Peek(2)
	if string(magic) != "\x1f\x8b" {
		if err == io.EOF {
			err = nil // short or empty: reading will tell
		}
		return plain, err
	}
	z, err := gzip.NewReader(plain)
	if err != nil {
		return nil, err
	}
	return bufio.NewReaderSize(z, size), nil
}

// nextLine returns the next line without its end. It is valid until the next call. The error is io.EOF if there is none, and
// ErrTooLong for a line that was skipped.
func nextLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	tooLong := false
	for err == bufio.ErrBufferFull {
		tooLong = true
		_, err = r.ReadSlice('\n')
	}
	switch {
	case err == io.EOF && (len(line) > 0 || tooLong): // the last line has no end
	case err != nil:
		return nil, err
	}
	if tooLong {
		return nil, ErrTooLong
	}
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")), nil
}
