package app

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/envoy"
	"github.com/edgelimit/edgelimit/node/ratelimit/prom"
	"github.com/edgelimit/edgelimit/node/ratelimit/statsd"
	"github.com/edgelimit/edgelimit/node/xds"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

//go:embed testdata/ratelimit_variables.txt
var theirVariables string

// environ is an environment as lookup.
type environ map[string]string

func (e environ) lookup(name string) (string, bool) {
	value, ok := e[name]
	return value, ok
}

func (e environ) all() (pairs []string) {
	for name, value := range e {
		pairs = append(pairs, name+"="+value)
	}
	slices.Sort(pairs)
	return pairs
}

// configuredBy is what an environment makes of a configuration, and of the log.
func configuredBy(e environ) (cfg node.Config, env *ratelimitEnv, err error) {
	cfg = node.DefaultConfig()
	env = readRatelimitEnv(e.lookup, e.all())
	err = env.configure(&cfg)
	_, levelErr := env.logLevel()
	env.settleRedis(&cfg)
	return cfg, env, errors.Join(err, levelErr)
}

// effect is all that an environment changes.
func effect(e environ) string {
	cfg, env, err := configuredBy(e)
	level, _ := env.logLevel()
	r := cfg.Redis // shows itself without passwords and files
	return fmt.Sprintf("%+v %q %v %v %v %v", cfg, []string{r.URL, r.CAFile, r.CertFile, r.KeyFile}, env.notes, level,
		env.logJSON(), err)
}

// Each variable changes the configuration, or is reported with a sentence; its default does neither.
func TestEachRatelimitVariableHasAnEffectOrASentence(t *testing.T) {
	// what a variable needs to mean anything
	beside := map[string]environ{
		"CACHE_KEY_PREFIX": {"REDIS_URL": "127.0.0.1:6379", "REDIS_SOCKET_TYPE": "tcp"},
		"DISABLE_STATS":    {"USE_STATSD": "true"},
		"USE_DOG_STATSD":   {"USE_STATSD": "false"}, "USE_PROMETHEUS": {"USE_STATSD": "false"},
		"USE_DOG_STATSD_MOGRIFIERS": {"USE_STATSD": "false", "USE_DOG_STATSD": "true",
			"DOG_STATSD_MOGRIFIER_FOO_PATTERN": "x", "DOG_STATSD_MOGRIFIER_FOO_NAME": "y"},
		"GRPC_SERVER_USE_TLS": {"GRPC_SERVER_TLS_CERT": "c", "GRPC_SERVER_TLS_KEY": "k"},
	}
	redis := environ{"REDIS_URL": "127.0.0.1:6379", "REDIS_SOCKET_TYPE": "tcp", "REDIS_TLS": "true"}
	seen := make(map[string]bool)
	for line := range strings.Lines(theirVariables) {
		fields := strings.Fields(line)
		if fields[0] == "#" {
			continue
		}
		name, missing, other := fields[0], strings.TrimPrefix(fields[1], "-"), fields[2]
		seen[name] = true
		e := environ{}
		if strings.HasPrefix(name, "REDIS_") {
			e = redis
		}
		for k, v := range beside[name] {
			e[k] = v
		}
		with := func(value string) environ {
			set := environ{name: value}
			for k, v := range e {
				if k != name {
					set[k] = v
				}
			}
			return set
		}
		unset := with("")
		delete(unset, name)
		if name == "REDIS_URL" {
			missing = other // an address that is written out is meant, even that of the default
		} else if effect(with(missing)) != effect(unset) {
			t.Errorf("%s=%s, its default, has an effect:\n%s\n%s", name, missing, effect(with(missing)), effect(unset))
		}
		if effect(with(other)) == effect(unset) {
			t.Errorf("%s=%s has no effect, and nothing says why", name, other)
		}
		if _, env, err := configuredBy(with(other)); err != nil && !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%s: %v, which does not name it", name, other, err)
		} else if v := variableOf(name); v.ignored != "" && !strings.Contains(fmt.Sprint(env.notes), name) {
			t.Errorf("%s=%s: no note: %v", name, other, env.notes)
		}
	}
	for _, v := range ratelimitVariables {
		if !seen[v.name] {
			t.Errorf("%s is no variable of envoyproxy/ratelimit", v.name)
		}
	}
	if len(seen) != len(ratelimitVariables) {
		t.Errorf("%d variables are known, there are %d", len(ratelimitVariables), len(seen))
	}
}

