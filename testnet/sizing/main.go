// Command sizing regenerates node/SIZING.md: what a node needs in typical deployments, and what runs out first, by
// testnet/plan. `make sizing` runs it from the top of the repository.
//
//	go run ./testnet/sizing               everything, for minutes; writes node/SIZING.md
//	go run ./testnet/sizing --only 3x4    the rows of that deployment; prints them only
//
// The same code gives the same page, whatever the machine: nothing in it is measured by a clock.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "sizing:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("sizing", flag.ContinueOnError)
	flags.SetOutput(stderr)
	only := flags.String("only", "",
		"a deployment whose rows are printed, as in 3x4, instead of writing all into the file")
	out := flags.String("out", "node/SIZING.md", "where everything is written")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	var page strings.Builder
	if *only == "" {
		page.WriteString(intro())
	}
	if err := writeTables(ctx, &page, sections, *only, stderr); err != nil {
		return err
	}
	if *only != "" {
		_, err := io.WriteString(stdout, page.String())
		return err
	}
	return os.WriteFile(*out, []byte(page.String()), 0o644)
}
