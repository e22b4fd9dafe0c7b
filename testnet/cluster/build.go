package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Names of the images. ProductImage is for users: it holds cmd/edgelimit, without fault injection. RatelimitImage
// is the same program where envoyproxy/ratelimit's image has its own. NodeImage is for the
// compose file: it holds testnet/node, the same program with delay, jitter and loss on the WAN.
const (
	ProductImage     = "edgelimit:local"
	RatelimitImage   = "edgelimit:ratelimit"
	NodeImage        = "edgelimit-testnet/node:local"
	ShopImage        = "edgelimit-testnet/shop:local"
	RedisImage       = "edgelimit-testnet/redis:local"
	PublicRedisImage = "redis:7.4-alpine"
)

// Image is an image that was built or pulled.
type Image struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// recipe says how an image is built: FROM scratch, as no image may be there to pull.
type recipe struct {
	name, image, dockerfile string
	pkg, program            string // to compile; empty: this machine's Redis
}

var recipes = []recipe{
	{"edgelimit", ProductImage, "edgelimit.Dockerfile", "./cmd/edgelimit", "edgelimit"},
	{"ratelimit", RatelimitImage, "ratelimit.Dockerfile", "./cmd/edgelimit", "ratelimit"},
	{"node", NodeImage, "edgelimit.Dockerfile", "./testnet/node", "edgelimit"},
	{"shop", ShopImage, "shop.Dockerfile", "./testnet/compose/shop", "shop"},
	{"redis", RedisImage, "redis.Dockerfile", "", ""},
}

// Build builds the images named: edgelimit, ratelimit, node, shop, redis, or all. It stops at the first that fails.
// With pull, it pulls the public Redis instead of building one.
func (c *Cluster) Build(ctx context.Context, pull bool, names ...string) (built []Image, err error) {
	var known []string
	for _, r := range recipes {
		known = append(known, r.name)
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("no such image: %q, there are %s", name, strings.Join(known, ", "))
		}
	}
	if err := c.checkEngine(ctx); err != nil {
		return nil, err
	}
	for _, r := range recipes {
		if len(names) > 0 && !slices.Contains(names, r.name) {
			continue
		}
		if r.image == RedisImage && pull {
			r.image = PublicRedisImage
		}
		c.log("image %s", r.image)
		bytes, err := c.build(ctx, r)
		if err != nil {
			return built, fmt.Errorf("image %s: %w", r.image, err)
		}
		built = append(built, Image{r.image, bytes})
	}
	return built, nil
}

// build builds or pulls an image and returns its size.
func (c *Cluster) build(ctx context.Context, r recipe) (bytes int64, err error) {
	if r.image == PublicRedisImage {
		err = c.dockerShowing(ctx, "pull", r.image)
	} else {
		err = c.buildContext(ctx, r)
	}
	if err != nil {
		return 0, err
	}
	size, err := c.docker(ctx, "image", "inspect", "--format", "{{.Size}}", r.image)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(size, 10, 64)
}

func (c *Cluster) buildContext(ctx context.Context, r recipe) error {
	dir, err := os.MkdirTemp("", "edgelimit-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if r.pkg == "" {
		err = c.collectRedis(ctx, dir)
	} else {
		err = c.compile(ctx, r.pkg, filepath.Join(dir, r.program))
	}
	if err != nil {
		return err
	}
	file := filepath.Join(c.root, "testnet", "compose", r.dockerfile)
	return c.dockerShowing(ctx, "build", "--tag", r.image, "--file", file, dir)
}

// compile builds a static program of this repository for the engine's machine, which is this one. Its version is the
// commit, as in make build, where git can tell.
func (c *Cluster) compile(ctx context.Context, pkg, file string) error {
	flags := "-s -w"
	describe := []string{"describe", "--tags", "--always", "--dirty"}
	commit, err := c.run(ctx, Command{Name: "git", Args: describe, Dir: c.root})
	if err == nil {
		flags += " -X github.com/edgelimit/edgelimit/node.version=" + strings.TrimSpace(string(commit))
	}
	const tags = "grpcnotrace,urfave_cli_no_docs"
	args := []string{"build", "-trimpath", "-tags", tags, "-ldflags", flags, "-o", file, pkg}
	_, err = c.run(ctx, Command{Name: "go", Args: args, Dir: c.root, Env: []string{"CGO_ENABLED=0", "GOOS=linux"},
		Stderr: c.progress})
	return err
}
