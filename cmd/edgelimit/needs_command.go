package main

import (
	"fmt"

	"github.com/urfave/cli/v2"
)

// needsCommand is what happens where a command is missing, which gets help, or one is named that there is not.
func needsCommand(help cli.ActionFunc) cli.ActionFunc {
	return func(c *cli.Context) error {
		if !c.Args().Present() {
			return help(c)
		}
		var names []string
		for _, command := range c.Command.VisibleCommands() {
			names = append(names, command.Name)
		}
		return fmt.Errorf("there is no command %q: want one of %v", c.Args().First(), names)
	}
}
