package recipes

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	images "github.com/edgelimit/edgelimit/testnet/cluster"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// document is a document of YAML.
type document = map[string]any

// dropIn is an example of DROPIN.md: a file with envoyproxy/ratelimit in it, and what the page makes of it.
type dropIn struct{ before, after []document }

// dropIns returns the examples by the names of their files. In the page, the link to a file goes before its change.
func dropIns(t *testing.T) map[string]dropIn {
	t.Helper()
	page, err := os.ReadFile("../../node/rlsapi/DROPIN.md")
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(page), "\n"); lines > 60 {
		t.Errorf("the page has %d lines, want at most 60", lines)
	}
	all := make(map[string]dropIn)
	parts := strings.Split(string(page), "(../../testnet/recipes/dropin/")
	for _, part := range parts[1:] {
		name, rest, _ := strings.Cut(part, ")")
		_, rest, ok := strings.Cut(rest, "\n```diff\n")
		change, _, ended := strings.Cut(rest, "```\n")
		if !ok || !ended {
			t.Fatalf("the page does not say what changes in %s", name)
		}
		text, err := os.ReadFile(filepath.Join("dropin", name))
		if err != nil {
			t.Fatal(err)
		}
		var before, after string
		for line := range strings.Lines(change) {
			switch sign := line[0]; {
			case sign == '-':
				before += line[1:]
			case sign == '+':
				after += line[1:]
			default:
				t.Fatalf("%s: neither removed nor added: %q", name, line)
			}
		}
		if n := strings.Count(string(text), before); n != 1 {
			t.Fatalf("%s has %q %d times, want once", name, before, n)
		}
		all[name] = dropIn{documents(t, string(text)), documents(t, strings.Replace(string(text), before, after, 1))}
	}
	return all
}

// documents reads YAML.
func documents(t *testing.T, text string) (all []document) {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(text))
	for {
		var doc document
		if err := d.Decode(&doc); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, doc)
	}
}

// differences are the places where two trees differ.
func differences(place string, a, b any) (all []string) {
	switch x := a.(type) {
	case document:
		if y, ok := b.(document); ok && len(x) == len(y) {
			for key := range x {
				all = append(all, differences(place+"."+key, x[key], y[key])...)
			}
			return all
		}
	case []any:
		if y, ok := b.([]any); ok && len(x) == len(y) {
			for i := range x {
				all = append(all, differences(fmt.Sprintf("%s.%d", place, i), x[i], y[i])...)
			}
			return all
		}
	default:
		if a == b {
			return nil
		}
	}
	return []string{place}
}

// All that changes from envoyproxy/ratelimit to edgelimit is one value.
func TestDropInChangesOneValue(t *testing.T) {
	t.Parallel()
	all := dropIns(t)
	const address = ".load_assignment.endpoints.0.lb_endpoints.0.endpoint.address.socket_address.address"
	for name, place := range map[string]string{
		"envoy.yaml":         ".static_resources.clusters.0" + address,
		"istio.yaml":         ".spec.configPatches.0.patch.value" + address,
		"envoy-gateway.yaml": ".provider.kubernetes.rateLimitDeployment.container.image",
	} {
		e := all[name]
		if len(e.before) == 0 || len(e.before) != len(e.after) {
			t.Fatalf("%s: %d documents become %d", name, len(e.before), len(e.after))
		}
		var got []string
		for i := range e.before {
			got = append(got, differences("", e.before[i], e.after[i])...)
		}
		if !slices.Equal(got, []string{place}) {
			t.Errorf("%s: it changes %q, want %s", name, got, place)
		}
	}
	if len(all) != 3 {
		t.Errorf("%d examples, want 3", len(all))
	}
	image := all["envoy-gateway.yaml"].after[0]["provider"].(document)["kubernetes"].(document)
	got := image["rateLimitDeployment"].(document)["container"].(document)["image"].(string)
	if !strings.HasSuffix(got, "/"+images.RatelimitImage) {
		t.Errorf("image %s, want %s of some registry", got, images.RatelimitImage)
	}
}

// limited is what an example has Envoy ask, and whom.
type limited struct {
	envoyConfig
	limits  []*route.RateLimit
	cluster *cluster.Cluster
}

func limitedByEnvoy(t *testing.T, docs []document) limited {
	t.Helper()
	c := newEnvoyConfig(t, docs[0])
	cl, _ := c.cluster(t, c.limiter.RateLimitService.GrpcService.GetEnvoyGrpc().ClusterName)
	return limited{c, c.manager.GetRouteConfig().VirtualHosts[0].RateLimits, cl}
}

