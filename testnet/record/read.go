package record

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
)

// maxLine is the longest line that is written or read, its newline included: 1 MiB.
const maxLine = 1 << 20

// Errors of a line that is not malformed.
var (
	ErrTruncated = errors.New("the record ends in the middle of a line: its writer did not close it")
	ErrTooLong   = fmt.Errorf("longer than %d bytes", maxLine)
)

// LineError says which line of a record is wrong.
type LineError struct {
	Line int // counted from 1, the header's
	Err  error
}

// Error names the line and what is wrong with it.
func (e *LineError) Error() string { return fmt.Sprintf("record line %d: %v", e.Line, e.Err) }

// Unwrap returns Err.
func (e *LineError) Unwrap() error { return e.Err }

// Reader reads a record, a line at a time.
type Reader struct {
	header  Header
	regions map[string]string
	lines   *bufio.Reader
	line    int
	file    io.Closer
}

// Open opens a record. It decompresses where the name ends in ".gz".
func Open(name string) (*Reader, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open record: %w", err)
	}
	in := io.Reader(f)
	if strings.HasSuffix(name, ".gz") {
		if in, err = gzip.NewReader(bufio.NewReader(f)); err != nil {
			return nil, errors.Join(fmt.Errorf("open record %s: %w", name, truncated(err)), f.Close())
		}
	}
	r, err := NewReader(in)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open record %s: %w", name, err), f.Close())
	}
	r.file = f
	return r, nil
}

// NewReader reads the header from r, whose lines are not compressed, and returns a reader of the entries. It does not
// close r.
func NewReader(r io.Reader) (*Reader, error) {
	in := &Reader{lines: bufio.NewReaderSize(r, maxLine), file: io.NopCloser(r)}
	var first line
	switch err := in.next(&first); {
	case err == io.EOF:
		return nil, &LineError{1, errors.New("no header: the record is empty")}
	case err != nil:
		return nil, err
	case first.Header == nil:
		return nil, in.wrong(errors.New("no header: this is no record"))
	case first.Header.Version != Version:
		return nil, in.wrong(fmt.Errorf("version %d of the format, only %d is known", first.Header.Version, Version))
	}
	in.header = *first.Header
	if err := in.header.Validate(); err != nil {
		return nil, in.wrong(fmt.Errorf("header: %w", err))
	}
	in.regions = in.header.Regions()
	return in, nil
}

// Header returns the record's header.
func (r *Reader) Header() Header { return r.header }

// Entries yields the entries in the order in which they were written. It ends after its first error, a *LineError. It
// can be iterated once.
func (r *Reader) Entries() iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for {
			var l line
			err := r.next(&l)
			switch {
			case err == io.EOF:
				return
			case err != nil:
			case l.Header != nil:
				err = r.wrong(errors.New("a second header"))
			default:
				if invalid := l.Entry.validate(&r.header, r.regions); invalid != nil {
					err = r.wrong(invalid)
				}
			}
			if !yield(l.Entry, err) || err != nil {
				return
			}
		}
	}
}

// next decodes the next line. Its error is io.EOF at the end, and a *LineError otherwise.
func (r *Reader) next(l *line) error {
	text, err := r.lines.ReadSlice('\n')
	if err == io.EOF && len(text) == 0 {
		return io.EOF
	}
	r.line++
	if err == bufio.ErrBufferFull {
		return r.wrong(ErrTooLong)
	} else if err != nil {
		return r.wrong(truncated(err))
	}
	if err := json.Unmarshal(text, l); err != nil {
		return r.wrong(err)
	}
	return nil
}

// truncated returns ErrTruncated for an end in the middle.
func truncated(err error) error {
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrTruncated
	}
	return err
}

func (r *Reader) wrong(err error) error { return &LineError{r.line, err} }

// Close closes the file that Open opened.
func (r *Reader) Close() error { return r.file.Close() }
