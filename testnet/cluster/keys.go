package cluster

import (
	"context"
	"fmt"
	"slices"
)

// Keys runs "edgelimit keys" with the arguments, in the network of a node, whose admin listener it asks, and returns
// its standard output. KeyFile can be edited there. The error of a command that was refused ends with the reason.
func (c *Cluster) Keys(ctx context.Context, node string, args ...string) (string, error) {
	return c.runBeside(ctx, node, append([]string{"keys"}, args...)...)
}

// InstallKey copies KeyFile as it is to the nodes of these names. A name that is no node's gets a copy that Intrude can
// use later.
func (c *Cluster) InstallKey(ctx context.Context, names ...string) error {
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return err
	}
	_, err = c.runBeside(ctx, nodes[0].Name, append([]string{"install-key"}, names...)...)
	return err
}

// Intruder is the name of the process that Intrude starts.
const Intruder = "intruder"

// Intrude starts a process in the network of a node that tries to join it, with the copy of the key file that
// InstallKey gave to the name Intruder. stop ends it.
func (c *Cluster) Intrude(ctx context.Context, node string) (stop func(context.Context) error, err error) {
	n, err := c.findNode(ctx, node)
	if err != nil {
		return nil, err
	}
	options, err := c.beside(ctx, n)
	if err != nil {
		return nil, err
	}
	// With the label, Down finds it.
	label := []string{"run", "--detach", "--label", projectLabel + "=" + Project}
	id, err := c.docker(ctx, slices.Concat(label, options, []string{"serve",
		"--region", Intruder, "--node-id", Intruder, "--key-file", "/data/" + Intruder + ".key",
		"--http", "127.0.0.1:0",
		"--health", "127.0.0.1:0", "--admin", "", "--gossip-wan", n.WAN + ":0", "--join", "wan:" + n.WAN + ":7947"})...)
	return func(ctx context.Context) error {
		_, err := c.docker(ctx, "rm", "--force", id)
		return err
	}, err
}

// runBeside runs a command of the nodes' image to its end.
func (c *Cluster) runBeside(ctx context.Context, node string, args ...string) (string, error) {
	n, err := c.findNode(ctx, node)
	if err != nil {
		return "", err
	}
	options, err := c.beside(ctx, n)
	if err != nil {
		return "", err
	}
	return c.docker(ctx, slices.Concat([]string{"run", "--rm"}, options, args)...)
}

// beside returns what docker run needs for a container in the network of a node, with the volume of the keys to write
// to, up to the image.
func (c *Cluster) beside(ctx context.Context, n Node) ([]string, error) {
	key, err := c.find(ctx, keyService)
	if err != nil {
		return nil, fmt.Errorf("the volume of the keys: %w", err)
	}
	return []string{"--network", "container:" + n.network.ID, "--volumes-from", key.ID, "--read-only", "--cap-drop",
		"ALL", "--security-opt", "no-new-privileges:true", n.container.Config.Image}, nil
}
