package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Project is the compose project of the cluster; its label marks everything that belongs to it.
const Project = "edgelimit-testnet"

const (
	wanNetwork   = Project + "_wan"
	projectLabel = "com.docker.compose.project"
	serviceLabel = "com.docker.compose.service"
	roleLabel    = "edgelimit.testnet.role"
	regionLabel  = "edgelimit.testnet.region"
	wanLabel     = "edgelimit.testnet.wan"
)

// Profiles are the optional parts of the compose file: a sidecar with its service in each region, Prometheus, and
// Grafana before it.
var Profiles = []string{"sidecar", "metrics", "grafana"}

// Options say where the cluster is and how to reach it.
type Options struct {
	Root     string        // the top of the repository, where the compose file is
	Run      Runner        // runs commands; nil: RunLocal
	Profiles []string      // those of Profiles that Up starts too
	Wide     bool          // ten regions instead of three
	Progress io.Writer     // if set, gets a line now and then from what takes long
	Patience time.Duration // bounds the time from a fault to its observed effect; 0: a minute
}

// Cluster is the cluster of this machine, whether it is up or not. Its methods are safe for concurrent use; faults
// injected concurrently are not serialized.
type Cluster struct {
	root     string
	run      Runner
	profiles []string
	wide     bool
	client   *http.Client
	progress io.Writer
	patience time.Duration
	licence  string // of Redis, for its image
}

func composePath(root string) string { return filepath.Join(root, "docker-compose.multiregion.yml") }

// Open returns the cluster. It runs no command yet.
func Open(o Options) (*Cluster, error) {
	root, err := filepath.Abs(o.Root)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(composePath(root)); err != nil {
		return nil, fmt.Errorf("run this at the top of edgelimit's repository: %w", err)
	}
	for _, p := range o.Profiles {
		if !slices.Contains(Profiles, p) {
			return nil, fmt.Errorf("no such profile: %q, there are %s", p, strings.Join(Profiles, ", "))
		}
	}
	c := &Cluster{root: root, run: o.Run, profiles: o.Profiles, wide: o.Wide, patience: cmp.Or(o.Patience, time.Minute),
		progress: cmp.Or(o.Progress, io.Discard), licence: debianRedisLicence,
		// Without keep-alive: a connection that outlives a kill or a partition would hide it.
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	if c.run == nil {
		c.run = RunLocal
	}
	return c, nil
}

func (c *Cluster) log(format string, args ...any) { fmt.Fprintf(c.progress, format+"\n", args...) }

// Up starts every container that does not run, and returns when every node is healthy and sees every other one. It
// moves nodes back to the addresses of the compose file. A region that is partitioned stays so, which is an error: see
// Heal.
func (c *Cluster) Up(ctx context.Context) error {
	if err := c.checkEngine(ctx); err != nil {
		return err
	}
	env, err := c.imageEnv(ctx)
	if err != nil {
		return err
	}
	c.log("starting the containers")
	if err := c.composeUp(ctx, env); err != nil {
		return err
	}
	return c.await(ctx, "the cluster is up, but not complete", func(ctx context.Context) ([]string, error) {
		s, err := c.observeAll(ctx)
		if err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(s, func(n NodeStatus) bool { return n.Partitioned }); i >= 0 {
			return nil, fmt.Errorf("%s is partitioned from the WAN; run: go run ./testnet heal", s[i].Name)
		}
		return append(s.unhealthy(), s.unseen()...), nil
	})
}

// imageEnv returns the variables that name the images which were built here, unless the user named others. It fails if
// an image is missing that cannot be pulled.
func (c *Cluster) imageEnv(ctx context.Context) (env []string, err error) {
	for _, image := range []struct{ variable, name string }{
		{"EDGELIMIT_IMAGE", NodeImage}, {"EDGELIMIT_REDIS_IMAGE", RedisImage},
	} {
		if os.Getenv(image.variable) != "" {
			continue
		}
		switch id, err := c.docker(ctx, "images", "--quiet", image.name); {
		case err != nil:
			return nil, err
		case id != "" && image.name == RedisImage: // the compose file's default is the public one
			env = append(env, image.variable+"="+image.name)
		case id == "" && image.name == NodeImage:
			return nil, fmt.Errorf("there is no image %s yet; build it: go run ./testnet build", image.name)
		}
	}
	return env, nil
}

// Down stops and removes all containers and networks of the cluster. The volume with the key file and the images stay.
func (c *Cluster) Down(ctx context.Context) error {
	if err := c.checkEngine(ctx); err != nil {
		return err
	}
	all, err := c.containers(ctx)
	if err != nil {
		return err
	}
	for _, ctr := range all { // a process that SIGSTOP stopped would not receive SIGTERM
		if ctr.running() {
			if err := c.signal(ctx, &ctr, "CONT"); err != nil {
				return err
			}
		}
	}
	c.log("removing the containers and networks")
	c = &Cluster{root: c.root, run: c.run, wide: true, progress: c.progress} // whether it was
	if err := c.compose(ctx, Profiles, nil, "down", "--remove-orphans", "--timeout", "10"); err != nil {
		return err
	}
	left, err := c.containers(ctx)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%d containers are still there, %s among them", len(left), left[0].service())
	}
	return err
}

// pollInterval is the time between two looks at a condition that is awaited.
const pollInterval = 200 * time.Millisecond

// await polls until nothing is missing any more. When the patience is over, the error lists what was missing last.
func (c *Cluster) await(ctx context.Context, failure string, poll func(context.Context) ([]string, error)) error {
	started := time.Now()
	logged := started
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		missing, err := poll(ctx)
		if err != nil || len(missing) == 0 {
			return err
		}
		list := strings.Join(missing, "; ")
		if time.Since(started) > c.patience {
			return fmt.Errorf("%s after %v: %s", failure, c.patience, list)
		}
		if time.Since(logged) > 5*time.Second {
			c.log("%3.0fs: %s", time.Since(started).Seconds(), list)
			logged = time.Now()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", failure, errors.Join(context.Cause(ctx), errors.New(list)))
		case <-ticker.C:
		}
	}
}
