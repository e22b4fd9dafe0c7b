package regionstest

import "syscall"

// processAttributes has the process die with the thread that starts it.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
