package replay

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"iter"
)

// lineReader reads the lines of a log in any format, one at a time.
type lineReader struct {
	from   *bufio.Reader
	number int // of the line that next returned last, counted from 1
}

// newLineReader detects gzip by its first bytes. The error is that of r or of its compression.
func newLineReader(r io.Reader) (*lineReader, error) {
	const size = maxLine + len("\r\n")
	from := bufio.NewReaderSize(r, size)
	magic, err := from.Peek(2)
	if string(magic) == "\x1f\x8b" {
		var plain *gzip.Reader
		if plain, err = gzip.NewReader(from); err == nil {
			from = bufio.NewReaderSize(plain, size)
		}
	} else if err == io.EOF { // a log of a byte or none
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("open access log: %w", err)
	}
	return &lineReader{from: from}, nil
}

// next returns the next line without its end. It is valid until the next call. The error is errTooLong for a line that
// was skipped; any other, such as io.EOF, ends the log.
func (l *lineReader) next() ([]byte, error) {
	l.number++
	line, err := l.from.ReadSlice('\n')
	tooLong := false
	for err == bufio.ErrBufferFull {
		tooLong = true
		_, err = l.from.ReadSlice('\n')
	}
	switch {
	case err == io.EOF && (len(line) > 0 || tooLong): // the last line has no end
	case err == io.EOF:
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("read access log, line %d: %w", l.number, err)
	}
	line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
	if tooLong || len(line) > maxLine {
		return nil, errTooLong
	}
	return line, nil
}

// LineError reports a malformed line of a log.
type LineError struct {
	Line int // counted from 1
	Err  error
}

// Error names the line and its fault. It does not quote the line, which may hold anything.
func (e *LineError) Error() string { return fmt.Sprintf("access log line %d: %v", e.Line, e.Err) }

// Unwrap returns Err.
func (e *LineError) Unwrap() error { return e.Err }

// ReadLog reads a log in common or combined format, compressed with gzip or not. It yields an entry for each line in
// order, or a *LineError for a malformed line. Any other error, of r or of its compression, is the last.
//
// It holds one line at a time, of at most 64 KiB. The sequence can be iterated once; r is not closed.
func ReadLog(r io.Reader) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		lines, err := newLineReader(r)
		if err != nil {
			yield(Entry{}, err)
			return
		}
		for {
			line, err := lines.next()
			var e Entry
			switch {
			case err == io.EOF:
				return
			case err != nil && err != errTooLong:
				yield(Entry{}, err)
				return
			case err == nil:
				e, err = parseEntry(string(line))
			}
			if err != nil {
				err = &LineError{lines.number, err}
			}
			if !yield(e, err) {
				return
			}
		}
	}
}
