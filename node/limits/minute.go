package limits

import (
	"sync/atomic"
	"time"
)

// OncePerMinute bounds a log line to one a minute. The zero value is ready; it is safe for concurrent use.
type OncePerMinute struct{ next atomic.Int64 } // Unix nanoseconds

// Due reports whether a minute has passed since it last returned true, or the clock was set back by more than that.
func (o *OncePerMinute) Due(now time.Time) bool {
	at, next := now.UnixNano(), o.next.Load()
	return (at >= next || next-at > int64(time.Minute)) && o.next.CompareAndSwap(next, at+int64(time.Minute))
}
