package respapi

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/valkey-io/valkey-go"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// The clients of these tests have no options but the server's address.

func TestRueidis(t *testing.T) {
	s := serve(t, newBank(), quiet())
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.addr}})
	testkit.Must(t, err)
	defer c.Close()
	ctx := t.Context()
	ask := c.B().Arbitrary("CL.THROTTLE").Keys("user123").Args("15", "30", "60").Build()
	if got, err := c.Do(ctx, ask).AsIntSlice(); err != nil || !slices.Equal(got, []int64{0, 16, 15, -1, 2}) {
		t.Errorf("CL.THROTTLE: %v, %v", got, err)
	}
	for i, r := range c.DoMulti(ctx, c.B().Ttl().Key("user123").Build(), c.B().Exists().Key("user123").Build(),
		c.B().Del().Key("user123").Build(), c.B().Pttl().Key("user123").Build()) {
		if got, err := r.AsInt64(); err != nil || got != []int64{2, 1, 1, -2}[i] {
			t.Errorf("command %d: %v, %v", i, got, err)
		}
	}
	// What it would keep is refused, at once and on this connection's other commands without effect.
	if err := c.DoCache(ctx, c.B().Get().Key("user123").Cache(), time.Minute).Error(); err == nil {
		t.Error("a reply is cached")
	}
	if err := c.Do(ctx, c.B().Ping().Build()).Error(); err != nil {
		t.Error(err)
	}
}

func TestValkeyGo(t *testing.T) {
	s := serve(t, newBank(), quiet())
	c, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{s.addr}})
	testkit.Must(t, err)
	defer c.Close()
	ask := c.B().Arbitrary("CL.THROTTLE").Keys("user123").Args("15", "30", "60").Build()
	if got, err := c.Do(t.Context(), ask).AsIntSlice(); err != nil || !slices.Equal(got, []int64{0, 16, 15, -1, 2}) {
		t.Errorf("CL.THROTTLE: %v, %v", got, err)
	}
	err = c.Dedicated(func(d valkey.DedicatedClient) error {
		for _, r := range d.DoMulti(t.Context(), d.B().Multi().Build(), d.B().Arbitrary("CL.THROTTLE").
			Keys("user123").Args("15", "30", "60").Build(), d.B().Exec().Build()) {
			if err := r.Error(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Errorf("a transaction: %v", err)
	}
}

func TestGoRedisTransaction(t *testing.T) {
	for _, version := range []int{2, 3} {
		s := serve(t, newBank(), quiet())
		c := redis.NewClient(&redis.Options{Addr: s.addr, Protocol: version})
		t.Cleanup(func() { _ = c.Close() })
		var first, second *redis.Cmd
		var left *redis.DurationCmd
		_, err := c.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
			first = p.Do(t.Context(), "CL.THROTTLE", "k", 0, 1, 10)
			second = p.Do(t.Context(), "CL.THROTTLE", "k", 0, 1, 10)
			left = p.TTL(t.Context(), "k")
			return nil
		})
		got := fmt.Sprint(first.Val(), second.Val(), left.Val())
		if err != nil || got != "[0 1 0 -1 10] [1 1 0 10 10] 10s" {
			t.Errorf("version %d: %v, %v", version, got, err)
		}
		if n, err := c.Del(t.Context(), "k", "other").Result(); n != 1 || err != nil {
			t.Errorf("DEL: %d, %v", n, err)
		}
		if kind, err := c.Type(t.Context(), "k").Result(); kind != "none" || err != nil {
			t.Errorf("TYPE: %s, %v", kind, err)
		}
	}
}

