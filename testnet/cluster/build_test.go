package cluster

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fakeMachine compiles nothing, and remembers the commands and what was in each build context.
type fakeMachine struct {
	commands []Command
	contexts map[string][]string // files by image
	pulled   []string
	ldd      string
	fail     error
}

func (m *fakeMachine) Run(_ context.Context, c Command) ([]byte, error) {
	m.commands = append(m.commands, c)
	switch c.Name {
	case "git":
		return []byte("v1.2.3\n"), m.fail
	case "ldd":
		return []byte(m.ldd), m.fail
	case "go":
		out := c.Args[slices.Index(c.Args, "-o")+1]
		return nil, errors.Join(m.fail, os.WriteFile(out, []byte("a program"), 0o755))
	case "docker":
		return m.docker(c.Args)
	}
	return nil, m.fail
}

func (m *fakeMachine) docker(args []string) ([]byte, error) {
	switch args[0] {
	case "build": // --tag NAME --file FILE DIR
		if _, err := os.Stat(args[4]); err != nil {
			return nil, err
		}
		return nil, filepath.WalkDir(args[5], func(path string, d fs.DirEntry, err error) error {
			if err == nil && (!d.IsDir() || d.Name() == "data") {
				m.contexts[args[2]] = append(m.contexts[args[2]], strings.TrimPrefix(path, args[5]))
			}
			return err
		})
	case "pull":
		m.pulled = append(m.pulled, args[1])
	case "image":
		return []byte("7\n"), nil
	}
	return nil, nil
}

// newFakeMachine has a machine where only the programs given are installed.
func newFakeMachine(t *testing.T, installed ...string) (*fakeMachine, *Cluster, *bytes.Buffer) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range append(installed, "libc.so", "copyright") {
		ok(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o755))
	}
	t.Setenv("PATH", dir)
	m := &fakeMachine{
		contexts: make(map[string][]string),
		ldd:      "\tlinux-vdso.so.1 (0x00007ff)\n\tlibc.so.6 => " + dir + "/libc.so (0x00007ff)\n",
	}
	var progress bytes.Buffer
	return m, &Cluster{run: m.Run, root: "../..", progress: &progress, licence: dir + "/copyright"}, &progress
}

func TestBuild(t *testing.T) {
	m, c, _ := newFakeMachine(t, "redis-server", "redis-cli")
	built, err := c.Build(t.Context(), false)
	want := []Image{{ProductImage, 7}, {RatelimitImage, 7}, {NodeImage, 7}, {RedisImage, 7}}
	if err != nil || !slices.Equal(built, want) {
		t.Fatalf("%v, %v", built, err)
	}
	dir := "/root" + filepath.Dir(c.licence)
	same(t, ProductImage, m.contexts[ProductImage], "/Dockerfile", "/edgelimit", "/own/data")
	same(t, RatelimitImage, m.contexts[RatelimitImage], "/Dockerfile", "/own/data", "/ratelimit")
	same(t, NodeImage, m.contexts[NodeImage], "/Dockerfile", "/edgelimit", "/own/data")
	same(t, RedisImage, m.contexts[RedisImage], "/Dockerfile", dir+"/copyright", dir+"/libc.so", dir+"/redis-cli",
		dir+"/redis-server")
	var packages []string
	for _, command := range m.commands {
		if command.Name == "apt-get" {
			t.Errorf("it installs what is there: %s", command)
		}
		if command.Name != "go" {
			continue
		}
		packages = append(packages, command.Args[len(command.Args)-1])
		if !slices.Contains(command.Env, "CGO_ENABLED=0") || command.Dir != "../.." {
			t.Errorf("not static: %s with %q in %s", command, command.Env, command.Dir)
		}
		if !strings.Contains(command.String(), "node.version=v1.2.3 ") {
			t.Errorf("it does not set the version: %s", command)
		}
	}
	same(t, "compiled", packages, "./cmd/edgelimit", "./cmd/edgelimit", "./testnet/node")
}

