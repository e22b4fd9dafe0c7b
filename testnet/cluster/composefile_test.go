package cluster

import (
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/node/rules/rulefile"

	"go.yaml.in/yaml/v3"
)

// service is what is read of a service of the compose file, anchors and variables resolved.
type service struct {
	Image       string
	User        string
	ReadOnly    bool     `yaml:"read_only"`
	CapDrop     []string `yaml:"cap_drop"`
	CapAdd      []string `yaml:"cap_add"`
	Privileged  bool
	SecurityOpt []string `yaml:"security_opt"`
	Restart     string
	Hostname    string
	Profiles    []string
	Labels      map[string]string
	Environment map[string]string
	NetworkMode string `yaml:"network_mode"`
	Healthcheck struct{ Test []string }
	Ports       []string
	Volumes     []struct {
		Type, Source, Target string
		ReadOnly             bool `yaml:"read_only"`
	}
	Networks map[string]struct {
		Address string `yaml:"ipv4_address"`
		Aliases []string
	}
}

type composition struct {
	Version  string
	Services map[string]service
	Networks map[string]struct {
		Internal bool
		IPAM     struct{ Config []struct{ Subnet string } }
	}
}

var variable = regexp.MustCompile(`\$\{[A-Z0-9_]+:-([^}]*)\}`)

// composed reads the compose file as it is without any variable set.
func composed(t *testing.T) composition {
	t.Helper()
	b, err := os.ReadFile(composePath("../.."))
	ok(t, err)
	text := variable.ReplaceAllString(string(b), "$1")
	if strings.Contains(text, "${") {
		t.Error("there is a variable without a default")
	}
	var c composition
	ok(t, yaml.Unmarshal([]byte(text), &c))
	if c.Version != "" || strings.Contains(text, "container_name:") {
		t.Error("it sets what newer versions of Compose ignore, or names of containers that are the machine's")
	}
	return c
}

func TestComposeFileHardening(t *testing.T) {
	for name, s := range composed(t).Services {
		if s.User != "65532:65532" || !s.ReadOnly || s.Privileged || len(s.CapAdd) > 0 {
			t.Errorf("%s: user %q, read_only %v, privileged %v, cap_add %q", name, s.User, s.ReadOnly, s.Privileged,
				s.CapAdd)
		}
		same(t, name+": cap_drop", s.CapDrop, "ALL")
		same(t, name+": security_opt", s.SecurityOpt, "no-new-privileges:true")
		if s.Restart != "no" {
			t.Errorf("%s: what was killed comes back by itself: restart %q", name, s.Restart)
		}
		if len(s.Healthcheck.Test) < 2 || s.Healthcheck.Test[0] != "CMD" {
			t.Errorf("%s: health check %q", name, s.Healthcheck.Test)
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") || strings.Count(p, ":") != 2 {
				t.Errorf("%s: port %q is not on loopback", name, p)
			}
		}
		for _, v := range s.Volumes {
			if v.Type != "bind" || !v.ReadOnly {
				t.Errorf("%s: volume %+v is not read only", name, v)
			}
		}
	}
}

func TestComposeFileAddresses(t *testing.T) {
	c := composed(t)
	taken := make(map[string]string)
	once := func(what, owner string) {
		if other, ok := taken[what]; ok && other != owner {
			t.Errorf("%s and %s both have %s", owner, other, what)
		}
		taken[what] = owner
	}
	for name, s := range c.Services {
		for _, p := range s.Ports {
			once("port "+strings.Split(p, ":")[1], name)
		}
		if s.NetworkMode != "" {
			continue
		}
		if s.Hostname != name || len(s.Networks) == 0 {
			t.Errorf("%s: hostname %q, %d networks", name, s.Hostname, len(s.Networks))
		}
		for network, at := range s.Networks {
			if len(c.Networks[network].IPAM.Config) != 1 {
				t.Fatalf("network %s has no subnet", network)
			}
			subnet, err := netip.ParsePrefix(c.Networks[network].IPAM.Config[0].Subnet)
			ok(t, err)
			addr, err := netip.ParseAddr(at.Address)
			if err != nil || !subnet.Contains(addr) {
				t.Errorf("%s: its address on %s is %q, not one of %s", name, network, at.Address, subnet)
			}
			once(at.Address, name)
			for _, alias := range at.Aliases {
				once(alias+" on "+network, name)
			}
		}
	}
	if !c.Networks["wan"].Internal {
		t.Error("the WAN has a way out")
	}
}

