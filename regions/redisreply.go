package regions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// The client library allocates what a server announces, before it comes: $999999999999 ends the process. So each
// connection reads along, and fails before the library sees more than a reply may have.
const (
	defaultMaxReply = 64 << 20
	elementSize     = 64 // what each element of an array counts beside its text
	maxReplyDepth   = 8  // arrays in arrays: the library reads them by recursion
	maxReplyLine    = 64 << 10
)

var errReply = errors.New("it is not one of a Redis")

// boundReplies returns a dialer whose connections fail at a reply that is larger than most, or that is none of
// RESP2 or RESP3; the library speaks the latter with Sentinels.
func boundReplies(most int, o *redis.UniversalOptions) func(context.Context, string, string) (net.Conn, error) {
	dial := redis.NewDialer(&redis.Options{DialTimeout: o.DialTimeout, TLSConfig: o.TLSConfig})
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		bounded := &boundedConn{Conn: conn, replies: replyBound{most: most}}
		if raw, ok := conn.(syscall.Conn); ok { // by which the library finds connections that were closed
			return struct {
				*boundedConn
				syscall.Conn
			}{bounded, raw}, nil
		}
		return bounded, nil
	}
}

// boundedConn is a connection whose reader fails where replyBound does. The library reads in one goroutine at a time.
type boundedConn struct {
	net.Conn
	replies replyBound
	bad     error
}

// Read implements net.Conn.
func (c *boundedConn) Read(b []byte) (int, error) {
	if c.bad != nil {
		return 0, c.bad
	}
	n, err := c.Conn.Read(b)
	if bad := c.replies.read(b[:n]); bad != nil {
		_ = c.Conn.Close()
		c.bad = fmt.Errorf("the server's reply is refused: %w", bad)
		return 0, c.bad
	}
	return n, err
}

// replyBound follows a stream of replies. Of one that it has refused it must not be given more.
type replyBound struct {
	most int
	size int                // of the reply so far, as announced
	text int                // bytes of a text that are still to come
	line []byte             // the beginning of a line
	left [maxReplyDepth]int // elements that are still to come, of each array around
	deep int                // arrays around
}

func (r *replyBound) read(b []byte) error {
	for len(b) > 0 {
		if r.text > 0 {
			n := min(r.text, len(b))
			if b, r.text = b[n:], r.text-n; r.text == 0 {
				r.ended()
			}
			continue
		}
		end := bytes.IndexByte(b, '\n') + 1
		if end == 0 {
			end = len(b)
		}
		if r.line = append(r.line, b[:end]...); len(r.line) > maxReplyLine {
			return fmt.Errorf("a line has more than %d bytes: %w", maxReplyLine, errReply)
		}
		b = b[end:]
		if r.line[len(r.line)-1] != '\n' {
			continue
		}
		if err := r.header(); err != nil {
			return err
		}
		r.line = r.line[:0]
	}
	return nil
}

// header reads a line.
func (r *replyBound) header() error {
	kind, rest := r.line[0], bytes.TrimSuffix(r.line[1:], []byte("\r\n"))
	n := 0
	switch kind {
	case '+', '-', ':', '_', '#', ',', '(':
		r.size += len(rest)
	case '$', '=', '!', '*', '~', '>', '%':
		var err error
		if n, err = strconv.Atoi(string(rest)); err != nil || n < -1 {
			return fmt.Errorf("a length is %.40q: %w", rest, errReply)
		}
	default:
		return fmt.Errorf("a line begins with %q: %w", kind, errReply)
	}
	each := 1
	switch kind {
	case '*', '~', '>':
		each = elementSize
	case '%':
		each = 2 * elementSize
	}
	if n > (r.most-r.size)/each {
		return fmt.Errorf("it announces more than %d bytes", r.most)
	}
	r.size += max(n, 0) * each
	switch {
	case each == 1 && n >= 0 && bytes.IndexByte([]byte("$=!"), kind) >= 0:
		r.text = n + len("\r\n")
	case each > 1 && n > 0:
		n *= each / elementSize
		if r.deep == maxReplyDepth {
			return fmt.Errorf("more than %d arrays are in one another: %w", maxReplyDepth, errReply)
		}
		r.left[r.deep] = n
		r.deep++
	default:
		r.ended()
	}
	return nil
}

// ended notes the end of an element.
func (r *replyBound) ended() {
	for r.deep > 0 {
		if r.left[r.deep-1]--; r.left[r.deep-1] > 0 {
			return
		}
		r.deep--
	}
	r.size = 0
}
