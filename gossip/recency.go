package gossip

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// The gossip key shows that a message is of the cluster, and not when it was sent: whoever records one can send it
// again. memberlist takes a recorded join for a join, and its own acknowledgements name nobody, with numbers that begin
// again at each boot. So what memberlist and rosters report is a candidate. It becomes a member when it answers a
// question with a random number that this node has asked it since it came. Everything else goes by members: who is sent
// counts, who is waited for, who owns keys, who is a gateway or in a roster, and whether seeds have answered. Of all
// others a node takes counts, which are old or known where they were recorded, and sends them questions.
//
// Members are asked from time to time as well: the answers, which wait for nothing, show how far they are.
//
// A question, and its answer, is a packet, or a stream where no answer to packets comes:
//
//	0       type    questionMessage
//	1       flags   1: it is an answer
//	                2: it came over a stream, and so does the answer
//	2..9    origin  who sends it, big-endian
//	10..17  origin  whom it is for
//	18..25  number  of the question
//	26..33  time    of the sender, Unix nanoseconds
//
// An answer is as long as a question. It goes to the address at which the node that answers knows the one that asks, so
// that nobody gets answers who does not take part.
const (
	questionMessage = 4 // no frame begins with it, see digestMessage
	questionLength  = 34

	questionAnswer = 1
	questionStream = 2
)

const (
	// A candidate is asked again after firstAsk, and then after twice the time as before, up to lastAsk.
	firstAsk = 100 * time.Millisecond
	lastAsk  = time.Second
	// askMembers is how often members are asked, and askEach how much time at least there is for each of them: to ask
	// 1000 nodes takes 20 questions a second.
	askMembers = 10 * time.Second
	askEach    = 50 * time.Millisecond
	// askByStream is after how many packets without an answer a stream is tried, too. With the first, and every
	// introduceEvery questions, the node joins the candidate, which may not have heard of it.
	askByStream    = 3
	introduceEvery = 4
	// answerWithin is how long an answer may take. So many questions may wait for one.
	answerWithin = 4 * time.Second
	maxOpen      = 4
	// maxAsked is how many candidates are asked at a time; the next ones firstAsk later.
	maxAsked = 128
	// maxQuestionStreams is how many streams with questions or answers are under way, one to each node.
	maxQuestionStreams = 8
	// maxCandidates is how many candidates are kept.
	maxCandidates = 1 << 14
	// introduction is how long candidates may take to become members, where a node waits for them.
	introduction = 2 * time.Second
)

// recency is what a cluster keeps of questions. The cluster's lock guards it, but for the first two.
type recency struct {
	quiet  atomic.Bool   // the node has said goodbye: it answers nothing any more
	unsure chan struct{} // candidates have come

	candidates map[counters.Origin]*candidate
	questions  map[counters.Origin]*questions // to members
	streams    map[counters.Origin]bool       // under way
}

// candidate is a node that memberlist or a roster reports, and that has not answered yet.
type candidate struct {
	*route
	questions
}

// questions are those to one node that were not answered.
type questions struct {
	open  [maxOpen]question // the latest
	asked int               // since the last answer
	last  time.Time         // when the last one was
	due   time.Time         // when the next one is
}

type question struct {
	number uint64
	at     time.Time
}

func newRecency() recency {
	return recency{unsure: make(chan struct{}, 1), candidates: make(map[counters.Origin]*candidate),
		questions: make(map[counters.Origin]*questions), streams: make(map[counters.Origin]bool)}
}

func isQuestion(b []byte) bool { return len(b) > 0 && b[0] == questionMessage }

// next returns the number of another question.
func (q *questions) next(now time.Time, wait time.Duration) (number uint64) {
	number = rand.Uint64()
	q.open[q.asked%maxOpen] = question{number, now}
	q.asked++
	q.last, q.due = now, now.Add(wait)
	return number
}

// answer takes in an answer, and returns how long it took.
func (q *questions) answer(number uint64, now time.Time) (took time.Duration, ok bool) {
	for _, o := range q.open {
		if took = now.Sub(o.at); o.number == number && !o.at.IsZero() && took <= answerWithin {
			*q = questions{last: q.last, due: q.due}
			return took, true
		}
	}
	return 0, false
}

