package reference

import (
	"bufio"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// countersOf are the counters that both servers send by statsd; what they say of themselves as processes is their own.
const countersOf = "ratelimit.service."

// statsd receives counters of a server over TCP, as the reference sends them, and adds them up.
type statsd struct {
	net.Listener
	serving sync.WaitGroup
	mu      sync.Mutex
	sums    map[string]uint64 // modulo 1<<64, as counters are kept
}

func startStatsd(t *testing.T) *statsd {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &statsd{Listener: listener, sums: make(map[string]uint64)}
	s.serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.serving.Go(func() { s.receive(conn) })
		}
	})
	t.Cleanup(func() { _ = listener.Close() }) // connections end with their server
	return s
}

// receive adds up the counters of a connection: name:value|c in each line.
func (s *statsd) receive(conn net.Conn) {
	defer conn.Close()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		line, counter := strings.CutSuffix(lines.Text(), "|c")
		name, value, ok := strings.Cut(line, ":")
		n, err := strconv.ParseUint(value, 10, 64)
		if !counter || !ok || err != nil || !strings.HasPrefix(name, countersOf) {
			continue
		}
		s.mu.Lock()
		s.sums[name] += n
		s.mu.Unlock()
	}
}

func (s *statsd) sum(name string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sums[name]
}

// env is the environment of a server that sends here.
func (s *statsd) env() []string {
	return []string{"DISABLE_STATS=false", "USE_STATSD=true", "STATSD_HOST=127.0.0.1", "STATS_FLUSH_INTERVAL=100ms",
		fmt.Sprintf("STATSD_PORT=%d", s.Addr().(*net.TCPAddr).Port)}
}

// statistics plays a script, and compares the counters of both servers.
func statistics(t *testing.T, s *setting, files map[string]string, script []exchange) []comparison {
	t.Helper()
	for range 5 {
		theirs, ours := startStatsd(t), startStatsd(t)
		p := startPairWith(t, s, files, theirs.env(), ours.env())
		_, undisturbed := p.play(t.Context(), s, script)
		if undisturbed {
			// Counters are sent in turn. Once the second of two is there, all before the first have been sent.
			for n := range 2 {
				_, undisturbed = p.play(t.Context(), s, []exchange{{request: request("sent", 0, d("x=y"))}})
				for _, at := range []*statsd{theirs, ours} {
					testkit.EventuallyWithin(t, 10*time.Second, "counters sent", func() bool {
						return at.sum(countersOf+"rate_limit.sent.domain_not_found") == uint64(n+1)
					})
				}
			}
		}
		p.stop()
		if undisturbed {
			return compareCounters(t, s, theirs.answer(), ours.answer())
		}
	}
	t.Fatalf("%s: the machine is too busy", s.name)
	return nil
}

// answer is the sums so far.
func (s *statsd) answer() answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := make(answer)
	for name, sum := range s.sums {
		a[name] = fmt.Sprint(sum)
	}
	return a
}

// compareCounters takes each counter for an exchange.
func compareCounters(t *testing.T, s *setting, theirs, ours answer) (all []comparison) {
	t.Helper()
	if len(theirs) < 100 {
		t.Fatalf("the reference sent %d counters only", len(theirs))
	}
	both := maps.Clone(theirs)
	maps.Copy(both, ours)
	for _, name := range slices.Sorted(maps.Keys(both)) {
		var differences []difference
		if theirs[name] != ours[name] {
			differences = []difference{{name, theirs[name], ours[name]}}
		}
		asked := &exchange{name: "statistics", http: &httpRequest{path: name}}
		all = append(all, comparison{setting: s, exchange: asked, differences: differences})
	}
	return all
}
