package regions

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestParseRedisURL(t *testing.T) {
	modern := &tls.Config{MinVersion: tls.VersionTLS12}
	with := func(change func(*RedisConfig), addrs ...string) RedisConfig {
		c := DefaultRedisConfig(addrs...)
		if change != nil {
			change(&c)
		}
		return c
	}
	for _, c := range []struct {
		url  string
		want RedisConfig
		back string // as String has it, where that differs
	}{
		{"redis://cache:6380", with(nil, "cache:6380"), ""},
		{"redis://cache", with(nil, "cache:6379"), "redis://cache:6379"},
		{"redis://[::1]", with(nil, "[::1]:6379"), "redis://[::1]:6379"},
		{"redis://[::1]:7000/", with(nil, "[::1]:7000"), "redis://[::1]:7000"},
		{"redis://cache:1/3", with(func(c *RedisConfig) { c.DB = 3 }, "cache:1"), ""},
		{"rediss://cache:1", with(func(c *RedisConfig) { c.TLS = modern }, "cache:1"), ""},
		{"redis://edge:p%40ss%2F@cache:1", with(func(c *RedisConfig) { c.Username, c.Password = "edge", "p@ss/" },
			"cache:1"), "redis://edge:***@cache:1"},
		{"redis://:p@ss@cache:1", with(func(c *RedisConfig) { c.Password = "p@ss" }, "cache:1"),
			"redis://:***@cache:1"},
		{"redis+sentinel://a,b:2/edge", with(func(c *RedisConfig) { c.MasterName = "edge" }, "a:26379", "b:2"),
			"redis+sentinel://a:26379,b:2/edge"},
		{"rediss+sentinel://a:1/edge/4", with(func(c *RedisConfig) {
			c.MasterName, c.DB, c.TLS = "edge", 4, modern
		}, "a:1"), ""},
		{"redis+cluster://u:p@a,b:2", with(func(c *RedisConfig) { c.Cluster, c.Username, c.Password = true, "u", "p" },
			"a:6379", "b:2"), "redis+cluster://u:***@a:6379,b:2"},
		{"rediss+cluster://a:1", with(func(c *RedisConfig) { c.Cluster, c.TLS = true, modern }, "a:1"), ""},
	} {
		got, err := ParseRedisURL(c.url)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %#v, %v", c.url, got, err)
		}
		if c.back == "" {
			c.back = c.url
		}
		if got.String() != c.back {
			t.Errorf("%s is told as %s, want %s", c.url, got, c.back)
		}
	}
}

func TestParseRedisURLRejects(t *testing.T) {
	for _, c := range []struct{ url, says string }{
		{"", "no scheme"},
		{"cache:6379", "no scheme"},
		{"http://cache", `unknown scheme "http"`},
		{"redis+ring://cache", `unknown scheme "redis+ring"`},
		{"+cluster://cache", "unknown scheme"},
		{"redis://", "not host:port"},
		{"redis://:6379", "not host:port"},
		{"redis://cache:port", "not host:port"},
		{"redis://cache:99999", "not host:port"},
		{"redis://a,b", "2 addresses"},
		{"redis+cluster://a,,b", "not host:port"},
		{"redis://cache/db", "database is not a number"},
		{"redis://cache/-1", "database is -1"},
		{"redis+cluster://cache/1", "database 0 only"},
		{"redis+sentinel://cache", "names no master"},
		{"redis+sentinel://cache/", "names no master"},
		{"redis+sentinel://cache/edge/one", "is not a number"},
		{"redis://cache?db=1", "no ?"},
		{"redis://u:hunter%2@cache", "not escaped well"},
		{"redis://u:hunter/2@cache", "%2F"},
		{"redis://u:hunter?2@cache", "%3F"},
	} {
		cfg, err := ParseRedisURL(c.url)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v, %v, want %q", c.url, cfg, err, c.says)
		}
		if strings.Contains(c.url, ":hunter") && err != nil && strings.Contains(err.Error(), "hunter") {
			t.Errorf("the error tells the password: %v", err)
		}
	}
}

