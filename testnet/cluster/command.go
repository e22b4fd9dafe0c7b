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
	Name string
	Args []string
	// Env is added to this process's environment, as NAME=VALUE.
	Env []string
	// Dir is the working directory; empty: this process's.
	Dir string
	// Stderr, if set, gets the command's standard error while it runs.
	Stderr io.Writer
}

// String returns the command line, unquoted.
func (c Command) String() string {
	return strings.Join(append([]string{c.Name}, c.Args...), " ")
}

// Runner runs a command to its end and returns its standard output. It is safe for concurrent use. A command that fails
// is a *CommandError; one that is not installed matches exec.ErrNotFound.
type Runner func(ctx context.Context, c Command) (stdout []byte, err error)

// RunLocal is the Runner of this machine. It kills the command when ctx ends.
func RunLocal(ctx context.Context, c Command) (stdout []byte, err error) {
	cmd := exec.CommandContext(ctx, c.Name, c.Args...)
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Dir = c.Dir
	cmd.WaitDelay = 5 * time.Second // a grandchild may keep the pipes open
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if c.Stderr != nil {
		cmd.Stderr = io.MultiWriter(&stderr, c.Stderr)
	}
	switch err := cmd.Run(); {
	case err == nil:
		return out.Bytes(), nil
	case ctx.Err() != nil:
		return out.Bytes(), fmt.Errorf("%s: %w", c, context.Cause(ctx))
	case errors.Is(err, exec.ErrNotFound):
		return nil, err
	default:
		return out.Bytes(), &CommandError{Command: c, Stderr: strings.TrimSpace(stderr.String()), Err: err}
	}
}

// CommandError is a command that failed.
type CommandError struct {
	Command Command
	Stderr  string
	// Err is the exit status, usually an *exec.ExitError.
	Err error
}

// maxStderr bounds how many bytes of standard error a message repeats: the end, where the reason usually stands.
const maxStderr = 1000

// Error implements error.
func (e *CommandError) Error() string {
	text := e.Stderr
	if len(text) > maxStderr {
		text = "..." + text[len(text)-maxStderr:]
	}
	if text == "" {
		return fmt.Sprintf("%s: %v", e.Command, e.Err)
	}
	return fmt.Sprintf("%s: %v: %s", e.Command, e.Err, text)
}

// Unwrap returns Err.
func (e *CommandError) Unwrap() error { return e.Err }
