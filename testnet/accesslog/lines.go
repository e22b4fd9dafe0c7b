package accesslog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
)

// Lines reads the lines of a log one at a time, whatever format they are in. It is not safe for concurrent use.
type Lines struct {
	from   *bufio.Reader
	number int
}

// NewLines reads from r, which may be compressed with gzip: it looks, whatever the name. The error is that of r or of its compression;
// r is not closed.
func NewLines(r io.Reader) (*Lines, error) {
	from, err := uncompressed(r)
	if err != nil {
		return nil, fmt.Errorf("open access log: %w", err)
	}
	return &Lines{from: from}, nil
}

// Next returns the next line without its end. It is valid until the next call. The error is io.EOF where there is none, ErrTooLong for a
// line that was skipped, and else the last that there is to read.
func (l *Lines) Next() ([]byte, error) {
	l.number++
	line, err := nextLine(l.from)
	if err != nil && err != io.EOF && err != ErrTooLong {
		err = fmt.Errorf("read access log, line %d: %w", l.number, err)
	}
	return line, err
}

// Number is that of the line which Next returned last, counted from 1.
func (l *Lines) Number() int { return l.number }

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
	if line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")); len(line) > MaxLine {
		return nil, ErrTooLong
	}
	return line, nil
}
