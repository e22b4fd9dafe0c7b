//go:build !linux

package regionstest

import "syscall"

// processAttributes: here a process may outlive a test that crashed.
func processAttributes() *syscall.SysProcAttr { return nil }