// report takes in that memberlist or a roster reports a node. A member is as it says of itself now; any other node is
// a candidate. The lock is held.
func (c *Cluster) report(r *route) {
	m, now := r.member, c.cfg.Now()
	o := m.Origin()
	r.since = now
	if before := c.routes[o]; before != nil {
		r.since = before.since
		c.routes[o] = r
		if latest, known := c.latest[m.name()]; known && m.Incarnation == latest.Incarnation &&
			m.name() != c.self.name() {
			c.latest[m.name()] = m
		}
		return
	}
	if known := c.candidates[o]; known != nil {
		r.since = known.since
		known.route = r
		return
	}
	if len(c.candidates) >= maxCandidates {
		return
	}
	c.candidates[o] = &candidate{route: r}
	select {
	case c.unsure <- struct{}{}:
	default:
	}
}

// awaits reports whether a candidate has come a short while ago: it may be about to become a member. The lock is held.
func (c *Cluster) awaits() bool {
	now := c.cfg.Now()
	for _, q := range c.candidates {
		if !over(now, q.since, introduction) {
			return true
		}
	}
	return false
}

// ask asks candidates and members, until ctx ends.
func (c *Cluster) ask(ctx context.Context) {
	wait := time.NewTimer(firstAsk)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.unsure:
		case <-wait.C:
		}
		c.askThose(c.toAsk(time.Now()))
		wait.Reset(firstAsk)
	}
}

// inquiry is a question on its way.
type inquiry struct {
	route     *route
	number    uint64
	byStream  bool
	introduce bool
}

// toAsk returns the questions that are due: those to candidates that were asked least first.
func (c *Cluster) toAsk(now time.Time) (out []inquiry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for o := range c.questions {
		if c.routes[o] == nil {
			delete(c.questions, o)
		}
	}
	every := max(askMembers, time.Duration(len(c.routes))*askEach)
	for o, r := range c.routes {
		q := c.questions[o]
		if q == nil { // it has just answered
			q = &questions{due: now.Add(jittered(every) / 2)}
			c.questions[o] = q
		}
		due := q.due
		if last := q.last.Add(lastAsk); c.replica.doubts(o) && last.Before(due) {
			due = last
		}
		if !now.Before(due) && len(out) < maxAsked {
			out = append(out, inquiry{route: r, number: q.next(now, jittered(every)),
				byStream: c.replica.isBlocked(o, c.cfg.Now())})
		}
	}
	due := make([]*candidate, 0, len(c.candidates))
	for _, q := range c.candidates {
		if !now.Before(q.due) {
			due = append(due, q)
		}
	}
	slices.SortFunc(due, func(a, b *candidate) int { return a.asked - b.asked })
	for _, q := range due[:min(len(due), maxAsked)] {
		i := inquiry{route: q.route, byStream: q.asked >= askByStream,
			introduce: q.asked%introduceEvery == askByStream && !q.listed}
		i.number = q.next(now, jittered(min(firstAsk<<min(q.asked, 10), lastAsk)))
		out = append(out, i)
	}
	return out
}

func (c *Cluster) askThose(all []inquiry) {
	for _, i := range all {
		to := i.route.member.Origin()
		c.sendQuestion(i.route, c.encodeQuestion(to, i.number, 0), false)
		switch {
		case i.introduce && i.route.pool.joins.Load():
			c.byStream(i.route, func() error {
				_, err := i.route.pool.ml().Join([]string{i.route.addr})
				return err
			})
		case i.byStream:
			c.sendQuestion(i.route, c.encodeQuestion(to, i.number, questionStream), true)
		}
	}
}

func (c *Cluster) encodeQuestion(to counters.Origin, number uint64, flags byte) []byte {
	b := append(make([]byte, 0, questionLength), questionMessage, flags)
	b = binary.BigEndian.AppendUint64(b, uint64(c.self.Origin()))
	b = binary.BigEndian.AppendUint64(b, uint64(to))
	b = binary.BigEndian.AppendUint64(b, number)
	return binary.BigEndian.AppendUint64(b, uint64(c.cfg.Now()))
}

// sendQuestion sends a question or an answer, by packet or by stream.
func (c *Cluster) sendQuestion(r *route, b []byte, byStream bool) {
	if byStream {
		c.byStream(r, func() error { return r.pool.ml().SendReliable(&r.node, b) })
	} else if err := r.pool.ml().SendBestEffort(&r.node, b); err != nil {
		c.log.Debug("gossip: question or answer not sent", "pool", r.pool.name, "addr", r.addr, "error", err)
	}
}

