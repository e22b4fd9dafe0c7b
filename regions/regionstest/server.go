package regionstest

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// Server is a redis-server or a Sentinel on a free port of 127.0.0.1. It ends with the test. Its methods except Try
// fail the test on errors: call them from the test's goroutine.
type Server struct {
	t       testing.TB
	program string
	dir     string
	port    int
	busPort int // of Redis Cluster; 0: none
	args    []string
	tls     *tls.Config
	env     []string // added to that of the test

	process *testkit.Process // nil: killed
}

// Data is what a server finds on disk after a restart.
type Data int

// The kinds of data.
const (
	Empty Data = iota // nothing
	Saved             // what the last SAVE wrote
)

// StartRedis starts a server that saves nothing by itself. The arguments are those of its command line: "--maxmemory",
// "2mb".
func StartRedis(t testing.TB, args ...string) *Server {
	t.Helper()
	s := newServer(t, "redis-server", args...)
	s.launch()
	return s
}

func newServer(t testing.TB, program string, args ...string) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "regionstest")
	testkit.Must(t, err)
	s := &Server{t: t, program: program, dir: dir, args: args}
	t.Cleanup(func() {
		s.Kill()
		// A child of the killed process may still write to it.
		testkit.Eventually(t, "the server's directory is removed", func() bool { return os.RemoveAll(dir) == nil })
	})
	return s
}

// launch starts the server on a free port, or on another one if somebody else takes the port first.
func (s *Server) launch() {
	s.t.Helper()
	var err error
	for range 10 {
		s.port = testkit.FreePort(s.t)
		if s.busPort != 0 {
			s.busPort = testkit.FreePort(s.t)
		}
		if err = s.start(); err == nil {
			return
		}
	}
	s.t.Fatalf("start %s: %v", s.program, err)
}

// start starts the server on its port and waits until it answers.
func (s *Server) start() error {
	cmd := exec.Command(s.program, s.commandLine()...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), s.env...)
	if s.process == nil {
		s.process = testkit.Start(s.t, cmd)
	} else {
		s.process.Restart(cmd)
	}
	if err := s.awaitAnswer(); err != nil {
		log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
		s.Kill()
		return fmt.Errorf("%w; its log:\n%s", err, log)
	}
	return nil
}

func (s *Server) commandLine() []string {
	var line []string
	if s.program == "redis-sentinel" {
		line = append(line, filepath.Join(s.dir, "sentinel.conf"))
	}
	port := "--port"
	if s.tls != nil {
		line = append(line, "--port", "0")
		port = "--tls-port"
	}
	line = append(line, port, strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir,
		"--logfile", filepath.Join(s.dir, "log"))
	if s.program == "redis-server" {
		line = append(line, "--save", "", "--appendonly", "no")
	}
	if s.busPort != 0 {
		line = append(line, "--cluster-port", strconv.Itoa(s.busPort))
	}
	return append(line, s.args...)
}

// awaitAnswer waits until this process, and no other on its port, answers.
func (s *Server) awaitAnswer() error {
	for deadline := time.Now().Add(testkit.Patience); ; time.Sleep(5 * time.Millisecond) {
		info, err := s.Try("INFO", "server")
		switch {
		case err == nil && strings.Contains(info, fmt.Sprintf("process_id:%d\r", s.process.PID())):
			return nil
		case err == nil:
			return errors.New("another server listens on its port")
		case redis.HasErrorPrefix(err, "NOAUTH"), redis.HasErrorPrefix(err, "NOPERM"):
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("it does not answer: %w", err)
		}
		select {
		case <-s.process.Exited:
			return errors.New("it exited")
		default:
		}
	}
}

// Addr returns the server's host:port, which a restart keeps.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// Pause stops the process with SIGSTOP: its connections stay open and hang. Resume undoes it.
func (s *Server) Pause() { s.process.Pause() }

// Resume undoes Pause.
func (s *Server) Resume() { s.process.Signal(syscall.SIGCONT) }

// Kill ends the server at once, paused or not, and waits until it has exited. It may be called again.
func (s *Server) Kill() {
	if s.process != nil {
		s.process.Kill()
	}
}

// Restart kills the server, unless it is killed already, and starts it on the same port.
func (s *Server) Restart(with Data) {
	s.t.Helper()
	s.Kill()
	if with == Empty {
		testkit.Must(s.t, os.RemoveAll(filepath.Join(s.dir, "dump.rdb")))
	}
	if err := s.start(); err != nil {
		s.t.Fatalf("restart %s: %v", s.program, err)
	}
}