func variableOf(name string) variable {
	for _, v := range ratelimitVariables {
		if v.name == name {
			return v
		}
	}
	return variable{}
}

func TestRatelimitEnvDefaults(t *testing.T) {
	cfg, env, err := configuredBy(environ{"PORTS": "1", "USER": "x", "REDIS_PORT": "tcp://10.0.0.1:6379",
		"REDIS_SERVICE_HOST": "10.0.0.1", "REDIS_PORT_6379_TCP_ADDR": "10.0.0.1", "LIMITS": "1"})
	if err != nil || len(env.notes) > 0 {
		t.Fatal(err, env.notes)
	}
	want := node.DefaultConfig()
	want.Compatibility, want.HTTP, want.GRPC, want.Health = "ratelimit", "0.0.0.0:8080", "0.0.0.0:8081", "0.0.0.0:6070"
	want.Rules, want.Admin, want.Auth = []string{"/srv/runtime_data/current/config"}, "", false
	want.Ratelimit.Statsd.Address, want.Ratelimit.Statsd.Tags = "localhost:8125", nil
	if !reflect.DeepEqual(cfg, want) {
		t.Errorf("got  %+v\nwant %+v", cfg, want)
	}
	if level, err := env.logLevel(); level != slog.LevelWarn || err != nil || env.logJSON() {
		t.Errorf("logs at %v, %v, in JSON: %v", level, err, env.logJSON())
	}
	cfg.Envoy = envoy.Service
	if err := cfg.Validate(); err != nil {
		t.Errorf("the node refuses it: %v", err)
	}
}

// Variables that only look like those of the server are named, as slips and variables of later versions are.
func TestRatelimitEnvNamesStrangeVariables(t *testing.T) {
	_, env, err := configuredBy(environ{"LIMIT_RESPONSE_HEADER_ENABLED": "true", "USE_SOMETHING_NEW": "1"})
	if err != nil || len(env.notes) != 1 || fmt.Sprint(env.notes[0].variables) !=
		"[LIMIT_RESPONSE_HEADER_ENABLED USE_SOMETHING_NEW]" {
		t.Errorf("notes %v, %v", env.notes, err)
	}
}

