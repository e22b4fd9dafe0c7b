package node

import (
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/testnet/testkit"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/proxy"
)

// normal makes empty slices nil, which mean the same.
func normal(c Config) Config {
	if len(c.Rules) == 0 {
		c.Rules = nil
	}
	if len(c.Requests.TrustedProxies) == 0 {
		c.Requests.TrustedProxies = nil
	}
	if len(c.Proxy.Upstreams)+len(c.Proxy.Routes) == 0 {
		c.Proxy.Upstreams, c.Proxy.Routes = nil, nil
	}
	if len(c.Gossip.Join) == 0 {
		c.Gossip.Join = nil
	}
	return c
}

func TestSampleIsTheDefaults(t *testing.T) {
	cfg, err := ReadConfig(write(t, "edgelimit.yaml", string(SampleConfig)))
	testkit.Must(t, err)
	if got, want := normal(cfg), normal(DefaultConfig()); !reflect.DeepEqual(got, want) {
		t.Errorf("the sample says\n%+v\nand the defaults are\n%+v", got, want)
	}
	if err := cfg.Validate(); err != nil {
		t.Errorf("the sample is invalid: %v", err)
	}
}

// Every setting of a file is in the sample, and the sample shows it: with another value in its place, the configuration
// differs.
func TestSampleShowsEverySetting(t *testing.T) {
	text := string(SampleConfig)
	for _, typ := range []reflect.Type{reflect.TypeFor[Config](), reflect.TypeFor[Gossip](),
		reflect.TypeFor[proxy.Config](), reflect.TypeFor[proxy.Route](), reflect.TypeFor[proxy.Timeouts](),
		reflect.TypeFor[proxy.Health](), reflect.TypeFor[proxy.AccessLog]()} {
		for i := range typ.NumField() {
			name := typ.Field(i).Tag.Get("yaml")
			if name == "" {
				t.Errorf("%s.%s has no yaml name", typ, typ.Field(i).Name)
			}
			if name != "-" && !strings.Contains(text, name+":") {
				t.Errorf("the sample does not show %s", name)
			}
		}
	}
	text = strings.Replace(text, "# node_id: edge-1", "node_id: edge-1", 1)
	cfg, err := ReadConfig(write(t, "edgelimit.yaml", text))
	if err != nil || cfg.NodeID != "edge-1" {
		t.Errorf("with its node_id uncommented the sample gives %q, %v", cfg.NodeID, err)
	}
}

