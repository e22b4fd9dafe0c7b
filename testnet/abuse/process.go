package abuse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/edgelimit/edgelimit/testnet/scrape"
)

// Process is edgelimit serve or proxy.
type Process struct {
	Addr  map[string]string // of its listeners on loopback, by flag: http, listen, health
	Ready time.Duration     // from its start to its first answer that it is ready
	cmd   *exec.Cmd
	ended chan error
}

// Build builds edgelimit from the repository at root into a folder.
func Build(ctx context.Context, root, dir string) (binary string, err error) {
	binary = filepath.Join(dir, "edgelimit")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/edgelimit")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build edgelimit: %w: %s", err, out)
	}
	return binary, nil
}

// Start starts a command of edgelimit with the health API and the listeners given on free ports, and waits until it is
// ready. The process logs to log.
func Start(ctx context.Context, binary string, log io.Writer, command string, listeners, args []string) (
	*Process, error,
) {
	p := &Process{Addr: make(map[string]string), ended: make(chan error, 1)}
	args = append([]string{command}, args...)
	for _, name := range append(listeners, "health") {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		p.Addr[name] = l.Addr().String()
		_ = l.Close()
		args = append(args, "--"+name, p.Addr[name])
	}
	p.cmd = exec.Command(binary, args...)
	p.cmd.Stderr = log
	began := time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { p.ended <- p.cmd.Wait() }()
	if err := p.awaitReady(ctx); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	p.Ready = time.Since(began)
	return p, nil
}

func (p *Process) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		why, err := scrape.NotReady(ctx, http.DefaultClient, "http://"+p.Addr["health"])
		if why == "" && err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("edgelimit is not ready: %w", ctx.Err())
		case err := <-p.ended:
			p.ended <- err
			return fmt.Errorf("edgelimit exited: %w", err)
		case <-time.After(time.Millisecond):
		}
	}
}

// Stop ends the process with SIGTERM and returns its exit status.
func (p *Process) Stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails if the process has exited
	select {
	case err := <-p.ended:
		if err != nil {
			return fmt.Errorf("edgelimit: %w", err)
		}
		return nil
	case <-time.After(time.Minute):
		_ = p.cmd.Process.Kill()
		<-p.ended
		return errors.New("edgelimit did not exit within a minute")
	}
}
