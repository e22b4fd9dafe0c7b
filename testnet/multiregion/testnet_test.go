package multiregion

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/testnet/docker"
	"github.com/edgelimit/edgelimit/testnet/docker/dockertest"
)

func TestOpen(t *testing.T) {
	_, err := Open(Options{Root: t.TempDir()})
	fails(t, err, "at the top of edgelimit's repository")
	_, err = Open(Options{Root: "../..", Profiles: []string{"sidecra"}})
	fails(t, err, `"sidecra"`, "sidecar and metrics")
}

func TestUp(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		l.Clear()
		l.Compose = func(h *dockertest.Host, verb string, services []string, c docker.Command) {
			if verb != "up" {
				return
			}
			if len(services) > 0 || !slices.Equal(c.Env, []string{"EDGELIMIT_REDIS_IMAGE=edgelimit-testnet/redis:local"}) {
				t.Errorf("%s %q with %q", verb, services, c.Env)
			}
			if _, err := os.Stat(filepath.Join(l.net.compose.Dir, keyFile)); err != nil {
				t.Errorf("the containers are started without a key file: %v", err)
			}
			l.addAll()
			h.Change("us-east-1", func(c *dockertest.Container) { c.Health = "starting" })
			go func() {
				time.Sleep(7 * time.Second)
				h.Change("us-east-1", func(c *dockertest.Container) { c.Health = "healthy" })
			}()
		}
		began := time.Now()
		ok(t, l.net.Up(t.Context()))
		if took := time.Since(began); took < 7*time.Second || took > 8*time.Second {
			t.Errorf("it was up after %v", took)
		}
		if said := l.said.String(); !strings.Contains(said, "key file") || !strings.Contains(said, "us-east-1 is starting") {
			t.Errorf("it said %q", said)
		}
		nodes, err := l.net.Nodes(t.Context())
		ok(t, err)
		want := Node{Name: "ap-south-1", Region: "ap-south", HTTP: "http://ap-south-1:8080", Metrics: "http://ap-south-1:9100", LAN: "10.77.1.11", WAN: "10.77.100.11", State: "running"}
		got := nodes[0]
		got.container, got.network = want.container, want.network
		if len(nodes) != 6 || got.Name != want.Name || got.HTTP != want.HTTP || got.Metrics != want.Metrics || got.LAN != want.LAN || got.WAN != want.WAN || got.State != want.State || got.Cut {
			t.Errorf("%d nodes, the first is %+v", len(nodes), got)
		}
	})
}

func TestUpSaysWhatIsMissing(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		l.Change("us-east-1", func(c *dockertest.Container) { c.Health = "unhealthy" })
		ok(t, l.net.Kill(t.Context(), "us-east-2"))
		l.alone["eu-west-1"] = true
		l.unready["eu-west-2"] = "no rules"
		fails(t, l.net.Up(t.Context()), "20s", "us-east-1 is unhealthy", "us-east-2 is not running (exited, exit status 137)", "eu-west-1 sees 0 of 4 others", "eu-west-2 is not ready: no rules")
		ok(t, l.net.Partition(t.Context(), "ap-south", Both))
		fails(t, l.net.Up(t.Context()), "ap-south-1 is cut off", "heal")
		l.Images = nil
		fails(t, l.net.Up(t.Context()), "go run ./testnet build")
		l.Missing = []string{"docker"}
		if err := l.net.Up(t.Context()); !errors.Is(err, docker.ErrNoDocker) {
			t.Errorf("error %v", err)
		}
	})
}

func TestImagesOfTheUser(t *testing.T) {
	t.Setenv("EDGELIMIT_IMAGE", "mine")
	t.Setenv("EDGELIMIT_REDIS_IMAGE", "valkey")
	inLab(t, func(t *testing.T, l *lab) {
		l.Images = nil
		l.Compose = func(_ *dockertest.Host, _ string, _ []string, c docker.Command) {
			if len(c.Env) > 0 {
				t.Errorf("the user's images are replaced: %q", c.Env)
			}
		}
		ok(t, l.net.Up(t.Context()))
	})
}

