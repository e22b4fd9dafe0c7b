package rig

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// StartRedis starts a Redis without persistence on a free port of loopback, and returns its address and version.
func StartRedis(ctx context.Context) (addr, version string, stop func(), err error) {
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

// RedisCPU returns the user and system time of a Redis.
func RedisCPU(ctx context.Context, client *redis.Client) (used time.Duration, err error) {
	info, err := client.InfoMap(ctx, "cpu").Result()
	if err != nil {
		return 0, err
	}
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(info["CPU"][name], 64)
		if err != nil {
			return 0, err
		}
		used += time.Duration(seconds * float64(time.Second))
	}
	return used, nil
}