// envoyFilter is Istio's.
type envoyFilter struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct{ Name, Namespace string }
	Spec       struct {
		WorkloadSelector struct{ Labels map[string]string } `yaml:"workloadSelector"`
		ConfigPatches    []struct {
			ApplyTo string `yaml:"applyTo"`
			Match   document
			Patch   struct {
				Operation string
				Value     document
			}
		} `yaml:"configPatches"`
	}
}

// limitedByIstio reads the patches as the parts of Envoy's configuration that they are.
func limitedByIstio(t *testing.T, docs []document) (l limited) {
	t.Helper()
	l.manager = &hcm.HttpConnectionManager{UseRemoteAddress: wrapperspb.Bool(true)} // as Istio's gateways have it
	l.limiter = new(ratelimit.RateLimit)
	for _, doc := range docs {
		text, err := yaml.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		var f envoyFilter
		d := yaml.NewDecoder(strings.NewReader(string(text)))
		d.KnownFields(true)
		if err := d.Decode(&f); err != nil || f.Kind != "EnvoyFilter" {
			t.Fatalf("kind %s: %v", f.Kind, err)
		}
		for _, p := range f.Spec.ConfigPatches {
			switch value := p.Patch.Value; p.ApplyTo + " " + p.Patch.Operation {
			case "CLUSTER ADD":
				l.cluster = new(cluster.Cluster)
				readEnvoy(t, value, l.cluster)
			case "HTTP_FILTER INSERT_BEFORE":
				filter := new(hcm.HttpFilter)
				readEnvoy(t, value, filter)
				if err := filter.GetTypedConfig().UnmarshalTo(l.limiter); err != nil {
					t.Fatal(err)
				}
			case "VIRTUAL_HOST MERGE": // into one that has these
				value["name"], value["domains"] = "shop", []string{"*"}
				host := new(route.VirtualHost)
				readEnvoy(t, value, host)
				l.limits = host.RateLimits
			default:
				t.Errorf("a patch to %s, %s", p.ApplyTo, p.Patch.Operation)
			}
		}
	}
	return l
}

// ratelimit runs edgelimit as the program ratelimit, in the environment that envoyproxy/ratelimit would have, and more.
func (l *site) ratelimit(rules string, more ...string) {
	l.t.Helper()
	name, config := filepath.Join(l.dir, "ratelimit"), filepath.Join(l.dir, "limits", "config")
	if err := errors.Join(os.Symlink(program(l.t), name), os.MkdirAll(config, 0o700),
		os.WriteFile(filepath.Join(config, "shop.yaml"), []byte(rules), 0o600)); err != nil {
		l.t.Fatal(err)
	}
	cmd := exec.Command(name)
	cmd.Env = []string{"HOST=" + l.service, "GRPC_HOST=" + l.service, "DEBUG_HOST=" + l.service, "USE_STATSD=false",
		"LOG_LEVEL=warn", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=redis:6379", "RUNTIME_ROOT=" + l.dir,
		"RUNTIME_SUBDIRECTORY=limits", "RUNTIME_IGNOREDOTFILES=true", "RUNTIME_WATCH_ROOT=false"}
	cmd.Env = append(cmd.Env, more...)
	startProgram(l.t, cmd, "http://"+l.at(8080)+"/healthcheck")
}

// limiter asks the service at the site.
func (l *site) limiter() rls.RateLimitServiceClient {
	l.t.Helper()
	conn, err := grpc.NewClient(l.at(8081), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = conn.Close() })
	return rls.NewRateLimitServiceClient(conn)
}

