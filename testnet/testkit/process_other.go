//go:build !linux

package testkit

import (
	"syscall"
	"testing"
)

// processAttributes: a process may outlive a test that crashes.
func processAttributes() *syscall.SysProcAttr { return nil }

// stopped: a process may run on for a moment after SIGSTOP.
func stopped(testing.TB, int) bool { return true }
