package text

import (
	"fmt"
	"io"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Writer writes lines of UTF-8 text, in which it escapes what a terminal could obey or an eye could miss. It writes
// \u001b for ESC, as JSON does: JSON stays the same JSON, as it has such characters in strings only. Line breaks and
// tabs pass; a byte that is no UTF-8 becomes the replacement character. A Writer is safe for concurrent use.
type Writer struct {
	out   io.Writer
	mu    sync.Mutex
	begun []byte // the first bytes of a rune whose others have not been written yet
	buf   []byte
}

// NewWriter returns a Writer to out; out itself if it is one.
func NewWriter(out io.Writer) *Writer {
	if w, is := out.(*Writer); is {
		return w
	}
	return &Writer{out: out}
}

// Raw returns what the Writer writes to, for what a program itself tells a terminal.
func (w *Writer) Raw() io.Writer { return w.out }

// Write implements io.Writer. It keeps the bytes of a rune that p ends within until the next call.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	rest := p
	if len(w.begun) > 0 {
		rest = append(w.begun, p...)
	}
	safe := w.buf[:0]
	for len(rest) > 0 && utf8.FullRune(rest) {
		r, size := utf8.DecodeRune(rest)
		rest = rest[size:]
		if unicode.IsPrint(r) || r == '\n' || r == '\t' {
			safe = utf8.AppendRune(safe, r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			safe = fmt.Appendf(safe, `\u%04x`, unit)
		}
	}
	w.begun, w.buf = append([]byte(nil), rest...), safe
	if _, err := w.out.Write(safe); err != nil {
		return 0, err
	}
	return len(p), nil
}