func TestRedisConfigValidate(t *testing.T) {
	if err := DefaultRedisConfig("a:1").Validate(); err != nil {
		t.Errorf("the defaults are invalid: %v", err)
	}
	err := RedisConfig{
		Addrs: []string{
			"a",
		}, MasterName: "m", Cluster: true, DB: -1, Username: "u", SentinelUsername: "s",
	}.Validate()
	if err == nil {
		t.Fatal("a configuration with all problems is valid")
	}
	for _, say := range []string{`"a" is not host:port`, "both a master's name", "database is -1",
		`"u" has no password`, `Sentinels' user "s"`,
		"time to dial is 0 s", "time for a call is 0 s", "wait for a connection is 0 s"} {
		if !strings.Contains(err.Error(), say) {
			t.Errorf("not all problems are reported: %q is missing from\n%v", say, err)
		}
	}
	c := DefaultRedisConfig()
	c.SentinelPassword = "p"
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "no address") ||
		!strings.Contains(err.Error(), "but no master's name") {
		t.Errorf("%v", err)
	}
	if r, err := OpenRedis(c); err == nil || r != nil {
		t.Errorf("opened an invalid configuration: %v, %v", r, err)
	}
}

func TestRedisConfigHidesPasswords(t *testing.T) {
	c := DefaultRedisConfig("a:1")
	c.MasterName, c.Username, c.Password, c.SentinelUsername, c.SentinelPassword = "m", "u", "hunter2", "s", "hunter3"
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("with", "redis", c)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("with", "redis", c)
	shown := fmt.Sprintf("%v %+v %#v %s %q %v", c, c, c, c, c, &c) + log.String()
	if strings.Contains(shown, "hunter") || strings.Count(shown, "redis+sentinel://u:***@a:1/m") < 7 {
		t.Errorf("shown as\n%s", shown)
	}
}

// A URL that was mistyped around its password is an error that goes to a log: it must not take the password there.
func TestRedisURLErrorsHidePasswords(t *testing.T) {
	for _, url := range []string{
		"redis://:SECRET", "redis://u:SECRET", "redis://:x/SECRET", "redis://u:SECRET/2", "redis://:SECRET,b:1",
		"rediss+cluster://u:SECRET,b",
		"redis+sentinel://u:SECRET/m", "redis+sentinel://u:x/m/SECRET", "redis://u:SECRET@", "redis://u:SECRET@:1",
		"redis://u:%SECRET@a", "redis://u:SECRET/x@a", "redis://u:x?SECRET@a", "u:SECRET@a",
	} {
		if _, err := ParseRedisURL(url); err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestLogRedisClient(t *testing.T) {
	var out strings.Builder
	log := redisLog{slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	log.Printf(t.Context(), "lost %d\nof %s", 3, "x")
	if s := out.String(); !strings.Contains(s, `level=DEBUG msg="redis client" says="lost 3\nof x"`) {
		t.Errorf("logged as %q", s)
	}
	out.Reset()
	redisLog{slog.New(slog.NewTextHandler(&out, nil))}.Printf(t.Context(), "chatter")
	if out.Len() != 0 {
		t.Errorf("logged above its level: %q", out.String())
	}
}

// FuzzParseRedisURL holds that no URL makes a panic, that what is accepted is valid, and that a password is never
// printed.
func FuzzParseRedisURL(f *testing.F) {
	for _, seed := range []string{"redis://a:1", "redis://u:SECRET@a:1/2", "redis+sentinel://u:SECRET@a,b:2/m/3",
		"rediss+cluster://a,[::1]", "redis://u:SECRET@/", "redis://:SECRET?@"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, url string) {
		cfg, err := ParseRedisURL(url)
		cfg.Password = cmp.Or(cfg.Password, "x")
		if err == nil && cfg.Validate() != nil {
			t.Errorf("accepted, but %v", cfg.Validate())
		}
		if _, rest, _ := strings.Cut(url, ":SECRET"); strings.Contains(rest, "@") &&
			strings.Count(url, "SECRET") == 1 &&
			strings.HasPrefix(url, "redis://u:SECRET") {
			if said := fmt.Sprint(cfg, err); strings.Contains(said, "SECRET") {
				t.Errorf("the password is told: %s", said)
			}
		}
		if cfg.DialTimeout > time.Second {
			t.Errorf("it takes %v to dial", cfg.DialTimeout)
		}
	})
}
