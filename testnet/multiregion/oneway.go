package multiregion

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"github.com/edgelimit/edgelimit/testnet/docker"
)

// A one-way cut is a table of nft's in the network namespaces of those who are to hear nothing. Packets are dropped where they come
// in: dropped where they leave, the sender would be told so, which no network does.
const table = "edgelimit_testnet"

// drop makes nodes deaf for what comes from others over the WAN.
func (t *Testnet) drop(ctx context.Context, deaf, others []Node) error {
	var from []string
	for _, n := range others {
		from = append(from, n.WAN)
	}
	rules := fmt.Sprintf("add table inet %[1]s; add chain inet %[1]s wan { type filter hook input priority 0; policy accept; }; "+
		"add rule inet %[1]s wan ip saddr { %[2]s } counter drop", table, strings.Join(from, ", "))
	for _, n := range deaf {
		if !n.Running() {
			continue
		}
		if _, err := t.nft(ctx, n.network, rules); err != nil {
			return fmt.Errorf("make %s deaf: %w", n.Name, err)
		}
	}
	return nil
}

// undrop lets all nodes hear again. Nobody can have been made deaf where nft is not installed, or not allowed.
func (t *Testnet) undrop(ctx context.Context, nodes []Node) error {
	for _, n := range nodes {
		if !n.Running() {
			continue
		}
		// Added first, so that it is no error if there is none.
		_, err := t.nft(ctx, n.network, fmt.Sprintf("add table inet %[1]s; delete table inet %[1]s", table))
		if errors.Is(err, errNoNft) {
			return nil
		} else if err != nil {
			return fmt.Errorf("let %s hear again: %w", n.Name, err)
		}
	}
	return nil
}

// deafness is the table of a node's network namespace as nft reads it again; empty: it has none.
func (t *Testnet) deafness(ctx context.Context, n Node) (rules string, err error) {
	if !n.Running() {
		return "", nil
	}
	tables, err := t.nft(ctx, n.network, "list tables")
	if errors.Is(err, errNoNft) || err == nil && !strings.Contains(tables, table) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	return t.nft(ctx, n.network, "list table inet "+table)
}

// deafenAgain gives a node that was restarted, and so has a new network namespace, the one-way cut of another one of its region.
func (t *Testnet) deafenAgain(ctx context.Context, name string) error {
	restarted, err := t.findNode(ctx, name)
	if err != nil {
		return err
	}
	nodes, err := t.Nodes(ctx)
	if err != nil {
		return err
	}
	for _, other := range nodes {
		if other.Name == name || other.Region != restarted.Region {
			continue
		}
		rules, err := t.deafness(ctx, other)
		if err != nil {
			return err
		}
		if rules != "" {
			_, err := t.nft(ctx, restarted.network, rules)
			return err
		}
	}
	return nil
}

var errNoNft = errors.New("one-way cuts need nft and nsenter on the machine of the engine, and root: apt-get install nftables util-linux, and use sudo")

// nft runs nft's commands in a container's network namespace.
func (t *Testnet) nft(ctx context.Context, c docker.Container, commands string) (string, error) {
	out, err := t.run.Run(ctx, docker.Command{Name: "nsenter", Args: []string{"--target", strconv.Itoa(c.PID), "--net", "--", "nft", commands}})
	failed, ok := errors.AsType[*docker.CommandError](err)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "", errNoNft
	case ok && (strings.Contains(failed.Said, "Operation not permitted") || strings.Contains(failed.Said, "failed to execute nft")):
		return "", fmt.Errorf("%w: %s", errNoNft, failed.Said)
	}
	return string(out), err
}
