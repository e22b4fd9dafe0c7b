package rowtable

import "github.com/edgelimit/edgelimit/counters/internal/rows"

// A sliding log knows when each request came that this table admitted, and what others counted by sub-window. Of a
// window W, its count at t is
//
//	own costs in (t-W, t] + counts of others in the sub-windows that begin in (t-W, t]
//
// A sub-window of others leaves completely when its start does, so a log may count too little of others, never too
// much. The ring of its head is that of a window: so what it sends and merges is, too.
//
// The entries lie in lines of five, in the order in which they came. Their lines have numbers, and where another
// window remembers until when it is full, the head has the first entry and the one to come.

// entry is a request, or several of the same nanosecond.
type entry struct {
	time int64
	cost uint64
}

// place is where an entry is: the number of its line, and which of the line.
type place uint32

const (
	placeBits   = 20
	perLine     = 5 // entries: the first word of a line is a time, and they are relative to it
	entryAtBits = 3
	costBits    = 16
	latest      = 1<<(64-costBits) - 1 // that an entry may come after its line's first one, in ns: 78 hours
	sumAt       = 2 * placeBits        // of head.full
)

func (p place) line() uint64 { return uint64(p >> entryAtBits) }
func (p place) word() int    { return 1 + int(p&(1<<entryAtBits-1)) }

// nextLine is the first place of the line after that of p.
func (p place) nextLine() place { return (p>>entryAtBits + 1) << entryAtBits & (1<<placeBits - 1) }

func (p place) next() place {
	if p.word() == perLine {
		return p.nextLine()
	}
	return p + 1
}

// entries is which entries a log has.
type entries struct {
	first, end place  // there are none if these are the same
	sum        uint64 // of the costs
}

func (c *head) entries() entries {
	const mask = 1<<placeBits - 1
	return entries{place(c.full & mask), place(c.full >> placeBits & mask), c.full >> sumAt}
}

func (c *head) setEntries(e entries) {
	if e.first == e.end {
		e.sum = 0
	}
	c.full = uint64(e.first) | uint64(e.end)<<placeBits | e.sum<<sumAt
}

func logName(c *head, p place) uint64 { return rows.Name(c.line().Meter(), logKind, rest(c, p.line())) }

// isLogLine reports whether a line has entries of a log.
func (c *head) isLogLine(number uint64) bool {
	e := c.entries()
	const lines = 1 << (placeBits - entryAtBits)
	return e.first != e.end && (number-e.first.line())%lines <= ((e.end-1).line()-e.first.line())%lines
}

// entryLine is the line of a place, nil if it is missing.
func (y *layer) entryLine(p place) *rows.Line {
	name := logName(y.c, p)
	return y.s.Find(rows.Sub(y.h, name), y.c.key, name)
}

// entryIn is an entry in a line, of a cost of 0 if its place is free or the line is missing.
func entryIn(l *rows.Line, word int) entry {
	if l == nil {
		return entry{}
	}
	w := l.Words[word]
	return entry{int64(l.Words[0] + w>>costBits), w & (1<<costBits - 1)}
}

// entryWalk goes through the entries of a log, the oldest first.
type entryWalk struct {
	y       *layer
	at, end place
	line    *rows.Line
}

func (y *layer) walk() entryWalk {
	e := y.c.entries()
	w := entryWalk{y: y, at: e.first, end: e.end}
	if w.at != w.end {
		w.line = y.entryLine(w.at)
	}
	return w
}

// next is the next entry, of a cost of 0 after the last one.
func (w *entryWalk) next() (e entry) {
	for w.at != w.end && e.cost == 0 {
		e = entryIn(w.line, w.at.word())
		if w.at = w.at.next(); w.at.word() == 1 && w.at != w.end {
			w.line = w.y.entryLine(w.at)
		}
	}
	return e
}

// newestEntry finds the newest entry, nil if there is none.
func (y *layer) newestEntry() (l *rows.Line, word int) {
	e := y.c.entries()
	if e.first == e.end {
		return nil, 0
	}
	at := (e.end - 1) & (1<<placeBits - 1)
	if l = y.entryLine(at); l == nil {
		return nil, 0
	}
	for word = min(at.word(), perLine); word > 1 && l.Words[word] == 0; {
		word--
	}
	return l, word
}

// now is the time of a decision, or the start of the head's newest sub-window if the clock is behind that.
func (y *layer) now() int64 { return y.c.sub()*y.l.Sub + y.off - y.late }

// forget drops the entries that have left the window, and their lines. They do not come back if the clock steps back.
func (t *Table) forget(y *layer) (moved bool) {
	was := y.c.entries()
	e := y.forgetEntries()
	for at := was.first; at.line() != e.first.line(); at = at.nextLine() {
		if l := y.entryLine(at); l != nil {
			y.s.Remove(l)
			y.c = headOf(y.s.Head(y.h, y.l.ID, y.key)) // it may have moved
			moved = true
		}
	}
	return moved
}

// forgetEntries drops the entries that have left the window, but not their lines. It returns which are left.
func (y *layer) forgetEntries() (e entries) {
	left, w := y.now()-y.l.Sub*int64(y.l.N), y.walk()
	e = y.c.entries()
	for e.first = w.at; e.first != e.end; e.first = w.at {
		oldest := w.next()
		if oldest.cost > 0 && oldest.time > left {
			break
		}
		e.sum -= oldest.cost
	}
	y.c.setEntries(e)
	return e
}

