package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/testnet/netem"
)

// keyFile is where the compose file looks for the cluster's secrets; git ignores its folder.
const keyFile = "testnet/compose/secrets/cluster.key"

// containerUser is the user and group of the containers.
const containerUser = 65532

// ensureKeyFile creates the key file unless it exists, readable by the containers' user.
func ensureKeyFile(root string) (created bool, err error) {
	name := filepath.Join(root, filepath.FromSlash(keyFile))
	if info, err := os.Stat(name); err == nil {
		if info.IsDir() {
			err = fmt.Errorf("%s is a folder, which the engine makes of a missing mounted file; remove it", name)
		}
		return false, err
	}
	// Only its owner passes the folder, whatever the file's mode. The engine mounts the file as root.
	if err := node.CreateKeyFile(name, false); err != nil {
		return false, err
	}
	err = os.Chown(name, containerUser, containerUser)
	// Without root every user of the container has to be let in, and the nodes warn of it.
	if errors.Is(err, fs.ErrPermission) {
		err = os.Chmod(name, 0o444)
	}
	return err == nil, err
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
