package regions_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// pipelines counts those that are sent to a server, whether they are answered or not.
type pipelines struct{ sent atomic.Int64 }

func (*pipelines) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*pipelines) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (p *pipelines) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() == "evalsha" {
			p.sent.Add(1)
		}
		return next(ctx, cmds)
	}
}

// What a server does not answer is not sent again: a server that is slow gets no more to do.
func TestRedisSendsNothingTwice(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"single", "cluster"} {
		t.Run(kind, func(t *testing.T) {
			var s *regionstest.Server
			var cfg regions.RedisConfig
			if kind == "single" {
				s = regionstest.StartRedis(t)
				cfg = patient(single(s))
			} else {
				c := regionstest.StartRedisCluster(t, 1)
				s, cfg = c.Nodes[0], patient(cluster(c))
			}
			cfg.CallTimeout = 300 * time.Millisecond
			r := open(t, cfg)
			counted := &pipelines{}
			switch client := regions.RedisClient(r).(type) {
			case *redis.ClusterClient:
				client.OnNewNode(func(node *redis.Client) { node.AddHook(counted) })
			default:
				client.AddHook(counted)
			}
			testkit.Eventually(t, "a merge", func() bool {
				_, err := r.Merge(t.Context(), batch(1, 1), wall())
				return err == nil
			})
			s.Do("CLIENT", "PAUSE", testkit.Patience.Milliseconds(), "WRITE")
			defer s.Do("CLIENT", "UNPAUSE")
			counted.sent.Store(0)
			if _, err := r.Merge(t.Context(), batch(1, 2), wall()); err == nil {
				t.Error("a merge that got no answer succeeded")
			}
			if n := counted.sent.Load(); n != 1 {
				t.Errorf("sent %d times, want once", n)
			}
		})
	}
}
