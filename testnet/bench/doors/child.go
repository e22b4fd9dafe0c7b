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
	"time"

	"github.com/edgelimit/edgelimit/testnet/bench/rig"
)

// child is a server process. It first writes its addresses as one line of JSON, and then, for each line that it reads,
// the CPU time that it has used in nanoseconds. It exits when its standard input ends.
type child struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	addrs addrs
}

// addrs are the listeners' addresses, by protocol: http, resp, grpc, proxy.
type addrs map[string]string

// start starts a child of a kind: "upstream", or "node" or "bare" in front of the upstream.
func start(ctx context.Context, kind, upstream string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(ctx, self, "serve", kind, upstream)}
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

// cpuTime returns the CPU time that the child has used.
func (c *child) cpuTime() (time.Duration, error) {
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

// serve runs in the child.
func serve(ctx context.Context, kind, upstream string, in io.Reader, out io.Writer) error {
	// The smaller a heap, the more often it is collected. Both servers must collect as often.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(256 << 20)
	servers := map[string]func(ctx context.Context, upstream string) (addrs, func() error, error){
		"node": serveNode, "bare": serveBare, "upstream": serveUpstream}
	open, ok := servers[kind]
	if !ok {
		return fmt.Errorf("unknown server %q", kind)
	}
	addrs, stop, err := open(ctx, upstream)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(addrs); err != nil {
		return err
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		if _, err := fmt.Fprintln(out, rig.CPUTime().Nanoseconds()); err != nil {
			return err
		}
	}
	return stop()
}
