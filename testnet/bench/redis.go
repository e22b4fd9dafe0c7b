package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
)

// startRedis starts a Redis without persistence on a free port of loopback.
func startRedis(ctx context.Context) (addr string, stop func(), err error) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	addr = free.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	free.Close()
	dir, err := os.MkdirTemp("", "edgelimit-bench-")
	if err != nil {
		return "", nil, err
	}
	cmd := exec.Command("redis-server", "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no",
		"--dir", dir)
	if err := cmd.Start(); err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
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
	for client.Ping(ctx).Err() != nil {
		select {
		case <-ctx.Done():
			stop()
			return "", nil, errors.New("redis-server does not answer")
		case <-time.After(20 * time.Millisecond):
		}
	}
	return addr, stop, nil
}

type redisLimiter struct {
	client  *redis.Client
	limiter *redis_rate.Limiter
	limit   redis_rate.Limit
	prefix  string
}

func redisRate(addr string) contestant {
	open := func(s *state) (limiter, error) {
		client := redis.NewClient(&redis.Options{Addr: addr})
		limit := redis_rate.PerSecond(1e6)
		if s.limited {
			limit = redis_rate.PerHour(1)
		}
		return &redisLimiter{client, redis_rate.NewLimiter(client), limit, s.name + ":"}, nil
	}
	return contestant{name: nameRedisRate, open: open, outOfProcess: true}
}

func (r *redisLimiter) take(s *stream, from, to int) (admitted int) {
	ctx := context.Background()
	for i := from; i < to; i++ {
		if res, err := r.limiter.Allow(ctx, r.prefix+s.identity(i), r.limit); err == nil && res.Allowed == 1 {
			admitted++
		}
	}
	return admitted
}

// fill writes the keys of redis_rate in pipelines: a million round trips take too long.
func (r *redisLimiter) fill(s *stream) error {
	if s.len() < 10_000 {
		r.take(s, 0, s.len())
		return nil
	}
	ctx := context.Background()
	for from := 0; from < s.len(); from += 10_000 {
		pipe := r.client.Pipeline()
		for i := from; i < min(from+10_000, s.len()); i++ {
			pipe.Set(ctx, "rate:"+r.prefix+s.identity(i), "0", time.Hour)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (r *redisLimiter) close() error { return r.client.Close() }

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
	info, err := client.Info(ctx, "memory").Result()
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, "used_memory:"); ok {
			return strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		}
	}
	return 0, fmt.Errorf("redis INFO has no used_memory")
}