func TestComposeFileNodes(t *testing.T) {
	c := composed(t)
	perRegion := make(map[string]int)
	for name, s := range c.Services {
		region := s.Labels[regionLabel]
		switch s.Labels[roleLabel] {
		case "redis":
			if name != RedisName(region) || s.Image != PublicRedisImage || len(s.Ports) > 0 {
				t.Errorf("%s: image %q, ports %q", name, s.Image, s.Ports)
			}
			same(t, name+": names", s.Networks[region].Aliases, "redis")
		case "node":
			perRegion[region]++
			if lan := s.Networks[region].Address + ":7946"; s.Environment["EDGELIMIT_ADVERTISE_LAN"] != lan {
				t.Errorf("%s is at %s and tells others %s", name, lan, s.Environment["EDGELIMIT_ADVERTISE_LAN"])
			}
			if wan := s.Networks["wan"].Address + ":7947"; s.Environment["EDGELIMIT_ADVERTISE_WAN"] != wan {
				t.Errorf("%s is at %s and tells others %s", name, wan, s.Environment["EDGELIMIT_ADVERTISE_WAN"])
			}
			same(t, name+": names on the WAN", s.Networks["wan"].Aliases, name+".wan")
			if len(s.Networks) != 2 || len(s.Profiles) > 0 {
				t.Errorf("%s is on %d networks, in the profiles %q", name, len(s.Networks), s.Profiles)
			}
			fallthrough
		case "sidecar":
			env := s.Environment
			if s.Image != NodeImage || env["EDGELIMIT_REGION"] != region || len(s.Volumes) != 2 ||
				env["EDGELIMIT_INJECT_WAN_DELAY"] != "40ms" || env["EDGELIMIT_INJECT_WAN_JITTER"] != "10ms" ||
				env["EDGELIMIT_INJECT_WAN_LOSS"] != "0.01" {
				t.Errorf("%s: image %q, %d volumes, %q", name, s.Image, len(s.Volumes), env)
			}
			same(t, name+": health check", s.Healthcheck.Test, "CMD", "/edgelimit", "health")
			for _, v := range s.Volumes {
				if v.Source != "./"+keyFile && v.Source != "./testnet/compose/rules" {
					t.Errorf("%s mounts %s", name, v.Source)
				}
			}
		}
	}
	for _, region := range testRegions {
		if perRegion[region] != 2 {
			t.Errorf("%s has %d nodes", region, perRegion[region])
		}
	}
	for _, p := range Profiles {
		inProfile := func(s service) bool { return slices.Contains(s.Profiles, p) }
		if !slices.ContainsFunc(slices.Collect(maps.Values(c.Services)), inProfile) {
			t.Errorf("nothing is in the profile %s", p)
		}
	}
}

// An edited rule file reaches the nodes: the mount is the folder, as sed -i and most editors make a new file. Published
// ports reach the listeners of the image without any setting.
func TestEditsAndPortsArrive(t *testing.T) {
	for name, s := range composed(t).Services {
		for _, v := range s.Volumes {
			source := filepath.Join("..", "..", v.Source)
			if info, err := os.Stat(source); strings.Contains(v.Source, "rules") && (err != nil || !info.IsDir()) {
				t.Errorf("%s mounts the rules from %s, which is no folder: %v", name, v.Source, err)
			}
		}
	}
	dockerfile, err := os.ReadFile(filepath.Join("..", "compose", "edgelimit.Dockerfile"))
	ok(t, err)
	for _, setting := range []string{"EDGELIMIT_HTTP=:8080", "EDGELIMIT_HEALTH=:9100"} {
		if !strings.Contains(string(dockerfile), setting) {
			t.Errorf("the image does not set %s: docker run -p would reach nobody", setting)
		}
	}
}

// What the containers mount is there, and fits the rest.
func TestMountedFiles(t *testing.T) {
	set, err := rulefile.Load(filepath.Join("..", "compose", "rules"))
	ok(t, err)
	if len(set.Rules()) != 3 {
		t.Errorf("%d rules", len(set.Rules()))
	}
	b, err := os.ReadFile(filepath.Join("..", "compose", "prometheus.yml"))
	ok(t, err)
	var prometheus struct {
		Scrape []struct {
			Static []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	ok(t, yaml.Unmarshal(b, &prometheus))
	c := composed(t)
	scraped := 0
	for _, job := range prometheus.Scrape {
		for _, group := range job.Static {
			for _, target := range group.Targets {
				scraped++
				name, port, _ := strings.Cut(target, ":")
				if _, there := c.Services[name]; !there || port != "9100" {
					t.Errorf("it scrapes %s", target)
				}
			}
		}
	}
	if scraped != 7 {
		t.Errorf("it scrapes %d targets", scraped)
	}
	ignored, err := os.ReadFile("../../.gitignore")
	ok(t, err)
	if !strings.Contains(string(ignored), "/"+filepath.Dir(keyFile)+"/\n") {
		t.Error("git does not ignore the key file")
	}
}