// byStream does what opens a stream to a node, in the background, unless one is under way to it, or too many are to
// others.
func (c *Cluster) byStream(r *route, do func() error) {
	o := r.member.Origin()
	c.mu.Lock()
	free := !c.recency.streams[o] && len(c.recency.streams) < maxQuestionStreams
	if free {
		c.recency.streams[o] = true
	}
	c.mu.Unlock()
	if !free {
		return
	}
	go func() {
		if err := do(); err != nil {
			c.log.Debug("gossip: a node is not reached by stream", "pool", r.pool.name, "addr", r.addr, "error", err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.recency.streams, o)
	}()
}

var errQuestion = errors.New("gossip: malformed question")

// receiveQuestion answers a question, or takes in the answer to one.
func (c *Cluster) receiveQuestion(b []byte) error {
	if len(b) != questionLength {
		return errQuestion
	}
	flags := b[1]
	from := counters.Origin(binary.BigEndian.Uint64(b[2:]))
	to := counters.Origin(binary.BigEndian.Uint64(b[10:]))
	number := binary.BigEndian.Uint64(b[18:])
	if to != c.self.Origin() {
		return nil // an earlier boot
	}
	if flags&questionAnswer != 0 {
		c.answered(from, number, int64(binary.BigEndian.Uint64(b[26:])), flags&questionStream != 0)
		return nil
	}
	if c.quiet.Load() {
		return nil
	}
	c.mu.Lock()
	r := c.routes[from]
	if q := c.candidates[from]; q != nil {
		r = q.route
	}
	c.mu.Unlock()
	if r != nil { // otherwise it asks again, and is known by then
		byStream := flags & questionStream
		c.sendQuestion(r, c.encodeQuestion(from, number, questionAnswer|byStream), byStream != 0)
	}
	return nil
}

// answered takes in an answer of a node: a candidate is a member from now on.
func (c *Cluster) answered(o counters.Origin, number uint64, sent int64, byStream bool) {
	c.mu.Lock()
	now, joined, twin := c.cfg.Now(), (*route)(nil), false
	q, isCandidate := c.questions[o], false
	if d := c.candidates[o]; d != nil {
		q, isCandidate = &d.questions, true
	}
	if q == nil {
		c.mu.Unlock()
		return
	}
	took, ok := q.answer(number, time.Now())
	if ok && isCandidate {
		joined = c.candidates[o].route
		delete(c.candidates, o)
		joined.since = now
		twin = c.admit(joined, now)
	}
	if byStream { // which was opened first
		took = 0
	}
	if ok {
		c.replica.Answered(o, took, sent, now)
	}
	c.mu.Unlock()
	if joined == nil {
		return
	}
	joined.pool.meet(joined)
	if twin {
		c.warnOfTwin(joined)
	}
}

// admit makes a member of a candidate that has answered, and reports whether another one has the same id. A later boot
// ends an earlier one at once; should that live all the same, it answers again, and both are members. Each is an origin
// of its own, so that counts stay right. The lock is held.
func (c *Cluster) admit(r *route, now int64) (twin bool) {
	m := r.member
	latest, known := c.latest[m.name()]
	switch {
	case m.name() == c.self.name():
		twin = true
	case known && m.Incarnation < latest.Incarnation:
		twin = c.routes[latest.Origin()] != nil
	default:
		if known && m.Incarnation > latest.Incarnation {
			o := latest.Origin()
			if before := c.routes[o]; before != nil {
				before.since = now
				c.candidates[o] = &candidate{route: before}
			}
			c.depart(o, true)
		}
		c.latest[m.name()] = m
	}
	c.join(r, now)
	return twin
}

// isMember reports whether an origin is a member.
func (c *Cluster) isMember(o counters.Origin) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.routes[o] != nil
}

// meet notes that a node of the pool has become a member.
func (p *pool) meet(r *route) {
	p.cluster.log.Info("gossip: member joined", "pool", p.name, "peer", r.member.NodeID, "peer_region", r.member.Region,
		"addr", r.addr)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.met, p.alone = true, false
	delete(p.missing, r.addr)
	for boot, f := range p.failed { // also an earlier boot
		if f.name() == r.member.name() {
			delete(p.failed, boot)
		}
	}
}
