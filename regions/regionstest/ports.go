package regionstest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// reservePort returns a port that nobody listens on, that no outgoing connection is given (those are from 32768), and that no other
// test is given, of this process or another, until this one ends: a server may be restarted on it.
func reservePort(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := 15000 + rand.IntN(17000)
		lock, err := os.OpenFile(filepath.Join(os.TempDir(), fmt.Sprintf("regionstest-port-%d", port)), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if !isFree(port) || syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
			_ = lock.Close()
			continue
		}
		t.Cleanup(func() {
			_ = os.Remove(lock.Name())
			_ = lock.Close()
		})
		return port
	}
	t.Fatal("no free port")
	return 0
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
