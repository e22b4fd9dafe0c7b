package docker

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
	// Dir is where it runs; empty: here.
	Dir string
	// Progress, if set, gets what the command says to people (its standard error) while it runs.
	Progress io.Writer
}

// String is the command line as one would type it, but for quoting.
func (c Command) String() string {
	return strings.Join(append([]string{c.Name}, c.Args...), " ")
}

// Host runs commands on this machine. The zero value is ready, and safe for concurrent use.
type Host struct{}

// Run runs the command to its end, or kills it when ctx ends, and returns its standard output. When it fails, the error is a
// *CommandError; when it is not installed, errors.Is(err, exec.ErrNotFound).
func (Host) Run(ctx context.Context, c Command) (stdout []byte, err error) {
	cmd := exec.CommandContext(ctx, c.Name, c.Args...)
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Dir = c.Dir
	cmd.WaitDelay = 5 * time.Second // a grandchild that holds on to the pipes
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if c.Progress != nil {
		cmd.Stderr = io.MultiWriter(&said, c.Progress)
	}
	switch err := cmd.Run(); {
	case err == nil:
		return out.Bytes(), nil
	case ctx.Err() != nil:
		return out.Bytes(), fmt.Errorf("%s: %w", c, context.Cause(ctx))
	case errors.Is(err, exec.ErrNotFound):
		return nil, err
	default:
		return out.Bytes(), &CommandError{Command: c, Said: strings.TrimSpace(said.String()), Err: err}
	}
}

// CommandError is a command that failed.
type CommandError struct {
	Command Command
	// Said is its standard error.
	Said string
	// Err is its exit status, usually an *exec.ExitError.
	Err error
}

// saidAtMost is how much of what a command said an error repeats: the end, where the reason usually stands.
const saidAtMost = 1000

// Error implements error.
func (e *CommandError) Error() string {
	said := e.Said
	if len(said) > saidAtMost {
		said = "..." + said[len(said)-saidAtMost:]
	}
	if said == "" {
		return fmt.Sprintf("%s: %v", e.Command, e.Err)
	}
	return fmt.Sprintf("%s: %v: %s", e.Command, e.Err, said)
}

// Unwrap returns Err.
func (e *CommandError) Unwrap() error { return e.Err }
