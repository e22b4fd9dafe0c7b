package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/testnet/netem"
)

// KeyFile is the key file that an operator edits, in a volume; each node has a copy beside it, see InstallKey.
const KeyFile = "/data/cluster.key"

// keyService is the service of the compose file that makes it.
const keyService = "cluster-key"

// keys returns the cluster's secrets.
func (c *Cluster) keys(ctx context.Context) (keys node.Keys, err error) {
	ctr, err := c.find(ctx, keyService)
	if err != nil {
		return keys, err
	}
	dir, err := os.MkdirTemp("", "edgelimit-key-") // for its owner alone
	if err != nil {
		return keys, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, filepath.Base(KeyFile))
	if _, err := c.docker(ctx, "cp", ctr.ID+":"+KeyFile, file); err != nil {
		return keys, err
	}
	return node.ReadKeyFile(file)
}

// Rules returns the folder of the nodes' rule files.
func (c *Cluster) Rules() string {
	name := cmp.Or(os.Getenv("EDGELIMIT_TESTNET_RULES"), filepath.Join("testnet", "compose", "rules"))
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(c.root, name)
}

// The compose file's defaults for what nodes do to the WAN.
const (
	defaultDelay, defaultJitter = 40 * time.Millisecond, 10 * time.Millisecond
	defaultLoss                 = 0.01
)

// WAN returns the delay, jitter and loss that nodes inject into what they send over the WAN, as the compose file and
// its variables have it.
func (c *Cluster) WAN() (netem.Link, error) {
	delay, err1 := time.ParseDuration(cmp.Or(os.Getenv("EDGELIMIT_WAN_DELAY"), defaultDelay.String()))
	jitter, err2 := time.ParseDuration(cmp.Or(os.Getenv("EDGELIMIT_WAN_JITTER"), defaultJitter.String()))
	loss, err3 := strconv.ParseFloat(cmp.Or(os.Getenv("EDGELIMIT_WAN_LOSS"), fmt.Sprint(defaultLoss)), 64)
	w := netem.Link{Latency: delay, Jitter: jitter, Loss: loss}
	if err := errors.Join(err1, err2, err3); err != nil {
		return w, fmt.Errorf("EDGELIMIT_WAN_DELAY, _JITTER or _LOSS: %w", err)
	}
	return w, w.Validate()
}