func TestDown(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		ok(t, l.net.Pause(t.Context(), "us-east-1"))
		fails(t, l.net.Down(t.Context()), "9 containers are still there")
		l.Compose = func(h *dockertest.Host, verb string, _ []string, c docker.Command) {
			if verb == "down" {
				if line := c.String(); !strings.Contains(line, "--project-name edgelimit-testnet") || !strings.Contains(line, "--profile sidecar --profile metrics") {
					t.Errorf("told %q", line)
				}
				h.Clear()
			}
		}
		if l.Get("us-east-1").Paused {
			t.Error("who is paused does not hear that he is to end")
		}
		ok(t, l.net.Down(t.Context()))
	})
}

// A sidecar has no network of its own: it is its service that is cut off.
func TestSidecar(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		l.Add(&dockertest.Container{ID: "id-shop", Name: "shop", State: "running", PID: 900, Labels: labels("shop", "us-east", "shop"),
			Networks: map[string]string{wanNetwork: "10.77.100.13"}, Aliases: make(map[string][]string), Ports: map[string]string{"9100/tcp": "shop-edgelimit:9100"}})
		l.Add(&dockertest.Container{ID: "id-side", Name: "shop-edgelimit", State: "exited", NamespaceOf: "id-shop", Labels: labels("shop-edgelimit", "us-east", "sidecar"),
			Env: map[string]string{"EDGELIMIT_ADVERTISE_WAN": "10.77.100.13:7947"}})
		n, err := l.net.findNode(t.Context(), "shop-edgelimit")
		ok(t, err)
		if !n.Sidecar || n.Cut || n.HTTP != "" || n.Metrics != "http://shop-edgelimit:9100" {
			t.Errorf("%+v", n)
		}
		ok(t, l.net.Partition(t.Context(), "us-east", Both))
		if c := l.Get("shop"); c.Networks[wanNetwork] != "" {
			t.Error("its service is still on the WAN")
		}
		ok(t, l.net.Heal(t.Context()))
		same(t, "names on the WAN", l.Get("shop").Aliases[wanNetwork], "shop", "shop.wan")
		_, err = l.net.Move(t.Context(), "shop-edgelimit")
		fails(t, err, "sidecar")
	})
}

func TestObserve(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		n, err := l.net.findNode(t.Context(), "us-east-1")
		ok(t, err)
		o, err := l.net.Observe(t.Context(), n)
		ok(t, err)
		if o.Members != 5 || o.Staleness != 150*time.Millisecond || o.Bound != 0.5 || !o.Degraded || o.StorePending != -1 || o.NotReady != "" || time.Since(o.Started).Round(time.Second) != time.Hour {
			t.Errorf("%+v", o)
		}
	})
	var o Observation
	fails(t, o.read(strings.NewReader("up 1\n")), "edgelimit_staleness_seconds")
	fails(t, o.read(strings.NewReader("{{{\n")), "")
	ok(t, o.read(strings.NewReader("edgelimit_staleness_seconds 1\nedgelimit_store_pending_slots 7\nedgelimit_store_failed_calls_total 3\n")))
	if o.StorePending != 7 || o.StoreFailed != 3 {
		t.Errorf("%+v", o)
	}
}

func TestKeyFile(t *testing.T) {
	root := t.TempDir()
	made, err := ensureKeyFile(root)
	name := filepath.Join(root, keyFile)
	if !made || err != nil {
		t.Fatal(made, err)
	}
	before, err := os.ReadFile(name)
	ok(t, err)
	if _, err := node.ReadKeyFile(name); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(filepath.Dir(name)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("its folder lets others in: %v, %v", info.Mode(), err)
	}
	made, err = ensureKeyFile(root)
	after, _ := os.ReadFile(name)
	if made || err != nil || string(after) != string(before) {
		t.Errorf("it is made again: %v, %v", made, err)
	}
	ok(t, os.Remove(name))
	ok(t, os.Mkdir(name, 0o700))
	_, err = ensureKeyFile(root)
	fails(t, err, "is a folder", "remove it")
}