func TestConfigFile(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       func(*Config)
		err        []string // parts of the error
	}{
		{name: "empty", text: "", want: func(*Config) {}},
		{name: "only comments", text: "# nothing\n", want: func(*Config) {}},
		{name: "one setting", text: "region: eu-west\n", want: func(c *Config) { c.Region = "eu-west" }},
		{name: "nested keeps the rest", text: "gossip: {lan: 127.0.0.1:7946, interval: 50ms}\n", want: func(c *Config) {
			c.Gossip.LAN, c.Gossip.Interval = "127.0.0.1:7946", 50*time.Millisecond
		}},
		{name: "a listener closed", text: "http: ''\n", want: func(c *Config) { c.HTTP = "" }},
		{name: "lists", text: "rules: [a.yaml, d]\nheaders: ['off']\ngossip: {join: [x, 'wan:y']}\n",
			want: func(c *Config) {
				c.Rules, c.Headers, c.Gossip.Join = []string{"a.yaml", "d"}, []string{"off"}, []string{"x", "wan:y"}
			}},
		{name: "memory", text: "memory: 64MiB\n", want: func(c *Config) { c.Memory = 64 << 20 }},
		{name: "memory in bytes", text: "memory: 5000000\n", want: func(c *Config) { c.Memory = 5000000 }},
		{name: "memory in an unknown unit", text: "\nmemory: 64MB\n",
			err: []string{":2:1: ", `"64MB"`, "KiB, MiB or GiB"}},
		{name: "memory that is a list", text: "memory: [64MiB]\n", err: []string{":1:1: ", "64MiB or 1GiB"}},
		{name: "what was max_keys", text: "region: a\nmax_keys: 1048576\n", err: []string{":2:1: ",
			`unknown setting "max_keys"`, "memory", "takes its place"}},
		{name: "unknown key", text: "region: here\n\nregoin: there\n",
			err: []string{`:3:1: unknown setting "regoin": did you mean "region"?`}},
		{name: "unknown nested key", text: "gossip:\n  lan: 127.0.0.1:1\n  inteval: 5ms\n",
			err: []string{`:3:3: unknown setting "inteval": did you mean "interval"?`}},
		{name: "settings of embedders are not for files", text: "wrap_transport: {}\n",
			err: []string{`:1:1: unknown setting "wrap_transport": edgelimit serve --print-config shows`}},
		{name: "key given twice", text: "region: a\nregion: b\n",
			err: []string{":2:1: region was already given above"}},
		{name: "duration without unit", text: "\ndrain: 5\n", err: []string{":2:8: want a duration such as 100ms"}},
		{name: "not a list", text: "rules: a.yaml\n", err: []string{":1:8: want a list such as [a, b]"}},
		{name: "not YAML", text: "region: [\n", err: []string{":1:1: this is not valid YAML"}},
		{name: "a setting under another heading", text: "join: [a]\n",
			err: []string{`:1:1: unknown setting "join": did you mean gossip.join?`}},
		{name: "a heading without settings", text: "gossip: 7\n", err: []string{":1:9: want settings of its own"}},
		{name: "all at once", text: "regoin: a\nshadow: maybe\n",
			err: []string{":1:1: unknown", ":2:9: want true or false"}},
		{name: "two documents", text: "region: a\n---\nregion: b\n", err: []string{"more than one document"}},
		{name: "a second document that is no YAML", text: "region: a\n---\nregion: [\n",
			err: []string{"more than one document"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := write(t, "c.yaml", test.text)
			got, err := ReadConfig(file)
			if test.want != nil {
				want := DefaultConfig()
				test.want(&want)
				if err != nil || !reflect.DeepEqual(got, want) {
					t.Fatalf("got %+v, %v\nwant %+v", got, err, want)
				}
				return
			}
			if err == nil {
				t.Fatalf("no error, but %+v", got)
			}
			for _, part := range append(test.err, file) {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
		})
	}
}

func TestConfigFileMissing(t *testing.T) {
	_, err := ReadConfig("no/such/file.yaml")
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "no/such/file.yaml") {
		t.Errorf("error %v, want one that says which file is missing", err)
	}
}

func TestDefaultConfigIsValid(t *testing.T) {
	cfg := DefaultConfig()
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	if cfg.NodeID == "" || cfg.Gossip.LAN != "" || !strings.HasPrefix(cfg.HTTP, "127.0.0.1:") ||
		!strings.HasPrefix(cfg.Health, "127.0.0.1:") {
		t.Errorf("the default is not a lone node on loopback: %+v", cfg)
	}
}

