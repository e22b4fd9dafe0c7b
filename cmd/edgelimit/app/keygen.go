package app

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node"
)

const keygenHelp = `
The file holds the key that encrypts gossip and the secret under which identities are hashed. Every node of the cluster
has the same one.

edgelimit keygen --out /etc/edgelimit/cluster.key

Exit status: 0 made, or kept by --keep, 2 not made.`

func keygenCommand() *cli.Command {
	return &cli.Command{
		Name: "keygen", Usage: "make the key file of a new cluster",
		Description: keygenHelp,
		Flags: []cli.Flag{
			plain.flag("out", "write to `FILE`, for its owner only (mode 0600), and make the folders that are missing "+
				"(0700); without it: to standard output", new(string)),
			plain.flag("force", "replace a file that is there: a cluster that uses it falls apart until every node "+
				"has the new one", new(bool)),
			plain.flag("keep", "leave a key file that is there as it is: for what runs at each start", new(bool)),
		},
		Action: keygen,
	}
}

func keygen(c *cli.Context) error {
	name, force, keep := c.String("out"), c.Bool("force"), c.Bool("keep")
	switch {
	case keep && (name == "" || force):
		return misuse(c.Command, "--keep goes with --out, and not with --force")
	case name == "":
		return node.WriteKeyFile(c.App.Writer)
	}
	err := node.CreateKeyFile(name, force)
	if errors.Is(err, fs.ErrExist) && keep {
		if _, err = node.ReadKeyFile(name); err == nil {
			_, err = fmt.Fprintf(c.App.Writer, "Kept %s.\n", name)
		}
		return err
	} else if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists already, and nodes may use it; choose another file, or replace it with --force",
			name)
	} else if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.App.Writer, `Wrote %s. Whoever can read it can join the cluster.
Next: copy it to every node, readable by the user that runs the node alone
(chmod 600, chown), and start each with
  edgelimit serve --key-file %s --gossip HOST:PORT ...
`, name, name)
	return err
}
