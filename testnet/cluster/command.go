package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Command is a command line of this machine.
type Command struct {
	Name   string
	Args   []string
	Env    []string  // added to this process's environment, as NAME=VALUE
	Dir    string    // the working directory; empty: this process's
	Stdin  string    // what the command reads
	Stderr io.Writer // if set, gets the command's standard error while it runs
}

// String returns the command line, unquoted.
func (c Command) String() string {
	return strings.Join(append([]string{c.Name}, c.Args...), " ")
}

// Runner runs a command to its end and returns its standard output. It is safe for concurrent use. The error of a
// command that failed ends with the end of its standard error; that of one that is not installed matches
// exec.ErrNotFound.
type Runner func(ctx context.Context, c Command) (stdout []byte, err error)

// RunLocal is the Runner of this machine. It kills the command when ctx ends.
func RunLocal(ctx context.Context, c Command) (stdout []byte, err error) {
	cmd := exec.CommandContext(ctx, c.Name, c.Args...)
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Dir = c.Dir
	if c.Stdin != "" {
		cmd.Stdin = strings.NewReader(c.Stdin)
	}
	cmd.WaitDelay = 5 * time.Second // a grandchild may keep the pipes open
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if c.Stderr != nil {
		cmd.Stderr = io.MultiWriter(&stderr, c.Stderr)
	}
	err = cmd.Run()
	switch {
	case err != nil && ctx.Err() != nil:
		err = fmt.Errorf("%s: %w", c, context.Cause(ctx))
	case err != nil && !errors.Is(err, exec.ErrNotFound):
		err = commandError(c, err, stderr.String())
	}
	return out.Bytes(), err
}

// maxStderr bounds how many bytes of standard error a message repeats: the end, where the reason usually stands.
const maxStderr = 1000

func commandError(c Command, err error, stderr string) error {
	stderr = strings.TrimSpace(stderr)
	if len(stderr) > maxStderr {
		stderr = "..." + stderr[len(stderr)-maxStderr:]
	}
	if stderr == "" {
		return fmt.Errorf("%s: %w", c, err)
	}
	return fmt.Errorf("%s: %w: %s", c, err, stderr)
}