func TestRatelimitEnv(t *testing.T) {
	cfg, env, err := configuredBy(environ{
		"HOST": "127.0.0.1", "PORT": "1", "GRPC_UDS": "/run/rl.sock", "DEBUG_HOST": "::1", "DEBUG_PORT": "2",
		"RUNTIME_ROOT": "/data", "RUNTIME_SUBDIRECTORY": "ratelimit", "RUNTIME_APPDIRECTORY": "rules",
		"RUNTIME_IGNOREDOTFILES": "true",
		"MERGE_DOMAIN_CONFIG":    "true", "SHADOW_MODE": "1", "QUOTA_MODE": "t", "RESPONSE_DYNAMIC_METADATA": "true",
		"LIMIT_RESPONSE_HEADERS_ENABLED": "true", "LIMIT_LIMIT_HEADER": "X-Limit", "LIMIT_REMAINING_HEADER": "X-Left",
		"LIMIT_RESET_HEADER": "X-Reset", "NEAR_LIMIT_RATIO": "0.9", "LOG_LEVEL": "debug", "LOG_FORMAT": "JSON",
		"USE_STATSD": "false", "USE_DOG_STATSD": "true", "STATSD_HOST": "statsd", "STATSD_PORT": "3",
		"EXTRA_TAGS": "env:prod,dc:x:y", "STATS_FLUSH_INTERVAL": "50ms",
		"USE_DOG_STATSD_MOGRIFIERS": "TAG,plain", "DOG_STATSD_MOGRIFIER_TAG_PATTERN": `a\.(.*)`,
		"DOG_STATSD_MOGRIFIER_TAG_NAME": "b", "DOG_STATSD_MOGRIFIER_TAG_TAGS": "c:$1,d:e",
		"DOG_STATSD_MOGRIFIER_PLAIN_PATTERN": "c", "DOG_STATSD_MOGRIFIER_PLAIN_NAME": "d",
		"REDIS_SOCKET_TYPE": "", "REDIS_URL": "", "REDIS_POOL_SIZE": "", "GRPC_SERVER_USE_TLS": "", // set to nothing
		"REDIS_TIMEOUT": "10000ms", "TRACING_ENABLED": "false", // the defaults
	})
	testkit.Must(t, err)
	want := node.DefaultConfig()
	want.Compatibility, want.HTTP, want.GRPC, want.Health = "ratelimit", "127.0.0.1:1", "unix:/run/rl.sock", "[::1]:2"
	want.Rules, want.Admin, want.Auth = []string{filepath.FromSlash("/data/ratelimit/rules")}, "", false
	want.MergeDomains, want.IgnoreDotFiles, want.Shadow = true, true, true
	r := &want.Ratelimit
	r.QuotaMode, r.DynamicMetadata, r.Headers, r.NearLimitRatio = true, true, true, 0.9
	r.LimitHeader, r.RemainingHeader, r.ResetHeader = "X-Limit", "X-Left", "X-Reset"
	r.Statsd.Address, r.Statsd.Network, r.Statsd.Datadog = "statsd:3", "udp", true
	r.Statsd.Interval = 50 * time.Millisecond
	r.Statsd.Tags = map[string]string{"env": "prod", "dc": "x:y"}
	r.Statsd.Mogrifiers = []statsd.Mogrifier{
		{Pattern: `a\.(.*)`, Name: "b", Tags: map[string]string{"c": "$1", "d": "e"}}, {Pattern: "c", Name: "d"},
	}
	if !reflect.DeepEqual(cfg, want) || len(env.notes) > 0 {
		t.Errorf("got  %+v\nwant %+v\nnotes %v", cfg, want, env.notes)
	}
	if level, err := env.logLevel(); level != slog.LevelDebug || err != nil || !env.logJSON() {
		t.Errorf("logs at %v, %v, in JSON: %v", level, err, env.logJSON())
	}
}

