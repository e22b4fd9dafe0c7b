package strict

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/edgelimit/edgelimit/regions"
)

// connections is how many a store has for each server, at most.
const connections = 32

// link is a client of the servers, and how commands go there.
type link struct {
	redis.UniversalClient
	pipe *pipeline // nil: commands go one by one, as in a cluster
}

// dial returns a link. It dials nobody yet.
func (s *Store) dial() (*link, error) {
	cfg := s.cfg.Redis
	cfg.CallTimeout = s.cfg.Timeout
	cfg.PoolTimeout = s.cfg.Timeout
	if !cfg.Cluster { // there the list of slots may be long
		cfg.MaxReply = 1 << 20
	}
	client, err := cfg.Client(connections, nil)
	if err != nil {
		return nil, err
	}
	l := &link{UniversalClient: client}
	if server, ok := client.(*redis.Client); ok {
		l.pipe = newPipeline(server)
	}
	return l, nil
}

func (l *link) close() error {
	if l.pipe != nil {
		l.pipe.close()
	}
	return l.UniversalClient.Close()
}

// process sends a command. After an error of ctx the command must not be read.
func (l *link) process(ctx context.Context, cmd *redis.Cmd) error {
	if l.pipe != nil {
		return l.pipe.process(ctx, cmd)
	}
	return l.Process(ctx, regions.AtMostOnce{Cmd: cmd})
}

// errSent says that a call failed and may have been executed, or may be yet.
var errSent = errors.New("the call may have been executed")

// errOpen is the breaker's.
var errOpen = errors.New("it failed of late")

// run makes a call, and repeats it once if that failed before the time was up. It takes no longer than Config.Timeout.
func (s *Store) run(ctx context.Context, kind byte, c *call) (now int64, answers []answer, err error) {
	if s.breaker.open.Load() {
		return 0, nil, errOpen
	}
	if err := ctx.Err(); err != nil {
		return 0, nil, err
	}
	deadline := time.Now().Add(s.cfg.Timeout)
	sent := false
	for attempt := range 2 {
		if attempt > 0 {
			s.stats.retried.Add(1)
		}
		if now, answers, err = s.attempt(ctx, s.link.Load(), kind, c, deadline); err == nil {
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
		if ctx.Err() != nil || !time.Now().Before(deadline) || isFinal(err) {
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
	ctx context.Context, l *link, kind byte, c *call, until time.Time,
) (now int64, answers []answer, err error) {
	began := time.Now()
	caller := ctx
	ctx, cancel := context.WithDeadline(caller, until)
	defer cancel()
	now, answers, err = s.send(ctx, l, kind, c)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		if err = l.load(ctx, s.script); err == nil {
			now, answers, err = s.send(ctx, l, kind, c)
		}
	}
	if err != nil {
		err = regions.Explain(ctx, err)
	}
	s.noteCall(began, err, s.hurried(caller, until, err))
	return now, answers, err
}

// hurried reports whether a call failed as its caller gave up before the store had nearly the time that it may take:
// that says nothing of the store.
func (s *Store) hurried(caller context.Context, until time.Time, err error) bool {
	if !errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	end, ok := caller.Deadline()
	return ok && until.Sub(end) > s.cfg.Timeout/8
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

// noteCall has the breaker know how a call went. A server that refuses one key, or has no memory, is not away.
func (s *Store) noteCall(began time.Time, err error, hurried bool) {
	if err == nil {
		s.breaker.succeeded()
		return
	}
	s.stats.failed.Add(1)
	if isOfOneCall(err) || hurried || errors.Is(err, context.Canceled) {
		return
	}
	if s.breaker.failed(began) && !s.closed.Load() {
		s.cfg.Log.Warn("the strict store fails: leaving it alone until it answers", "error", err)
		s.work.Go(s.probe)
	}
}
