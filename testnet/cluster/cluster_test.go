package cluster

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/scrape"
)

func TestOpen(t *testing.T) {
	_, err := Open(Options{Root: t.TempDir()})
	fails(t, err, "at the top of edgelimit's repository")
	_, err = Open(Options{Root: "../..", Profiles: []string{"sidecra"}})
	fails(t, err, `"sidecra"`, "sidecar, metrics, grafana")
}

func TestUp(t *testing.T) {
	withCluster(t, func(t *testing.T, f *fakeCluster) {
		f.Clear()
		f.Compose = func(e *fakeEngine, verb string, services []string, c Command) {
			if verb != "up" {
				return
			}
			if len(services) > 0 ||
				!slices.Equal(c.Env, []string{"EDGELIMIT_REDIS_IMAGE=edgelimit-testnet/redis:local"}) {
				t.Errorf("%s %q with %q", verb, services, c.Env)
			}
			f.addAll()
			e.Change("us-east-1", func(c *fakeContainer) { c.Health = "starting" })
			go func() {
				time.Sleep(7 * time.Second)
				e.Change("us-east-1", func(c *fakeContainer) { c.Health = "healthy" })
			}()
		}
		began := time.Now()
		ok(t, f.cluster.Up(t.Context()))
		if took := time.Since(began); took < 7*time.Second || took > 8*time.Second {
			t.Errorf("it was up after %v", took)
		}
		if text := f.log.String(); !strings.Contains(text, "us-east-1 is starting") {
			t.Errorf("it logged %q", text)
		}
		nodes, err := f.cluster.Nodes(t.Context())
		ok(t, err)
		got := nodes[0]
		if len(nodes) != 6 || got.Name != "ap-south-1" || got.Region != "ap-south" ||
			got.HTTP != "http://ap-south-1:8080" || got.Metrics != "http://ap-south-1:7948" ||
			got.LAN != "10.77.1.11" || got.WAN != "10.77.100.11" ||
			got.State != "running" || got.Partitioned {
			t.Errorf("%d nodes, the first is %+v", len(nodes), got)
		}
	})
}

func TestUpListsWhatIsMissing(t *testing.T) {
	withCluster(t, func(t *testing.T, f *fakeCluster) {
		f.Change("us-east-1", func(c *fakeContainer) { c.Health = "unhealthy" })
		ok(t, f.cluster.Kill(t.Context(), "us-east-2"))
		f.alone["eu-west-1"] = true
		f.unready["eu-west-2"] = "no rules"
		fails(t, f.cluster.Up(t.Context()), "20s", "us-east-1 is unhealthy",
			"us-east-2 is not running (exited, exit status 137)", "eu-west-1 sees 0 of 4 others",
			"eu-west-2 is not ready: no rules")
		ok(t, f.cluster.Partition(t.Context(), "ap-south", Both))
		fails(t, f.cluster.Up(t.Context()), "ap-south-1 is partitioned", "heal")
		f.Images = nil
		fails(t, f.cluster.Up(t.Context()), "go run ./testnet build")
		f.Missing = []string{"docker"}
		if err := f.cluster.Up(t.Context()); !errors.Is(err, ErrNoDocker) {
			t.Errorf("error %v", err)
		}
	})
}

func TestImagesOfTheUser(t *testing.T) {
	t.Setenv("EDGELIMIT_IMAGE", "mine")
	t.Setenv("EDGELIMIT_REDIS_IMAGE", "valkey")
	withCluster(t, func(t *testing.T, f *fakeCluster) {
		f.Images = nil
		f.Compose = func(_ *fakeEngine, _ string, _ []string, c Command) {
			if len(c.Env) > 0 {
				t.Errorf("the user's images are replaced: %q", c.Env)
			}
		}
		ok(t, f.cluster.Up(t.Context()))
	})
}

func TestDown(t *testing.T) {
	withCluster(t, func(t *testing.T, f *fakeCluster) {
		ok(t, f.cluster.Pause(t.Context(), "us-east-1"))
		fails(t, f.cluster.Down(t.Context()), "9 containers are still there")
		f.Compose = func(e *fakeEngine, verb string, _ []string, c Command) {
			if verb == "down" {
				if line := c.String(); !strings.Contains(line, "--project-name edgelimit-testnet") ||
					!strings.Contains(line, "--profile sidecar --profile metrics") {
					t.Errorf("it ran %q", line)
				}
				e.Clear()
			}
		}
		if f.Get("us-east-1").Paused {
			t.Error("a paused process does not receive SIGTERM")
		}
		ok(t, f.cluster.Down(t.Context()))
	})
}

// A sidecar has no network of its own: Partition takes its service off the WAN.
func TestSidecar(t *testing.T) {
	withCluster(t, func(t *testing.T, f *fakeCluster) {
		f.Add(&fakeContainer{
			ID: "id-shop", Name: "us-east-shop", State: "running", PID: 900,
			Labels:   labels("us-east-shop", "us-east", "shop"),
			Networks: map[string]string{wanNetwork: "10.77.100.13"}, Aliases: make(map[string][]string),
			Ports: map[string]string{"8080/tcp": "us-east-proxy:8080", "7948/tcp": "us-east-proxy:7948"},
		})
		f.Add(&fakeContainer{
			ID: "id-side", Name: "us-east-proxy", State: "exited", NamespaceOf: "id-shop",
			Labels: labels("us-east-proxy", "us-east", "sidecar"),
			Env:    map[string]string{"EDGELIMIT_ADVERTISE_WAN": "10.77.100.13:7947"},
		})
		n, err := f.cluster.findNode(t.Context(), "us-east-proxy")
		ok(t, err)
		if !n.Sidecar || n.Partitioned || n.HTTP != "http://us-east-proxy:8080" ||
			n.Metrics != "http://us-east-proxy:7948" {
			t.Errorf("%+v", n)
		}
		ok(t, f.cluster.Partition(t.Context(), "us-east", Both))
		if c := f.Get("us-east-shop"); c.Networks[wanNetwork] != "" {
			t.Error("its service is still on the WAN")
		}
		ok(t, f.cluster.Heal(t.Context()))
		same(t, "names on the WAN", f.Get("us-east-shop").Aliases[wanNetwork], "us-east-shop", "us-east-shop.wan")
		_, err = f.cluster.Move(t.Context(), "us-east-proxy")
		fails(t, err, "sidecar")
	})
}

func TestObserve(t *testing.T) {
	withCluster(t, func(t *testing.T, f *fakeCluster) {
		n, err := f.cluster.findNode(t.Context(), "us-east-1")
		ok(t, err)
		o, err := f.cluster.Observe(t.Context(), n)
		ok(t, err)
		if o.Members != 5 || o.Staleness != 150*time.Millisecond || o.Bound != 0.5 || !o.Degraded ||
			o.StorePending != -1 || o.NotReady != "" || time.Since(o.Started).Round(time.Second) != time.Hour {
			t.Errorf("%+v", o)
		}
	})
	var o Observation
	fails(t, parse(&o, "up 1\n"), "edgelimit_staleness_seconds")
	fails(t, parse(&o, "{{{\n"), "")
	ok(t, parse(&o, "edgelimit_staleness_seconds 1\nedgelimit_store_pending_slots 7\n"+
		"edgelimit_store_failed_calls_total 3\n"))
	if o.StorePending != 7 || o.StoreFailed != 3 {
		t.Errorf("%+v", o)
	}
}

// parse reads an observation from a node's metrics.
func parse(o *Observation, text string) error {
	metrics, err := scrape.Parse(strings.NewReader(text))
	if err != nil {
		return err
	}
	return o.read(metrics)
}
