// Package manifests tests the manifests of node/deploy/kubernetes. It is a module of its own, so that nobody who uses
// edgelimit inherits Kubernetes.
package manifests

import (
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const manifests = "../../node/deploy/kubernetes/"

// TestRegion builds the overlay, decodes every object strictly, and holds that what they say of each other is true.
func TestRegion(t *testing.T) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), manifests+"region")
	if err != nil {
		t.Fatal(err)
	}
	var nodes appsv1.DaemonSet
	var budget policyv1.PodDisruptionBudget
	var policy networkingv1.NetworkPolicy
	var rules corev1.ConfigMap
	services := make(map[string]*corev1.Service)
	for _, r := range built.Resources() {
		into := map[string]any{"DaemonSet": &nodes, "PodDisruptionBudget": &budget, "NetworkPolicy": &policy,
			"ConfigMap": &rules, "ServiceAccount": new(corev1.ServiceAccount)}[r.GetKind()]
		if r.GetKind() == "Service" {
			services[r.GetName()] = new(corev1.Service)
			into = services[r.GetName()]
		}
		text, err := r.AsYAML()
		if err != nil || into == nil {
			t.Fatalf("%s: %v", r.GetKind(), err)
		}
		if err := yaml.UnmarshalStrict(text, into); err != nil {
			t.Errorf("%s %s: %v", r.GetKind(), r.GetName(), err)
		}
	}
	template := nodes.Spec.Template
	selects := func(what string, selector map[string]string) {
		t.Helper()
		for k, v := range selector {
			if template.Labels[k] != v {
				t.Errorf("%s selects %s=%s, which no pod has", what, k, v)
			}
		}
		if len(selector) == 0 {
			t.Errorf("%s selects everything", what)
		}
	}
	selects("the DaemonSet", nodes.Spec.Selector.MatchLabels)
	selects("the budget", budget.Spec.Selector.MatchLabels)
	selects("the policy", policy.Spec.PodSelector.MatchLabels)
	c := template.Spec.Containers[0]
	ports := make(map[string]corev1.ContainerPort)
	for _, p := range c.Ports {
		ports[p.Name] = p
	}
	for name, s := range services {
		selects(name, s.Spec.Selector)
		for _, p := range s.Spec.Ports {
			if port, ok := ports[p.TargetPort.StrVal]; !ok ||
				p.Protocol != port.Protocol && p.Protocol+port.Protocol != corev1.ProtocolTCP {
				t.Errorf("service %s: no port %v", name, p)
			}
		}
	}
	for _, probe := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
		if probe == nil || probe.HTTPGet == nil || ports[probe.HTTPGet.Port.StrVal].Name != "health" {
			t.Errorf("a probe is not at the health port: %v", probe)
		}
	}
	if s := c.SecurityContext; s == nil || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation ||
		!slices.Contains(s.Capabilities.Drop, "ALL") || !*template.Spec.SecurityContext.RunAsNonRoot {
		t.Errorf("the container has rights that it does not need: %+v", s)
	}
	checkEnvironment(t, c, services)
}

// checkEnvironment holds that each variable is a flag of edgelimit serve, and that the nodes join a Service that names
// pods before they are ready.
func checkEnvironment(t *testing.T, c corev1.Container, services map[string]*corev1.Service) {
	t.Helper()
	serve := exec.Command("go", "run", "./cmd/edgelimit", "serve", "--help")
	serve.Dir = "../.."
	help, err := serve.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, help)
	}
	env := make(map[string]string)
	for _, e := range c.Env {
		env[e.Name] = e.Value
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		flag, ours := strings.CutPrefix(name, "EDGELIMIT_")
		flag = "--" + strings.ReplaceAll(strings.ToLower(flag), "_", "-")
		if ours && !regexp.MustCompile(flag+`\b[^-]`).Match(help) {
			t.Errorf("%s: edgelimit serve has no flag %s", name, flag)
		}
	}
	peers := services[env["EDGELIMIT_JOIN"]]
	if peers == nil || peers.Spec.ClusterIP != corev1.ClusterIPNone || !peers.Spec.PublishNotReadyAddresses {
		t.Errorf("nodes join %q, want a headless Service of all pods", env["EDGELIMIT_JOIN"])
	}
	if env["EDGELIMIT_REGION"] != "eu-west" {
		t.Errorf("the region is %q, not the overlay's", env["EDGELIMIT_REGION"])
	}
}