func TestRatelimitEnvRedis(t *testing.T) {
	for _, tc := range []struct {
		env     environ
		keyFile string
		url     string // empty: Redis is left alone
		note    string
	}{
		{env: environ{"REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": "127.0.0.1:6379"}, url: "redis://127.0.0.1:6379"},
		{env: environ{"REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": "localhost:6379", "REDIS_AUTH": "pa@s/s:w"},
			url: "redis://pa@s%2Fs:w@localhost:6379"},
		{env: environ{"REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": "localhost:6379", "REDIS_AUTH": "p@ss/w"},
			url: "redis://:p%40ss%2Fw@localhost:6379"},
		{env: environ{"REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": "redis://:pw@localhost:6379/2"},
			url: "redis://:pw@localhost:6379/2"},
		{env: environ{"REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": "redis:6379"}, keyFile: "k", url: "redis://redis:6379"},
		{env: environ{"REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": "redis:6379"}, note: "beyond loopback needs a key file"},
		{env: environ{"REDIS_TYPE": "CLUSTER", "REDIS_URL": "a:1,redis://:pw@b:2", "REDIS_TLS": "true"}, keyFile: "k",
			url: "rediss+cluster://:pw@a:1,b:2"},
		{env: environ{"REDIS_TYPE": "sentinel", "REDIS_URL": "mymaster,a:1,b:2"}, keyFile: "k",
			url: "redis+sentinel://a:1,b:2/mymaster"},
		{env: environ{"REDIS_URL": "/run/redis.sock"}, note: "behind a Unix socket"},
		{env: environ{"REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": "127.0.0.1:6379", "CACHE_KEY_PREFIX": "a"},
			note: "a key file of its own"},
		{env: environ{"REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": "127.0.0.1:6379", "CACHE_KEY_PREFIX": "a"}, keyFile: "k",
			url: "redis://127.0.0.1:6379"},
		{env: environ{"BACKEND_TYPE": "memcache", "MEMCACHE_HOST_PORT": "m:1", "REDIS_URL": "r:1"}, note: "memcached"},
		{env: environ{}},
	} {
		cfg := node.DefaultConfig()
		env := readRatelimitEnv(tc.env.lookup, nil)
		if err := env.configure(&cfg); err != nil {
			t.Errorf("%v: %v", tc.env, err)
		}
		cfg.Gossip.KeyFile, cfg.Envoy = tc.keyFile, envoy.Service
		env.settleRedis(&cfg)
		var log bytes.Buffer
		env.log(slog.New(slog.NewTextHandler(&log, nil)))
		if cfg.Redis.URL != tc.url || !strings.Contains(log.String(), tc.note) || (log.Len() > 0) != (tc.note != "") {
			t.Errorf("%v: %q, want %q; log %q, want %q", tc.env, cfg.Redis.URL, tc.url, log.String(), tc.note)
		}
		if err := cfg.Validate(); err != nil {
			t.Errorf("%v: the node refuses it: %v", tc.env, err)
		}
		if strings.Contains(log.String(), "pw") {
			t.Errorf("the log has the password: %s", log.String())
		}
	}
}

func TestRatelimitEnvRefuses(t *testing.T) {
	for _, tc := range []struct {
		env  environ
		want string
	}{
		{environ{"SHADOW_MODE": "perhaps"}, "SHADOW_MODE: want true or false"},
		{environ{"NEAR_LIMIT_RATIO": "x"}, "NEAR_LIMIT_RATIO: want a number"},
		{environ{"STATS_FLUSH_INTERVAL": "10"}, "STATS_FLUSH_INTERVAL: want a duration"},
		{environ{"EXTRA_TAGS": "env"}, "EXTRA_TAGS: want name:value"},
		{environ{"GRPC_SERVER_USE_TLS": "true"}, "GRPC_SERVER_USE_TLS: set GRPC_SERVER_TLS_CERT"},
		{environ{"CONFIG_TYPE": "GIT"}, "CONFIG_TYPE: want FILE or GRPC_XDS_SOTW"},
		{environ{"CONFIG_TYPE": "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_NODE_METADATA": "a:b"}, "want name=value"},
		{environ{"LOG_LEVEL": "loud"}, "LOG_LEVEL: want debug"},
		{environ{"USE_DOG_STATSD": "true"}, "only one of USE_STATSD"},
		{environ{"USE_DOG_STATSD": "true", "USE_STATSD": "false", "USE_DOG_STATSD_MOGRIFIERS": "a",
			"DOG_STATSD_MOGRIFIER_A_PATTERN": "x"}, "set DOG_STATSD_MOGRIFIER_A_PATTERN and "},
		{environ{"REDIS_TYPE": "RING", "REDIS_URL": "a:1"}, "REDIS_TYPE: want SINGLE"},
		{environ{"REDIS_TYPE": "SENTINEL", "REDIS_URL": "a:1"}, "REDIS_URL: want the name of the master"},
	} {
		if _, _, err := configuredBy(tc.env); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: %v, want %q", tc.env, err, tc.want)
		}
	}
}

// Rule files that are missing are named with the variables that say where they are.
func TestRatelimitEnvNamesMissingRules(t *testing.T) {
	const want = "no such file or directory; set RUNTIME_ROOT, RUNTIME_SUBDIRECTORY and RUNTIME_APPDIRECTORY"
	t.Setenv("RUNTIME_ROOT", filepath.Join(t.TempDir(), "nowhere"))
	edgelimit(t, "serve", "--from-env", "ratelimit").says(t, 2, want)
	r := edgelimit(t, "serve", "--from-env", "ratelimit", "--rules", "/nowhere.yaml")
	if r.code != 2 || strings.Contains(r.out+r.err, want) {
		t.Errorf("the variables do not say where the file of --rules is: %+v", r)
	}
}

