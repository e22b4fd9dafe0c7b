package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node"
)

// keyFile is the key file that an operator edits, in the volume of the testnet.
const keyFile = "/data/cluster.key"

func installKeyCommand() *cli.Command {
	return &cli.Command{
		Name: "install-key", Usage: "give nodes of the testnet their copies of the cluster's key file",
		ArgsUsage: "NODE...",
		Description: "Copies " + keyFile + ", which it makes if it is missing, to NODE.key beside it: what ssh or\n" +
			"Ansible does where nodes have machines of their own.",
		Action: func(c *cli.Context) error { return installKey(keyFile, c.Args().Slice()) },
	}
}

// installKey renames a complete copy of the key file into the place of each node's.
func installKey(file string, nodes []string) error {
	if len(nodes) == 0 {
		return errors.New("install-key wants the names of nodes, as us-east-1")
	}
	if err := node.CreateKeyFile(file, false); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if _, err := node.ReadKeyFile(file); err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for _, name := range nodes {
		if filepath.Base(name) != name {
			return fmt.Errorf("%q is no name of a node", name)
		}
		own := filepath.Join(filepath.Dir(file), name+".key")
		if err := os.WriteFile(own+".new", text, 0o600); err != nil {
			return err
		}
		if err := os.Rename(own+".new", own); err != nil {
			return err
		}
	}
	return nil
}
