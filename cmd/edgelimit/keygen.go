package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node"
)

func keygenCommand() *cli.Command {
	return &cli.Command{
		Name:  "keygen",
		Usage: "make the key file of a new cluster",
		Description: "The file goes to every node of the cluster, as serve --key-file FILE. It holds the key that encrypts gossip and\n" +
			"the secret under which identities are hashed.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "out", Usage: "write to `FILE`, readable by its owner only (default: standard output)"},
		},
		Action: func(c *cli.Context) error {
			name := c.String("out")
			if name == "" {
				return node.WriteKeyFile(c.App.Writer)
			}
			f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("%s exists already; a key file is never overwritten", name)
			} else if err != nil {
				return err
			}
			return errors.Join(node.WriteKeyFile(f), f.Close())
		},
	}
}

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print the version",
		Action: func(c *cli.Context) error {
			_, err := fmt.Fprintln(c.App.Writer, version())
			return err
		},
	}
}

// version is the module's, the commit where it was built from one, and Go's.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "edgelimit, version unknown"
	}
	s := "edgelimit " + info.Main.Version
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			s += " " + setting.Value[:min(12, len(setting.Value))]
		}
	}
	return s + " " + info.GoVersion
}
