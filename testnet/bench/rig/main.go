package rig

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Program measures something, and writes a report on it.
type Program struct {
	Name string
	File string // of the report, in the working directory
	Only string // usage of the flag --only, which names a part to measure; empty: there is no such flag
	// Measure returns the report as Markdown; quick: of short slices.
	Measure func(ctx context.Context, quick bool, only string, progress io.Writer) (markdown string, err error)
}

// Main runs the program with the process's arguments, as Exit does. A quick report, or one on a part, is printed.
func (p *Program) Main() {
	Exit(p.Name, func(ctx context.Context) error { return p.run(ctx, os.Args[1:]) })
}

func (p *Program) run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet(p.Name, flag.ContinueOnError)
	quick := flags.Bool("quick", false, "short slices, fewer rounds; print the report instead of writing "+p.File)
	only := new(string)
	if p.Only != "" {
		flags.StringVar(only, "only", "", p.Only+"; print the report")
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	report, err := p.Measure(ctx, *quick, *only, os.Stderr)
	if err != nil {
		return err
	}
	if *quick || *only != "" {
		_, err = io.WriteString(os.Stdout, report)
		return err
	}
	return os.WriteFile(p.File, []byte(report), 0o644)
}

// Exit calls run, whose context ends with an interrupt, and exits with status 1 after an error.
func Exit(name string, run func(context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
}
