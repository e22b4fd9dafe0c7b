package testkit

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// processAttributes ends the process with the thread that starts it.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// stopped reports whether every thread of a process is stopped.
func stopped(t testing.TB, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("no threads of process %d in /proc: %v", pid, err)
	}
	for _, thread := range threads {
		// "PID (NAME) STATE ...": a name may hold any bytes, parentheses too.
		stat, err := os.ReadFile(thread)
		if name := bytes.LastIndexByte(stat, ')'); err == nil && !bytes.HasPrefix(stat[name+1:], []byte(" T")) {
			return false
		}
	}
	return true
}
