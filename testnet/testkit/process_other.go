//go:build !linux

package testkit

import "syscall"

// processAttributes: a process may outlive a test that crashes.
func processAttributes() *syscall.SysProcAttr { return nil }
