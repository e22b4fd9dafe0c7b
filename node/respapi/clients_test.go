package respapi

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// client is a go-redis client that ends with the test.
func client(t *testing.T, opt *redis.Options) *redis.Client {
	t.Helper()
	opt.DialTimeout, opt.ReadTimeout, opt.WriteTimeout, opt.MaxRetries = patience, patience, patience, -1
	c := redis.NewClient(opt)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestGoRedis(t *testing.T) {
	for _, version := range []int{2, 3} {
		t.Run(fmt.Sprintf("version %d", version), func(t *testing.T) {
			ctx := t.Context()
			s := serve(t, newBank(), quiet())
			c := client(t, &redis.Options{Addr: s.addr, Protocol: version, ClientName: "tester"})
			got, err := c.Do(ctx, "CL.THROTTLE", "user123", 15, 30, 60).Int64Slice()
			if err != nil || !slices.Equal(got, []int64{0, 16, 15, -1, 2}) {
				t.Errorf("CL.THROTTLE: %v, %v", got, err)
			}
			if name, err := c.ClientGetName(ctx).Result(); err != nil || name != "tester" {
				t.Errorf("CLIENT GETNAME: %q, %v", name, err)
			}
			if said, err := c.Echo(ctx, "a\r\nb").Result(); err != nil || said != "a\r\nb" {
				t.Errorf("ECHO: %q, %v", said, err)
			}
			if err := c.Get(ctx, "x").Err(); err == nil ||
				!strings.HasPrefix(err.Error(), "ERR unknown command 'get'") {
				t.Errorf("GET: %v", err)
			}
			if m, err := c.Do(ctx, "HELLO", version).Result(); err != nil ||
				!strings.Contains(fmt.Sprint(m), "edgelimit") {
				t.Errorf("HELLO: %v, %v", m, err)
			}
			pipelineOf(t, ctx, c)
		})
	}
}

// pipelineOf has the client send 100 commands at once.
func pipelineOf(t *testing.T, ctx context.Context, c *redis.Client) {
	t.Helper()
	pipe := c.Pipeline()
	var all []*redis.Cmd
	for range 100 {
		all = append(all, pipe.Do(ctx, "CL.THROTTLE", "piped", 99, 1, 1000))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	for i, cmd := range all {
		if got, err := cmd.Int64Slice(); err != nil ||
			!slices.Equal(got, []int64{0, 100, int64(99 - i), -1, int64(1000 * (i + 1))}) {
			t.Fatalf("command %d of the pipeline: %v, %v", i, got, err)
		}
	}
}

func TestGoRedisWithPassword(t *testing.T) {
	opt := quiet()
	opt.Password = "correct horse"
	s := serve(t, newBank(), opt)
	for _, version := range []int{2, 3} {
		ping := func(user, password string) error {
			return client(t,
				&redis.Options{Addr: s.addr, Protocol: version, Username: user, Password: password}).Ping(t.Context()).
				Err()
		}
		for _, user := range []string{"", "default"} {
			if err := ping(user, opt.Password); err != nil {
				t.Errorf("version %d, user %q: %v", version, user, err)
			}
		}
		if err := ping("", "wrong"); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
			t.Errorf("version %d, wrong password: %v", version, err)
		}
		if err := ping("", ""); err == nil || !strings.Contains(err.Error(), "NOAUTH") {
			t.Errorf("version %d, no password: %v", version, err)
		}
	}
}

// A client's pool takes new connections in place of those that a stopping server ended, and gets its answer from the
// next one.
func TestGoRedisOutlivesAServer(t *testing.T) {
	first := serve(t, newBank(), quiet())
	addr := first.addr
	c := client(
		t,
		&redis.Options{
			Dialer: func(context.Context, string, string) (net.Conn, error) { return net.Dial("tcp", addr) },
		},
	)
	testkit.Must(t, c.Ping(t.Context()).Err())
	testkit.Must(t, first.Shutdown(t.Context()))
	addr = serve(t, newBank(), quiet()).addr
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Errorf("after the first server stopped: %v", err)
	}
}

// tool runs a program of Redis' own and returns what it prints.
func tool(t *testing.T, program string, s *running, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Fatalf("%s is not installed, and these tests need Redis 7: apt-get install redis-server redis-sentinel",
			program)
	}
	_, port, _ := net.SplitHostPort(s.addr)
	out, err := exec.CommandContext(t.Context(), program, append([]string{"-p", port}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", program, err, out)
	}
	return string(out)
}

func TestRedisCLI(t *testing.T) {
	opt := quiet()
	opt.Password = "pw"
	s := serve(t, newBank(), opt)
	auth := []string{"--no-auth-warning", "-a", "pw"}
	for _, version := range []string{"-2", "-3"} {
		got := tool(t, "redis-cli", s, append(auth, version, "CL.THROTTLE", "of"+version, "15", "30", "60")...)
		if got != "0\n16\n15\n-1\n2\n" {
			t.Errorf("redis-cli %s: %q", version, got)
		}
	}
	for _, line := range []struct{ command, want string }{
		{"TTL of-2", "2\n"}, {"TYPE of-2", "string\n"}, {"EXISTS of-2 of-3", "2\n"}, {"-n 1 EXISTS of-2", "0\n"},
		{"DEL of-2 of-3", "2\n"}, {"PTTL of-2", "-2\n"}, {"THROTTLE k 10 100 60", "1\n10\n9\n5\n0\n"},
	} {
		if got := tool(t, "redis-cli", s, append(auth, strings.Fields(line.command)...)...); got != line.want {
			t.Errorf("%s: %q, want %q", line.command, got, line.want)
		}
	}
	if got := tool(t, "redis-cli", s, "PING"); got != "NOAUTH Authentication required.\n\n" {
		t.Errorf("without the password: %q", got)
	}
	if got := tool(t, "redis-cli", s, append(auth, "INFO")...); !strings.Contains(got, "redis_version:7.0.0") {
		t.Errorf("INFO: %q", got)
	}
}

func TestRedisBenchmark(t *testing.T) {
	s := serve(t, newBank(), quiet())
	const requests = 2000
	out := tool(t, "redis-benchmark", s, "-n", fmt.Sprint(requests), "-c", "8", "-P", "16", "-q", "CL.THROTTLE", "key",
		"999", "1", "3600")
	if !strings.Contains(out, "requests per second") {
		t.Errorf("it prints %q", out)
	}
	if got := s.Stats(); got.Allowed != 1000 || got.Denied < requests-1000 {
		t.Errorf("%+v", got)
	}
}
