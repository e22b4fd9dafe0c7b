package cluster

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// A one-way partition, or a protocol that is blocked, is an nft table in the network namespaces of the receivers.
// Packets are dropped on arrival: a drop on departure would be reported to the sender, which no real network does.
const table = "edgelimit_testnet"

// anything is all protocols.
const anything Protocol = ""

// drop makes the receivers drop what the senders send over the WAN by a protocol.
func (c *Cluster) drop(ctx context.Context, receivers, senders []Node, protocol Protocol) error {
	match := ""
	if protocol != anything {
		match = "meta l4proto " + string(protocol) + " "
	}
	var from []string
	for _, n := range senders {
		from = append(from, n.WAN)
	}
	rules := fmt.Sprintf("add table inet %[1]s; "+
		"add chain inet %[1]s wan { type filter hook input priority 0; policy accept; }; "+
		"add rule inet %[1]s wan %[3]sip saddr { %[2]s } counter drop", table, strings.Join(from, ", "), match)
	for _, n := range receivers {
		if _, err := c.nft(ctx, n, rules); err != nil {
			return fmt.Errorf("drop what %s receives: %w", n.Name, err)
		}
	}
	return nil
}

// undrop removes every table. Without nft on the machine, or the right to use it, there can be none.
func (c *Cluster) undrop(ctx context.Context, nodes []Node) error {
	for _, n := range nodes {
		// Add first: to delete a table that does not exist would be an error.
		_, err := c.nft(ctx, n, fmt.Sprintf("add table inet %[1]s; delete table inet %[1]s", table))
		if errors.Is(err, errNoNft) {
			return nil
		} else if err != nil {
			return fmt.Errorf("let %s receive again: %w", n.Name, err)
		}
	}
	return nil
}

// dropRules returns the table of a node's network namespace, as nft reads it again; empty: there is none.
func (c *Cluster) dropRules(ctx context.Context, n Node) (rules string, err error) {
	tables, err := c.nft(ctx, n, "list tables")
	if errors.Is(err, errNoNft) || err == nil && !strings.Contains(tables, table) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	return c.nft(ctx, n, "list table inet "+table)
}

// restoreDrop gives a node that was restarted, and so has a new network namespace, the one-way partition of another
// node of its region.
func (c *Cluster) restoreDrop(ctx context.Context, restarted Node) error {
	nodes, err := c.Nodes(ctx)
	for _, other := range nodes {
		if other.Name == restarted.Name || other.Region != restarted.Region {
			continue
		}
		rules, err := c.dropRules(ctx, other)
		if err == nil && rules != "" {
			_, err = c.nft(ctx, restarted, rules)
		}
		if err != nil || rules != "" {
			return err
		}
	}
	return err
}

var errNoNft = errors.New("one-way partitions need nft and nsenter on the machine of the engine, and root: " +
	"apt-get install nftables util-linux, and use sudo")

// nft runs nft's commands in the network namespace of a node. A node that does not run has none: nothing happens.
func (c *Cluster) nft(ctx context.Context, n Node, commands string) (string, error) {
	if !n.container.running() {
		return "", nil
	}
	out, err := c.run(ctx, Command{Name: "nsenter",
		Args: []string{"--target", strconv.Itoa(n.network.State.Pid), "--net", "--", "nft", commands}})
	switch {
	case err == nil:
		return string(out), nil
	case errors.Is(err, exec.ErrNotFound):
		return "", errNoNft
	case strings.Contains(err.Error(), "Operation not permitted"),
		strings.Contains(err.Error(), "failed to execute nft"):
		return "", fmt.Errorf("%w: %w", errNoNft, err)
	}
	return "", err
}
