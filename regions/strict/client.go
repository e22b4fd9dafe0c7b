package strict

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/edgelimit/edgelimit/regions"
)

// connections is how many a store has for each server, at most.
const connections = 32

// link is a client of the servers, and how commands go there.
type link struct {
	redis.UniversalClient
	store *Store
	pipe  *pipeline      // nil: commands go one by one, as in a cluster
	work  sync.WaitGroup // of these
}

// dial returns a link. It dials nobody yet.
func (s *Store) dial() (*link, error) {
	cfg := s.cfg.Redis
	cfg.CallTimeout = 2 * s.cfg.MaxTimeout // see process
	cfg.PoolTimeout = cfg.CallTimeout
	if !cfg.Cluster { // there the list of slots may be long
		cfg.MaxReply = 1 << 20
	}
	client, err := cfg.Client(connections)
	if err != nil {
		return nil, err
	}
	l := &link{UniversalClient: client, store: s}
	if server, ok := client.(*redis.Client); ok {
		l.pipe = newPipeline(server, s)
	}
	return l, nil
}

// close closes the connections, which ends the commands that are under way.
func (l *link) close() error {
	err := l.UniversalClient.Close()
	if l.pipe != nil {
		l.pipe.close()
	}
	l.work.Wait()
	return err
}

// process sends a command, and waits for its answer or the end of ctx. After an error of ctx the command must not be
// read. The library's reads end at a time, not with a context: they have twice the patience.
func (l *link) process(ctx context.Context, cmd *redis.Cmd) error {
	if l.pipe != nil {
		return l.pipe.process(ctx, cmd)
	}
	done := make(chan struct{})
	l.work.Go(func() {
		defer close(done)
		began := time.Now()
		bounded, cancel := context.WithTimeout(l.store.ctx, 2*l.store.patience.now())
		defer cancel()
		l.store.noteWay(began, l.Process(bounded, regions.AtMostOnce{Cmd: cmd}))
	})
	select {
	case <-done:
		return cmd.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// errSent says that a call failed and may have been executed, or may be yet.
var errSent = errors.New("the call may have been executed")

// errOpen is the breaker's.
var errOpen = errors.New("it failed of late")

// run makes a call, and repeats it once if that failed before ctx ended.
func (s *Store) run(ctx context.Context, kind byte, c *call) (now int64, answers []answer, err error) {
	if s.breaker.open.Load() {
		return 0, nil, errOpen
	}
	if ctx.Err() != nil {
		return 0, nil, context.Cause(ctx)
	}
	sent := false
	for attempt := range 2 {
		if attempt > 0 {
			s.stats.retried.Add(1)
		}
		if now, answers, err = s.attempt(ctx, s.link.Load(), kind, c); err == nil {
			return now, answers, nil
		}
		if ambiguous(err) {
			sent = true
			if kind == callLease { // its end is known by its answer alone
				break
			}
			switch kind {
			case callTake:
				kind = callAgain
			case callReport:
				kind = callReportAgain
			case callRefund:
				c = c.byToken()
			}
		}
		if ctx.Err() != nil || isFinal(err) {
			break
		}
	}
	if sent {
		err = fmt.Errorf("%w (%w)", err, errSent)
	}
	return 0, nil, err
}

// attempt sends a call once, or twice if the server did not know the script, and notes how that went.
func (s *Store) attempt(
	ctx context.Context, l *link, kind byte, c *call,
) (now int64, answers []answer, err error) {
	began := time.Now()
	now, answers, err = s.send(ctx, l, kind, c)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		if err = l.load(ctx, s.script); err == nil {
			now, answers, err = s.send(ctx, l, kind, c)
		}
	}
	if err != nil {
		err = regions.Explain(ctx, err)
	}
	s.noteCall(began, err, byCaller(ctx))
	return now, answers, err
}

// send sends a call once, and reads the answer.
func (s *Store) send(
	ctx context.Context, l *link, kind byte, c *call,
) (now int64, answers []answer, err error) {
	args := make([]any, 0, 4+len(c.keys)+len(c.layers))
	args = append(args, "evalsha", s.script.sha, strconv.Itoa(len(c.keys)))
	for _, key := range c.keys {
		args = append(args, key)
	}
	args = append(args, string(kind)+string(c.token[:]))
	for _, layer := range c.layers {
		args = append(args, layer)
	}
	cmd := redis.NewCmd(ctx, args...)
	started := time.Now()
	if err = l.process(ctx, cmd); err == nil {
		now, answers, err = decode(cmd.Val(), len(c.layers))
	}
	s.stats.calls.Add(1)
	if s.cfg.OnCall != nil {
		s.cfg.OnCall(time.Since(started), err)
	}
	return now, answers, err
}

// load has all servers learn the script.
func (l *link) load(ctx context.Context, script script) error {
	return regions.EachMaster(ctx, l.UniversalClient, func(ctx context.Context, server *redis.Client) error {
		return server.ScriptLoad(ctx, script.source).Err()
	})
}

// isReply reports whether the server answered with an error: then it has executed nothing.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// ambiguous reports whether a call that failed may have been executed.
func ambiguous(err error) bool {
	if isReply(err) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) {
		return false
	}
	var op *net.OpError
	return !(errors.As(err, &op) && op.Op == "dial")
}

// isFinal reports whether another attempt would fail in the same way.
func isFinal(err error) bool {
	for _, prefix := range []string{"NOPERM", "NOAUTH", "WRONGPASS", "CROSSSLOT", "MISCONF"} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return isOfOneCall(err) && !redis.HasErrorPrefix(err, "TRYAGAIN") || errors.Is(err, redis.ErrClosed)
}

// isOfOneCall reports whether the server refused one call, and may well answer others.
func isOfOneCall(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && slices.ContainsFunc([]string{"VOID ", "OOM ", "WRONGTYPE ", "TRYAGAIN ", "ERR "},
		func(prefix string) bool { return strings.HasPrefix(reply.Error(), prefix) })
}

// noteCall counts a call, and has the breaker and the patience know how it went. givenUp says that its caller gave up
// before the store had its time.
func (s *Store) noteCall(began time.Time, err error, givenUp bool) {
	if err != nil {
		s.stats.failed.Add(1)
	}
	if givenUp {
		return
	}
	if _, tooSlow := errors.AsType[errTooSlow](err); err == nil || isReply(err) || tooSlow {
		s.patience.note(time.Since(began))
	}
	s.noteOutcome(began, err)
}

// noteWay has the breaker know whether the store can be reached, whoever waits for the answer: callers that are less
// patient than the store leave before it fails.
func (s *Store) noteWay(began time.Time, err error) {
	if !isReply(err) {
		s.noteOutcome(began, err)
	}
}

// noteOutcome has the breaker know how a call went. A server that refuses one key, or has no
// memory, is not away.
func (s *Store) noteOutcome(began time.Time, err error) {
	switch {
	case err == nil:
		s.breaker.succeeded()
	case isOfOneCall(err) || errors.Is(err, context.Canceled):
	case s.breaker.failed(began) && !s.closed.Load():
		s.cfg.Log.Warn("the strict store fails: leaving it alone until it answers", "error", err)
		s.work.Go(s.probe)
	}
}
