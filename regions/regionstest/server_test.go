package regionstest

import (
	"os"
	"strings"
	"testing"
)

func TestServer(t *testing.T) {
	s := StartRedis(t, "--maxmemory", "100mb")
	addr := s.Addr()
	if got := s.Do("CONFIG", "GET", "maxmemory"); !strings.Contains(got, "104857600") {
		t.Errorf("started with %s", got)
	}
	s.Do("SET", "a", "1")
	s.Do("SAVE")
	s.Do("SET", "b", "1")
	s.Restart(Saved)
	if a, b := s.Do("GET", "a"), s.Do("GET", "b"); a != "1" || b == "1" {
		t.Errorf("with what was saved: a is %s, b is %s", a, b)
	}
	s.Restart(Empty)
	if n := s.Do("DBSIZE"); n != "0" || s.Addr() != addr {
		t.Errorf("restarted empty it holds %s keys, at %s instead of %s", n, s.Addr(), addr)
	}
	s.Do("CONFIG", "RESETSTAT")
	s.Do("PING")
	s.Do("PING")
	if calls := s.Calls(); calls["ping"] != 2 || calls["get"] != 0 {
		t.Errorf("after two calls: %v", calls)
	}
	s.Pause()
	s.Kill() // also while it is stopped
	s.Kill() // of one that has gone: nothing
	if s.Reply("PONG", "PING") {
		t.Error("a server that was killed answers")
	}
	s.Restart(Saved)
	if !s.Reply("PONG", "PING") || s.Reply("PONG", "DBSIZE") {
		t.Error("a server that was restarted does not answer")
	}
}

// A server whose port was taken meanwhile starts on another one.
func TestServerFindsAnotherPort(t *testing.T) {
	s := StartRedis(t)
	rival := newServer(t, "redis-server")
	rival.port = s.port
	if err := rival.start(); err == nil {
		t.Fatal("two servers share a port")
	}
	rival.launch()
	if rival.port == s.port || !rival.Reply("PONG", "PING") {
		t.Errorf("the second server does not answer at %s, the first is at %s", rival.Addr(), s.Addr())
	}
}

func TestServerLeavesNothingBehind(t *testing.T) {
	var s *Server
	t.Run("", func(t *testing.T) {
		s = StartRedis(t)
		s.Do("SET", "a", "1")
		s.Do("BGSAVE")
	})
	if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
		t.Errorf("its directory is still there: %v", err)
	}
	select {
	case <-s.process.Exited:
	default:
		t.Error("its process is still there")
	}
}
