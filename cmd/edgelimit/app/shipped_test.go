package app

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/envoy"
	"github.com/edgelimit/edgelimit/node/otlp"
	"github.com/edgelimit/edgelimit/node/xds"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// shippedStart is how a node is started with files of the repository.
type shippedStart struct {
	from      string // the file that says so
	args      []string
	variables map[string]string
	mounts    map[string]string // by the path that a process has there, the path in the repository
}

var discarded = slog.New(slog.DiscardHandler)

const nowhere = "redis://127.0.0.1:1"

// start makes the node as the program does. Where it would meet what is not of the repository, such as addresses, a key
// and other nodes, it has some of its own.
func (s *shippedStart) start(t *testing.T, key string) {
	t.Helper()
	for name, value := range s.variables {
		t.Setenv(name, strings.ReplaceAll(value, "$(POD_IP)", "192.0.2.1"))
	}
	var args []string
	for _, arg := range s.args[1:] {
		args = append(args, s.path(arg))
	}
	var cfg node.Config
	var err error
	if s.args[0] == "proxy" {
		cfg, err = proxyConfigured(t, args...)
	} else {
		cfg, err = configured(t, args...)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range cfg.Rules {
		cfg.Rules[i] = s.path(cfg.Rules[i])
	}
	for _, address := range []*string{&cfg.HTTP, &cfg.GRPC, &cfg.RESP, &cfg.Health, &cfg.Admin, &cfg.Proxy.Listen,
		&cfg.Gossip.LAN, &cfg.Gossip.WAN} {
		if *address != "" {
			*address = "127.0.0.1:0"
		}
	}
	for region, r := range cfg.Strict.Redis {
		r.URL = nowhere
		cfg.Strict.Redis[region] = r
	}
	if cfg.Redis.URL != "" {
		cfg.Redis.URL = nowhere
	}
	if cfg.Gossip.KeyFile != "" {
		cfg.Gossip.KeyFile = key
	}
	if cfg.Proxy.AccessLog.File != "" {
		cfg.Proxy.AccessLog.File = filepath.Join(t.TempDir(), "access.log")
	}
	cfg.Logger, cfg.Envoy, cfg.RulesFrom, cfg.OTLPExporter = discarded, envoy.Service, xds.Source, otlp.New
	n, err := node.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Must(t, n.Close())
}

// path returns a path of the process as one of this machine.
func (s *shippedStart) path(text string) string {
	for there, here := range s.mounts {
		if rest, ok := strings.CutPrefix(text, there); ok {
			return here + rest
		}
	}
	return text
}

// read are the files that the start reads.
func (s *shippedStart) read() (files []string) {
	for _, at := range s.mounts {
		filepath.WalkDir(at, func(name string, _ fs.DirEntry, err error) error {
			files = append(files, name)
			return err
		})
	}
	return files
}

// composed are the starts of a Compose file.
func composed(t *testing.T, file string, data []byte) (starts []shippedStart) {
	t.Helper()
	defaults := regexp.MustCompile(`\$\{[A-Z0-9_]+:-([^}]*)\}`)
	var compose struct {
		Services map[string]struct {
			Command     []string
			Environment map[string]string
			Volumes     []struct{ Source, Target string }
		}
	}
	testkit.Must(t, yaml.Unmarshal(defaults.ReplaceAll(data, []byte("$1")), &compose))
	for _, name := range slices.Sorted(maps.Keys(compose.Services)) {
		service := compose.Services[name]
		if len(service.Command) == 0 || service.Command[0] != "serve" && service.Command[0] != "proxy" {
			continue
		}
		s := shippedStart{file + " " + name, service.Command, service.Environment, make(map[string]string)}
		for _, v := range service.Volumes {
			if v.Target != "/data" {
				s.mounts[v.Target] = filepath.Join(filepath.Dir(file), v.Source)
			}
		}
		starts = append(starts, s)
	}
	return starts
}

// podStarts are the starts of a manifest for Kubernetes. Its ConfigMaps have the names of files beside it.
func podStarts(t *testing.T, file string, data []byte) (starts []shippedStart) {
	t.Helper()
	type container struct {
		Args []string
		Env  []struct{ Name, Value string }
	}
	dir := filepath.Dir(file)
	for d := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var manifest struct {
			Spec struct {
				Template struct {
					Spec struct {
						Containers     []container
						InitContainers []container `yaml:"initContainers"`
					}
				}
			}
		}
		err := d.Decode(&manifest)
		if errors.Is(err, io.EOF) {
			return starts
		} else if err != nil && !errors.As(err, new(*yaml.TypeError)) { // of another kind, whose spec is another
			t.Fatalf("%s: %v", file, err)
		}
		pod := manifest.Spec.Template.Spec
		for _, c := range slices.Concat(pod.Containers, pod.InitContainers) {
			if len(c.Args) == 0 {
				continue
			}
			s := shippedStart{file, c.Args, make(map[string]string), map[string]string{
				"/etc/edgelimit/rules":          filepath.Join(dir, "rules.yaml"),
				"/etc/edgelimit/edgelimit.yaml": filepath.Join(dir, "edgelimit.yaml"),
			}}
			for _, v := range c.Env {
				s.variables[v.Name] = cmp.Or(v.Value, "of-the-pod")
			}
			starts = append(starts, s)
		}
	}
}

