package app

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// configured is the configuration that serve makes of its arguments.
func configured(t *testing.T, args ...string) (cfg node.Config, err error) {
	t.Helper()
	return configurationOf(t, serveCommand(nil), node.DefaultConfig(), serveSettings, args...)
}

// proxyConfigured is the configuration that the command proxy makes of its arguments.
func proxyConfigured(t *testing.T, args ...string) (node.Config, error) {
	t.Helper()
	return configurationOf(t, proxyCommand(nil), proxyDefaults(), proxySettings, args...)
}

func configurationOf(t *testing.T, command *cli.Command, defaults node.Config, settings settings, args ...string) (
	cfg node.Config, err error) {
	t.Helper()
	outer := parsed(t, func(c *cli.Context) error {
		cfg, err = serveConfig(c, defaults, settings)
		return nil
	}, command.Flags, args...)
	if outer != nil {
		t.Fatal(outer)
	}
	return cfg, err
}

func written(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	testkit.Must(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func TestServeWithoutFlagsIsTheDefault(t *testing.T) {
	cfg, err := configured(t)
	if err != nil || !reflect.DeepEqual(cfg, node.DefaultConfig()) {
		t.Errorf("%+v, %v", cfg, err)
	}
}

func TestServeFlags(t *testing.T) {
	got, err := configured(t, "--rules", "a.yaml", "--rules", "dir", "--region", "eu", "--node-id", "n1", "--http",
		"127.0.0.1:1", "--resp", "unix:/r", "--grpc", "unix:/g", "--health", "", "--gossip", "127.0.0.1:2",
		"--gossip-wan", "127.0.0.1:3", "--join", "x", "--join", "wan:y:4", "--key-file", "k", "--interval", "50ms",
		"--advertise-lan", "192.0.2.1:5", "--advertise-wan", "192.0.2.2:6", "--memory", "1GiB", "--shadow", "--linger",
		"7s")
	testkit.Must(t, err)
	want := node.DefaultConfig()
	want.Rules, want.Region, want.NodeID, want.HTTP, want.Health = []string{
		"a.yaml", "dir",
	}, "eu", "n1", "127.0.0.1:1", ""
	want.RESP, want.GRPC = "unix:/r", "unix:/g"
	want.Gossip.LAN, want.Gossip.WAN, want.Gossip.Join = "127.0.0.1:2", "127.0.0.1:3", []string{"x", "wan:y:4"}
	want.Gossip.KeyFile, want.Gossip.Interval = "k", 50*time.Millisecond
	want.Gossip.AdvertiseLAN, want.Gossip.AdvertiseWAN = "192.0.2.1:5", "192.0.2.2:6"
	want.Memory, want.Shadow, want.Linger = 1<<30, true, 7*time.Second
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

const fileConfig = `
node_id: of-file
region: of-file
http: 127.0.0.1:1001
rules: [of-file.yaml]
memory: 77MiB
gossip: {lan: "127.0.0.1:1002", join: [of-file], interval: 11ms}
`

// A flag goes over a variable, a variable over the file, the file over the defaults; each setting by itself.
func TestServePrecedence(t *testing.T) {
	file := written(t, "edgelimit.yaml", fileConfig)
	settings := func(c node.Config) []string {
		return []string{
			c.NodeID, c.Region, c.HTTP, strings.Join(c.Rules, "+"), c.Gossip.LAN, strings.Join(c.Gossip.Join, "+"),
			c.Gossip.Interval.String(), c.Health,
		}
	}
	expect := func(args []string, want ...string) {
		t.Helper()
		cfg, err := configured(t, args...)
		if err != nil || !slices.Equal(settings(cfg), want) {
			t.Errorf("got  %q, %v\nwant %q", settings(cfg), err, want)
		}
		if len(args) > 0 && cfg.Memory != 77<<20 {
			t.Errorf("what has no flag in the arguments is lost: memory %v", cfg.Memory)
		}
	}
	inFile := []string{
		"of-file", "of-file", "127.0.0.1:1001", "of-file.yaml", "127.0.0.1:1002", "of-file", "11ms", node.DefaultHealth,
	}
	expect([]string{"--config", file}, inFile...)

	t.Setenv("EDGELIMIT_REGION", "of-env")
	t.Setenv("EDGELIMIT_HTTP", "127.0.0.1:2001")
	t.Setenv("EDGELIMIT_RULES", "env1.yaml,env2.yaml")
	t.Setenv("EDGELIMIT_JOIN", "env1,wan:env2")
	t.Setenv("EDGELIMIT_INTERVAL", "22ms")
	inEnv := []string{
		"of-file", "of-env", "127.0.0.1:2001", "env1.yaml+env2.yaml", "127.0.0.1:1002", "env1+wan:env2", "22ms",
		node.DefaultHealth,
	}
	expect([]string{"--config", file}, inEnv...)

	expect(
		[]string{
			"--config", file, "--region", "of-flag", "--rules", "flag.yaml", "--join", "flag", "--interval", "33ms",
		},
		"of-file",
		"of-flag",
		"127.0.0.1:2001",
		"flag.yaml",
		"127.0.0.1:1002",
		"flag",
		"33ms",
		node.DefaultHealth,
	)

	behind, err := configured(t, "--trusted-proxy", "10.0.0.0/8", "--trusted-proxy", "unix")
	if err != nil || !slices.Equal(behind.Requests.TrustedProxies, []string{"10.0.0.0/8", "unix"}) ||
		len(behind.Requests.Descriptors) != len(node.DefaultConfig().Requests.Descriptors) {
		t.Errorf("behind proxies: %+v, %v", behind.Requests, err)
	}

	t.Setenv("EDGELIMIT_CONFIG", file)
	t.Setenv("EDGELIMIT_HTTP", "") // closes the door
	cfg, err := configured(t)
	if err != nil || cfg.NodeID != "of-file" || cfg.HTTP != "" {
		t.Errorf("by variables alone: %+v, %v", cfg, err)
	}
	t.Setenv("EDGELIMIT_MEMORY", "5MiB")
	if cfg, err = configured(t); err != nil || cfg.Memory != 5<<20 {
		t.Errorf("by a variable over the file: memory %v, %v", cfg.Memory, err)
	}
	t.Setenv("EDGELIMIT_MEMORY", "")
	t.Setenv("EDGELIMIT_CONFIG", "") // as compose files leave it
	if cfg, err = configured(t); err != nil || cfg.Memory != node.DefaultConfig().Memory {
		t.Errorf("with an empty EDGELIMIT_CONFIG: %+v, %v", cfg, err)
	}
}

func TestServeConfigErrors(t *testing.T) {
	if _, err := configured(t, "--config", "no/such.yaml"); err == nil ||
		!strings.Contains(err.Error(), "no/such.yaml") {
		t.Errorf("error %v", err)
	}
	if _, err := configured(t, "--config", written(t, "c.yaml", "htttp: x\n")); err == nil ||
		!strings.Contains(err.Error(), "c.yaml:1:1: unknown setting") {
		t.Errorf("error %v", err)
	}
}

// What serve refuses, it refuses before it opens anything, with a word on what to do.
func TestServeRefuses(t *testing.T) {
	key := written(t, "k", "gossip: secretsecretsecret\n")
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"--grpc", "nonsense"}, []string{`grpc: address "nonsense"`, "unix:/path"}},
		{[]string{"--resp", "nonsense"}, []string{`resp: address "nonsense"`, "unix:/path"}},
		{[]string{"--admin", ":7949"}, []string{"admin: :7949", "want loopback"}},
		{[]string{"--redis", "localhost:6379"}, []string{"redis.url", "no scheme", "redis://host:port"}},
		{[]string{"--redis", "redis://u:secretsecret@host:0"}, []string{"redis.url", "host:0"}},
		{[]string{"extra"}, []string{`"extra"`, "no arguments"}},
		{[]string{"--log-level", "loud"}, []string{`--log-level loud`, "debug, info, warn or error"}},
		{[]string{"--config", "no/such.yaml"}, []string{"no/such.yaml"}},
		{[]string{"--interval", "0s"}, []string{"interval"}},
		{[]string{"--interval", "soon"}, []string{"interval"}},
		{[]string{"--memory", "64MB"}, []string{"--memory 64MB", "256MiB"}},
		{[]string{"--memory", "1MiB"}, []string{"memory: 1MiB", "4MiB to 64GiB"}},
		{[]string{"--http", "nonsense", "--health", "rubbish", "--region", ""}, []string{`http: address "nonsense"`,
			`health: address "rubbish"`, "region"}},
		{[]string{"--join", "a"}, []string{"gossip.lan"}},
		{[]string{"--gossip", "0.0.0.0:0"}, []string{"keygen"}},
		{[]string{"--gossip", "127.0.0.1:0", "--key-file", key}, []string{key, "line 1"}},
		{[]string{"--advertise-wan", "nonsense"}, []string{"advertise_wan"}},
		{[]string{"--rules", "no/such/rules"}, []string{"no/such/rules"}},
	} {
		r := edgelimit(t, append([]string{"serve"}, test.args...)...)
		r.says(t, 2, test.want...)
		if strings.Contains(r.out+r.err, "secretsecret") {
			t.Error("it quotes a secret")
		}
	}
	t.Setenv("EDGELIMIT_ADMIN", ":7949")
	edgelimit(t, "serve").says(t, 2, "admin: :7949", "want loopback")
}

func TestPrintConfig(t *testing.T) {
	r := edgelimit(t, "serve", "--print-config")
	if r.says(t, 0); r.out != string(node.SampleConfig) {
		t.Errorf("it prints %q", r.out)
	}
	cfg, err := configured(t, "--config", written(t, "printed.yaml", r.out))
	if err != nil || cfg.HTTP != node.DefaultHTTP {
		t.Errorf("what it prints is no configuration: %+v, %v", cfg, err)
	}
}
