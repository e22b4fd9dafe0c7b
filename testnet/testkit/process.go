package testkit

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// Process is a child process. It ends with the test at the latest, even if the test crashes.
type Process struct {
	Log    *Log          // standard error, and standard output unless the command redirects it
	Exited chan struct{} // closed once the process has exited
	t      testing.TB
	cmd    *exec.Cmd
	err    error // of the exit, once Exited is closed
}

// Start starts a command. If the test fails, it logs the process' log.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{t: t}
	p.run(cmd)
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s logged: %s", p.cmd, p.Log)
		}
	})
	return p
}

// Restart kills the process and starts another in its place, which ends when the first would have: before what the
// test started earlier, and after what it started later.
func (p *Process) Restart(cmd *exec.Cmd) {
	p.t.Helper()
	p.Kill()
	p.run(cmd)
}

func (p *Process) run(cmd *exec.Cmd) {
	p.t.Helper()
	log, exited := new(Log), make(chan struct{})
	if cmd.Stdout == nil {
		cmd.Stdout = log
	}
	cmd.Stderr = log
	cmd.SysProcAttr = processAttributes()
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the process ends with its thread, see processAttributes
		defer runtime.UnlockOSThread()
		defer close(exited)
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		p.t.Fatalf("%v (make programs installs what is missing)", err)
	}
	p.Log, p.Exited, p.cmd = log, exited, cmd
}

// Await waits until the condition holds, and fails the test if the process exits before.
func (p *Process) Await(what string, holds func() bool) {
	p.t.Helper()
	Eventually(p.t, what, func() bool {
		select {
		case <-p.Exited:
			p.t.Fatalf("%s exited, %v: %s", p.cmd, p.err, p.Log)
		default:
		}
		return holds()
	})
}

// PID returns the id of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal, which a process that has exited ignores.
func (p *Process) Signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatal(err)
	}
}

// Pause stops the process with SIGSTOP, and waits until none of its threads runs any more. SIGCONT lets it go on.
func (p *Process) Pause() {
	p.t.Helper()
	p.Signal(syscall.SIGSTOP)
	p.Await("every thread stopped", func() bool { return stopped(p.t, p.PID()) })
}

// Wait waits until the process exits, and returns an error unless its exit status is 0.
func (p *Process) Wait() error {
	p.t.Helper()
	select {
	case <-p.Exited:
	case <-time.After(Patience):
		p.t.Fatalf("%s runs on after %v: %s", p.cmd, Patience, p.Log)
	}
	return p.err
}

// Kill ends the process at once and waits until it has exited.
func (p *Process) Kill() {
	p.t.Helper()
	p.Signal(syscall.SIGKILL)
	<-p.Exited
}