// enter adds an entry. If the clock stepped back, its cost counts as of the newest one. So it does if there is no room
// for its line, but the newest one then counts as of now, or as of the latest time of its line.
func (y *layer) enter(cost uint64) {
	now, e := y.now(), y.c.entries()
	newest, word := y.newestEntry()
	if newest == nil { // the line of those that have left will do
		e.end = e.end >> entryAtBits << entryAtBits
		e.first, e.sum = e.end, 0
	}
	e.sum += cost
	if last := entryIn(newest, word); last.cost > 0 && last.time >= now {
		newest.Words[word] += cost
	} else if y.place(&e, newest, entry{now, cost}) {
		e.end = e.end.next()
	} else if newest != nil {
		newest.Words[word] = min(uint64(now)-newest.Words[0], latest)<<costBits | last.cost + cost
	}
	y.c.setEntries(e)
}

// place writes an entry to the next place, in the line of the newest entry or a new one. ok is false if there is no
// room for that.
func (y *layer) place(e *entries, line *rows.Line, of entry) (ok bool) {
	if e.end.word() > 1 && uint64(of.time)-line.Words[0] > latest { // too late for the line
		e.end, line = e.end.nextLine(), nil
	}
	if e.end.word() == 1 {
		name := logName(y.c, e.end)
		if line = ensure(y.s, rows.Sub(y.h, name), y.c.key, name); line == nil {
			return false
		}
		line.Words = [6]uint64{uint64(of.time)}
	}
	line.Words[e.end.word()] = (uint64(of.time)-line.Words[0])<<costBits | of.cost
	return true
}

// isAlone reports whether nobody else counts the key.
func (y *layer) isAlone() bool { return !y.c.has(slotsForm | blocksForm) }

// logOthers reads what others counted into a ring. It returns what they counted in the window, and in the sub-window
// after it.
func (t *Table) logOthers(y *layer, r *ring) (sum, later uint64) {
	c, n := y.c, int64(y.l.N)
	for i := range n + 1 {
		r.counts[i] = t.others(y.s, y.h, c, c.sub()-n+i)
	}
	for _, count := range r.counts[1 : n+1] {
		sum += count
	}
	return sum, t.others(y.s, y.h, c, c.sub()+1)
}

// logSeen is the count of a log.
func (t *Table) logSeen(y *layer) uint64 {
	own := y.c.entries().sum
	if y.isAlone() {
		return own
	}
	var others ring
	sum, _ := t.logOthers(y, &others)
	return own + sum
}

// logFits is fits of a log.
func (t *Table) logFits(y *layer, cost, before uint64) (ok bool, wait int64) {
	maximum := y.l.Max
	switch {
	case cost > maximum:
		return false, Never
	case t.logSeen(y)+before <= maximum-cost:
		return true, 0
	case cost+before > maximum:
		return false, Never
	case y.isAlone():
		return false, y.entriesWait(maximum-cost-before) + y.back
	}
	return false, t.logWait(y, maximum-cost-before) + y.back
}

// window is how long an entry counts.
func (y *layer) window() int64 { return int64(y.l.N) * y.l.Sub }

// entriesWait is logWait of a log that nobody else counts.
func (y *layer) entriesWait(room uint64) int64 {
	walk := y.walk()
	oldest := walk.next()
	for seen := y.c.entries().sum - oldest.cost; seen > room && oldest.cost > 0; seen -= oldest.cost {
		oldest = walk.next()
	}
	return oldest.time + y.window() - y.now()
}

// logWait is the shortest time until a log counts no more than room, if nothing is added. It counts more now. It goes
// through entries and sub-windows in the order in which they leave.
func (t *Table) logWait(y *layer, room uint64) int64 {
	var others ring
	sum, later := t.logOthers(y, &others)
	seen, n, window := y.c.entries().sum+sum, y.l.N, y.window()
	walk := y.walk()
	oldest := walk.next()
	for i := 1; ; {
		leaves := (y.c.sub() + int64(i)) * y.l.Sub // when place i of the ring leaves
		at := leaves
		if oldest.cost > 0 {
			at = min(at, oldest.time+window)
		}
		for oldest.cost > 0 && oldest.time+window <= at {
			seen -= oldest.cost
			oldest = walk.next()
		}
		if at == leaves {
			switch {
			case i <= n:
				seen -= others.counts[i]
			case i == n+1:
				seen -= later
			}
			if i == 1 { // the next sub-window begins
				seen += later
			}
			i++
		}
		if seen <= room || i > n+1 && oldest.cost == 0 {
			return at - y.now()
		}
	}
}

// logReset is the time until a log counts nothing: it counts something now.
func (t *Table) logReset(y *layer) int64 {
	now, at := y.now(), int64(0)
	if l, word := y.newestEntry(); l != nil {
		at = entryIn(l, word).time + y.window()
	}
	if y.isAlone() {
		return at - now
	}
	var others ring
	_, later := t.logOthers(y, &others)
	n, next := y.l.N, (y.c.sub()+1)*y.l.Sub
	for i := n; i > 0; i-- {
		if others.counts[i] > 0 {
			at = max(at, next+int64(i-1)*y.l.Sub)
			break
		}
	}
	if later > 0 && at >= next { // else nothing counts before the next sub-window begins
		at = max(at, next+y.window())
	}
	return at - now
}
