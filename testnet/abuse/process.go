package abuse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Process is edgelimit serve, built from the sources, with the sample rules and on free ports of loopback.
type Process struct {
	Target Target
	cmd    *exec.Cmd
	dir    string
	ended  chan error
}

// Start builds and starts the process and waits until it is ready. root is the top folder of the repository. The
// process logs to log.
func Start(ctx context.Context, root string, log io.Writer) (*Process, error) {
	dir, err := os.MkdirTemp("", "edgelimit-abuse-")
	if err != nil {
		return nil, err
	}
	p := &Process{dir: dir, ended: make(chan error, 1)}
	if err := p.start(ctx, root, log); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

func (p *Process) start(ctx context.Context, root string, log io.Writer) (err error) {
	binary := filepath.Join(p.dir, "edgelimit")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/edgelimit")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build edgelimit: %w: %s", err, out)
	}
	for _, addr := range []*string{&p.Target.HTTP, &p.Target.RESP, &p.Target.GRPC, &p.Target.Health} {
		if *addr, err = freeAddr(); err != nil {
			return err
		}
	}
	p.cmd = exec.Command(binary, "serve", "--http", p.Target.HTTP, "--resp", p.Target.RESP, "--grpc", p.Target.GRPC,
		"--health", p.Target.Health)
	p.cmd.Stderr = log
	if err := p.cmd.Start(); err != nil {
		return err
	}
	go func() { p.ended <- p.cmd.Wait() }()
	return p.awaitReady(ctx)
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func (p *Process) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		if resp, err := http.Get("http://" + p.Target.Health + "/readyz"); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("edgelimit serve is not ready: %w", ctx.Err())
		case err := <-p.ended:
			p.ended <- err
			return fmt.Errorf("edgelimit serve exited: %w", err)
		case <-ticker.C:
		}
	}
}

// Stop ends the process with SIGTERM and returns its exit status.
func (p *Process) Stop() error {
	defer os.RemoveAll(p.dir)
	if p.cmd == nil || p.cmd.Process == nil {
		return nil
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails if the process has exited
	select {
	case err := <-p.ended:
		if err != nil {
			return fmt.Errorf("edgelimit serve: %w", err)
		}
		return nil
	case <-time.After(time.Minute):
		_ = p.cmd.Process.Kill()
		<-p.ended
		return errors.New("edgelimit serve did not exit within a minute")
	}
}
