package images

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/edgelimit/edgelimit/testnet/docker"
)

// redisPrograms are what the image holds.
var redisPrograms = []string{"redis-server", "redis-cli"}

// redisLicence is where Debian keeps what the licence demands to be handed on.
const redisLicence = "/usr/share/doc/redis-server/copyright"

// gatherRedis puts Redis' programs, the libraries that they load, and their licence under dir/root, each where it is here.
func (b *Builder) gatherRedis(ctx context.Context, dir string) error {
	if err := b.installRedis(ctx); err != nil {
		return err
	}
	root := filepath.Join(dir, "root")
	files := []string{cmp.Or(b.licence, redisLicence)}
	for _, name := range redisPrograms {
		program, err := exec.LookPath(name)
		if err != nil {
			return err
		}
		out, err := b.Run.Run(ctx, docker.Command{Name: "ldd", Args: []string{program}})
		if err != nil {
			return err
		}
		libs, err := loaded(string(out))
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
func (b *Builder) installRedis(ctx context.Context) error {
	missing := false
	for _, name := range redisPrograms {
		_, err := exec.LookPath(name)
		missing = missing || err != nil
	}
	if !missing {
		return nil
	}
	const instead = "; or use the public image: go run ./testnet build --pull"
	if _, err := exec.LookPath("apt-get"); err != nil {
		return errors.New("redis-server is not installed, and neither is apt-get, which would install it" + instead)
	}
	fmt.Fprintln(b.Progress, "redis-server is missing here: installing it with apt-get, without starting it")
	_, err := b.Run.Run(ctx, docker.Command{
		Name: "apt-get", Args: []string{"install", "--yes", "--no-install-recommends", "redis-server"},
		// Run level 1 is how Debian's packages are told not to start their services.
		Env: []string{"DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1"}, Progress: b.Progress,
	})
	if err != nil {
		return fmt.Errorf("install redis-server (as root: apt-get install redis-server%s): %w", instead, err)
	}
	return nil
}

// loaded returns the files in what ldd prints: the libraries, and the loader.
func loaded(ldd string) ([]string, error) {
	var files []string
	for lines := bufio.NewScanner(strings.NewReader(ldd)); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
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

// copyFile copies what from leads to, symbolic links followed, with its mode.
func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
