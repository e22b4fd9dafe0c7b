package rowtable

// Decision is the answer to one request under one limit, in the four words that a function returns in registers. Waits
// are in nanoseconds.
type Decision struct {
	Verdict
	// Left is what remains of the limit; below 0, by how much the counted cost exceeds a tallied limit.
	Left int64
	// Wait is how long a denied request has to wait to be admitted, Never if no wait helps. It is how long an allowed
	// one waits in its queue.
	Wait int64
	// ResetAfter is the wait after which the complete limit is available.
	ResetAfter int64
}

// Verdict is what a decision means for its request.
type Verdict struct {
	Allowed bool
	Waived  bool // the request was over the limit, and its mode let it pass
	Banned  bool // an earlier denial had banned the key
	Mode    Mode
}

// Never is the Wait of a request whose cost exceeds the limit.
const Never = -1

// Remaining returns the largest cost that is admitted at once.
func (d Decision) Remaining() uint64 { return uint64(max(d.Left, 0)) }

// Excess returns by how much the counted cost exceeds a tallied limit.
func (d Decision) Excess() uint64 { return uint64(max(-d.Left, 0)) }

// RetryAfter returns how long a denied request has to wait.
func (d Decision) RetryAfter() int64 {
	if d.Allowed {
		return 0
	}
	return d.Wait
}

// Delay returns how long an allowed request waits in its queue.
func (d Decision) Delay() int64 {
	if !d.Allowed {
		return 0
	}
	return d.Wait
}

func (d *Decision) waive() { d.Allowed, d.Waived, d.Wait = true, true, 0 }

// refuse denies a request because there is no room for a head: no key is admitted untracked.
func (l *Limit) refuse() Decision { return Decision{Wait: l.Sub} }
