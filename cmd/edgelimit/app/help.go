package app

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"
)

const (
	helpWidth     = 80 // columns
	flagColumn    = 26 // of the flags' texts
	commandColumn = 12 // of the commands' texts
)

// writeHelp prints the help of a command, its subcommands and its flags.
func writeHelp(out io.Writer, command *cli.Command) error {
	var b strings.Builder
	form := command.HelpName + " [flags] " + command.ArgsUsage
	if len(command.Subcommands) > 0 {
		form = command.HelpName + " COMMAND [flags]"
	}
	fmt.Fprintf(&b, "%s\n\nUsage:\n  %s\n", wrap(command.HelpName+": "+command.Usage, "", helpWidth),
		strings.TrimSpace(form))
	if command.Description != "" {
		b.WriteString("\n" + formatHelp(command.Description))
	}
	if len(command.Subcommands) > 0 {
		b.WriteString("\nCommands:\n")
		for _, sub := range command.Subcommands {
			writeItem(&b, sub.Name, sub.Usage, commandColumn)
		}
		writeItem(&b, "help", "explain a command, as in "+command.HelpName+" help "+command.Subcommands[0].Name,
			commandColumn)
	}
	shared := sharesVariables(command)
	for _, category := range categories(command.Flags) {
		fmt.Fprintf(&b, "\n%s:\n", category)
		for _, f := range command.Flags {
			if categoryOf(f) == category {
				name, text := describeFlag(f, !shared)
				writeItem(&b, name, text, flagColumn)
			}
		}
		if category == plainFlags {
			writeItem(&b, "--help, -h", "show this help", flagColumn)
		}
	}
	if shared {
		b.WriteString("\n" + wrap("A variable can stand for each flag: EDGELIMIT_NODE_ID for --node-id, and so on. A "+
			"flag goes over its variable.", "", helpWidth) + "\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// plainFlags is the category of flags that have none.
const plainFlags = "Flags"

func categoryOf(f cli.Flag) string {
	return cmp.Or(f.(cli.CategorizableFlag).GetCategory(), plainFlags)
}

// categories returns the flags' categories in their order, and plainFlags last.
func categories(flags []cli.Flag) (all []string) {
	for _, f := range flags {
		if category := categoryOf(f); category != plainFlags && !slices.Contains(all, category) {
			all = append(all, category)
		}
	}
	return append(all, plainFlags)
}

// placeholder returns the word for a flag's value, and the flag's text without marks.
func placeholder(f cli.Flag) (word, text string) {
	doc := f.(cli.DocGenerationFlag)
	before, rest, marked := strings.Cut(doc.GetUsage(), "`")
	if word, after, ok := strings.Cut(rest, "`"); marked && ok {
		return word, before + word + after
	}
	switch f.(type) {
	case *cli.DurationFlag:
		word = "DURATION"
	case *cli.IntFlag, *cli.Uint64Flag, *cli.Float64Flag:
		word = "N"
	default:
		if doc.TakesValue() {
			word = "VALUE"
		}
	}
	return word, doc.GetUsage()
}

// defaultOf returns the default of a flag as text, or "".
func defaultOf(f cli.Flag) string {
	if _, ok := f.(*cli.BoolFlag); ok {
		return ""
	}
	return strings.Trim(f.(cli.DocGenerationFlag).GetDefaultText(), `"`)
}

// describeFlag returns a flag's name with a word for its value, and its text with its default, and its variables if
// they are wanted.
func describeFlag(f cli.Flag, variables bool) (name, text string) {
	word, text := placeholder(f)
	if value := defaultOf(f); value != "" {
		text += " (default " + value + ")"
	}
	for _, name := range f.(cli.DocGenerationFlag).GetEnvVars() {
		if variables {
			text += " [$" + name + "]"
		}
	}
	return strings.TrimSpace("--" + f.Names()[0] + " " + word), text
}

// sharesVariables reports whether the flags have variables of their names, so that one sentence covers them.
func sharesVariables(command *cli.Command) bool {
	n := 0
	for _, f := range command.Flags {
		n += len(f.(cli.DocGenerationFlag).GetEnvVars())
	}
	return n > 3
}

// writeItem writes a name and the text about it, in two columns.
func writeItem(b *strings.Builder, name, text string, column int) {
	name, text = "  "+name, wrap(text, strings.Repeat(" ", column), helpWidth)
	if len(name)+2 > column {
		b.WriteString(name + "\n" + text + "\n")
		return
	}
	b.WriteString(name + text[len(name):] + "\n")
}

// formatHelp fills the paragraphs of a description. Examples, which begin with edgelimit or have two blanks, stay.
func formatHelp(text string) string {
	var blocks []string
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		if strings.Contains(block, "  ") || strings.HasPrefix(block, "edgelimit ") {
			block = "  " + strings.ReplaceAll(block, "\n", "\n  ")
		} else {
			block = wrap(block, "", helpWidth)
		}
		blocks = append(blocks, block+"\n")
	}
	return strings.Join(blocks, "\n")
}

// wrap fills lines of a width with words, and indents each.
func wrap(text, indent string, width int) string {
	var b strings.Builder
	column := 0
	for _, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case column == 0:
			b.WriteString(indent)
			column = len(indent)
		case column+1+n > width:
			b.WriteString("\n" + indent)
			column = len(indent)
		default:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}
