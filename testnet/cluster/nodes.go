package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
)

// Errors of requests for what does not exist.
var (
	ErrNotUp   = errors.New("the testnet is not up; start it: go run ./testnet up")
	ErrUnknown = errors.New("there is no such thing in the testnet")
)

// Node is a node of the cluster, running or not: one of a region's two, or a sidecar.
type Node struct {
	Name    string `json:"name"` // its service's, as us-east-1
	Region  string `json:"region"`
	Sidecar bool   `json:"-"` // a reverse proxy, which shares the network of its service
	// HTTP and Metrics are the URLs of its listeners on this machine, as http://127.0.0.1:8111, without a path. HTTP is
	// the API, or a sidecar's proxy.
	HTTP    string `json:"http,omitempty"`
	Metrics string `json:"metrics"`
	// LAN and WAN are its addresses in its region and between regions, also while it is partitioned.
	LAN         string `json:"lan"`
	WAN         string `json:"wan"`
	State       string `json:"state"` // the container's: running, exited, created
	Partitioned bool   `json:"cut"`   // it is not on the WAN's network

	container container
	network   container // whose network it uses: its own, or its service's
}

// Redis is the Redis of a region.
type Redis struct {
	Name   string `json:"name"`
	Region string `json:"region"`
	State  string `json:"state"`
	Error  string `json:"error,omitempty"` // why it does not answer, which Status fills in; empty: it does
	// WAN is the address at which other regions reach it, also while it is partitioned; empty: none does.
	WAN         string `json:"wan,omitempty"`
	Partitioned bool   `json:"cut"` // it is not on the WAN's network, and should be

	container container
}

// RedisName returns the name of a region's Redis, for Kill, Pause, Restart and so on.
func RedisName(region string) string { return region + "-redis" }

// Nodes returns all nodes, ordered by region and name, or ErrNotUp.
func (c *Cluster) Nodes(ctx context.Context) ([]Node, error) {
	all, err := c.containers(ctx)
	if err != nil {
		return nil, err
	}
	byID := make(map[string]container, len(all))
	for _, ctr := range all {
		byID[ctr.ID] = ctr
	}
	var nodes []Node
	for _, ctr := range all {
		if role := ctr.role(); role != "node" && role != "sidecar" {
			continue
		}
		n := Node{Name: ctr.service(), Region: ctr.region(), Sidecar: ctr.role() == "sidecar", State: ctr.State.Status,
			LAN: hostOf(ctr.env("EDGELIMIT_ADVERTISE_LAN")), WAN: hostOf(ctr.env("EDGELIMIT_ADVERTISE_WAN")),
			container: ctr, network: ctr}
		if id, ok := strings.CutPrefix(ctr.HostConfig.NetworkMode, "container:"); ok {
			n.network = byID[id]
		}
		_, onWAN := n.network.NetworkSettings.Networks[wanNetwork]
		n.Partitioned = !onWAN
		n.HTTP, n.Metrics = n.network.url("8080/tcp"), n.network.url("7948/tcp")
		nodes = append(nodes, n)
	}
	if len(nodes) == 0 {
		return nil, ErrNotUp
	}
	slices.SortFunc(nodes, func(a, b Node) int {
		return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.Name, b.Name))
	})
	return nodes, nil
}

// Redises returns the Redis of each region.
func (c *Cluster) Redises(ctx context.Context) (redises []Redis, err error) {
	all, err := c.containers(ctx)
	for _, ctr := range all {
		if ctr.role() == "redis" {
			r := Redis{Name: ctr.service(), Region: ctr.region(), State: ctr.State.Status,
				WAN: ctr.Config.Labels[wanLabel], container: ctr}
			_, onWAN := ctr.NetworkSettings.Networks[wanNetwork]
			r.Partitioned = r.WAN != "" && !onWAN
			redises = append(redises, r)
		}
	}
	slices.SortFunc(redises, func(a, b Redis) int { return cmp.Compare(a.Region, b.Region) })
	return redises, err
}

func hostOf(addr string) string {
	host, _, _ := net.SplitHostPort(addr)
	return host
}

// find returns the container of a service, a node's or a Redis'.
func (c *Cluster) find(ctx context.Context, name string) (container, error) {
	all, err := c.containers(ctx)
	if err == nil && len(all) == 0 {
		err = ErrNotUp
	}
	if err != nil {
		return container{}, err
	}
	return named(name, all, func(ctr container) string { return ctr.service() })
}

// findNode returns one node.
func (c *Cluster) findNode(ctx context.Context, name string) (Node, error) {
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return Node{}, err
	}
	return named(name, nodes, func(n Node) string { return n.Name })
}

// named returns the one of that name, or ErrUnknown.
func named[T any](name string, all []T, nameOf func(T) string) (found T, err error) {
	var names []string
	for _, one := range all {
		if nameOf(one) == name {
			return one, nil
		}
		names = append(names, nameOf(one))
	}
	slices.Sort(names)
	return found, fmt.Errorf("%w: %q, there are %s", ErrUnknown, name, strings.Join(slices.Compact(names), ", "))
}

// findRunning is find for a service that has to run.
func (c *Cluster) findRunning(ctx context.Context, name string) (container, error) {
	ctr, err := c.find(ctx, name)
	if err == nil && !ctr.running() {
		err = fmt.Errorf("%s is not running (%s); start it: go run ./testnet restart %s", name, ctr.State.Status, name)
	}
	return ctr, err
}

// WithoutSidecars returns the nodes that are no sidecars.
func WithoutSidecars(nodes []Node) []Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool { return n.Sidecar })
}
