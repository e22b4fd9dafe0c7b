// Command edgelimit is a multi-region edge rate limiter: its nodes decide in their own memory and tell each other what they
// admitted. See edgelimit --help.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v2"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := execute(ctx, newApp(), os.Args); err != nil {
		if msg := err.Error(); msg != "" {
			fmt.Fprintln(os.Stderr, "edgelimit:", msg)
		}
		code := 2
		if exit, ok := errors.AsType[cli.ExitCoder](err); ok {
			code = exit.ExitCode()
		}
		os.Exit(code)
	}
}

func newApp() *cli.App {
	return &cli.App{
		Name:  "edgelimit",
		Usage: "a multi-region edge rate limiter whose nodes decide in memory and gossip what they admitted",
		Description: "Start a node:        edgelimit serve\n" +
			"Ask it:              edgelimit check --rule per_ip --identity 192.0.2.1\n" +
			"See a partition:     edgelimit demo\n" +
			"Plan a deployment:   edgelimit sim\n" +
			"Choose its limits:   edgelimit replay --rules rules.yaml access.log\n" +
			"Check rule files:    edgelimit rules validate rules.yaml",
		Commands: []*cli.Command{serveCommand(), demoCommand(), simCommand(), replayCommand(), checkCommand(), rulesCommand(), healthCommand(),
			keygenCommand(), versionCommand()},
		Reader: os.Stdin, Writer: os.Stdout, ErrWriter: os.Stderr,
	}
}