// What Envoy and Istio ask envoyproxy/ratelimit, edgelimit answers at another address.
func TestDropIn(t *testing.T) {
	all := dropIns(t)
	for name, read := range map[string]func(*testing.T, []document) limited{
		"envoy.yaml": limitedByEnvoy, "istio.yaml": limitedByIstio,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, after := read(t, all[name].before), read(t, all[name].after)
			from, to := endpointOf(t, before.cluster), endpointOf(t, after.cluster)
			if strings.Replace(from, "ratelimit", "edgelimit", 1) != to {
				t.Errorf("the address changes from %s to %s", from, to)
			}
			asked := after.limiter.RateLimitService.GrpcService.GetEnvoyGrpc().ClusterName
			if asked != after.cluster.Name {
				t.Errorf("the filter asks the cluster %s, not %s", asked, after.cluster.Name)
			}
			checkHTTP2(t, after.cluster)
			l := newSite(t)
			l.ratelimit("domain: shop\ndescriptors:\n" +
				"- {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 2}}\n" +
				"- {key: api_key, rate_limit: {unit: hour, requests_per_unit: 1}}\n")
			limiter := l.limiter()
			const ok, over = rls.RateLimitResponse_OK, rls.RateLimitResponse_OVER_LIMIT
			type codes = []rls.RateLimitResponse_Code
			for i, ask := range []struct {
				from, key string
				want      codes
			}{
				{"192.0.2.1", "k", codes{ok, ok}},
				{"192.0.2.2", "k", codes{ok, over}},
				{"192.0.2.1", "", codes{ok}},
				{"192.0.2.1", "", codes{over}},
				{"192.0.2.2", "", codes{ok}}, // each is charged by itself
				{"192.0.2.2", "", codes{over}},
			} {
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				r.RemoteAddr = ask.from + ":1234"
				if ask.key != "" {
					r.Header.Set("X-Api-Key", ask.key)
				}
				resp, err := limiter.ShouldRateLimit(t.Context(), &rls.RateLimitRequest{
					Domain: after.limiter.Domain, Descriptors: after.descriptors(t, after.limits, r)})
				if err != nil {
					t.Fatal(err)
				}
				var got codes
				for _, s := range resp.Statuses {
					got = append(got, s.Code)
				}
				if !slices.Equal(got, ask.want) {
					t.Errorf("request %d: %v, want %v", i+1, got, ask.want)
				}
			}
		})
	}
}

// replicaEnv is what the page adds to the environment of several replicas, for a pod and a host to join.
func replicaEnv(t *testing.T, pod, keyFile, join string) (env []string) {
	t.Helper()
	page, err := os.ReadFile("../../node/rlsapi/DROPIN.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "\n```yaml\n")
	block, _, _ := strings.Cut(rest, "```\n")
	var variables []struct {
		Name, Value string
		ValueFrom   struct {
			FieldRef struct {
				FieldPath string `yaml:"fieldPath"`
			} `yaml:"fieldRef"`
		} `yaml:"valueFrom"`
	}
	d := yaml.NewDecoder(strings.NewReader(block))
	d.KnownFields(true)
	if err := d.Decode(&variables); err != nil {
		t.Fatal(err)
	}
	for _, v := range variables {
		switch value := strings.ReplaceAll(v.Value, "$(POD_IP)", pod); {
		case v.ValueFrom.FieldRef.FieldPath == "status.podIP":
			if v.Name != "POD_IP" {
				t.Errorf("the address of the pod is %s", v.Name)
			}
		case strings.HasPrefix(value, "/keys/"):
			env = append(env, v.Name+"="+keyFile)
		case strings.HasSuffix(value, ".svc.cluster.local"):
			env = append(env, v.Name+"="+join)
		default:
			env = append(env, v.Name+"="+value)
		}
	}
	return append(env, "EDGELIMIT_NODE_ID="+pod) // the name of a pod is its host's, and these have one
}

// Replicas with the environment of the page count together.
func TestDropInReplicas(t *testing.T) {
	t.Parallel()
	const rules = "domain: shop\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1}}]\n"
	program := program(t)
	keyFile := filepath.Join(t.TempDir(), "cluster.key")
	if out, err := exec.Command(program, "keygen", "--out", keyFile).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	first, second := newSite(t), newSite(t)
	for _, l := range []*site{first, second} {
		l.ratelimit(rules, replicaEnv(t, l.service, keyFile, first.service)...)
	}
	ask := func(l *site, value string, hits uint64) rls.RateLimitResponse_Code {
		resp, err := l.limiter().ShouldRateLimit(t.Context(), &rls.RateLimitRequest{Domain: "shop",
			Descriptors: []*common.RateLimitDescriptor{{HitsAddend: wrapperspb.UInt64(hits),
				Entries: []*common.RateLimitDescriptor_Entry{{Key: "k", Value: value}}}}})
		if err != nil {
			t.Fatal(err)
		}
		return resp.OverallCode
	}
	for range 2 {
		ask(first, "x", 1)
	}
	testkit.Eventually(t, "the other replica counts what the first one admitted", func() bool {
		return ask(second, "x", 0) == rls.RateLimitResponse_OVER_LIMIT
	})
	if got := ask(second, "y", 0); got != rls.RateLimitResponse_OK {
		t.Errorf("another identity: %v", got)
	}
}
