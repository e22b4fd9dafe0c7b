package hostile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Process is edgelimit serve, built from the sources and run by itself with the sample rules on ports of loopback.
type Process struct {
	Target Target
	cmd    *exec.Cmd
	dir    string
	ended  chan error
}

// Start builds and starts it, and waits until it is ready. root is the top folder of the repository; its log goes to log.
func Start(ctx context.Context, root string, log io.Writer) (*Process, error) {
	dir, err := os.MkdirTemp("", "edgelimit-hostile-")
	if err != nil {
		return nil, err
	}
	p := &Process{dir: dir, ended: make(chan error, 1)}
	if err := p.start(ctx, root, log); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

func (p *Process) start(ctx context.Context, root string, log io.Writer) error {
	binary := filepath.Join(p.dir, "edgelimit")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/edgelimit")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build edgelimit: %w: %s", err, out)
	}
	help, err := exec.CommandContext(ctx, binary, "serve", "--help").Output()
	if err != nil {
		return fmt.Errorf("edgelimit serve --help: %w", err)
	}
	args := []string{"serve"}
	for _, door := range []struct {
		flag string
		to   *string
	}{{"--http", &p.Target.HTTP}, {"--resp", &p.Target.RESP}, {"--grpc", &p.Target.GRPC}, {"--health", &p.Target.Health}} {
		if bytes.Contains(help, []byte(door.flag+" ADDRESS")) {
			if *door.to, err = free(); err != nil {
				return err
			}
			args = append(args, door.flag, *door.to)
		}
	}
	p.cmd = exec.Command(binary, args...)
	p.cmd.Stderr = log
	if err := p.cmd.Start(); err != nil {
		return err
	}
	go func() { p.ended <- p.cmd.Wait() }()
	return p.ready(ctx)
}

// free is an address of loopback that nobody listens on.
func free() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func (p *Process) ready(ctx context.Context) error {
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
			return fmt.Errorf("edgelimit serve has ended: %w", err)
		case <-ticker.C:
		}
	}
}

// Stop tells the process to end, waits for that, and says how it ended.
func (p *Process) Stop() error {
	defer os.RemoveAll(p.dir)
	if p.cmd == nil || p.cmd.Process == nil {
		return nil
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // an error: it has ended
	select {
	case err := <-p.ended:
		if err != nil {
			return fmt.Errorf("edgelimit serve: %w", err)
		}
		return nil
	case <-time.After(time.Minute):
		_ = p.cmd.Process.Kill()
		<-p.ended
		return errors.New("edgelimit serve did not end within a minute")
	}
}

// Doors names the doors that the node has.
func (t *Target) Doors() string {
	var names []string
	for _, d := range []struct{ name, addr string }{{"http", t.HTTP}, {"resp", t.RESP}, {"grpc", t.GRPC}, {"health", t.Health}} {
		if d.addr != "" {
			names = append(names, d.name)
		}
	}
	return strings.Join(names, ", ")
}
