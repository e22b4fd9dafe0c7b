package main

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
)

// startRedis starts a Redis without persistence on a free port of loopback.
func startRedis(ctx context.Context) (addr, version string, stop func(), err error) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", nil, err
	}
	addr = free.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	free.Close()
	dir, err := os.MkdirTemp("", "edgelimit-bench-")
	if err != nil {
		return "", "", nil, err
	}
	cmd := exec.Command("redis-server", "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no",
		"--dir", dir)
	if err := cmd.Start(); err != nil {
		return "", "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	stop = func() {
		cmd.Process.Kill()
		cmd.Wait()
		os.RemoveAll(dir)
	}
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		info, err := client.InfoMap(ctx, "server").Result()
		if err == nil {
			return addr, "Redis " + info["Server"]["redis_version"], stop, nil
		}
		select {
		case <-ctx.Done():
			stop()
			return "", "", nil, errors.New("redis-server does not answer")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

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