// besideOther are files of other programs.
var besideOther = []string{
	"node/ratelimit/prom/mapping.yaml", "node/deploy/prometheus/*.yml", "testnet/compose/prometheus.yml",
	"testnet/compose/grafana/*/*.yml", "testnet/recipes/envoy.yaml", "testnet/recipes/apisix.yaml",
	"testnet/recipes/traefik*.yaml", "testnet/recipes/dropin/*.yaml",
}

// Every configuration that the repository has, in files and in pages, starts with the rules that it is shipped with. A
// YAML file that no start reads fails this test: it wants one, or belongs to another program.
func TestShippedConfigurationsStart(t *testing.T) {
	node.LogRedisClient(discarded)
	root, err := filepath.Abs("../../..")
	testkit.Must(t, err)
	key := filepath.Join(t.TempDir(), "cluster.key")
	edgelimit(t, "keygen", "--out", key).says(t, 0)
	at := func(file string) string { return filepath.Join(root, file) }
	recipe := func(file string) shippedStart {
		return shippedStart{from: file, args: []string{"serve", "--config", at(file)},
			mounts: map[string]string{"rules.yaml": at("testnet/recipes/rules.yaml"), at(file): at(file)}}
	}
	starts := []shippedStart{
		{from: "node/deploy/systemd", args: []string{"serve", "--config", at("node/edgelimit.yaml"), "--key-file", "k"},
			mounts: map[string]string{at("node/edgelimit.yaml"): at("node/edgelimit.yaml")}},
		{from: "node/rules/rulefile/sample.yaml", args: []string{"serve", "--rules", "rules.yaml"},
			mounts: map[string]string{"rules.yaml": at("node/rules/rulefile/sample.yaml")}},
		recipe("testnet/recipes/edgelimit.yaml"), recipe("testnet/recipes/edgelimit-envoy.yaml"),
	}
	var unread []string
	testkit.Must(t, filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if d.Name() == "testdata" || d.Name() == ".git" {
				return fs.SkipDir
			}
			return err
		}
		name, err := filepath.Rel(root, file)
		testkit.Must(t, err)
		switch path.Ext(name) {
		case ".md":
			data, err := os.ReadFile(file)
			testkit.Must(t, err)
			starts = append(starts, pageStarts(t, name, string(data))...)
			return nil
		case ".yaml", ".yml":
		default:
			return nil
		}
		if slices.ContainsFunc(besideOther, func(pattern string) bool {
			matches, _ := path.Match(pattern, name)
			return matches
		}) {
			return nil
		}
		data, err := os.ReadFile(file)
		testkit.Must(t, err)
		var found []shippedStart
		if strings.Contains(string(data), "\napiVersion: ") {
			found = podStarts(t, file, data)
		} else if found = composed(t, file, data); len(found) == 0 {
			unread = append(unread, file)
		}
		starts = append(starts, found...)
		return nil
	}))
	for _, s := range starts {
		t.Run(strings.TrimPrefix(s.from, root+"/"), func(t *testing.T) { s.start(t, key) })
		files := s.read()
		unread = slices.DeleteFunc(unread, func(file string) bool { return slices.Contains(files, file) })
	}
	if len(unread) > 0 {
		t.Errorf("no start reads %q", unread)
	}
	if len(starts) < 20 {
		t.Errorf("only %d starts", len(starts))
	}
}

// pageStarts are the starts of a page's examples: of each rule file, and of a configuration with the rule file that
// follows it. What a configuration has without rules is part of one: here it is read and checked alone, as the files
// that it names are not there.
func pageStarts(t *testing.T, page, text string) (starts []shippedStart) {
	t.Helper()
	blocks := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(text, -1)
	config := ""
	for i, block := range blocks {
		var keys map[string]any
		if yaml.Unmarshal([]byte(block[1]), &keys) != nil {
			continue // a list: variables of a container, or limits of a flat file, which rulefile reads
		}
		file := written(t, "example.yaml", block[1])
		if keys["descriptors"] == nil {
			cfg, err := node.ReadConfig(file)
			if err == nil {
				cfg.Envoy, cfg.RulesFrom, cfg.OTLPExporter = envoy.Service, xds.Source, otlp.New
				err = cfg.Validate()
			}
			if err != nil {
				t.Errorf("%s, example %d: %v", page, i+1, err)
			}
			if config = ""; slices.Equal(cfg.Rules, []string{"rules.yaml"}) {
				config = file
			}
			continue
		}
		s := shippedStart{from: fmt.Sprint(page, " example ", i+1), mounts: map[string]string{"rules.yaml": file},
			args: []string{"serve", "--rules", "rules.yaml", "--redis", nowhere, "--strict-redis", "us-east=" + nowhere,
				"--key-file", "k"}}
		if config != "" {
			s.args, config = []string{"proxy", "--config", config}, ""
		}
		starts = append(starts, s)
	}
	return starts
}
