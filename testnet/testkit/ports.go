package testkit

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// FreePort returns a port of loopback on which nothing listens, neither on TCP nor on UDP. Until the test ends, no
// other test of any process gets it, and no outgoing connection either (those start at 32768): a server may restart
// on it.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := 15000 + rand.IntN(17000)
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		name := filepath.Join(os.TempDir(), fmt.Sprintf("testkit-port-%d", port))
		lock, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil || !IsFree(addr) {
			_ = lock.Close()
			continue
		}
		t.Cleanup(func() {
			_ = os.Remove(name)
			_ = lock.Close()
		})
		return port
	}
	t.Fatal("no free port")
	return 0
}

// FreeAddr returns 127.0.0.1 with a FreePort.
func FreeAddr(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", FreePort(t))
}

// IsFree reports whether nobody listens at a host:port, neither on TCP nor on UDP.
func IsFree(addr string) bool {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	defer l.Close()
	p, err := net.ListenPacket("udp", addr)
	return err == nil && p.Close() == nil
}
