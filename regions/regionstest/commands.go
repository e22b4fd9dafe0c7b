package regionstest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// Do runs a command on the server and returns its answer as text.
func (s *Server) Do(args ...any) string {
	s.t.Helper()
	answer, err := s.Try(args...)
	if err != nil {
		s.t.Fatalf("%s %v: %v", s.program, args, err)
	}
	return answer
}

// Try is Do for a command that may fail, or that a goroutine of its own runs.
func (s *Server) Try(args ...any) (string, error) {
	conn, err := s.dial()
	if err != nil {
		return "", err
	}
	client := redis.NewClient(&redis.Options{
		// Dialled beforehand: where it fails, the library keeps trying in the background.
		Dialer:     func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		MaxRetries: -1, DialerRetries: 1, DisableIdentity: true, Protocol: 2, PoolSize: 1,
		ReadTimeout: testkit.Patience,
	})
	answer, err := client.Do(context.Background(), args...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return "", errors.Join(err, client.Close())
	}
	return fmt.Sprint(answer), client.Close()
}

func (s *Server) dial() (net.Conn, error) {
	if s.tls != nil {
		return tls.DialWithDialer(&net.Dialer{Timeout: testkit.Patience}, "tcp", s.Addr(), s.tls)
	}
	return net.DialTimeout("tcp", s.Addr(), testkit.Patience)
}

// Reply reports whether the answer to a command, if there is one, contains the text: a condition for Eventually.
func (s *Server) Reply(text string, args ...any) bool {
	answer, err := s.Try(args...)
	return err == nil && strings.Contains(answer, text)
}

// Calls is how many calls of each command were made, by scripts as well, since CONFIG RESETSTAT. Those that were
// refused unrun are not among them.
func (s *Server) Calls() map[string]int {
	s.t.Helper()
	return s.commandStats("calls")
}

// CommandMicros is the time in microseconds that the server spent on a command since CONFIG RESETSTAT.
func (s *Server) CommandMicros(command string) int {
	s.t.Helper()
	return s.commandStats("usec")[command]
}

// commandStats returns a figure of each command of which it is not 0.
func (s *Server) commandStats(figure string) map[string]int {
	s.t.Helper()
	all := make(map[string]int)
	for line := range strings.Lines(s.Do("INFO", "commandstats")) {
		name, figures, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":")
		for f := range strings.SplitSeq(figures, ",") {
			value, _ := strings.CutPrefix(f, figure+"=")
			if n, err := strconv.Atoi(value); err == nil && n > 0 {
				all[name] = n
			}
		}
	}
	return all
}