func TestRatelimitEnvXDS(t *testing.T) {
	cfg, env, err := configuredBy(environ{
		"CONFIG_TYPE": "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_NODE_ID": "n", "CONFIG_GRPC_XDS_SERVER_URL": "gateway:18001",
		"CONFIG_GRPC_XDS_NODE_METADATA": "a=b,c=d", "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS": "h:v",
		"CONFIG_GRPC_XDS_SERVER_USE_TLS": "true", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT": "/cert",
		"CONFIG_GRPC_XDS_CLIENT_TLS_KEY": "/key", "CONFIG_GRPC_XDS_SERVER_TLS_CACERT": "/ca",
		"CONFIG_GRPC_XDS_SERVER_TLS_SAN": "name", "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL": "1s",
		"XDS_CLIENT_BACKOFF_MAX_INTERVAL": "2s", "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES": "1048576",
		"FORCE_START_WITHOUT_INITIAL_CONFIG": "true", "XDS_CLIENT_BACKOFF_JITTER": "false",
	})
	want := node.XDS{
		Server: "gateway:18001", NodeID: "n", Metadata: map[string]string{"a": "b", "c": "d"},
		Headers: map[string]string{"h": "v"}, TLS: true, CAFile: "/ca", CertFile: "/cert", KeyFile: "/key",
		ServerName: "name", MinBackoff: time.Second, MaxBackoff: 2 * time.Second, MaxMessage: 1 << 20,
	}
	if err != nil || !reflect.DeepEqual(cfg.RulesXDS, want) || len(cfg.Rules) > 0 || !cfg.StartWithoutRules {
		t.Errorf("%v\ngot  %+v, rules %q\nwant %+v", err, cfg.RulesXDS, cfg.Rules, want)
	}
	if notes := fmt.Sprint(env.notes); notes != "[{[XDS_CLIENT_BACKOFF_JITTER] "+backoff+"}]" {
		t.Errorf("notes %s", notes)
	}
	cfg.Envoy, cfg.RulesFrom = envoy.Service, xds.Source
	if err := cfg.Validate(); err != nil {
		t.Errorf("the node refuses it: %v", err)
	}
}

func TestRatelimitEnvPrometheus(t *testing.T) {
	cfg, env, err := configuredBy(environ{"USE_STATSD": "false", "USE_PROMETHEUS": "true", "PROMETHEUS_ADDR": ":19001",
		"PROMETHEUS_PATH": "/m", "PROMETHEUS_MAPPER_YAML": "conf.yaml"})
	want := prom.Config{Address: ":19001", Path: "/m", MapperFile: "conf.yaml"}
	if r := cfg.Ratelimit; err != nil || r.Prometheus != want || r.Statsd.Address != "" || len(env.notes) > 0 {
		t.Errorf("%+v, %v, notes %v", cfg.Ratelimit, err, env.notes)
	}
	cfg, _, err = configuredBy(environ{"USE_STATSD": "false", "USE_PROMETHEUS": "true", "PROMETHEUS_ADDR": "",
		"PROMETHEUS_PATH": ""})
	if want := (prom.Config{Address: ":9090", Path: "/metrics"}); err != nil || cfg.Ratelimit.Prometheus != want {
		t.Errorf("set to nothing: %+v, %v", cfg.Ratelimit.Prometheus, err)
	}
}

