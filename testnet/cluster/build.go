package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Names of the images. ProductImage is for users: it holds cmd/edgelimit, without fault injection. RatelimitImage
// is the same program where envoyproxy/ratelimit's image has its own. NodeImage is for the
// compose file: it holds testnet/node, the same program with delay, jitter and loss on the WAN, and a shop.
const (
	ProductImage     = "edgelimit:local"
	RatelimitImage   = "edgelimit:ratelimit"
	NodeImage        = "edgelimit-testnet/node:local"
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
	source, version         string // the tree to compile, and its version; empty: this one, as git describes it
}

var recipes = []recipe{
	{name: "edgelimit", image: ProductImage, dockerfile: "edgelimit.Dockerfile", pkg: "./cmd/edgelimit",
		program: "edgelimit"},
	{name: "ratelimit", image: RatelimitImage, dockerfile: "ratelimit.Dockerfile", pkg: "./cmd/edgelimit",
		program: "ratelimit"},
	{name: "node", image: NodeImage, dockerfile: "edgelimit.Dockerfile", pkg: "./testnet/node", program: "edgelimit"},
	{name: "redis", image: RedisImage, dockerfile: "redis.Dockerfile"},
}

// Build builds the images named: edgelimit, ratelimit, node, redis, or all. It stops at the first that fails.
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
		err = errors.Join(c.compile(ctx, r, filepath.Join(dir, r.program)),
			os.MkdirAll(filepath.Join(dir, "own", "data"), 0o700))
	}
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(c.root, "testnet", "compose", r.dockerfile))
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "Dockerfile")
	if err := os.WriteFile(file, []byte(lastStage(string(text))), 0o600); err != nil {
		return err
	}
	return c.dockerShowing(ctx, "build", "--tag", r.image, "--file", file, dir)
}

// lastStage returns the last stage of a Dockerfile. What it copies from the first one, out of /out, is taken from the
// build context.
func lastStage(dockerfile string) string {
	_, stage, _ := strings.Cut("\n"+dockerfile, "\nFROM scratch\n")
	return "FROM scratch\n" + strings.ReplaceAll(stage, "--from=build /out/", "")
}

// compile builds a recipe's static program for the engine's machine, which is this one, as the Dockerfile does.
func (c *Cluster) compile(ctx context.Context, r recipe, file string) error {
	source, flags := cmp.Or(r.source, c.root), "-s -w"
	version := r.version
	if r.source == "" {
		describe := []string{"describe", "--tags", "--always", "--dirty"}
		commit, err := c.run(ctx, Command{Name: "git", Args: describe, Dir: c.root})
		if err == nil { // else the version is what the go command knows
			version = strings.TrimSpace(string(commit))
		}
	}
	if version != "" {
		flags += " -X github.com/edgelimit/edgelimit/node.version=" + version
	}
	const tags = "grpcnotrace,urfave_cli_no_docs"
	args := []string{"build", "-trimpath", "-tags", tags, "-ldflags", flags, "-o", file, r.pkg}
	_, err := c.run(ctx, Command{Name: "go", Args: args, Dir: source, Env: []string{"CGO_ENABLED=0", "GOOS=linux"},
		Stderr: c.progress})
	return err
}
