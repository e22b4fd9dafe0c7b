package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"syscall"
	"time"
)

// A child is a server in a process of its own. It first says where its doors are, as one line of JSON, and then for each line that it
// hears how much processor time it has used, in nanoseconds. It ends when its standard input does.
type child struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	addrs addrs
}

// addrs are where doors are, by the protocol's server: http, resp, grpc.
type addrs map[string]string

// start starts a child that is a server of a kind.
func start(ctx context.Context, kind string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(ctx, self, "serve", kind)}
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := c.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &c.addrs)
	}
	if err != nil {
		c.stop()
		return nil, fmt.Errorf("the %s server did not start: %w", kind, err)
	}
	return c, nil
}

// used is the processor time that the child has used.
func (c *child) used() (time.Duration, error) {
	if _, err := c.in.Write([]byte{'\n'}); err != nil {
		return 0, err
	}
	var used time.Duration
	_, err := fmt.Fscanln(c.out, (*int64)(&used))
	return used, err
}

func (c *child) stop() {
	_ = c.in.Close()
	_ = c.cmd.Wait()
}

// serve is what a child does.
func serve(ctx context.Context, kind string, in io.Reader, out io.Writer) error {
	// A server with a small heap collects its garbage far more often than one with a large one. Both are to do it as often.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(256 << 20)
	servers := map[string]func(context.Context) (addrs, func() error, error){"node": serveNode, "bare": serveBare}
	open, ok := servers[kind]
	if !ok {
		return fmt.Errorf("there is no server %q", kind)
	}
	at, stop, err := open(ctx)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(at); err != nil {
		return err
	}
	for asked := bufio.NewScanner(in); asked.Scan(); {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(out, u.Utime.Nano()+u.Stime.Nano()); err != nil {
			return err
		}
	}
	return stop()
}
