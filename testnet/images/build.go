package images

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/edgelimit/edgelimit/testnet/docker"
)

// Names of the images, which the compose file and EDGELIMIT_REDIS_IMAGE refer to.
const (
	Edgelimit   = "edgelimit-testnet/edgelimit:local"
	Shop        = "edgelimit-testnet/shop:local"
	Redis       = "edgelimit-testnet/redis:local"
	PublicRedis = "redis:7.4-alpine"
)

// Engine is what is needed of a Docker Engine; docker.Engine is one.
type Engine interface {
	Build(ctx context.Context, name, dockerfile, dir string, progress io.Writer) error
	Pull(ctx context.Context, name string, progress io.Writer) error
	ImageSize(ctx context.Context, name string) (int64, error)
}

// Builder makes the images.
type Builder struct {
	Run    docker.Runner
	Engine Engine
	// Root is the top of the repository.
	Root string
	// Pull has the public Redis image pulled in place of one made of Debian's package.
	Pull bool
	// Progress gets a line for each step, and what the tools say.
	Progress io.Writer

	licence string // where Redis' licence is, if not in Debian's place
}

// Image is one that was made or pulled.
type Image struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// Build makes all images, or stops at the first that fails.
func (b *Builder) Build(ctx context.Context) ([]Image, error) {
	steps := []struct {
		name string
		make func(ctx context.Context, context string) error
		file string
	}{
		{Edgelimit, func(ctx context.Context, dir string) error {
			return b.compile(ctx, "./cmd/edgelimit", dir, "edgelimit")
		}, "edgelimit.Dockerfile"},
		{Shop, func(ctx context.Context, dir string) error {
			return b.compile(ctx, "./testnet/compose/shop", dir, "shop")
		}, "shop.Dockerfile"},
		{Redis, b.gatherRedis, "redis.Dockerfile"},
	}
	var made []Image
	for _, s := range steps {
		name := s.name
		if name == Redis && b.Pull {
			name = PublicRedis
		}
		fmt.Fprintf(b.Progress, "image %s\n", name)
		var err error
		if name == PublicRedis {
			err = b.Engine.Pull(ctx, name, b.Progress)
		} else {
			err = b.image(ctx, s.name, s.file, s.make)
		}
		if err != nil {
			return made, fmt.Errorf("image %s: %w", name, err)
		}
		size, err := b.Engine.ImageSize(ctx, name)
		if err != nil {
			return made, err
		}
		made = append(made, Image{name, size})
	}
	return made, nil
}

// image fills a build context and builds it.
func (b *Builder) image(ctx context.Context, name, dockerfile string, fill func(ctx context.Context, dir string) error) error {
	dir, err := os.MkdirTemp("", "edgelimit-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := fill(ctx, dir); err != nil {
		return err
	}
	return b.Engine.Build(ctx, name, filepath.Join(b.Root, "testnet", "compose", dockerfile), dir, b.Progress)
}

// compile builds a static program of this repository for the engine's machine, which is this one.
func (b *Builder) compile(ctx context.Context, pkg, dir, program string) error {
	_, err := b.Run.Run(ctx, docker.Command{
		Name: "go", Args: []string{"build", "-trimpath", "-tags", "grpcnotrace,urfave_cli_no_docs", "-ldflags", "-s -w", "-o", filepath.Join(dir, program), pkg},
		Dir: b.Root, Env: []string{"CGO_ENABLED=0", "GOOS=linux"}, Progress: b.Progress,
	})
	return err
}
