package app

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/client"
	"github.com/edgelimit/edgelimit/node/status"
	"github.com/edgelimit/edgelimit/node/text"
)

const (
	keysHelp = `
The key file is the same on every node: nodes read it again when it changes, on SIGHUP at once. So each step is an edit
of the file, which you then copy to all nodes, and keys status shows when all of them have it. A node that systemd gave
a copy of the key when it started (LoadCredential) takes a restart for each step.

1. edgelimit keys add cluster.key       copy the file to all nodes
2. edgelimit keys use cluster.key       they send by the new key; copy again
3. edgelimit keys remove cluster.key    the old one is refused; copy again

Counts go on: identities are hashed with another key, which stays. To go back after step 2, use the old key.`

	keysStatusHelp = `
Asks the admin listener of a node which gossip keys it and the others have. A key is shown by a fingerprint, which
reveals nothing of it: FINGERPRINT of the other commands.

On the node:        edgelimit keys status
On another machine: edgelimit keys status --token-file ops.token \
                      --url https://10.0.1.7:7949 --ca-file ca.pem

Exit status: 0 listed, 2 no answer.`

	keysAddHelp = `
Makes a key, and writes it into the file as one that nodes accept. It asks no node.

edgelimit keys add /etc/edgelimit/cluster.key

Exit status: 0 added, 2 not.`

	keysUseHelp = `
Makes a key the one that nodes send by, once all nodes have it: a node without it would be cut off. Without FINGERPRINT
it is the only other key of the file. It asks the admin listener of a node about all that this one knows: nodes that it
has not reached for a quarter of an hour are not among them.

edgelimit keys use /etc/edgelimit/cluster.key

Exit status: 0 in use, 2 not.`

	keysRemoveHelp = `
Removes a key from the file, once no node sends by it, and all have the one that replaces it. Without FINGERPRINT it is
the only key of the file that it does not send by. It asks the admin listener of a node, as use does.

edgelimit keys remove /etc/edgelimit/cluster.key

Exit status: 0 removed, 2 not.`
)

func keysCommand() *cli.Command {
	force := plain.flag("force", "do it without asking a node: nodes that are not ready for it are cut off until they "+
		"have the file", new(bool))
	edit := func(name, usage, help string, do cli.ActionFunc) *cli.Command {
		return &cli.Command{Name: name, Usage: usage, ArgsUsage: "FILE [FINGERPRINT]", Description: help,
			Flags: slices.Concat([]cli.Flag{force}, adminFlags()), Action: do}
	}
	return &cli.Command{
		Name: "keys", Usage: "replace the gossip key of a cluster while it runs", Description: keysHelp,
		Subcommands: []*cli.Command{
			{Name: "status", Usage: "show which keys each node has", Description: keysStatusHelp, Flags: adminFlags(),
				Action: keysStatus},
			{Name: "add", Usage: "add a new key to a key file", ArgsUsage: "FILE", Description: keysAddHelp,
				Action: keysAdd},
			edit("use", "make a key the one that nodes send by", keysUseHelp, keysUse),
			edit("remove", "remove a key from a key file", keysRemoveHelp, keysRemove),
		},
	}
}

func keysStatus(c *cli.Context) error {
	nodes, err := askAdmin(c, (*client.Client).Keys)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return json.NewEncoder(c.App.Writer).Encode(map[string]any{"nodes": nodes})
	}
	return printKeys(c.App.Writer, nodes)
}

// printKeys prints a table that fits 80 columns while nodes have two keys.
func printKeys(out io.Writer, nodes []status.KeyHolder) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NODE\tSTATE\tSENDS BY\tACCEPTS TOO")
	for _, n := range nodes {
		sends, accepts := "unknown", []string(nil)
		if len(n.Keys) > 0 {
			sends, accepts = n.Keys[0], n.Keys[1:]
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", nameOfHolder(n), cut(out, n.State, 11), cut(out, sends, 16),
			cmp.Or(text.Clean(strings.Join(accepts, " ")), "-"))
	}
	return w.Flush()
}

func nameOfHolder(n status.KeyHolder) string {
	if n.Node == "" {
		return "nodes that nobody knows"
	}
	return text.Clean(n.Region + "/" + n.Node)
}

