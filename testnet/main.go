// Command testnet runs three regions of edgelimit nodes in containers on this machine and injects faults: go run
// ./testnet --help.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/testnet/cluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	app := newApp(func(c *cli.Context) (*cluster.Cluster, error) {
		return cluster.Open(cluster.Options{Root: c.String("root"), Profiles: c.StringSlice("with"),
			Wide:     c.Bool("wide"),
			Progress: c.App.ErrWriter, Patience: c.Duration("patience")})
	})
	if err := app.RunContext(ctx, flagsFirst(app, os.Args)); err != nil {
		fmt.Fprintln(os.Stderr, "testnet:", err)
		code := 1
		if exit, ok := errors.AsType[cli.ExitCoder](err); ok {
			code = exit.ExitCode()
		}
		os.Exit(code)
	}
}
