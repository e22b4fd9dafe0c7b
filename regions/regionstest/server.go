package regionstest

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Patience is how long a test waits for something that is bound to happen on a machine that does little else.
const Patience = 60 * time.Second

// Server is a redis-server, or a Sentinel, that a test has to itself, on a free port of 127.0.0.1. It ends with the test. Its
// methods, but for Try, fail the test when they cannot do what they say; they are for the test's own goroutine.
type Server struct {
	t       testing.TB
	program string
	dir     string
	port    int
	busPort int // 0: not of a cluster
	args    []string
	tls     *tls.Config

	process *os.Process
	exited  chan struct{}
}

// Data is what a server that is restarted finds.
type Data int

// What there may be.
const (
	Empty Data = iota // nothing
	Saved             // what the last SAVE wrote
)

// StartRedis starts a server. It saves nothing by itself. The arguments are as on its command line: "--maxmemory", "2mb".
func StartRedis(t testing.TB, args ...string) *Server {
	t.Helper()
	s := newServer(t, "redis-server", args...)
	s.launch()
	return s
}

func newServer(t testing.TB, program string, args ...string) *Server {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Fatalf("%s is not installed, and these tests need Redis 7: apt-get install redis-server redis-sentinel", program)
	}
	dir, err := os.MkdirTemp("", "regionstest")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, program: program, dir: dir, args: args}
	t.Cleanup(func() {
		s.Kill()
		remove(t, dir)
	})
	return s
}

// remove deletes a directory that a child of a process that was killed may still be writing to.
func remove(t testing.TB, dir string) {
	for deadline := time.Now().Add(Patience); ; time.Sleep(10 * time.Millisecond) {
		err := os.RemoveAll(dir)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("remove the server's directory: %v", err)
			return
		}
	}
}

// launch starts the server on a free port. Between the choice of a port and its use somebody else may take it: then on another.
func (s *Server) launch() {
	s.t.Helper()
	var err error
	for range 10 {
		s.port = reservePort(s.t)
		if s.busPort != 0 {
			s.busPort = reservePort(s.t)
		}
		if err = s.start(); err == nil {
			return
		}
	}
	s.t.Fatalf("start %s: %v", s.program, err)
}

// start starts the server where it was before, and waits until it answers.
func (s *Server) start() error {
	cmd := exec.Command(s.program, s.commandLine()...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = processAttributes()
	started := make(chan error)
	exited := make(chan struct{})
	go func() {
		// The process dies with the thread that started it, so that none outlives a test that crashed: keep the thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(exited)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	s.process, s.exited = cmd.Process, exited
	if err := s.answers(); err != nil {
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
	line = append(line, port, strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir, "--logfile", filepath.Join(s.dir, "log"))
	if s.program == "redis-server" {
		line = append(line, "--save", "", "--appendonly", "no")
	}
	if s.busPort != 0 {
		line = append(line, "--cluster-port", strconv.Itoa(s.busPort))
	}
	return append(line, s.args...)
}

// answers waits until this process, and no other that has its port, answers.
func (s *Server) answers() error {
	for deadline := time.Now().Add(Patience); ; time.Sleep(5 * time.Millisecond) {
		info, err := s.Try("INFO", "server")
		switch {
		case err == nil && strings.Contains(info, fmt.Sprintf("process_id:%d\r", s.process.Pid)):
			return nil
		case err == nil:
			return errors.New("another server has its port")
		case redis.HasErrorPrefix(err, "NOAUTH"), redis.HasErrorPrefix(err, "NOPERM"):
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("it does not answer: %w", err)
		}
		select {
		case <-s.exited:
			return errors.New("it ended")
		default:
		}
	}
}

// Addr is the server's host:port. It stays over a restart.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// Pause stops the server, connections and all, as a host does that swaps or hangs (SIGSTOP). Resume lets it go on.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume undoes Pause.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig os.Signal) {
	s.t.Helper()
	if err := s.process.Signal(sig); err != nil {
		s.t.Fatalf("signal %s: %v", s.program, err)
	}
}

// Kill ends the server at once, paused or not, and waits until it has gone. Of one that has gone it does nothing.
func (s *Server) Kill() {
	if s.process == nil {
		return
	}
	_ = s.process.Kill() // an error means that it has gone
	<-s.exited
	s.process = nil
}

// Restart kills the server, unless it is dead, and starts it on the same port.
func (s *Server) Restart(with Data) {
	s.t.Helper()
	s.Kill()
	if with == Empty {
		if err := os.RemoveAll(filepath.Join(s.dir, "dump.rdb")); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := s.start(); err != nil {
		s.t.Fatalf("restart %s: %v", s.program, err)
	}
}

// Eventually waits until the condition holds, and fails the test if it does not within Patience.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v in vain: %s", Patience, what)
		}
	}
}
