package app

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// execute runs the command that args name, which begin with the program's name. Flags and contexts are cli's; dispatch,
// errors and help are written here, because cli.App.Run needs text/template. That looks methods up by name at run time,
// and then the linker keeps every exported method of every type: a binary of 31 MB instead of 21 MB.
func execute(ctx context.Context, app *cli.App, args []string) error {
	root := &cli.Command{Name: app.Name, HelpName: app.Name, Usage: app.Usage, Description: app.Description,
		Subcommands: app.Commands, Flags: app.Flags}
	args = args[1:]
	if last := len(args) - 1; last >= 0 && args[last] == completionFlag {
		return complete(app.Writer, root, args[:last])
	}
	return run(cli.NewContext(app, nil, &cli.Context{Context: ctx}), root, args)
}

// run parses the flags of a command, and runs its action or the subcommand that the arguments name.
func run(parent *cli.Context, command *cli.Command, args []string) error {
	set := flag.NewFlagSet(command.Name, flag.ContinueOnError)
	set.SetOutput(io.Discard)
	for _, f := range command.Flags {
		if err := f.Apply(set); err != nil {
			return wrongVariable(command, f, err)
		}
	}
	if err := parse(command, set, args); errors.Is(err, flag.ErrHelp) {
		return writeHelp(parent.App.Writer, command)
	} else if err != nil {
		return err
	}
	c := cli.NewContext(parent.App, set, parent)
	c.Command = command
	if len(command.Subcommands) > 0 {
		return runSubcommand(c)
	}
	if command.ArgsUsage == "" && c.Args().Present() {
		return misuse(command, "%s takes no arguments, got %q", command.Name, c.Args().First())
	}
	return command.Action(c)
}

// parse sets the flags of a command; the other arguments become the set's Args. Flags may stand anywhere before "--",
// those of a command with subcommands before the first argument. The error is [flag.ErrHelp] for --help.
func parse(command *cli.Command, set *flag.FlagSet, args []string) error {
	rest := []string{"--"}
	for len(args) > 0 {
		arg := args[0]
		isArgument := len(arg) < 2 || arg[0] != '-'
		if isArgument {
			rest = append(rest, arg)
		}
		args = args[1:]
		if arg == "--" || isArgument && len(command.Subcommands) > 0 {
			rest = append(rest, args...)
			break
		} else if isArgument {
			continue
		}
		name, value, hasValue := strings.Cut(strings.TrimPrefix(arg[1:], "-"), "=")
		switch {
		case name == "help" || name == "h":
			return flag.ErrHelp
		case set.Lookup(name) == nil:
			return unknownFlag(command, name)
		case !hasValue && !flagNamed(command, name).(cli.DocGenerationFlag).TakesValue():
			value = "true"
		case !hasValue && (len(args) == 0 || isFlag(set, args[0])):
			return misuse(command, "--%s wants a value: %s", name, valueForm(command, name))
		case !hasValue:
			value, args = args[0], args[1:]
		}
		if err := set.Set(name, value); err != nil {
			return wrongValue(command, name, value)
		}
	}
	return set.Parse(rest)
}

// isFlag reports whether an argument is one of the flags, and so no value.
func isFlag(set *flag.FlagSet, arg string) bool {
	name, ok := strings.CutPrefix(arg, "--")
	name, _, _ = strings.Cut(name, "=")
	return ok && set.Lookup(name) != nil
}

// runSubcommand runs the subcommand that the first argument names.
func runSubcommand(c *cli.Context) error {
	command, name := c.Command, c.Args().First()
	for _, sub := range command.Subcommands {
		sub.HelpName = command.HelpName + " " + sub.Name
	}
	switch {
	case c.Bool("version"):
		return printVersion(c)
	case name == "":
		return writeHelp(c.App.Writer, command)
	case name == "help" || name == "h": // help rules explain: rules explain --help
		return run(c, command, append(c.Args().Tail(), "--help"))
	}
	if sub := command.Command(name); sub != nil {
		return run(c, sub, c.Args().Tail())
	}
	return unknownCommand(command, name)
}

// completionFlag is the last argument of a shell that completes a command line, as cli's own scripts have it.
const completionFlag = "--generate-bash-completion"

// complete prints what may stand in the place of the last argument: flags if it begins with a dash, else subcommands.
func complete(out io.Writer, command *cli.Command, args []string) error {
	word := ""
	for i, arg := range args {
		if sub := command.Command(arg); sub != nil && i < len(args)-1 {
			command = sub
		}
		word = arg
	}
	words, dashes := commandNames(command), ""
	if strings.HasPrefix(word, "-") {
		words, dashes = append(flagNames(command), "help"), "--"
	}
	for _, word := range words {
		fmt.Fprintln(out, dashes+word)
	}
	return nil
}

const completionScript = `if [ -n "$ZSH_VERSION" ]; then
  autoload -U +X compinit bashcompinit && compinit && bashcompinit
fi
_edgelimit() {
  local words="$(edgelimit "${COMP_WORDS[@]:1:COMP_CWORD}" ` + completionFlag + `)"
  COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _edgelimit edgelimit
`

const fishScript = `function __edgelimit_words
  edgelimit (commandline -opc)[2..] (commandline -ct) ` + completionFlag + `
end
complete -c edgelimit -a '(__edgelimit_words)'
`

const completionHelp = `
For bash or zsh:   source <(edgelimit completion)
For all of bash:   edgelimit completion > /etc/bash_completion.d/edgelimit
For fish:          edgelimit completion fish | source`

func completionCommand() *cli.Command {
	return &cli.Command{Name: "completion", Usage: "print a script that completes command lines in bash, zsh and fish",
		ArgsUsage: "[SHELL]", Description: completionHelp, Action: func(c *cli.Context) error {
			text := completionScript
			switch shell := c.Args().First(); {
			case c.NArg() > 1 || !slices.Contains([]string{"", "bash", "zsh", "fish"}, shell):
				return misuse(c.Command, "%s: want one of bash, zsh, fish", strings.Join(c.Args().Slice(), " "))
			case shell == "fish":
				text = fishScript
			}
			_, err := io.WriteString(c.App.Writer, text)
			return err
		}}
}

// printCommand is a command that prints a text.
func printCommand(name, usage, help, text string) *cli.Command {
	return &cli.Command{Name: name, Usage: usage, Description: help, Action: func(c *cli.Context) error {
		_, err := io.WriteString(c.App.Writer, text)
		return err
	}}
}
