package multiregion

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

	"github.com/edgelimit/edgelimit/testnet/docker"
	"github.com/edgelimit/edgelimit/testnet/images"
)

// Project is the compose project under which the testnet runs; everything that belongs to it carries its label.
const Project = "edgelimit-testnet"

const (
	composeFile  = "docker-compose.multiregion.yml"
	wanNetwork   = Project + "_wan"
	projectLabel = "com.docker.compose.project"
	serviceLabel = "com.docker.compose.service"
	roleLabel    = "edgelimit.testnet.role"
	regionLabel  = "edgelimit.testnet.region"
)

// Profiles are the optional parts of the compose file: a sidecar with its service, and Prometheus.
var Profiles = []string{"sidecar", "metrics"}

// Options say where the testnet is and how to reach it.
type Options struct {
	// Root is the top of the repository, where the compose file is.
	Root string
	// Run runs commands of this machine; nil: docker.Host.
	Run docker.Runner
	// Profiles are those of Profiles that Up starts too.
	Profiles []string
	// Progress gets a line now and then from what takes long; nil: nobody does.
	Progress io.Writer
	// Patience is how long anything may take to show the effect that it is to have; 0: a minute.
	Patience time.Duration
}

// Testnet is the testnet of this machine, whether it is up or not. Its methods are safe for concurrent use, but faults that are
// made at the same time do not wait for each other.
type Testnet struct {
	run      docker.Runner
	engine   *docker.Engine
	compose  docker.Compose
	web      *http.Client
	progress io.Writer
	patience time.Duration
}

// Open returns the testnet. It asks nobody anything yet.
func Open(o Options) (*Testnet, error) {
	root, err := filepath.Abs(o.Root)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(root, composeFile)
	if _, err := os.Stat(file); err != nil {
		return nil, fmt.Errorf("run this at the top of edgelimit's repository: %w", err)
	}
	for _, p := range o.Profiles {
		if !slices.Contains(Profiles, p) {
			return nil, fmt.Errorf("no such profile: %q, there are %s", p, strings.Join(Profiles, " and "))
		}
	}
	t := &Testnet{run: o.Run, progress: o.Progress, patience: cmp.Or(o.Patience, time.Minute)}
	if t.run == nil {
		t.run = docker.Host{}
	}
	if t.progress == nil {
		t.progress = io.Discard
	}
	t.engine = docker.NewEngine(t.run)
	t.compose = docker.Compose{Run: t.run, File: file, Project: Project, Dir: root, Profiles: o.Profiles}
	// No connection is kept: one to a node that was killed, or cut off, would tell of the past.
	t.web = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return t, nil
}

func (t *Testnet) say(format string, args ...any) { fmt.Fprintf(t.progress, format+"\n", args...) }

// Up starts whatever of the testnet does not run, and returns when every node is healthy and sees every other one. It makes the
// cluster's key file if there is none. Nodes that were moved go back to where the compose file has them. A region that is
// cut off stays so, which is an error: see Heal.
func (t *Testnet) Up(ctx context.Context) error {
	if err := t.engine.Check(ctx); err != nil {
		return err
	}
	made, err := ensureKeyFile(t.compose.Dir)
	if err != nil {
		return err
	}
	if made {
		t.say("made the cluster's key file, %s", keyFile)
	}
	env, err := t.imageEnv(ctx)
	if err != nil {
		return err
	}
	t.say("starting the containers")
	compose := t.compose
	compose.Env = env
	if err := compose.Up(ctx); err != nil {
		return err
	}
	return t.await(ctx, "the testnet is up, but not whole", func(ctx context.Context) ([]string, error) {
		w, err := t.look(ctx)
		if err != nil {
			return nil, err
		}
		if cut := slices.IndexFunc(w, func(s sight) bool { return s.Cut }); cut >= 0 {
			return nil, fmt.Errorf("%s is cut off the WAN; mend that: go run ./testnet heal", w[cut].Name)
		}
		return append(w.unhealthy(), w.apart()...), nil
	})
}

// imageEnv checks that what is not pulled is there, and takes the Redis image that was made here unless the user named one.
func (t *Testnet) imageEnv(ctx context.Context) (env []string, err error) {
	if os.Getenv("EDGELIMIT_IMAGE") == "" {
		switch there, err := t.engine.HasImage(ctx, images.Edgelimit); {
		case err != nil:
			return nil, err
		case !there:
			return nil, fmt.Errorf("there is no image %s yet; make it: go run ./testnet build", images.Edgelimit)
		}
	}
	if os.Getenv("EDGELIMIT_REDIS_IMAGE") == "" {
		switch there, err := t.engine.HasImage(ctx, images.Redis); {
		case err != nil:
			return nil, err
		case there:
			env = append(env, "EDGELIMIT_REDIS_IMAGE="+images.Redis)
		}
	}
	return env, nil
}

// Down stops and removes all containers and networks of the testnet. The key file and the images stay.
func (t *Testnet) Down(ctx context.Context) error {
	if err := t.engine.Check(ctx); err != nil {
		return err
	}
	// One that was stopped by a signal would hear nothing of being asked to end, and be waited for in vain.
	all, err := t.containers(ctx)
	if err != nil {
		return err
	}
	for _, c := range all {
		if c.Running() {
			if err := t.engine.Kill(ctx, c.ID, "CONT"); err != nil {
				return err
			}
		}
	}
	compose := t.compose
	compose.Profiles = Profiles
	t.say("removing the containers and networks")
	if err := compose.Down(ctx); err != nil {
		return err
	}
	left, err := t.containers(ctx)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%d containers are still there, %s among them", len(left), left[0].Name)
	}
	return err
}

// containers are all that the engine has of the testnet.
func (t *Testnet) containers(ctx context.Context) ([]docker.Container, error) {
	return t.engine.Containers(ctx, projectLabel+"="+Project)
}

// look asks often.
const lookEvery = 200 * time.Millisecond

// await waits until nothing is missing any more. It fails with what was missing last when the patience is at its end.
func (t *Testnet) await(ctx context.Context, failure string, missing func(context.Context) ([]string, error)) error {
	started := time.Now()
	told := started
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		lack, err := missing(ctx)
		if err != nil || len(lack) == 0 {
			return err
		}
		if time.Since(started) > t.patience {
			return fmt.Errorf("%s after %v: %s", failure, t.patience, strings.Join(lack, "; "))
		}
		if time.Since(told) > 5*time.Second {
			t.say("%3.0fs: %s", time.Since(started).Seconds(), strings.Join(lack, "; "))
			told = time.Now()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", failure, errors.Join(context.Cause(ctx), errors.New(strings.Join(lack, "; "))))
		case <-ticker.C:
		}
	}
}
