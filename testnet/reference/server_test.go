package reference

import (
	"context"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// server is one of the two programs while it runs, with a Redis of its own.
type server struct {
	redis             *regionstest.Server
	grpc, http, debug string // addresses
	process           *testkit.Process
	conn              *grpc.ClientConn
	client            rls.RateLimitServiceClient
}

// pair is the two servers of a script.
type pair struct {
	theirs, ours *server
	alike        bool // edgelimit has the reference's windows, too
}

// startPair starts both programs in a setting, with the files that they load.
func startPair(t *testing.T, s *setting, files map[string]string) *pair {
	t.Helper()
	return startPairWith(t, s, files, nil, nil)
}

// startPairWith is startPair, with more in the environment of each.
func startPairWith(t *testing.T, s *setting, files map[string]string, theirs, ours []string) *pair {
	t.Helper()
	reference, edgelimit := builtPrograms(t)
	files = maps.Clone(files)
	files["clock.yaml"] = clockRules
	root := writeFiles(t, files)
	p := &pair{theirs: newServer(t), ours: newServer(t), alike: true}
	p.theirs.start(t, append(p.theirs.environment(root), append(theirs, s.env...)...), reference)
	p.ours.start(t, append(p.ours.environment(root), append(ours, s.env...)...), edgelimit, "serve",
		"--from-env", "ratelimit", "--node-id", "ours", "--admin", "")
	return p
}

// startUnlike is startPair, with edgelimit's own defaults in place of the reference's.
func startUnlike(t *testing.T, files map[string]string) *pair {
	t.Helper()
	reference, edgelimit := builtPrograms(t)
	root := writeFiles(t, files)
	p := &pair{theirs: newServer(t), ours: newServer(t)}
	p.theirs.start(t, p.theirs.environment(root), reference)
	p.ours.start(t, nil, edgelimit, "serve", "--rules", configDir(root), "--grpc", p.ours.grpc, "--http", p.ours.http,
		"--health", p.ours.debug, "--node-id", "ours", "--admin", "")
	return p
}

// clockRules are of requests that show the second of the minute in which they are decided on: a server lags where it
// has the CPU too late.
const clockRules = `
domain: clock
descriptors:
  - key: clock
    rate_limit: {unit: minute, requests_per_unit: 1000000}
`

// isIn reports whether both servers decide by a second that has begun, as far as they answer. It counts alike at both.
func (p *pair) isIn(ctx context.Context, second int64) bool {
	if !p.alike {
		return true
	}
	left := time.Duration(60-second%60) * time.Second
	for _, s := range []*server{p.theirs, p.ours} {
		response, err := s.client.ShouldRateLimit(ctx, request("clock", 0, d("clock")))
		if err == nil && len(response.Statuses) == 1 && response.Statuses[0].DurationUntilReset.AsDuration() != left {
			return false
		}
	}
	return true
}

// configDir is where the reference looks for rules.
func configDir(root string) string { return filepath.Join(root, "current", "ratelimit", "config") }

// writeFiles writes the files of rules, and returns the root of their directory.
func writeFiles(t *testing.T, files map[string]string) (root string) {
	t.Helper()
	root = t.TempDir()
	for name, text := range files {
		file := filepath.Join(configDir(root), name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// newServer chooses addresses, and starts a Redis.
func newServer(t *testing.T) *server {
	t.Helper()
	return &server{redis: regionstest.StartRedis(t), grpc: testkit.FreeAddr(t), http: testkit.FreeAddr(t),
		debug: testkit.FreeAddr(t)}
}

// environment is what both programs need to run.
func (s *server) environment(root string) []string {
	port := func(addr string) string {
		_, port, _ := strings.Cut(addr, ":")
		return port
	}
	return []string{
		"DISABLE_STATS=true", "LOG_LEVEL=warn",
		"BACKEND_TYPE=redis", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + s.redis.Addr(),
		"RUNTIME_ROOT=" + filepath.Join(root, "current"), "RUNTIME_SUBDIRECTORY=ratelimit",
		"GRPC_HOST=127.0.0.1", "HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1",
		"GRPC_PORT=" + port(s.grpc), "PORT=" + port(s.http), "DEBUG_PORT=" + port(s.debug),
	}
}

// start starts the program, with nothing of the test's environment but PATH, and waits until it answers.
func (s *server) start(t *testing.T, env []string, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.TempDir()}, env...)
	s.process = testkit.Start(t, cmd)
	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	s.conn, s.client = conn, rls.NewRateLimitServiceClient(conn)
	t.Cleanup(s.stop)
	s.process.Await(filepath.Base(program)+" listens", func() bool {
		_, _, _, err := testkit.Fetch(web, http.MethodGet, "http://"+s.http+"/healthcheck", "")
		return err == nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	if _, err := s.client.ShouldRateLimit(ctx, request("ready", 0, d("ready")), grpc.WaitForReady(true)); err != nil {
		t.Fatalf("%s answers %v: %s", program, err, s.process.Log)
	}
}

// stop ends the server and its Redis. It may be called again.
func (s *server) stop() {
	_ = s.conn.Close()
	s.process.Kill()
	s.redis.Kill()
}

func (p *pair) stop() {
	p.theirs.stop()
	p.ours.stop()
}

var web = &http.Client{Timeout: 10 * time.Second}
