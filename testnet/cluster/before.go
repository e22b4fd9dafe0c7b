package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// beforeCommit is what a rolling upgrade starts from. Nodes of now and of then are members of one cluster: set it anew
// with each change of what nodes send each other.
const beforeCommit = "25695c51669468e4ee304cc191eefcdce9bbc586"

// Version is which build of a node a container runs.
type Version string

// The versions: Build builds Now of this tree; Replace builds Before of beforeCommit, once.
const (
	Now    Version = "now"
	Before Version = "before"
)

// BeforeLabel is what nodes of Before report as their version.
const BeforeLabel = "before-25695c5"

const beforeImage = "edgelimit-testnet/node:" + BeforeLabel

// Replace stops nodes in order, if they run, and starts them as another version: in new containers, with the names and
// addresses that they had, as an upgrade does. It returns when they are ready and exchange frames with those that they
// can reach. Up replaces what is not of Now. The compose file's variables have to be those of Up.
func (c *Cluster) Replace(ctx context.Context, v Version, names ...string) error {
	env, err := c.imageEnv(ctx)
	if err != nil {
		return err
	}
	if v == Before {
		if err := c.buildBefore(ctx); err != nil {
			return fmt.Errorf("image %s: %w", beforeImage, err)
		}
		env = append(env, "EDGELIMIT_IMAGE="+beforeImage)
	}
	if err := c.stopAll(ctx, names); err != nil {
		return err
	}
	before := time.Now()
	if err := c.composeUp(ctx, env, names...); err != nil {
		return err
	}
	for _, name := range names {
		if err := c.awaitStart(ctx, name, before); err != nil {
			return err
		}
	}
	return nil
}

// stopAll stops the nodes that run, at the same time.
func (c *Cluster) stopAll(ctx context.Context, names []string) error {
	errs := make([]error, len(names))
	var stopping sync.WaitGroup
	for i, name := range names {
		ctr, err := c.find(ctx, name)
		if err != nil {
			return err
		}
		if ctr.running() {
			stopping.Go(func() { errs[i] = c.Stop(ctx, name) })
		}
	}
	stopping.Wait()
	return errors.Join(errs...)
}

// buildBefore builds the image of Before, unless it is there.
func (c *Cluster) buildBefore(ctx context.Context) error {
	id, err := c.docker(ctx, "images", "--quiet", beforeImage)
	if err != nil || id != "" {
		return err
	}
	c.log("image %s", beforeImage)
	dir, err := os.MkdirTemp("", "edgelimit-before-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := c.extract(ctx, beforeCommit, dir); err != nil {
		return err
	}
	return c.buildContext(ctx, recipe{image: beforeImage, dockerfile: "edgelimit.Dockerfile", pkg: "./testnet/node",
		program: "edgelimit", source: dir, version: BeforeLabel})
}

// extract writes the files of a commit to a folder.
func (c *Cluster) extract(ctx context.Context, commit, dir string) error {
	archive := filepath.Join(dir, "commit.tar")
	exists := []string{"cat-file", "-e", commit + "^{commit}"}
	if _, err := c.run(ctx, Command{Name: "git", Args: exists, Dir: c.root}); err != nil {
		return fmt.Errorf("commit %s is not in this clone, and the nodes before the upgrade are built of it; get the "+
			"history (git fetch --unshallow), or run this in a clone that has it: %w", commit, err)
	}
	if _, err := c.run(ctx, Command{Name: "git", Args: []string{"archive", "--output", archive, commit},
		Dir: c.root}); err != nil {
		return err
	}
	_, err := c.run(ctx, Command{Name: "tar", Args: []string{"-xf", archive, "-C", dir}})
	return err
}
