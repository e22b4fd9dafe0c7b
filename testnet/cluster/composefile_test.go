package cluster

import (
	"maps"
	"net/netip"
	"os"
	"os/exec"
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
	Image      string
	PullPolicy string `yaml:"pull_policy"`
	Build      struct {
		Context, Dockerfile string
		Args                map[string]string
	}
	Command     []string
	DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
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
	Healthcheck struct {
		Test    []string
		Disable bool
	}
	Ports   []string
	Volumes []struct {
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
		oneShot := name == keyService
		checked := len(s.Healthcheck.Test) > 1 && s.Healthcheck.Test[0] == "CMD" && !s.Healthcheck.Disable
		if checked == oneShot {
			t.Errorf("%s: health check %q", name, s.Healthcheck.Test)
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") || strings.Count(p, ":") != 2 {
				t.Errorf("%s: port %q is not on loopback", name, p)
			}
		}
		for _, v := range s.Volumes {
			if v.ReadOnly == oneShot || (v.Type == "volume") != (v.Source == "keys") {
				t.Errorf("%s: volume %+v may be written to by others than %s", name, v, keyService)
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
			if s.Image != NodeImage || env["EDGELIMIT_REGION"] != region ||
				env["EDGELIMIT_KEY_FILE"] != "/data/"+name+".key" ||
				env["EDGELIMIT_INJECT_WAN_DELAY"] != "40ms" || env["EDGELIMIT_INJECT_WAN_JITTER"] != "10ms" ||
				env["EDGELIMIT_INJECT_WAN_LOSS"] != "0.01" {
				t.Errorf("%s: image %q, %q", name, s.Image, env)
			}
			same(t, name+": health check", s.Healthcheck.Test, "CMD", "/edgelimit", "health")
			mounts := []string{"./testnet/compose/rules", "keys"}
			if s.Labels[roleLabel] == "sidecar" {
				mounts = append(mounts, "./testnet/compose/proxy.yaml")
			}
			for i, v := range s.Volumes {
				if i >= len(mounts) || v.Source != mounts[i] {
					t.Errorf("%s mounts %s, not %q", name, v.Source, mounts)
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

// From a fresh clone one service builds the image for all, and makes the key before any of them starts: none may pull
// the image, whose name is anybody's elsewhere.
func TestComposeFileBuilds(t *testing.T) {
	c := composed(t)
	for name, s := range c.Services {
		if s.Image != NodeImage {
			continue
		}
		builds, waits := s.Build.Context != "", s.DependsOn[keyService].Condition == "service_completed_successfully"
		if s.PullPolicy != "never" || builds != (name == keyService) || waits == builds {
			t.Errorf("%s: pull_policy %q, builds %v, waits for the key %v", name, s.PullPolicy, builds, waits)
		}
	}
	key := c.Services[keyService]
	var holders []string
	for name, s := range c.Services {
		if role := s.Labels[roleLabel]; role == "node" || role == "sidecar" {
			holders = append(holders, name)
		}
	}
	slices.Sort(holders)
	slices.Sort(key.Command[1:])
	same(t, "the key's command", key.Command, append([]string{"install-key"}, holders...)...)
	if key.Build.Args["PACKAGE"] != "./testnet/node" || key.NetworkMode != "none" || len(key.Volumes) != 1 ||
		key.Volumes[0].Target != filepath.Dir(KeyFile) {
		t.Errorf("%+v", key)
	}
	if _, err := os.Stat(filepath.Join("../..", key.Build.Context, key.Build.Dockerfile)); err != nil {
		t.Error(err)
	}
}

// Each region has a shop on loopback, and a proxy in its network that clients reach.
func TestComposeFileSidecars(t *testing.T) {
	c := composed(t)
	for _, region := range testRegions {
		shop, proxy := c.Services[region+"-shop"], c.Services[region+"-proxy"]
		if proxy.NetworkMode != "service:"+region+"-shop" || proxy.Labels[roleLabel] != "sidecar" ||
			proxy.Labels[regionLabel] != region || shop.Labels[regionLabel] != region || len(shop.Ports) != 2 ||
			!strings.HasSuffix(shop.Ports[0], ":8080") || len(shop.Volumes) > 0 ||
			proxy.Environment["EDGELIMIT_ADVERTISE_WAN"] != shop.Networks["wan"].Address+":7947" ||
			proxy.Environment["EDGELIMIT_ADVERTISE_LAN"] != shop.Networks[region].Address+":7946" {
			t.Errorf("%s: %+v, %+v", region, shop, proxy)
		}
		same(t, region+": shop", shop.Command, "shop")
		same(t, region+": proxy", proxy.Command, "proxy", "--config", "/etc/edgelimit/proxy.yaml")
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
	for _, setting := range []string{"EDGELIMIT_HTTP=:8080", "EDGELIMIT_LISTEN=:8080", "EDGELIMIT_HEALTH=:7948"} {
		if !strings.Contains(string(dockerfile), setting) {
			t.Errorf("the image does not set %s: docker run -p would reach nobody", setting)
		}
	}
}

// What the containers mount is there, and fits the rest.
func TestMountedFiles(t *testing.T) {
	set, err := rulefile.Load(filepath.Join("..", "compose", "rules"))
	ok(t, err)
	if len(set.Rules()) != 7 {
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
				if _, there := c.Services[name]; !there || port != "7948" {
					t.Errorf("it scrapes %s", target)
				}
			}
		}
	}
	if scraped != 9 {
		t.Errorf("it scrapes %d targets", scraped)
	}
	// Prometheus takes its configuration and the alerts where they are mounted.
	dir := t.TempDir()
	for _, v := range c.Services["prometheus"].Volumes {
		source, err := filepath.Abs(filepath.Join("..", "..", v.Source))
		ok(t, err)
		if filepath.Dir(v.Target) != "/etc/prometheus" {
			t.Errorf("%s is mounted at %s", v.Source, v.Target)
		}
		ok(t, os.Symlink(source, filepath.Join(dir, filepath.Base(v.Target))))
	}
	out, err := exec.Command("promtool", "check", "config", filepath.Join(dir, "prometheus.yml")).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "rules found") {
		t.Errorf("promtool check config: %v\n%s", err, out)
	}
}
