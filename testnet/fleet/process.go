package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a running node or Redis.
type process struct {
	name  string
	cmd   *exec.Cmd
	ended chan struct{}
	err   error // of the exit, once ended is closed
}

// endTimeout is how long a process may take to end after SIGTERM.
const endTimeout = 30 * time.Second

// launch starts a program that logs to a file in dir, at its end.
func launch(dir, name, program string, args, env []string) (*process, error) {
	log, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has its own
	p := &process{name: name, cmd: exec.Command(program, args...), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt of the terminal is not for it
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// stop ends the process with SIGTERM. An exit status other than 0 is an error, and so is a process that had to be
// killed.
func (p *process) stop(ctx context.Context) error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails if it has exited
	timeout := time.NewTimer(endTimeout)
	defer timeout.Stop()
	select {
	case <-p.ended:
		if p.err != nil {
			return fmt.Errorf("%s: %w", p.name, p.err)
		}
		return nil
	case <-timeout.C:
	case <-ctx.Done():
	}
	p.kill()
	return fmt.Errorf("%s did not end within %v", p.name, endTimeout)
}

// kill ends the process at once.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails if it has exited
	<-p.ended
}

// exited returns an error once the process has ended.
func (p *process) exited() error {
	select {
	case <-p.ended:
		return fmt.Errorf("%s ended: %w", p.name, errors.Join(p.err, errors.New("its log says why")))
	default:
		return nil
	}
}

// usage is what a process has used.
type usage struct {
	cpu      time.Duration
	resident int64 // bytes, at most so far
}

// clockTick is the unit of the CPU times in /proc/PID/stat on Linux.
const clockTick = 10 * time.Millisecond

// readUsage reads what a process has used from /proc.
func readUsage(pid int) (u usage, err error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return u, err
	}
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return u, err
	}
	return parseUsage(string(stat), string(status))
}

// parseUsage reads utime and stime of /proc/PID/stat, and VmHWM of /proc/PID/status.
func parseUsage(stat, status string) (u usage, err error) {
	// "PID (NAME) STATE ...": a name may hold any bytes, parentheses too. utime is the 12th field behind it.
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return u, fmt.Errorf("/proc/PID/stat: %q", stat)
	}
	for _, field := range fields[11:13] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return u, fmt.Errorf("/proc/PID/stat: %w", err)
		}
		u.cpu += time.Duration(ticks) * clockTick
	}
	for line := range strings.Lines(status) {
		if size, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			_, err = fmt.Sscan(size, &u.resident)
			u.resident <<= 10
			return u, err
		}
	}
	return u, errors.New("/proc/PID/status: no VmHWM")
}
