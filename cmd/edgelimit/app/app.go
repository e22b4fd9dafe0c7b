// Package app is the command line of the binary edgelimit: its commands, their help and their errors. Another binary
// can run the same commands with an [Extension] of serve.
package app

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/node/text"
)

// Extension adds to the commands serve and proxy.
type Extension struct {
	// Flags are more flags of both.
	Flags []cli.Flag
	// Configure changes a node's configuration before the node is made, by those flags.
	Configure func(*cli.Context, *node.Config) error
}

// Main runs the command that the process's arguments name until it ends or a signal stops it. It returns the exit
// status.
func Main(app *cli.App) (exitCode int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	return Run(ctx, app, os.Args)
}

// Run runs the command that args name, which begin with the program's name, and prints its error. It returns the exit
// status. Nothing that a command prints steers a terminal, whatever it took from outside. A program called ratelimit,
// as in the image of envoyproxy/ratelimit, serves in that server's place.
func Run(ctx context.Context, app *cli.App, args []string) (exitCode int) {
	if len(args) > 0 && filepath.Base(args[0]) == rulefile.Ratelimit {
		args = slices.Concat(args[:1], []string{"serve", "--from-env", rulefile.Ratelimit}, args[1:])
	}
	cleaned := *app
	cleaned.Writer, cleaned.ErrWriter = text.NewWriter(app.Writer), text.NewWriter(app.ErrWriter)
	if err := execute(ctx, &cleaned, args); err != nil {
		return reportError(cleaned.ErrWriter, err)
	}
	return 0
}

const (
	help = `
Start a node:       edgelimit serve
Limit a server:     edgelimit proxy --upstream http://127.0.0.1:3000
Ask it:             edgelimit check --rule per_ip --identity 192.0.2.1
How is the cluster: edgelimit status
Lift a ban:         edgelimit bans remove login 192.0.2.1
See a partition:    edgelimit demo
Plan a deployment:  edgelimit sim
Choose its limits:  edgelimit replay --rules rules.yaml access.log
Check rule files:   edgelimit rules validate rules.yaml
Publish them:       edgelimit rules push rules.yaml --redis redis://host:6379`
	versionUsage = "print the version, the commit, Go's version and the platform"
)

// New returns all commands, with the extensions of serve and proxy.
func New(extensions ...Extension) *cli.App {
	return &cli.App{
		Name:        "edgelimit",
		Usage:       "a multi-region edge rate limiter whose nodes decide in memory and gossip what they admitted",
		Description: help,
		Commands: []*cli.Command{
			serveCommand(extensions), proxyCommand(extensions), demoCommand(), simCommand(), replayCommand(),
			checkCommand(), statusCommand(), topCommand(), membersCommand(), inspectCommand(), eventsCommand(),
			configCommand(), bansCommand(), rulesCommand(), limitsCommand(), healthCommand(), keygenCommand(),
			keysCommand(), versionCommand(), completionCommand(),
		},
		Flags:  []cli.Flag{plain.flag("version", versionUsage, new(bool))},
		Reader: os.Stdin, Writer: os.Stdout, ErrWriter: os.Stderr,
	}
}

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: versionUsage,
		Flags: []cli.Flag{plain.flag("json", "print JSON", new(bool))},
		Action: func(c *cli.Context) error {
			if c.Bool("json") {
				return printJSON(c, node.BuildVersion())
			}
			return printVersion(c)
		},
	}
}

func printVersion(c *cli.Context) error {
	_, err := fmt.Fprintln(c.App.Writer, "edgelimit", node.BuildVersion())
	return err
}

// exitStatus returns the error, or without one the exit status 1 unless what was asked holds.
func exitStatus(err error, holds bool) error {
	if err == nil && !holds {
		return cli.Exit("", 1)
	}
	return err
}
