package multiregion

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/edgelimit/edgelimit/testnet/docker"
)

// Errors of those who ask for what is not there.
var (
	ErrNotUp   = errors.New("the testnet is not up; start it: go run ./testnet up")
	ErrUnknown = errors.New("there is no such thing in the testnet")
)

// Node is a node of the testnet, running or not: one of the regions' or a sidecar.
type Node struct {
	// Name is that of its service, as us-east-1; Region where it stands.
	Name, Region string
	// Sidecar tells that it stands beside a service, in its network.
	Sidecar bool
	// HTTP and Metrics are the URLs of its doors on this machine, as http://127.0.0.1:8111, without a path. A sidecar has no HTTP.
	HTTP, Metrics string
	// LAN and WAN are its addresses in its region and between regions, also while it is cut off.
	LAN, WAN string
	// State is the container's: running, exited, created.
	State string
	// Cut tells that it is off the WAN.
	Cut bool

	container docker.Container
	network   docker.Container // whose network it uses: its own, or its service's
}

// Running reports whether its process exists; it may be paused.
func (n *Node) Running() bool { return n.container.Running() }

// Redis is the Redis of a region.
type Redis struct {
	Name, Region, State string
	container           docker.Container
}

// Nodes returns all nodes, by region in the order of their names. None: the testnet is not up, ErrNotUp.
func (t *Testnet) Nodes(ctx context.Context) ([]Node, error) {
	all, err := t.containers(ctx)
	if err != nil {
		return nil, err
	}
	nodes := nodesOf(all)
	if len(nodes) == 0 {
		return nil, ErrNotUp
	}
	return nodes, nil
}

// Redises returns the Redis of each region.
func (t *Testnet) Redises(ctx context.Context) ([]Redis, error) {
	all, err := t.containers(ctx)
	if err != nil {
		return nil, err
	}
	var out []Redis
	for _, c := range all {
		if c.Labels[roleLabel] == "redis" {
			out = append(out, Redis{c.Labels[serviceLabel], c.Labels[regionLabel], c.State, c})
		}
	}
	slices.SortFunc(out, func(a, b Redis) int { return cmp.Compare(a.Region, b.Region) })
	return out, nil
}

// RedisName is the name of a region's Redis, for Kill, Pause, Restart and so on.
func RedisName(region string) string { return region + "-redis" }

func nodesOf(all []docker.Container) []Node {
	byID := make(map[string]docker.Container, len(all))
	for _, c := range all {
		byID[c.ID] = c
	}
	var nodes []Node
	for _, c := range all {
		role := c.Labels[roleLabel]
		if role != "node" && role != "sidecar" {
			continue
		}
		n := Node{
			Name: c.Labels[serviceLabel], Region: c.Labels[regionLabel], Sidecar: role == "sidecar", State: c.State,
			LAN: hostOf(c.Env["EDGELIMIT_ADVERTISE_LAN"]), WAN: hostOf(c.Env["EDGELIMIT_ADVERTISE_WAN"]),
			container: c, network: c,
		}
		if c.NamespaceOf != "" {
			n.network = byID[c.NamespaceOf]
		}
		_, onWAN := n.network.Addresses[wanNetwork]
		n.Cut = !onWAN
		if door := n.network.Published["8080/tcp"]; door != "" {
			n.HTTP = "http://" + door
		}
		if door := n.network.Published["9100/tcp"]; door != "" {
			n.Metrics = "http://" + door
		}
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b Node) int { return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.Name, b.Name)) })
	return nodes
}

func hostOf(addr string) string {
	host, _, _ := net.SplitHostPort(addr)
	return host
}

// inRegion divides the nodes into those of a region and the rest.
func inRegion(nodes []Node, region string) (inside, outside []Node, err error) {
	var regions []string
	for _, n := range nodes {
		if n.Region == region {
			inside = append(inside, n)
		} else {
			outside = append(outside, n)
		}
		if !slices.Contains(regions, n.Region) {
			regions = append(regions, n.Region)
		}
	}
	if len(inside) == 0 {
		return nil, nil, fmt.Errorf("%w: region %q, the regions are %s", ErrUnknown, region, strings.Join(regions, ", "))
	}
	return inside, outside, nil
}

// find returns the container of a service, a node's or a Redis'.
func (t *Testnet) find(ctx context.Context, name string) (docker.Container, error) {
	all, err := t.containers(ctx)
	if err != nil {
		return docker.Container{}, err
	}
	if len(all) == 0 {
		return docker.Container{}, ErrNotUp
	}
	var names []string
	for _, c := range all {
		if c.Labels[serviceLabel] == name {
			return c, nil
		}
		names = append(names, c.Labels[serviceLabel])
	}
	slices.Sort(names)
	return docker.Container{}, fmt.Errorf("%w: %q, there are %s", ErrUnknown, name, strings.Join(names, ", "))
}

// findNode returns one node.
func (t *Testnet) findNode(ctx context.Context, name string) (Node, error) {
	nodes, err := t.Nodes(ctx)
	if err != nil {
		return Node{}, err
	}
	var names []string
	for _, n := range nodes {
		if n.Name == name {
			return n, nil
		}
		names = append(names, n.Name)
	}
	return Node{}, fmt.Errorf("%w: node %q, the nodes are %s", ErrUnknown, name, strings.Join(names, ", "))
}
