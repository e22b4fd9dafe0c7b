package prom_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/edgelimit/edgelimit/node/ratelimit/prom"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func statistics(f func(name string, total uint64)) {
	for name, total := range map[string]uint64{
		"ratelimit.service.rate_limit.edge.client.total_hits":           5,
		"ratelimit.service.rate_limit.edge.path_/a.client.over_limit":   2,
		"ratelimit.service.rate_limit.edge.path_/a.client.x.over_limit": 3,
		"ratelimit.service.call.should_rate_limit.service_error":        4,
		"ratelimit.service.config_load_success":                         1,
		"ratelimit_server.ShouldRateLimit.total_requests":               9,
	} {
		f(name, total)
	}
}

// What no mapping names has its own name, and what gets the same name and labels is added up.
func TestNames(t *testing.T) {
	c, err := prom.New(prom.DefaultConfig(), statistics)
	testkit.Must(t, err)
	if err := testutil.CollectAndCompare(c, strings.NewReader(`
# HELP ratelimit_service_config_load_success A statistic of envoyproxy/ratelimit.
# TYPE ratelimit_service_config_load_success counter
ratelimit_service_config_load_success 1
# HELP ratelimit_service_rate_limit_over_limit A statistic of envoyproxy/ratelimit.
# TYPE ratelimit_service_rate_limit_over_limit counter
ratelimit_service_rate_limit_over_limit{domain="edge",key1="path_/a",key2="client"} 5
# HELP ratelimit_service_rate_limit_total_hits A statistic of envoyproxy/ratelimit.
# TYPE ratelimit_service_rate_limit_total_hits counter
ratelimit_service_rate_limit_total_hits{domain="edge",key1="client"} 5
# HELP ratelimit_service_should_rate_limit_error A statistic of envoyproxy/ratelimit.
# TYPE ratelimit_service_should_rate_limit_error counter
ratelimit_service_should_rate_limit_error{err_type="service_error"} 4
# HELP ratelimit_service_total_requests A statistic of envoyproxy/ratelimit.
# TYPE ratelimit_service_total_requests counter
ratelimit_service_total_requests{grpc_method="ShouldRateLimit"} 9
`)); err != nil {
		t.Error(err)
	}
}

// A mapping of one's own takes the place of that server's; one that cannot be read does not, and says so.
func TestMapperFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "conf.yaml")
	const own = `mappings:
- {match: '*.service.rate_limit.*.*.total_hits', name: hits, timer_type: histogram, labels: {of: $2}}
- {match: 'ratelimit.service.*', name: x, action: drop}
`
	testkit.Must(t, os.WriteFile(file, []byte(own), 0o600))
	cfg := prom.Config{Address: ":0", Path: "/metrics", MapperFile: file}
	c, err := prom.New(cfg, statistics)
	testkit.Must(t, err)
	want := "# HELP hits A statistic of envoyproxy/ratelimit.\n# TYPE hits counter\nhits{of=\"edge\"} 5\n"
	if err := testutil.CollectAndCompare(c, strings.NewReader(want), "hits", "x",
		"ratelimit_service_config_load_success"); err != nil {
		t.Error(err)
	}
	for _, wrong := range []string{"no: mapping\n", ""} {
		if wrong == "" {
			err = os.Remove(file)
		} else {
			err = os.WriteFile(file, []byte(wrong), 0o600)
		}
		testkit.Must(t, err)
		c, err := prom.New(cfg, statistics)
		if err == nil || !strings.HasPrefix(err.Error(), "mapper_file: ") {
			t.Errorf("%q: %v", wrong, err)
		}
		if n := testutil.CollectAndCount(c, "ratelimit_service_total_requests"); n != 1 {
			t.Errorf("%q: %d of that server's names", wrong, n)
		}
	}
}

func TestValidate(t *testing.T) {
	for want, cfg := range map[string]prom.Config{
		"address: ":     {Address: "9090", Path: "/metrics"},
		"path: ":        {Address: ":9090", Path: "metrics"},
		"mapper_file: ": {Path: "/metrics", MapperFile: "x"},
	} {
		if err := cfg.Validate(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}