// The image for users needs neither Redis nor the testnet's binary.
func TestBuildOneImage(t *testing.T) {
	m, c, _ := newFakeMachine(t)
	built, err := c.Build(t.Context(), false, "edgelimit")
	if err != nil || !slices.Equal(built, []Image{{ProductImage, 7}}) || len(m.contexts) != 1 {
		t.Errorf("%v, contexts %v, %v", built, m.contexts, err)
	}
	_, err = c.Build(t.Context(), false, "edgelimt")
	fails(t, err, `"edgelimt"`, "edgelimit, ratelimit, node, redis")
}

func TestBuildPulls(t *testing.T) {
	m, c, _ := newFakeMachine(t) // no Redis here
	built, err := c.Build(t.Context(), true)
	ok(t, err)
	same(t, "pulled", m.pulled, PublicRedisImage)
	if len(built) != 4 || built[3].Name != PublicRedisImage {
		t.Errorf("built %v", built)
	}
}

func TestBuildInstallsRedisAndLogsIt(t *testing.T) {
	m, c, progress := newFakeMachine(t, "apt-get", "redis-cli")
	if _, err := c.Build(t.Context(), false); !errors.Is(err, exec.ErrNotFound) { // apt-get is a fake
		t.Errorf("error %v", err)
	}
	i := slices.IndexFunc(m.commands, func(c Command) bool { return c.Name == "apt-get" })
	if i < 0 || !strings.HasSuffix(m.commands[i].String(), "redis-server") ||
		!strings.Contains(progress.String(), "installing it with apt-get") {
		t.Errorf("ran %q, logged %q", m.commands, progress)
	}
}

func TestBuildFailures(t *testing.T) {
	_, c, _ := newFakeMachine(t)
	_, err := c.Build(t.Context(), false)
	fails(t, err, "--pull", RedisImage)
	m, c, _ := newFakeMachine(t, "redis-server", "redis-cli")
	m.fail = errors.New("does not compile")
	built, err := c.Build(t.Context(), false)
	fails(t, err, ProductImage)
	if len(built) > 0 || !errors.Is(err, m.fail) {
		t.Errorf("built %v, %v", built, err)
	}
}

// From source and with what was compiled here, the image is the same: the Dockerfile compiles as make build and compile
// do, and its last stage is what is built where its first cannot be.
func TestDockerfile(t *testing.T) {
	for _, r := range recipes {
		text, err := os.ReadFile(filepath.Join("..", "compose", r.dockerfile))
		ok(t, err)
		stage := lastStage(string(text))
		if strings.Contains(stage, "--from") || strings.Count(stage, "FROM ") != 1 ||
			r.program != "" && !strings.Contains(stage, "\nCOPY "+r.program+" ") {
			t.Errorf("%s: the last stage is\n%s", r.dockerfile, stage)
		}
	}
	source, err := os.ReadFile(filepath.Join("..", "compose", "edgelimit.Dockerfile"))
	ok(t, err)
	makefile, err := os.ReadFile(filepath.Join("..", "..", "Makefile"))
	ok(t, err)
	m, c, _ := newFakeMachine(t)
	ok(t, c.compile(t.Context(), recipes[0], filepath.Join(t.TempDir(), "edgelimit")))
	compile := m.commands[slices.IndexFunc(m.commands, func(c Command) bool { return c.Name == "go" })].String()
	for _, text := range []string{string(source), string(makefile), "CGO_ENABLED=0 " + compile} {
		for _, part := range []string{"CGO_ENABLED=0 ", "build -trimpath -tags ", "grpcnotrace,urfave_cli_no_docs",
			"-s -w -X github.com/edgelimit/edgelimit/node.version="} {
			if !strings.Contains(text, part) {
				t.Errorf("it compiles without %q:\n%s", part, text)
			}
		}
	}
}

func TestParseLdd(t *testing.T) {
	got, err := parseLdd("\tlinux-vdso.so.1 (0x00007ff3da872000)\n" +
		"\tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f)\n\t/lib64/ld-linux-x86-64.so.2 (0x0000)\n")
	ok(t, err)
	same(t, "files", got, "/lib/x86_64-linux-gnu/libm.so.6", "/lib64/ld-linux-x86-64.so.2")
	_, err = parseLdd("\tliblzf.so.1 => not found\n")
	fails(t, err, "liblzf.so.1")
	got, err = parseLdd("\tnot a dynamic executable\n")
	ok(t, err)
	same(t, "files", got)
}