func TestValidate(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*Config)
		want   string // part of the error; empty: valid
	}{
		{"no listeners", func(c *Config) { c.HTTP, c.Health = "", "" }, ""},
		{"all interfaces", func(c *Config) { c.HTTP = ":8080" }, ""},
		{"http without port", func(c *Config) { c.HTTP = "localhost" }, "http:"},
		{"a path", func(c *Config) { c.HTTP, c.RESP, c.Health = "unix:/run/a", "unix:b", "unix:c" }, ""},
		{"no path", func(c *Config) { c.HTTP = "unix:" }, "http: address \"unix:\": want unix: and a path of 1 to " +
			"103 bytes"},
		{"a long path", func(c *Config) { c.RESP = "unix:" + strings.Repeat("p", 104) }, "resp:"},
		{"resp without port", func(c *Config) { c.RESP = "localhost" },
			"resp: address \"localhost\": want host:port or unix:/path"},
		{"a password without a listener", func(c *Config) { c.RESPPasswordFile = "p" }, "resp_password_file:"},
		{"scripts without a listener", func(c *Config) { c.RESPRedisRate = true }, "resp_redis_rate:"},
		{"scripts for a listener", func(c *Config) { c.RESP, c.RESPRedisRate = ":6380", true }, ""},
		{"a password for a listener", func(c *Config) { c.RESP, c.RESPPasswordFile = ":6380", "p" }, ""},
		{"health without port", func(c *Config) { c.Health = "localhost" }, "health:"},
		{"advertised without port", func(c *Config) { c.Gossip.AdvertiseLAN = "10.0.0.1" }, "gossip.advertise_lan:"},
		{"advertised WAN without port", func(c *Config) { c.Gossip.AdvertiseWAN = "10.0.0.1" },
			"gossip.advertise_wan:"},
		{"lan without port", func(c *Config) { c.Gossip.LAN = "nonsense" }, `"nonsense"`},
		{"wan without port", func(c *Config) { c.Gossip.WAN = "nonsense" }, `"nonsense"`},
		{"no memory", func(c *Config) { c.Memory = 0 }, "memory: 0, want 4MiB to 64GiB"},
		{"little memory", func(c *Config) { c.Memory = counters.MinMemory - 1 }, "memory: 4194303, want 4MiB to 64GiB"},
		{"the least memory", func(c *Config) { c.Memory = counters.MinMemory }, ""},
		{"the most memory", func(c *Config) { c.Memory = counters.MaxMemory }, ""},
		{"more memory than that", func(c *Config) { c.Memory = counters.MaxMemory + 1<<20 },
			"memory: 65537MiB, want 4MiB to 64GiB"},
		{"no drain", func(c *Config) { c.Drain = 0 }, "drain:"},
		{"endless drain", func(c *Config) { c.Drain = time.Hour }, "drain:"},
		{"a minute of linger", func(c *Config) { c.Linger = time.Minute }, ""},
		{"linger into the past", func(c *Config) { c.Linger = -time.Second }, "linger: -1s, want 0s to 5m"},
		{"nobody waits", func(c *Config) { c.Queues.MaxRequests = 0 }, ""},
		{"less than nobody waits", func(c *Config) { c.Queues.MaxRequests = -1 }, "queues.max_requests: -1"},
		{"no header waits", func(c *Config) { c.Queues.MaxHeaderBytes = 0 },
			"queues.max_header_bytes: 0, want 64KiB to 64GiB"},
		{"endless linger", func(c *Config) { c.Linger = time.Hour }, "linger: 1h,"},
		{"no connections", func(c *Config) { c.MaxConnections = 0 }, "max_connections: 0, want 1 to 1000000"},
		{"more connections than can be", func(c *Config) { c.MaxConnections = 1_000_001 }, "max_connections:"},
		{"one connection", func(c *Config) { c.MaxConnections = 1 }, ""},
		{"no time to be idle", func(c *Config) { c.IdleTimeout = time.Millisecond },
			"idle_timeout: 1ms, want 1s to 24h, or 0s"},
		{"days to be idle", func(c *Config) { c.IdleTimeout = 25 * time.Hour }, "idle_timeout:"},
		{"a second to be idle", func(c *Config) { c.IdleTimeout = time.Second }, ""},
		{"unknown headers", func(c *Config) { c.Headers = []string{"draft12"} }, "draft12"},
		{"no node id", func(c *Config) { c.NodeID = "" }, "node id"},
		{"long node id", func(c *Config) { c.NodeID = strings.Repeat("n", 129) }, "node id"},
		{"no region", func(c *Config) { c.Region = "" }, "region"},
		{"long region", func(c *Config) { c.Region = strings.Repeat("r", 65) }, "region"},
		{"no interval", func(c *Config) { c.Gossip.Interval = 0 }, "interval"},
		{"short interval", func(c *Config) { c.Gossip.Interval = time.Millisecond }, "interval"},
		{"beyond loopback without key", func(c *Config) { c.Gossip.LAN = "0.0.0.0:7946" }, "needs a key"},
		{"WAN beyond loopback without key", func(c *Config) { c.Gossip.WAN = "203.0.113.7:7947" }, "needs a key"},
		{"every interface without key", func(c *Config) { c.Gossip.LAN = ":7946" }, "needs a key"},
		{"beyond loopback with a key file", func(c *Config) { c.Gossip.LAN, c.Gossip.KeyFile = "0.0.0.0:7946", "k" },
			""},
		{"loopback without key", func(c *Config) { c.Gossip.LAN, c.Gossip.WAN = "[::1]:7946", "localhost:0" }, ""},
		{"seeds of both pools", func(c *Config) {
			c.Gossip.LAN, c.Gossip.WAN, c.Gossip.Join = "127.0.0.1:0", "127.0.0.1:0", []string{"10.0.0.1", "wan:x:7947"}
		}, ""},
		{"a seed but no gossip", func(c *Config) { c.Gossip.Join = []string{"10.0.0.1"} }, "gossip.lan"},
		{"a WAN seed but no WAN", func(c *Config) { c.Gossip.LAN, c.Gossip.Join = "127.0.0.1:0", []string{"wan:x"} },
			"gossip.wan"},
		{"a seed of the region but only a WAN", func(c *Config) {
			c.Gossip.WAN, c.Gossip.Join = "127.0.0.1:0",
				[]string{"x"}
		}, "gossip.lan"},
		{"a seed that is none", func(c *Config) { c.Gossip.LAN, c.Gossip.Join = "127.0.0.1:0", []string{"a:b:c"} },
			`"a:b:c"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.NodeID = "a"
			test.change(&cfg)
			switch err := cfg.Validate(); {
			case test.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("error %v, want one that says %q", err, test.want)
			}
		})
	}
}

func TestValidateReportsEverythingAtOnce(t *testing.T) {
	cfg := Config{HTTP: "h", Health: "x", Headers: []string{"bogus"}, Memory: -1, Drain: -1,
		Gossip: Gossip{LAN: "l", WAN: "w", AdvertiseLAN: "al", AdvertiseWAN: "aw", Join: []string{"", "ok"}}}
	err := cfg.Validate()
	if err == nil {
		t.Fatal("valid")
	}
	for _, part := range []string{`http: address "h"`, `health: address "x"`, `"bogus"`, "memory: -1", "drain: -1",
		`"l"`, `"w"`,
		`gossip.advertise_lan: address "al"`, `gossip.advertise_wan: address "aw"`, `seed ""`, "node id", "region",
		"interval"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error leaves out %q:\n%v", part, err)
		}
	}
	if n, err := New(cfg); err == nil {
		_ = n
		t.Error("New takes a configuration that Validate refuses")
	}
}

func TestSplitSeed(t *testing.T) {
	for _, test := range []struct {
		seed string
		want string // pool and address; empty: refused
	}{
		{"10.0.0.1", "lan 10.0.0.1:7946"},
		{"10.0.0.1:1234", "lan 10.0.0.1:1234"},
		{"edge-1.internal", "lan edge-1.internal:7946"},
		{"edge-1.internal:7", "lan edge-1.internal:7"},
		{"::1", "lan [::1]:7946"},
		{"[::1]:99", "lan [::1]:99"},
		{"wan:203.0.113.7", "wan 203.0.113.7:7947"},
		{"wan:edge:65535", "wan edge:65535"},
		{"wan:::1", "wan [::1]:7947"},
		{"wan:[2001:db8::1]:7947", "wan [2001:db8::1]:7947"},
		{"", ""},
		{"wan:", ""},
		{":7946", ""},
		{"edge:", ""},
		{"edge:0", ""},
		{"edge:65536", ""},
		{"edge:-1", ""},
		{"edge:http", ""},
		{"a:b:c", ""},
		{"wan:a:b:c", ""},
		{"lan:edge:7946", ""},
	} {
		wan, addr, err := splitSeed(test.seed)
		got := fmt.Sprintf("%s %s", map[bool]string{true: "wan", false: "lan"}[wan], addr)
		if err != nil {
			got = ""
			if !strings.Contains(err.Error(), fmt.Sprintf("%q", test.seed)) {
				t.Errorf("seed %q: the error %q does not name it", test.seed, err)
			}
		}
		if got != test.want {
			t.Errorf("seed %q is %q, %v; want %q", test.seed, got, err, test.want)
		}
	}
}

// What the configuration says of gossip reaches the gossip package.
func TestClusterConfig(t *testing.T) {
	cfg := DefaultConfig()
	cfg.NodeID, cfg.Region = "a", "eu"
	cfg.Gossip = Gossip{LAN: "127.0.0.1:1", WAN: "127.0.0.1:2", AdvertiseLAN: "10.0.0.1:3", AdvertiseWAN: "10.0.0.1:4",
		Join: []string{"x", "wan:y:5", "z:6"}, Interval: time.Second}
	got := cfg.clusterConfig(7, Keys{Gossip: [][]byte{make([]byte, 32)}})
	if got.NodeID != "a" || got.Region != "eu" || got.Incarnation != 7 || got.Interval != time.Second ||
		got.Label != "edgelimit" ||
		len(got.Keys) != 1 {
		t.Errorf("got %+v", got)
	}
	if got.LAN.Bind != "127.0.0.1:1" || got.LAN.Advertise != "10.0.0.1:3" ||
		fmt.Sprint(got.LAN.Seeds) != "[x:7946 z:6]" {
		t.Errorf("LAN %+v", *got.LAN)
	}
	if got.WAN.Bind != "127.0.0.1:2" || got.WAN.Advertise != "10.0.0.1:4" || fmt.Sprint(got.WAN.Seeds) != "[y:5]" {
		t.Errorf("WAN %+v", *got.WAN)
	}
}

// A problem of the configuration comes with its line, and a caret under the place: never with a password, nor with what
// a terminal obeys.
func TestConfigExcerpts(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"region: here\nregoin: there # now\n", "regoin: there # now\n^"},
		{"gossip:\n  interval: 5\n", "  interval: 5\n            ^"},
		{"redis: {min_fill: lots, url: 'redis://user:secret@host:1'}\n",
			"redis: {min_fill: lots, url: 'redis://***********@host:1'}\n                  ^"},
		{"redis: {url: 'redis://user:secret@host:1', min_fill: lots}\n",
			"redis: {url: 'redis://***********@host:1', min_fill: lots}\n                                            " +
				"         " +
				"^"},
		{"regoin: \"\\x1b[31m\"\r\n", "regoin: \"\\x1b[31m\"\n^"},
		{"regoin: a\u200bb\n", "regoin: a?b\n^"},
		{"region: a\ntab:\n\t- a\n", "\t- a\n^"},
		{"regoin: " + strings.Repeat("a", 102) + "\n",
			"regoin: " + strings.Repeat("a", 72) + "\n^"},
	} {
		_, err := ReadConfig(write(t, "c.yaml", test.text))
		e, ok := errors.AsType[*rulefile.Error](err)
		if !ok {
			t.Errorf("%q: %v has no place", test.text, err)
			continue
		}
		if got := e.Excerpt(); got != test.want {
			t.Errorf("%q: it shows\n%q, want\n%q", test.text, got, test.want)
		}
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]Size{
		"0": 0, "1": 1, "4096": 4096, "1KiB": 1 << 10, "64MiB": 64 << 20, "1GiB": 1 << 30, "268435456": 256 << 20,
		"9223372036854775807": math.MaxInt64, "8589934591GiB": math.MaxInt64 &^ (1<<30 - 1),
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "MiB", "64MB", "64M", "64 MiB", "64mib", "1.5GiB", "-1", "+1", "1e9", "0x10",
		"1_000", "9223372036854775808", "8589934592GiB",
		strings.Repeat("9", 1000)} {
		if got, err := ParseSize(text); err == nil || !strings.Contains(err.Error(), "64MiB") ||
			len(err.Error()) > 200 {
			t.Errorf("%q is %d, %v; want an error that shows how to write it", text, got, err)
		}
	}
}

func TestSizeString(t *testing.T) {
	for size, want := range map[Size]string{
		0: "0", 1: "1", 1023: "1023", 1 << 10: "1KiB", 1<<20 + 1<<10: "1025KiB", counters.DefaultMemory: "256MiB",
		3 << 30: "3GiB", -1 << 20: "-1MiB",
	} {
		if got := size.String(); got != want {
			t.Errorf("%d bytes are %s, want %s", int(size), got, want)
		}
		if back, err := ParseSize(want); size >= 0 && (err != nil || back != size) {
			t.Errorf("%s is read as %d, %v", want, back, err)
		}
	}
}