func keysAdd(c *cli.Context) error {
	if c.NArg() != 1 {
		return misuse(c.Command, "want one key FILE")
	}
	name, err := node.AddGossipKey(c.Args().First())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.App.Writer, `Added %s to %s.
Next: copy the file to every node; when 'edgelimit keys status' shows the key on
all of them, 'edgelimit keys use %s'.
`, name, c.Args().First(), c.Args().First())
	return err
}

func keysUse(c *cli.Context) error {
	return changeKey(c, "used", allHaveKey, node.UseGossipKey, `%s is the key to send by in %s.
Next: copy the file to every node; when 'edgelimit keys status' shows that all
send by it, 'edgelimit keys remove'.
`)
}

func keysRemove(c *cli.Context) error {
	ready := func(nodes []status.KeyHolder, key, sends string) error {
		for _, n := range nodes {
			if len(n.Keys) > 0 && n.Keys[0] == key {
				return fmt.Errorf("%s sends by it: copy the key file there, or use --force", nameOfHolder(n))
			}
		}
		if err := allHaveKey(nodes, sends, sends); err != nil {
			return fmt.Errorf("of the key that is left, %s, %w", sends, err)
		}
		return nil
	}
	return changeKey(c, "removed", ready, node.RemoveGossipKey, `Removed %s from %s.
Next: copy the file to every node.
`)
}

// changeKey edits the key file of the arguments once all nodes are ready for it. ready gets the key that is meant, and
// the one that nodes send by.
func changeKey(c *cli.Context, what string, ready func(nodes []status.KeyHolder, key, sends string) error,
	edit func(file, key string) error, done string) error {
	file, key, sends, err := keyToChange(c)
	if err != nil {
		return err
	}
	if !c.Bool("force") {
		nodes, err := askAdmin(c, (*client.Client).Keys)
		if err != nil {
			return err
		}
		if err := ready(nodes, key, sends); err != nil {
			return fmt.Errorf("%s cannot be %s yet: %w", key, what, err)
		}
	}
	if err := edit(file, key); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.App.Writer, done, key, file)
	return err
}

// allHaveKey says which node lacks a key, or may.
func allHaveKey(nodes []status.KeyHolder, key, _ string) error {
	for _, n := range nodes {
		switch {
		case n.Node == "":
			return errors.New("there may be nodes that the one asked does not know, as behind seeds that do not " +
				"answer: wait for them, or use --force")
		case len(n.Keys) == 0:
			return fmt.Errorf("%s (%s) does not report its keys: upgrade it, or use --force", nameOfHolder(n),
				text.Clean(n.State))
		case !slices.Contains(n.Keys, key):
			return fmt.Errorf("%s (%s) does not have it: copy the key file there, or use --force", nameOfHolder(n),
				text.Clean(n.State))
		}
	}
	return nil
}

// keyToChange returns the key file of the arguments, the name of the key there that they are about, and of the one that
// nodes send by.
func keyToChange(c *cli.Context) (file, name, sends string, err error) {
	if c.NArg() < 1 || c.NArg() > 2 {
		return "", "", "", misuse(c.Command, "want a key FILE, and a FINGERPRINT if it has more than two gossip keys")
	}
	file, name = c.Args().Get(0), c.Args().Get(1)
	keys, err := node.ReadKeyFile(file)
	if err != nil {
		return "", "", "", err
	}
	var names []string
	for _, k := range keys.Gossip {
		names = append(names, node.KeyName(k))
	}
	switch {
	case name != "" && !slices.Contains(names, name):
		return "", "", "", fmt.Errorf("%s has no gossip key %.20s: it has %s", file, text.Clean(name),
			strings.Join(names, ", "))
	case name == "" && len(names) == 1:
		return "", "", "", fmt.Errorf("%s has one gossip key: edgelimit keys add makes another", file)
	case name == "" && len(names) > 2:
		return "", "", "", misuse(c.Command, "say which: beside %s, by which nodes send, %s has %s", names[0], file,
			strings.Join(names[1:], " and "))
	case name == "":
		name = names[1]
	}
	return file, name, names[0], nil
}
