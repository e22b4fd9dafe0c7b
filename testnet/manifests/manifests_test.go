// Package manifests tests the manifests of node/deploy/kubernetes. It is a module of its own, so that nobody who uses
// edgelimit inherits Kubernetes.
package manifests

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const manifests = "../../node/deploy/kubernetes/"

// built is what kustomize builds of an overlay, decoded strictly as the types that Kubernetes publishes.
type built struct {
	template corev1.PodTemplateSpec // of the DaemonSet or the Deployment
	selector map[string]string      // its
	budget   policyv1.PodDisruptionBudget
	policy   networkingv1.NetworkPolicy
	account  corev1.ServiceAccount
	configs  map[string]*corev1.ConfigMap
	services map[string]*corev1.Service
}

func build(t *testing.T, overlay string) *built {
	t.Helper()
	all, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), manifests+overlay)
	if err != nil {
		t.Fatal(err)
	}
	b := &built{configs: make(map[string]*corev1.ConfigMap), services: make(map[string]*corev1.Service)}
	var nodes appsv1.DaemonSet
	var pods appsv1.Deployment
	for _, r := range all.Resources() {
		var into any
		switch name := r.GetName(); r.GetKind() {
		case "DaemonSet":
			into = &nodes
		case "Deployment":
			into = &pods
		case "PodDisruptionBudget":
			into = &b.budget
		case "NetworkPolicy":
			into = &b.policy
		case "ServiceAccount":
			into = &b.account
		case "ConfigMap":
			b.configs[name] = new(corev1.ConfigMap)
			into = b.configs[name]
		case "Service":
			b.services[name] = new(corev1.Service)
			into = b.services[name]
		default:
			t.Fatalf("no check for a %s", r.GetKind())
		}
		text, err := r.AsYAML()
		if err != nil {
			t.Fatalf("%s: %v", r.GetKind(), err)
		}
		if err := yaml.UnmarshalStrict(text, into); err != nil {
			t.Errorf("%s %s: %v", r.GetKind(), r.GetName(), err)
		}
	}
	b.template, b.selector = nodes.Spec.Template, nil
	if nodes.Spec.Selector != nil {
		b.selector = nodes.Spec.Selector.MatchLabels
	}
	if pods.Spec.Selector != nil {
		b.template, b.selector = pods.Spec.Template, pods.Spec.Selector.MatchLabels
	}
	return b
}

// containers returns all of the pod, in the order of their start.
func (b *built) containers() []corev1.Container {
	return slices.Concat(b.template.Spec.InitContainers, b.template.Spec.Containers)
}

// edgelimit returns the container that runs it.
func (b *built) edgelimit() corev1.Container { return b.containers()[0] }

// variables returns the environment of a container; the value of one that is taken from the pod is empty.
func variables(c corev1.Container) map[string]string {
	env := make(map[string]string)
	for _, e := range c.Env {
		env[e.Name] = e.Value
	}
	return env
}

// What the objects of each overlay say of each other, and of the product, is true.
func TestOverlays(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "edgelimit")
	run(t, "../..", "go", "build", "-o", binary, "./cmd/edgelimit")
	for _, overlay := range []string{"region", "sidecar"} {
		t.Run(overlay, func(t *testing.T) {
			b := build(t, overlay)
			checkSelectors(t, b)
			ports := checkPorts(t, b)
			checkPolicy(t, b, ports)
			checkProbes(t, b)
			checkRights(t, b)
			checkMounts(t, b)
			checkCommand(t, b, binary)
			checkConfiguration(t, b, binary)
		})
	}
}

