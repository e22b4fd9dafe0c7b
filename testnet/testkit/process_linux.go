package testkit

import "syscall"

// processAttributes ends the process with the thread that starts it.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
