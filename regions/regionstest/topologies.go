package regionstest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// Cluster is a Redis Cluster of masters without replicas. Slots are shared out evenly and in order.
type Cluster struct {
	Nodes []*Server
}

// ClusterSlots is how many slots a Redis Cluster has.
const ClusterSlots = 16384

// StartRedisCluster starts a cluster of n masters and waits until all its slots are served.
func StartRedisCluster(t testing.TB, n int) *Cluster {
	t.Helper()
	c := &Cluster{}
	for i := range n {
		s := newServer(t, "redis-server", "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
			"--cluster-node-timeout", "3000")
		s.busPort = -1 // to be chosen with the port
		s.launch()
		s.Do("CLUSTER", "ADDSLOTSRANGE", i*ClusterSlots/n, (i+1)*ClusterSlots/n-1)
		s.Do("CLUSTER", "SET-CONFIG-EPOCH", i+1)
		c.Nodes = append(c.Nodes, s)
	}
	first := c.Nodes[0]
	for _, s := range c.Nodes[1:] {
		s.Do("CLUSTER", "MEET", "127.0.0.1", first.port, first.busPort)
	}
	for _, s := range c.Nodes {
		testkit.Eventually(t, "the cluster is whole", func() bool {
			info, err := s.Try("CLUSTER", "INFO")
			return err == nil && strings.Contains(info, "cluster_state:ok") &&
				strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", n)) &&
				strings.Contains(info, fmt.Sprintf("cluster_slots_ok:%d\r", ClusterSlots))
		})
	}
	return c
}

// Addrs are the addresses of all nodes.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, s := range c.Nodes {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// Move is a slot on its way to another node.
type Move struct {
	slot     string
	from, to *Server
}

// BeginMove begins to move the slot of a key to another node. Its keys stay with the node that serves it, which answers
// calls on keys that it does not have with ASK.
func (c *Cluster) BeginMove(key string) *Move {
	from := c.owner(key)
	from.t.Helper()
	to := c.Nodes[(slices.Index(c.Nodes, from)+1)%len(c.Nodes)]
	m := &Move{slot: to.Do("CLUSTER", "KEYSLOT", key), from: from, to: to}
	to.Do("CLUSTER", "SETSLOT", m.slot, "IMPORTING", m.from.ID())
	m.from.Do("CLUSTER", "SETSLOT", m.slot, "MIGRATING", to.ID())
	return m
}

// Keys moves keys, at once. One of them has to exist.
func (m *Move) Keys(keys ...string) {
	m.to.t.Helper()
	args := []any{"MIGRATE", "127.0.0.1", m.to.port, "", 0, testkit.Patience.Milliseconds(), "KEYS"}
	for _, key := range keys {
		args = append(args, key)
	}
	m.from.Do(args...)
}

// End has the other node serve the slot: the first one answers with MOVED.
func (m *Move) End() {
	m.to.t.Helper()
	for _, s := range []*Server{m.to, m.from} {
		s.Do("CLUSTER", "SETSLOT", m.slot, "NODE", m.to.ID())
	}
}

// owner is the node that serves the slot of a key.
func (c *Cluster) owner(key string) *Server {
	for _, s := range c.Nodes {
		if _, err := s.Try("EXISTS", key); err == nil {
			return s
		}
	}
	c.Nodes[0].t.Helper()
	c.Nodes[0].t.Fatalf("no node serves the slot of %s", key)
	return nil
}

// ID is what the cluster calls a node.
func (s *Server) ID() string {
	s.t.Helper()
	return s.Do("CLUSTER", "MYID")
}

// Sentinels are a master, its replica, and a Sentinel that watches them and makes the replica the master when that is
// away for 2 s.
type Sentinels struct {
	Master, Replica *Server
	Sentinel        *Server
	Name            string // of the master
}

const replicator = "replicator"

// StartSentinel starts a master, a replica that follows it, and their Sentinel.
func StartSentinel(t testing.TB) *Sentinels {
	t.Helper()
	s := &Sentinels{Name: "edge"}
	s.Master = StartRedis(t, "--repl-diskless-sync-delay", "0")
	s.Master.Do("ACL", "SETUSER", replicator, "on", ">"+replicator, "+psync", "+replconf", "+ping")
	s.Replica = StartRedis(t, "--masteruser", replicator, "--masterauth", replicator)
	s.Replica.Do("REPLICAOF", "127.0.0.1", s.Master.port)
	testkit.Eventually(t, "the replica follows", func() bool {
		return s.Replica.Reply("master_link_status:up", "INFO", "replication")
	})

	s.Sentinel = newServer(t, "redis-sentinel")
	conf := fmt.Sprintf("sentinel monitor %[1]s 127.0.0.1 %[2]d 1\nsentinel down-after-milliseconds %[1]s 2000\n"+
		"sentinel failover-timeout %[1]s 10000\n", s.Name, s.Master.port)
	testkit.Must(t, os.WriteFile(filepath.Join(s.Sentinel.dir, "sentinel.conf"), []byte(conf), 0o600))
	s.Sentinel.launch()
	testkit.Eventually(t, "the Sentinel knows the replica", func() bool {
		answer, err := s.Sentinel.Try("SENTINEL", "REPLICAS", s.Name)
		return err == nil && strings.Contains(answer, s.Replica.Addr()) &&
			strings.Contains(answer, "master-link-status ok")
	})
	return s
}

// Detach cuts the replica off from its master: from now on it falls behind. The Sentinel takes it for healthy for
// another 20 s.
func (s *Sentinels) Detach() {
	s.Master.Do("ACL", "SETUSER", replicator, "off")
	s.Master.Do("CLIENT", "KILL", "TYPE", "replica")
	testkit.Eventually(s.Master.t, "the replica is cut off", func() bool {
		return s.Master.Reply("connected_slaves:0", "INFO", "replication")
	})
}
