package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
)

func redisRate(addr string) contestant {
	return contestant{name: nameRedisRate, outOfProcess: true, open: func(s *state) (*limiter, error) {
		client, limit := redis.NewClient(&redis.Options{Addr: addr}), redis_rate.PerSecond(1e6)
		if s.limited {
			limit = redis_rate.PerHour(1)
		}
		ctx, prefix, limits := context.Background(), s.name+":", redis_rate.NewLimiter(client)
		take := each(func(s *stream, i int) bool {
			res, err := limits.Allow(ctx, prefix+s.identity(i), limit)
			return err == nil && res.Allowed == 1
		})
		// In pipelines: a million round trips take too long.
		fill := func(s *stream) error {
			if s.len() < 10_000 {
				take(s, 0, s.len())
				return nil
			}
			for from := 0; from < s.len(); from += 10_000 {
				pipe := client.Pipeline()
				for i := from; i < min(from+10_000, s.len()); i++ {
					pipe.Set(ctx, "rate:"+prefix+s.identity(i), "0", time.Hour)
				}
				if _, err := pipe.Exec(ctx); err != nil {
					return err
				}
			}
			return nil
		}
		return &limiter{take: take, fill: fill, close: client.Close}, nil
	}}
}

// redisBytesPerKey returns the bytes per key that Redis uses for a million keys of redis_rate.
func redisBytesPerKey(ctx context.Context, addr string, seen *stream) (float64, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	before, err := usedMemory(ctx, client)
	if err != nil {
		return 0, err
	}
	c := redisRate(addr)
	l, err := c.inState(stateMillion, seen)
	if err != nil {
		return 0, err
	}
	after, err := usedMemory(ctx, client)
	return float64(after-before) / million, errors.Join(err, closeLimiter(l), client.FlushAll(ctx).Err())
}

func usedMemory(ctx context.Context, client *redis.Client) (int64, error) {
	info, err := client.InfoMap(ctx, "memory").Result()
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(info["Memory"]["used_memory"], 10, 64)
}