func run(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

func checkSelectors(t *testing.T, b *built) {
	t.Helper()
	selectors := map[string]map[string]string{"the pods": b.selector, "the budget": b.budget.Spec.Selector.MatchLabels,
		"the policy": b.policy.Spec.PodSelector.MatchLabels}
	for name, s := range b.services {
		selectors["service "+name] = s.Spec.Selector
	}
	for what, selector := range selectors {
		if len(selector) == 0 {
			t.Errorf("%s: selects everything", what)
		}
		for k, v := range selector {
			if b.template.Labels[k] != v {
				t.Errorf("%s: selects %s=%s, which no pod has", what, k, v)
			}
		}
	}
	if got := b.template.Spec.ServiceAccountName; got != b.account.Name {
		t.Errorf("the pods have the service account %q, which is not there", got)
	}
}

// number is a port as policies name it.
type number struct {
	protocol corev1.Protocol
	port     int32
}

func protocolOf(p corev1.Protocol) corev1.Protocol {
	if p == "" {
		return corev1.ProtocolTCP
	}
	return p
}

// checkPorts holds that names and numbers of ports are unique in the pod, and that Services name ports that there are.
func checkPorts(t *testing.T, b *built) map[number]bool {
	t.Helper()
	named, numbers := make(map[string]corev1.ContainerPort), make(map[number]bool)
	for _, c := range b.containers() {
		for _, p := range c.Ports {
			n := number{protocolOf(p.Protocol), p.ContainerPort}
			if _, twice := named[p.Name]; twice || numbers[n] || len(p.Name) > 15 {
				t.Errorf("port %s, %v: twice in the pod, or its name is too long", p.Name, n)
			}
			named[p.Name], numbers[n] = p, true
		}
	}
	for name, s := range b.services {
		for _, p := range s.Spec.Ports {
			if port, ok := named[p.TargetPort.StrVal]; !ok || protocolOf(p.Protocol) != protocolOf(port.Protocol) {
				t.Errorf("service %s: no container has the port %s", name, p.TargetPort.StrVal)
			}
		}
	}
	return numbers
}

// checkPolicy holds that the policy lets in only to ports that there are, to each of edgelimit's, and, if it restricts
// what goes out, lets nodes out to each port that it lets them in from nodes, and to DNS.
func checkPolicy(t *testing.T, b *built, ports map[number]bool) {
	t.Helper()
	in, out := make(map[number]bool), make(map[number]bool)
	add := func(to map[number]bool, all []networkingv1.NetworkPolicyPort) {
		for _, p := range all {
			n := number{corev1.ProtocolTCP, p.Port.IntVal}
			if p.Protocol != nil {
				n.protocol = *p.Protocol
			}
			to[n] = true
		}
	}
	for _, rule := range b.policy.Spec.Ingress {
		add(in, rule.Ports)
	}
	for _, rule := range b.policy.Spec.Egress {
		add(out, rule.Ports)
	}
	for n := range in {
		if !ports[n] {
			t.Errorf("the policy lets in to %v, where no container listens", n)
		}
	}
	for _, p := range b.edgelimit().Ports {
		n := number{protocolOf(p.Protocol), p.ContainerPort}
		gossip := n.port == 7946 || n.port == 7947
		if !in[n] || gossip && !out[n] && len(out) > 0 {
			t.Errorf("the policy keeps %s (%v) from its peers or clients", p.Name, n)
		}
	}
	restricts := slices.Contains(b.policy.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
	names := out[number{corev1.ProtocolUDP, 53}] && out[number{corev1.ProtocolTCP, 53}]
	if restricts != (len(out) > 0) || restricts && !names {
		t.Errorf("the policy lets out to %v: nodes need names", out)
	}
	if b.template.Spec.InitContainers != nil {
		for _, p := range b.template.Spec.Containers[0].Ports {
			if in[number{protocolOf(p.Protocol), p.ContainerPort}] {
				t.Errorf("the policy lets clients pass the sidecar by, to %s", p.Name)
			}
		}
	}
}

// checkProbes holds that edgelimit's probes ask for what its health listener answers, and that those of all containers
// are at ports of their own.
func checkProbes(t *testing.T, b *built) {
	t.Helper()
	for i, c := range b.containers() {
		all := map[string]*corev1.Probe{"/readyz": c.ReadinessProbe, "/livez": c.LivenessProbe}
		for path, p := range all {
			switch {
			case i > 0 && p == nil:
			case p == nil || p.HTTPGet == nil ||
				i == 0 && (p.HTTPGet.Path != path || p.HTTPGet.Port.StrVal != "health"):
				t.Errorf("%s: the probe is not %s at the health port: %v", c.Name, path, p)
			case portOf(c, p.HTTPGet.Port) == 0:
				t.Errorf("%s: the probe is at %s, which the container does not have", c.Name, p.HTTPGet.Port.StrVal)
			}
		}
	}
	c := b.edgelimit()
	if p := c.StartupProbe; p == nil || p.HTTPGet == nil || p.HTTPGet.Path != "/readyz" ||
		p.HTTPGet.Port.StrVal != "health" {
		t.Errorf("the startup probe: %v", p)
	}
	if len(b.template.Spec.InitContainers) > 0 && (c.RestartPolicy == nil ||
		*c.RestartPolicy != corev1.ContainerRestartPolicyAlways) {
		t.Errorf("%s is no sidecar: the pod waits for its end", c.Name)
	}
}

// portOf returns the number of a container's port, 0 if there is none of that name.
func portOf(c corev1.Container, port intstr.IntOrString) int32 {
	for _, p := range c.Ports {
		if p.Name == port.StrVal {
			return p.ContainerPort
		}
	}
	return 0
}

func checkRights(t *testing.T, b *built) {
	t.Helper()
	for _, c := range b.containers() {
		if s := c.SecurityContext; s == nil || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation ||
			!slices.Contains(s.Capabilities.Drop, "ALL") || !*b.template.Spec.SecurityContext.RunAsNonRoot {
			t.Errorf("%s has rights that it does not need: %+v", c.Name, s)
		}
	}
}

// checkMounts holds that what containers mount is a volume of the pod, and that a volume's ConfigMap is there.
func checkMounts(t *testing.T, b *built) {
	t.Helper()
	mounted := make(map[string]bool)
	for _, c := range b.containers() {
		for _, m := range c.VolumeMounts {
			mounted[m.Name] = true
			v := volume(b, m.Name)
			switch {
			case v == nil:
				t.Errorf("%s mounts %s, which is no volume", c.Name, m.Name)
			case v.ConfigMap != nil && b.configs[v.ConfigMap.Name] == nil:
				t.Errorf("volume %s: there is no ConfigMap %s", v.Name, v.ConfigMap.Name)
			case v.ConfigMap != nil && m.SubPath != "" && b.configs[v.ConfigMap.Name].Data[m.SubPath] == "":
				t.Errorf("volume %s: ConfigMap %s has no %s", v.Name, v.ConfigMap.Name, m.SubPath)
			case v.Secret != nil && v.Secret.SecretName == "":
				t.Errorf("volume %s: a secret without a name", v.Name)
			}
		}
	}
	for _, v := range b.template.Spec.Volumes {
		if !mounted[v.Name] {
			t.Errorf("nobody mounts volume %s", v.Name)
		}
	}
}

func volume(b *built, name string) *corev1.Volume {
	for i, v := range b.template.Spec.Volumes {
		if v.Name == name {
			return &b.template.Spec.Volumes[i]
		}
	}
	return nil
}

// checkCommand holds that each variable is a flag of the command that the container runs, that each one that another
// quotes is set before it, and that the nodes join a Service that names pods before they are ready.
func checkCommand(t *testing.T, b *built, binary string) {
	t.Helper()
	c := b.edgelimit()
	help := run(t, ".", binary, c.Args[0], "--help")
	set := make(map[string]bool)
	for _, e := range c.Env {
		flag, ours := strings.CutPrefix(e.Name, "EDGELIMIT_")
		flag = "--" + strings.ReplaceAll(strings.ToLower(flag), "_", "-")
		if ours && !regexp.MustCompile(flag+`\b[^-]`).MatchString(help) {
			t.Errorf("%s: edgelimit %s has no flag %s", e.Name, c.Args[0], flag)
		}
		for _, quoted := range regexp.MustCompile(`\$\((\w+)\)`).FindAllStringSubmatch(e.Value, -1) {
			if !set[quoted[1]] {
				t.Errorf("%s quotes %s, which is not set before it", e.Name, quoted[1])
			}
		}
		set[e.Name] = true
	}
	env := variables(c)
	seed, _, _ := strings.Cut(env["EDGELIMIT_JOIN"], ",")
	peers := b.services[seed]
	if peers == nil || peers.Spec.ClusterIP != corev1.ClusterIPNone || !peers.Spec.PublishNotReadyAddresses {
		t.Errorf("nodes join %q, want a headless Service of all pods", seed)
	}
	for _, name := range []string{"EDGELIMIT_GOSSIP", "EDGELIMIT_GOSSIP_WAN"} {
		if _, port, ok := strings.Cut(env[name], "]:"); env[name] != "" && (!ok ||
			!slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool {
				return port == fmt.Sprint(p.ContainerPort)
			})) {
			t.Errorf("%s: %s is at no port of the container", name, env[name])
		}
	}
}

// checkConfiguration holds that the product takes the rules, and the configuration if there is one, and that the files
// that these name are mounted.
func checkConfiguration(t *testing.T, b *built, binary string) {
	t.Helper()
	env := variables(b.edgelimit())
	names := slices.DeleteFunc(slices.Collect(maps.Values(env)),
		func(v string) bool { return !strings.HasPrefix(v, "/etc/") })
	dir := t.TempDir()
	for _, config := range b.configs {
		for name, text := range config.Data {
			file := filepath.Join(dir, name)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			names = append(names, regexp.MustCompile(`/etc/edgelimit/[\w./-]+`).FindAllString(text, -1)...)
		}
	}
	run(t, ".", binary, "rules", "validate", filepath.Join(dir, "rules.yaml"))
	if at := slices.Index(b.edgelimit().Args, "--config"); at > 0 {
		file := b.edgelimit().Args[at+1]
		names = append(names, file)
		text, err := os.ReadFile(filepath.Join(dir, path.Base(file)))
		if err != nil {
			t.Fatal(err)
		}
		local := strings.ReplaceAll(string(text), "/etc/edgelimit/rules", filepath.Join(dir, "rules.yaml"))
		if err := os.WriteFile(filepath.Join(dir, "local.yaml"), []byte(local), 0o600); err != nil {
			t.Fatal(err)
		}
		run(t, ".", binary, "rules", "validate", "--config", filepath.Join(dir, "local.yaml"))
	}
	for _, name := range names {
		if !slices.ContainsFunc(b.edgelimit().VolumeMounts, func(m corev1.VolumeMount) bool {
			return name == m.MountPath || strings.HasPrefix(name, m.MountPath+"/")
		}) {
			t.Errorf("%s: nothing is mounted there", name)
		}
	}
}

// The overlay of a region gives its name to the nodes of the base, and joins them to other regions: each region would
// have the whole limit for itself otherwise.
func TestRegion(t *testing.T) {
	env := variables(build(t, "region").edgelimit())
	if got := env["EDGELIMIT_REGION"]; got != "eu-west" {
		t.Errorf("the region is %q, not the overlay's", got)
	}
	if !strings.Contains(env["EDGELIMIT_JOIN"], ",wan:") || env["EDGELIMIT_GOSSIP_WAN"] == "" {
		t.Errorf("nodes join %q from %q, and no other region", env["EDGELIMIT_JOIN"], env["EDGELIMIT_GOSSIP_WAN"])
	}
}
