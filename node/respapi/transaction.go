package respapi

// A transaction holds the commands between MULTI and EXEC. EXEC runs them one after the other, without waiting for
// other clients' commands, which may come between them.
type transaction struct {
	open, broken bool // broken: a command could not be queued
	queue        []queued
	size         int64 // bytes that the queue takes
}

// queued is a command that waits for EXEC.
type queued struct {
	run  func(c *session, args [][]byte) outcome
	args [][]byte
}

// Bounds of a queue.
const (
	maxQueued     = 1024     // commands
	maxQueueBytes = 64 << 10 // with argBytes for each argument
	argBytes      = 24
)

// enqueue copies a command into the queue.
func (c *session) enqueue(run func(*session, [][]byte) outcome, args [][]byte) outcome {
	size := int64(argBytes * (len(args) + 1))
	for _, arg := range args {
		size += int64(len(arg))
	}
	t := &c.transaction
	if len(t.queue) == maxQueued || t.size+size > maxQueueBytes || c.server.long.Take(c.holder, size) != "" {
		t.broken = true
		return c.failf("ERR the transaction is too long: at most %d commands and %d bytes are queued", maxQueued,
			maxQueueBytes)
	}
	t.size += size
	copied, all := make([][]byte, len(args)), make([]byte, 0, size)
	for i, arg := range args {
		from := len(all)
		all = append(all, arg...)
		copied[i] = all[from:len(all):len(all)]
	}
	t.queue = append(t.queue, queued{run, copied})
	c.status("QUEUED")
	return other
}

// discardQueue ends the transaction.
func (c *session) discardQueue() {
	c.server.long.Give(c.holder, c.transaction.size)
	c.transaction = transaction{}
}

func (c *session) multi([][]byte) outcome {
	if c.transaction.open {
		return c.fail("ERR MULTI calls can not be nested")
	}
	c.transaction.open = true
	return c.ok()
}

func (c *session) discard([][]byte) outcome {
	if !c.transaction.open {
		return c.fail("ERR DISCARD without MULTI")
	}
	c.discardQueue()
	return c.ok()
}

func (c *session) exec([][]byte) outcome {
	t := c.transaction
	defer c.discardQueue()
	switch {
	case !t.open:
		return c.fail("ERR EXEC without MULTI")
	case t.broken:
		return c.fail("EXECABORT Transaction discarded because of previous errors.")
	}
	c.array(len(t.queue))
	for _, q := range t.queue {
		c.counts[q.run(c, q.args)]++
	}
	return other
}
