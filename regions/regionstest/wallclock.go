package regionstest

import (
	_ "embed"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

//go:embed testdata/wallclock.c
var wallClockSource []byte

// StartRedisWithClock starts a server whose wall clock is ahead of the machine's by so much, and can be set. Its
// monotonic clock is the machine's, as on a host whose clock is wrong. It takes Linux and the C compiler that the race
// detector takes.
func StartRedisWithClock(t testing.TB, ahead time.Duration, args ...string) *Server {
	t.Helper()
	s := newServer(t, "redis-server", args...)
	source, library := filepath.Join(s.dir, "wallclock.c"), filepath.Join(s.dir, "wallclock.so")
	testkit.Must(t, os.WriteFile(source, wallClockSource, 0o600))
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-O", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("compile the library that sets a wall clock: %v\n%s", err, out)
	}
	s.env = []string{"LD_PRELOAD=" + library, "WALLCLOCK_FILE=" + s.clockFile()}
	s.SetClock(ahead)
	s.launch()
	return s
}

func (s *Server) clockFile() string { return filepath.Join(s.dir, "clock") }

// SetClock sets the wall clock of a server that StartRedisWithClock started.
func (s *Server) SetClock(ahead time.Duration) {
	s.t.Helper()
	f, err := os.OpenFile(s.clockFile(), os.O_CREATE|os.O_WRONLY, 0o600)
	testkit.Must(s.t, err)
	defer f.Close()
	// in one write, which the server maps
	testkit.Must(s.t, binary.Write(f, binary.NativeEndian, ahead.Microseconds()))
}
