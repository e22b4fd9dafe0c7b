package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"
)

// execute does what a command line says: args are its arguments, beginning with the program's name. Flags and contexts are those of cli;
// the way to the command and its help are written here, because cli's own lead to text/template. That calls methods by names which are
// known only as it runs, and a program that may do so has to keep every exported method of every type: half as much again as it needs.
func execute(ctx context.Context, app *cli.App, args []string) error {
	root := &cli.Command{Name: app.Name, HelpName: app.Name, Usage: app.Usage, Description: app.Description, Subcommands: app.Commands}
	return descend(cli.NewContext(app, nil, &cli.Context{Context: ctx}), root, args[1:])
}

// descend reads the flags of a command, and goes on to the command below it that is named, or runs its action.
func descend(parent *cli.Context, command *cli.Command, args []string) error {
	out := parent.App.Writer
	set, err := flagsOf(command, args)
	if errors.Is(err, flag.ErrHelp) {
		return writeHelp(out, command)
	} else if err != nil {
		fmt.Fprintf(out, "Incorrect Usage: %v\n\n", err)
		if name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -"); unknown {
			if meant := cli.SuggestFlag(command.Flags, name, false); meant != "" {
				fmt.Fprintf(out, "Did you mean %q?\n\n", meant)
			}
		}
		return errors.Join(err, writeHelp(out, command))
	}
	c := cli.NewContext(parent.App, set, parent)
	c.Command = command
	if len(command.Subcommands) == 0 {
		if err := runFlags(c); err != nil {
			return err
		}
		return command.Action(c)
	}
	return choose(c)
}

// choose goes on to the command that the first argument names.
func choose(c *cli.Context) error {
	command, name := c.Command, c.Args().First()
	if name == "" {
		return writeHelp(c.App.Writer, command)
	}
	var names []string
	for _, below := range command.Subcommands {
		if below.HelpName = command.HelpName + " " + below.Name; below.Name == name {
			return descend(c, below, c.Args().Tail())
		}
		names = append(names, below.Name)
	}
	if name == "help" || name == "h" { // help rules explain: rules explain --help
		return descend(c, command, append(c.Args().Tail(), "--help"))
	}
	return fmt.Errorf("there is no command %q: want one of %v", name, names)
}

// flagsOf are the flags of a command as variables and arguments set them. The error is [flag.ErrHelp] where help is asked for.
func flagsOf(command *cli.Command, args []string) (*flag.FlagSet, error) {
	set := flag.NewFlagSet(command.Name, flag.ContinueOnError)
	set.SetOutput(io.Discard)
	for _, f := range command.Flags {
		if err := f.Apply(set); err != nil {
			return nil, err
		}
	}
	return set, set.Parse(args)
}

// runFlags runs the actions of the flags that are set.
func runFlags(c *cli.Context) error {
	for _, f := range c.Command.Flags {
		if acts, ok := f.(cli.ActionableFlag); ok && c.IsSet(f.Names()[0]) {
			if err := acts.RunAction(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeHelp explains a command, and all that can be said to it.
func writeHelp(out io.Writer, command *cli.Command) error {
	w := tabwriter.NewWriter(out, 1, 8, 2, ' ', 0)
	fmt.Fprintf(w, "NAME:\n   %s - %s\n\nUSAGE:\n   %s", command.HelpName, command.Usage, command.HelpName)
	if len(command.Subcommands) > 0 {
		fmt.Fprint(w, " command")
	}
	fmt.Fprintln(w, strings.TrimRight(" [options] "+command.ArgsUsage, " "))
	if command.Description != "" {
		fmt.Fprint(w, "\nDESCRIPTION:\n")
		for line := range strings.Lines(command.Description + "\n") {
			fmt.Fprint(w, strings.TrimRight("   "+line, " \n"), "\n")
		}
	}
	if len(command.Subcommands) > 0 {
		fmt.Fprint(w, "\nCOMMANDS:\n")
		for _, below := range command.Subcommands {
			fmt.Fprintf(w, "   %s\t%s\n", below.Name, below.Usage)
		}
		fmt.Fprint(w, "   help\texplain a command\n")
	}
	fmt.Fprint(w, "\nOPTIONS:\n")
	for _, category := range categories(command.Flags) {
		if category != "" {
			fmt.Fprintf(w, "\n   %s\n\n", category)
		}
		for _, f := range command.Flags {
			if visible(f) && f.(cli.CategorizableFlag).GetCategory() == category {
				fmt.Fprintf(w, "   %s\n", f)
			}
		}
		if category == "" {
			fmt.Fprint(w, "   --help, -h\tshow help\n")
		}
	}
	return w.Flush()
}

// categories are those of the flags, in their order; the first is of those that have none.
func categories(flags []cli.Flag) []string {
	all := []string{""}
	for _, f := range flags {
		if category := f.(cli.CategorizableFlag).GetCategory(); visible(f) && !slices.Contains(all, category) {
			all = append(all, category)
		}
	}
	return all
}

func visible(f cli.Flag) bool { return f.(cli.VisibleFlag).IsVisible() }
