package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
)

// misuse returns a usage error of a command. Usage errors are one line: the fault, what may be meant, and where help
// is. The exit status is 2.
func misuse(command *cli.Command, format string, args ...any) error {
	what, see := fmt.Sprintf(format, args...), "; see "
	if strings.HasSuffix(what, "?") {
		see = " See "
	}
	return errors.New(what + see + command.HelpName + " --help")
}

// aliases are flags of other programs and earlier versions, and the flags meant: the first that the command has.
var aliases = map[string][]string{
	"listen": {"http"}, "port": {"http"}, "bind": {"http"}, "metrics": {"health"},
	"addr": {"url", "http"}, "address": {"url", "http"}, "host": {"url", "http"}, "server": {"url"},
	"node": {"url", "node-id"}, "name": {"node-id"}, "id": {"node-id"},
	"peer": {"join"}, "peers": {"join"}, "seed": {"join"}, "seeds": {"join"},
	"key": {"key-file"}, "keyfile": {"key-file"}, "mem": {"memory"},
	"verbose": {"log-level"}, "debug": {"log-level"}, "dry-run": {"peek", "shadow"},
	"ip": {"identity"}, "client": {"identity"}, "user": {"identity"}, "who": {"identity"},
	"file": {"out", "config", "rules"}, "output": {"out"}, "overwrite": {"force"},
	"v": {"version"}, "V": {"version"},
}

// commandAliases are the same of commands.
var commandAliases = map[string]string{
	"start": "serve", "run": "serve", "server": "serve", "node": "serve", "agent": "serve",
	"genkey": "keygen", "key": "keys", "rotate": "keys add",
	"unban": "bans remove", "unblock": "bans remove", "lift": "bans remove", "ban": "bans add", "block": "bans add",
	"ask": "check", "take": "check", "test": "check",
	"ready": "health", "ping": "health",
	"nodes": "members", "peers": "members", "cluster": "members", "info": "status", "log": "events", "logs": "events",
	"settings": "config",
	"simulate": "sim", "simulation": "sim",
	"validate": "rules validate", "lint": "rules validate", "explain": "rules explain", "diff": "rules diff",
	"schema": "rules schema",
}

// unknownFlag reports an unknown flag, and the one that may be meant.
func unknownFlag(command *cli.Command, name string) error {
	const meant = "unknown flag --%s: did you mean %s--%s?"
	names := flagNames(command)
	for _, other := range append(aliases[name], nearest(name, names)) {
		if slices.Contains(names, other) {
			return misuse(command, meant, name, "", other)
		}
	}
	for _, sub := range command.Subcommands {
		if slices.Contains(flagNames(sub), name) {
			return misuse(command, meant, name, command.HelpName+" "+sub.Name+" ", name)
		}
	}
	return misuse(command, "unknown flag --%s", name)
}

// nearest returns the name of which a word may be a misspelling or the only prefix, or "".
func nearest(word string, names []string) string {
	if guess := rules.Nearest(word, names); guess != "" {
		return guess
	}
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !strings.HasPrefix(name, word) })
	if len(word) > 1 && len(names) == 1 {
		return names[0]
	}
	return ""
}

func flagNames(command *cli.Command) (names []string) {
	for _, f := range command.Flags {
		names = append(names, f.Names()...)
	}
	return names
}

func commandNames(parent *cli.Command) (names []string) {
	for _, sub := range parent.Subcommands {
		names = append(names, sub.Name)
	}
	return names
}

// unknownCommand reports an unknown command, and the one that may be meant.
func unknownCommand(parent *cli.Command, name string) error {
	names := commandNames(parent)
	guess := nearest(name, names)
	if other, ok := commandAliases[name]; ok && guess == "" && slices.Contains(names, strings.Fields(other)[0]) {
		guess = other
	}
	if guess == "" {
		return misuse(parent, "unknown command %q: want one of %s", name, strings.Join(names, ", "))
	}
	return misuse(parent, "unknown command %q: did you mean %s %s?", name, parent.HelpName, guess)
}

// wrongValue reports an invalid value of a flag, and its form.
func wrongValue(command *cli.Command, name, value string) error {
	return misuse(command, "--%s %s: want %s", name, value, valueForm(command, name))
}

// wrongVariable reports an invalid value of a flag's environment variable.
func wrongVariable(command *cli.Command, f cli.Flag, err error) error {
	for _, name := range f.(cli.DocGenerationFlag).GetEnvVars() {
		if value, ok := os.LookupEnv(name); ok {
			return misuse(command, "%s=%s: want %s", name, value, valueForm(command, f.Names()[0]))
		}
	}
	return misuse(command, "--%s: %v", f.Names()[0], err)
}

// flagNamed returns the flag of a name that the command has.
func flagNamed(command *cli.Command, name string) cli.Flag {
	i := slices.IndexFunc(command.Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
	return command.Flags[i]
}

// valueForm returns the form of a flag's value, with an example.
func valueForm(command *cli.Command, name string) string {
	f := flagNamed(command, name)
	example := func(otherwise string) string {
		if text := defaultOf(f); text != "" && text != "0" && text != "0s" {
			return text
		}
		return otherwise
	}
	switch f.(type) {
	case *cli.DurationFlag:
		return "a duration such as " + example("1s")
	case *cli.IntFlag, *cli.Uint64Flag:
		return "a whole number such as " + example("1")
	case *cli.Float64Flag:
		return "a number such as " + example("0.5")
	case *cli.BoolFlag:
		return "true or false"
	}
	word, _ := placeholder(f)
	return word + ", as in --" + name + " " + example(word)
}

// reportError prints an error, a line for each problem, with an excerpt of the file that it is in. It returns the exit
// status.
func reportError(out io.Writer, err error) (code int) {
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
	}
	for _, problem := range rulefile.Problems(err) {
		if problem.Error() != "" {
			writeProblem(out, "edgelimit: ", problem)
		}
	}
	if exit, ok := err.(cli.ExitCoder); ok {
		return exit.ExitCode()
	}
	return 2
}

// countsFrom says where a relative path counts from at which there is nothing.
func countsFrom(problem error) string {
	e, ok := errors.AsType[*fs.PathError](problem)
	if !ok || filepath.IsAbs(e.Path) || !errors.Is(e, fs.ErrNotExist) {
		return ""
	}
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	return " in " + dir
}

// writeProblem prints a problem, and its place if it is in a file.
func writeProblem(out io.Writer, prefix string, problem error) {
	fmt.Fprintln(out, prefix+problem.Error()+countsFrom(problem))
	if e, ok := problem.(*rulefile.Error); ok {
		for line := range strings.Lines(e.Excerpt()) {
			fmt.Fprintln(out, "  "+strings.TrimSuffix(line, "\n"))
		}
	}
}
