package respapi

import (
	"bufio"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// TestAsRedis says the same to a Redis, in which a key with a time to live stands for a throttled one.
func TestAsRedis(t *testing.T) {
	addr := regionstest.StartRedis(t).Addr()
	for _, version := range []string{"2", "3"} {
		for _, lines := range []string{
			"EXISTS k k other\nTTL k\nTYPE k\nTYPE other\nTTL other\nPTTL other", "EXISTS", "TTL", "TTL a b", "DEL",
			"EXPIRE k", "EXPIRE k soon", "EXPIRE other 10", "EXPIRE k 0\nEXISTS k", "PEXPIRE k -5\nTYPE k",
			"DEL k other k", "UNLINK k", "MULTI\nEXEC", "MULTI\nTYPE k\nDEL k\nEXEC",
			"MULTI\nDEL k\nDISCARD\nEXISTS k", "EXEC", "DISCARD", "MULTI\nMULTI\nTYPE k\nEXEC", "MULTI\nTTL\nEXEC",
			"MULTI\nNONSENSE a b\nTYPE k\nEXEC", "MULTI x", "DISCARD x", "MULTI\nTYPE k\nRESET\nEXEC",
			"MULTI\nPING\nQUIT", "MULTI\nSELECT 3\nEXISTS k\nEXEC\nEXISTS k", "MULTI\nMULTI x\nEXEC",
			"SELECT 15\nEXISTS k", "SELECT 16", "SELECT -1", "SELECT x", "SELECT 1\nSELECT 99\nEXISTS k",
			"CLIENT TRACKING ON OPTIN\nCLIENT TRACKING OFF", "CLIENT TRACKING maybe", "EVALSHA 0123 0",
			"EVALSHA 0123 1 k", "EVALSHA x", "EVAL", "SCRIPT", "SCRIPT EXISTS 0123", "MULTI\nECHO\nDISCARD\nPING",
		} {
			opt := quiet()
			opt.RedisRate = true
			s := New(newBank(), opt)
			prepare := replies(t, converse(s, "cl.throttle k 15 30 60 16\n"))
			got := replies(t, converse(s, array("HELLO", version), lines+"\n"))[1:]
			want := redisSays(t, addr, version, lines)
			if strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("RESP%s, after %s: %q:\n     got %q\nof Redis %q", version, prepare, lines, got, want)
			}
		}
	}
}

// redisSays is what a Redis answers, whose key k lives for 32 seconds.
func redisSays(t *testing.T, addr, version, lines string) []string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	testkit.Must(t, err)
	d := talk(t, conn)
	d.send("FLUSHALL\nSET k 1 PX 32400\nHELLO " + version + "\n")
	d.expect("+OK", "+OK")
	d.in = bufio.NewReader(d.Conn)
	d.send(lines + "\n")
	_ = conn.(*net.TCPConn).CloseWrite()
	var all []string
	for {
		r, err := readReply(d.in)
		if err != nil {
			return all
		}
		all = append(all, r)
	}
}

// TestRedisRateAsOnRedis has redis_rate ask a Redis, which runs its scripts, and a server, which does not.
func TestRedisRateAsOnRedis(t *testing.T) {
	opt := quiet()
	opt.RedisRate = true
	ours := redis.NewClient(&redis.Options{Addr: serve(t, newBank(), opt).addr})
	theirs := redis.NewClient(&redis.Options{Addr: regionstest.StartRedis(t).Addr()})
	t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
	here, there := redis_rate.NewLimiter(ours), redis_rate.NewLimiter(theirs)
	random, ctx := rand.New(rand.NewPCG(1, 1)), t.Context()
	limits := []redis_rate.Limit{
		redis_rate.PerHour(10), redis_rate.PerHour(3), {Rate: 7, Burst: 20, Period: 24 * time.Hour},
		{Rate: 1, Burst: 1, Period: 90 * time.Second},
	}
	for i := range 400 {
		limit, key, n := limits[random.IntN(len(limits))], string('a'+rune(random.IntN(5))), random.IntN(8)-1
		ask := redis_rate.Limiter.AllowN
		if random.IntN(2) == 0 {
			ask = redis_rate.Limiter.AllowAtMost
		}
		if random.IntN(8) == 0 {
			if err, err2 := here.Reset(ctx, key), there.Reset(ctx, key); err != nil || err2 != nil {
				t.Fatal(err, err2)
			}
		}
		got, err := ask(*here, ctx, key, limit, n)
		want, err2 := ask(*there, ctx, key, limit, n)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		// The server's clock stands still, that of Redis does not, and rounds: a token may be there a moment later.
		const patience = 10 * time.Second
		if got.Allowed != want.Allowed || abs(got.Remaining-want.Remaining) > 1 ||
			(got.RetryAfter-want.RetryAfter).Abs() > patience || (got.ResetAfter-want.ResetAfter).Abs() > patience {
			t.Fatalf("request %d, %d of %q with %v: %+v, of Redis %+v", i, n, key, limit, got, want)
		}
	}
}

func abs(n int) int { return max(n, -n) }