// redis_rate's own limiter is a client.
func TestRedisRate(t *testing.T) {
	opt := quiet()
	opt.RedisRate = true
	b := newBank()
	s := serve(t, b, opt)
	c := redis.NewClient(&redis.Options{Addr: s.addr})
	t.Cleanup(func() { _ = c.Close() })
	l, ctx := redis_rate.NewLimiter(c), t.Context()
	ten := redis_rate.PerSecond(10)
	expect := func(step string, got *redis_rate.Result, err error, allowed, remaining int, retry, reset time.Duration) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		if got.Allowed != allowed || got.Remaining != remaining || (got.RetryAfter-retry).Abs() > time.Microsecond ||
			(got.ResetAfter-reset).Abs() > time.Microsecond {
			t.Errorf("%s: %+v, want %d, %d, %v, %v", step, got, allowed, remaining, retry, reset)
		}
	}
	const ms = time.Millisecond
	got, err := l.Allow(ctx, "k", ten)
	expect("the first", got, err, 1, 9, -1, 100*ms)
	got, err = l.AllowN(ctx, "k", ten, 5)
	expect("five more", got, err, 5, 4, -1, 600*ms)
	got, err = l.AllowN(ctx, "k", ten, 5)
	expect("too many", got, err, 0, 0, 100*ms, 600*ms)
	got, err = l.AllowN(ctx, "k", ten, 0)
	expect("a peek", got, err, 0, 4, -1, 600*ms)
	b.now.Add(int64(50 * ms))
	got, err = l.AllowAtMost(ctx, "k", ten, 10)
	expect("all that is left", got, err, 4, 0, -1, time.Second)
	got, err = l.AllowAtMost(ctx, "k", ten, 10)
	expect("nothing is left", got, err, 0, 0, 100*ms, time.Second)
	got, err = l.Allow(ctx, "k", redis_rate.PerMinute(60))
	expect("another limit of the key", got, err, 1, 58, -1, 2*time.Second)
	testkit.Must(t, l.Reset(ctx, "k"))
	got, err = l.AllowAtMost(ctx, "k", redis_rate.Limit{Rate: 3, Burst: 3, Period: time.Second}, 2)
	expect("after a reset", got, err, 2, 1, -1, 2*time.Second/3)
	got, err = l.Allow(ctx, "k", redis_rate.Limit{Rate: 3, Burst: 3, Period: time.Second})
	expect("the last of a burst", got, err, 1, 0, -1, time.Second)
	if st := s.Stats(); st.Denied != 2 {
		t.Errorf("%+v", st)
	}
}

// The digests are those of the library's scripts, and their texts work as well.
func TestRedisRateScripts(t *testing.T) {
	opt := quiet()
	opt.RedisRate = true
	s := serve(t, newBank(), opt)
	c := redis.NewClient(&redis.Options{Addr: s.addr})
	t.Cleanup(func() { _ = c.Close() })
	recorded := &recorder{Client: c}
	l := redis_rate.NewLimiter(recorded)
	for range 2 {
		_, err := l.Allow(t.Context(), "k", redis_rate.PerSecond(10))
		_, err2 := l.AllowAtMost(t.Context(), "k", redis_rate.PerSecond(10), 1)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
	}
	if len(recorded.scripts) != 4 {
		t.Fatalf("%d scripts were sent", len(recorded.scripts))
	}
	for i, want := range []string{allowN, allowAtMost} {
		digest, err := c.ScriptLoad(t.Context(), recorded.scripts[i]).Result()
		if err != nil || digest != want {
			t.Errorf("SCRIPT LOAD: %s, %v", digest, err)
		}
	}
	if got, err := c.ScriptExists(t.Context(), allowN, "x", strings.ToUpper(allowAtMost)).Result(); err != nil ||
		!slices.Equal(got, []bool{true, false, true}) {
		t.Errorf("SCRIPT EXISTS: %v, %v", got, err)
	}
}

// recorder is a client that knows no digest, so that a library sends the scripts' texts.
type recorder struct {
	*redis.Client
	scripts []string
}

func (r *recorder) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(redisError("NOSCRIPT No matching script."))
	return cmd
}

func (r *recorder) Eval(ctx context.Context, text string, keys []string, args ...any) *redis.Cmd {
	r.scripts = append(r.scripts, text)
	return r.Client.Eval(ctx, text, keys, args...)
}

type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}
