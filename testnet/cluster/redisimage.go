package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// debianRedisLicence is where Debian keeps what the licence demands to be handed on.
const debianRedisLicence = "/usr/share/doc/redis-server/copyright"

var redisPrograms = []string{"redis-server", "redis-cli"}

// collectRedis copies Redis' programs, the libraries that they load, and their licence to dir/root, each at the path
// that it has here.
func (c *Cluster) collectRedis(ctx context.Context, dir string) error {
	if err := c.installRedis(ctx); err != nil {
		return err
	}
	root := filepath.Join(dir, "root")
	files := []string{c.licence}
	for _, name := range redisPrograms {
		program, err := exec.LookPath(name)
		if err != nil {
			return err
		}
		out, err := c.run(ctx, Command{Name: "ldd", Args: []string{program}})
		if err != nil {
			return err
		}
		libs, err := parseLdd(string(out))
		if err != nil {
			return fmt.Errorf("ldd %s: %w", program, err)
		}
		files = append(append(files, program), libs...)
	}
	for _, f := range files {
		if err := copyFile(filepath.Join(root, f), f); err != nil {
			return err
		}
	}
	return os.MkdirAll(filepath.Join(root, "tmp"), 0o777)
}

// installRedis installs Debian's package if Redis is missing.
func (c *Cluster) installRedis(ctx context.Context) error {
	missing := func(name string) bool { _, err := exec.LookPath(name); return err != nil }
	if !slices.ContainsFunc(redisPrograms, missing) {
		return nil
	}
	const instead = "; or use the public image: go run ./testnet build --pull"
	if missing("apt-get") {
		return errors.New("redis-server is not installed, and neither is apt-get, which would install it" + instead)
	}
	c.log("redis-server is missing here: installing it with apt-get, without starting it")
	_, err := c.run(ctx, Command{
		Name: "apt-get", Args: []string{"install", "--yes", "--no-install-recommends", "redis-server"},
		// At run level 1, Debian's packages do not start their services.
		Env: []string{"DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1"}, Stderr: c.progress,
	})
	if err != nil {
		return fmt.Errorf("install redis-server (as root: apt-get install redis-server%s): %w", instead, err)
	}
	return nil
}

// parseLdd returns the files in the output of ldd: the libraries, and the loader.
func parseLdd(output string) (files []string, err error) {
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if strings.HasSuffix(line, "not found") {
			return nil, errors.New(line)
		}
		if _, after, ok := strings.Cut(line, "=> "); ok {
			line = after
		}
		if file, _, ok := strings.Cut(line, " ("); ok && filepath.IsAbs(file) {
			files = append(files, file)
		}
	}
	return files, nil
}

// copyFile copies what from leads to, symbolic links followed.
func copyFile(to, from string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o755)
}
