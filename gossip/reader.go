package gossip

import (
	"bytes"
	"fmt"
	"io"
	"sync"

	"github.com/vmihailenco/msgpack/v5/msgpcode"

	"github.com/vmihailenco/msgpack/v5"
)

// reader reads msgpack primitives in place. It keeps the first error; what it returns after one is zero.
type reader struct {
	b   []byte
	src bytes.Reader
	dec *msgpack.Decoder
	err error
}

// readers are used again: making one costs as much as reading a frame of a few entries.
var readers = sync.Pool{New: func() any {
	r := &reader{}
	r.dec = msgpack.NewDecoder(&r.src)
	return r
}}

func borrowReader(b []byte) *reader {
	r := readers.Get().(*reader)
	r.reset(b)
	return r
}

// giveBack ends the use of a reader. It keeps no hold of what it read.
func (r *reader) giveBack() {
	r.reset(nil)
	readers.Put(r)
}

// reset makes the reader read b. The decoder has no state of its own between two values.
func (r *reader) reset(b []byte) {
	r.b, r.err = b, nil
	r.src.Reset(b)
}

// check sets the error unless something holds. Arguments may allocate.
func (r *reader) check(holds bool, format string, args ...any) {
	if !holds && r.err == nil {
		r.err = fmt.Errorf("%w: "+format, append([]any{errFrame}, args...)...)
	}
}

func readOne[T any](r *reader, read func() (T, error)) (v T) {
	if r.err == nil {
		var err error
		if v, err = read(); err != nil {
			r.check(false, "%w", err)
		}
	}
	return v
}

func (r *reader) uint() uint64 { return readOne(r, r.dec.DecodeUint64) }

func (r *reader) int() int64 { return readOne(r, r.dec.DecodeInt64) }

// arrayLen reads the length of an array whose elements take at least a byte each.
func (r *reader) arrayLen() int {
	n := readOne(r, r.dec.DecodeArrayLen)
	if n < 0 || n > r.src.Len() {
		r.check(false, "an array of %d elements in %d bytes", n, r.src.Len())
		return 0
	}
	return n
}

// bytes reads a bin or a str and returns the part of the input that holds it.
func (r *reader) bytes() []byte {
	n := readOne(r, r.dec.DecodeBytesLen)
	if n < 0 || n > r.src.Len() {
		r.check(false, "%d bytes declared, %d left", n, r.src.Len())
	}
	if r.err != nil {
		return nil
	}
	start := len(r.b) - r.src.Len()
	_, _ = r.src.Seek(int64(n), 1)
	return r.b[start : start+n : start+n]
}

// optionalInt reads an int that may be nil, or missing at the end.
func (r *reader) optionalInt() (v int64, ok bool) {
	if r.err != nil || r.src.Len() == 0 {
		return 0, false
	}
	if r.b[len(r.b)-r.src.Len()] == msgpcode.Nil {
		_, _ = r.src.Seek(1, io.SeekCurrent)
		return 0, false
	}
	v = r.int()
	return v, r.err == nil
}