// Flags go over the environment, and its log is that of the flags where there are some.
func TestFlagsGoOverTheRatelimitEnv(t *testing.T) {
	t.Setenv("PORT", "1")
	t.Setenv("GRPC_PORT", "2")
	t.Setenv("REDIS_URL", "redis:6379")
	t.Setenv("REDIS_SOCKET_TYPE", "tcp")
	cfg, err := configured(t, "--from-env", "ratelimit", "--grpc", "127.0.0.1:3", "--key-file", "k")
	if err != nil || cfg.HTTP != "0.0.0.0:1" || cfg.GRPC != "127.0.0.1:3" || cfg.Redis.URL != "redis://redis:6379" {
		t.Errorf("%+v, %v", cfg, err)
	}
	if cfg, err = configured(t, "--from-env", "ratelimit", "--redis", "redis://other:1"); err != nil ||
		cfg.Redis.URL != "redis://other:1" { // it is asked for by us, and refused by the node
		t.Errorf("%v, %v", cfg.Redis, err)
	}
	if cfg, err = configured(t, "--from-env", "ratelimit", "--admin", "127.0.0.1:4"); err != nil ||
		cfg.Admin != "127.0.0.1:4" {
		t.Errorf("admin %q, %v", cfg.Admin, err)
	}
}

// A program with the name of the server's serves in its place, with the flags that follow.
func TestCalledAsRatelimit(t *testing.T) {
	t.Setenv("SHADOW_MODE", "perhaps")
	for _, name := range []string{"/bin/ratelimit", "ratelimit"} {
		var out, errOut bytes.Buffer
		app := New()
		app.Writer, app.ErrWriter = &out, &errOut
		if code := Run(t.Context(), app, []string{name}); code != 2 || !strings.Contains(errOut.String(),
			"--from-env ratelimit: SHADOW_MODE: want true or false") {
			t.Errorf("%s: exit status %d: %s", name, code, errOut.String())
		}
		errOut.Reset()
		if code := Run(t.Context(), app, []string{name, "--gossip"}); code != 2 ||
			!strings.Contains(errOut.String(), "gossip") {
			t.Errorf("%s --gossip: exit status %d: %s", name, code, errOut.String())
		}
	}
}

// The variables of gRPC's TLS are obeyed as that server does: an authority makes clients show a certificate, and a name
// is looked at only with an authority.
func TestRatelimitEnvTLS(t *testing.T) {
	files := func(with environ) environ {
		e := environ{"GRPC_SERVER_USE_TLS": "true", "GRPC_SERVER_TLS_CERT": "c", "GRPC_SERVER_TLS_KEY": "k"}
		for name, value := range with {
			e[name] = value
		}
		return e
	}
	for _, tc := range []struct {
		env  environ
		want node.ListenerTLS
		note string
	}{
		{files(nil), node.ListenerTLS{CertFile: "c", KeyFile: "k"}, ""},
		{files(environ{"GRPC_CLIENT_TLS_CACERT": "a"}), node.ListenerTLS{CertFile: "c", KeyFile: "k",
			ClientCAFile: "a"}, ""},
		{files(environ{"GRPC_CLIENT_TLS_CACERT": "a", "GRPC_CLIENT_TLS_SAN": "envoy.test"}), node.ListenerTLS{
			CertFile: "c", KeyFile: "k", ClientCAFile: "a", ClientNames: []string{"envoy.test"}}, ""},
		{files(environ{"GRPC_CLIENT_TLS_SAN": "envoy.test"}), node.ListenerTLS{CertFile: "c", KeyFile: "k"},
			"GRPC_CLIENT_TLS_SAN"},
		{files(environ{"GRPC_SERVER_USE_TLS": "false"}), node.ListenerTLS{}, "GRPC_SERVER_TLS_CERT"},
	} {
		cfg, env, err := configuredBy(tc.env)
		if err != nil || !reflect.DeepEqual(cfg.TLS["grpc"], tc.want) {
			t.Errorf("%v: %+v, %v", tc.env, cfg.TLS, err)
		}
		if got := fmt.Sprint(env.notes); !strings.Contains(got, tc.note) || (tc.note == "") != (got == "[]") {
			t.Errorf("%v: notes %s", tc.env, got)
		}
		cfg.Envoy = envoy.Service
		if err := cfg.Validate(); err != nil {
			t.Errorf("%v: the node refuses it: %v", tc.env, err)
		}
	}
}
