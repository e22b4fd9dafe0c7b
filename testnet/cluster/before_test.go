package cluster

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
)

// A node is stopped in order and comes back as the other version; Up's image is that of now.
func TestReplace(t *testing.T) {
	withCluster(t, func(t *testing.T, f *fakeCluster) {
		f.Images = append(f.Images, beforeImage)
		var env, created []string
		f.Compose = func(e *fakeEngine, verb string, services []string, c Command) {
			if verb != "up" {
				return
			}
			env, created = c.Env, services
			for _, name := range services {
				e.Change(name, func(c *fakeContainer) {
					if c.State != "exited" || c.ExitCode != 0 {
						t.Errorf("%s is %s (%d) when it is replaced", name, c.State, c.ExitCode)
					}
					c.start()
				})
			}
		}
		ok(t, f.cluster.Replace(t.Context(), Before, "us-east-1", "eu-west-2"))
		same(t, "created anew", created, "us-east-1", "eu-west-2")
		if env[len(env)-1] != "EDGELIMIT_IMAGE="+beforeImage { // the last of a name goes
			t.Errorf("variables %q", env)
		}
		ok(t, f.cluster.Kill(t.Context(), "us-east-1"))
		f.Change("us-east-1", func(c *fakeContainer) { c.ExitCode = 0 })
		ok(t, f.cluster.Replace(t.Context(), Now, "us-east-1")) // one that does not run
		if slices.ContainsFunc(env, func(v string) bool { return strings.Contains(v, beforeImage) }) {
			t.Errorf("variables %q", env)
		}
		f.alone["us-east-1"] = true
		fails(t, f.cluster.Replace(t.Context(), Now, "us-east-1"), "not together")
		f.Change("eu-west-2", func(c *fakeContainer) { c.IgnoresSIGTERM = true })
		fails(t, f.cluster.Replace(t.Context(), Now, "eu-west-2"), "exit status 137")
		fails(t, f.cluster.Replace(t.Context(), Now, "us-west-1"), "us-west-1")
	})
}

// The image of before is built once, of the commit's own files; a clone without the commit says what to do.
func TestBuildBefore(t *testing.T) {
	m, c, _ := newFakeMachine(t)
	var trees []string
	c.run = func(ctx context.Context, command Command) ([]byte, error) {
		if command.Name == "tar" {
			dir := command.Args[len(command.Args)-1]
			trees = append(trees, dir)
		}
		return m.Run(ctx, command)
	}
	ok(t, c.buildBefore(t.Context()))
	same(t, beforeImage, m.contexts[beforeImage], "/Dockerfile", "/edgelimit", "/own/data")
	i := slices.IndexFunc(m.commands, func(c Command) bool { return c.Name == "go" })
	if compile := m.commands[i]; len(trees) != 1 || compile.Dir != trees[0] ||
		!strings.Contains(compile.String(), "node.version="+BeforeLabel+" ") ||
		compile.Args[len(compile.Args)-1] != "./testnet/node" {
		t.Errorf("in %s, trees %q: %s", compile.Dir, trees, compile)
	}
	if _, err := os.Stat(trees[0]); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it leaves the tree: %v", err)
	}
	m, c, _ = newFakeMachine(t)
	m.fail = errors.New("exit status 128: fatal: not a valid object name")
	c.run = func(ctx context.Context, command Command) ([]byte, error) {
		if command.Name == "go" {
			t.Error("it compiles what it does not have")
		}
		return m.Run(ctx, command)
	}
	fails(t, c.buildBefore(t.Context()), beforeCommit, "git fetch --unshallow", "exit status 128")
	e := &fakeEngine{Images: []string{beforeImage}}
	c.run = e.Run
	ok(t, c.buildBefore(t.Context()))
	if built := e.Commands("build"); len(built) > 0 {
		t.Errorf("it builds what is there: %q", built)
	}
	if !strings.HasSuffix(BeforeLabel, beforeCommit[:7]) {
		t.Errorf("%s is not named for %s", BeforeLabel, beforeCommit)
	}
}
