package recipes

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"testing"
	"time"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	upstreams "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
)

// envoyConfig is what envoy.yaml says.
type envoyConfig struct {
	*bootstrap.Bootstrap
	manager *hcm.HttpConnectionManager
	limiter *ratelimit.RateLimit
}

// envoyConfig reads envoy.yaml.
func (l *site) envoyConfig() envoyConfig {
	l.t.Helper()
	var tree map[string]any
	l.decode("envoy.yaml", &tree)
	return newEnvoyConfig(l.t, tree)
}

// newEnvoyConfig reads a configuration with one listener, which limits rates and routes.
func newEnvoyConfig(t *testing.T, tree map[string]any) envoyConfig {
	t.Helper()
	c := envoyConfig{Bootstrap: new(bootstrap.Bootstrap), manager: new(hcm.HttpConnectionManager),
		limiter: new(ratelimit.RateLimit)}
	readEnvoy(t, tree, c.Bootstrap)
	if len(c.StaticResources.Listeners) != 1 || len(c.StaticResources.Listeners[0].FilterChains) != 1 ||
		len(c.StaticResources.Listeners[0].FilterChains[0].Filters) != 1 {
		t.Fatal("want one listener with one filter")
	}
	err := c.StaticResources.Listeners[0].FilterChains[0].Filters[0].GetTypedConfig().UnmarshalTo(c.manager)
	if err != nil || len(c.manager.HttpFilters) != 2 {
		t.Fatalf("want the filters of rate limits and routing: %v", err)
	}
	err = errors.Join(c.manager.HttpFilters[0].GetTypedConfig().UnmarshalTo(c.limiter),
		c.manager.HttpFilters[1].GetTypedConfig().UnmarshalTo(new(router.Router)))
	if err != nil {
		t.Fatalf("want the filters of rate limits and routing: %v", err)
	}
	return c
}

// readEnvoy reads a part of a configuration as Envoy does: every key of it is in the schema, and every value within
// what the schema allows.
func readEnvoy(t *testing.T, tree map[string]any, into proto.Message) {
	t.Helper()
	text, err := json.Marshal(tree)
	if err == nil {
		err = protojson.Unmarshal(text, into)
	}
	if err == nil {
		err = validateAll(into)
	}
	if err != nil {
		t.Fatalf("%s: %v", into.ProtoReflect().Descriptor().Name(), err)
	}
}

// validateAll checks a message and all that is wrapped up in it.
func validateAll(m proto.Message) error {
	var errs []error
	err := protorange.Range(m.ProtoReflect(), func(p protopath.Values) error {
		step := p.Index(-1)
		if kind := step.Step.Kind(); kind == protopath.RootStep || kind == protopath.AnyExpandStep {
			checked, ok := step.Value.Message().Interface().(interface{ ValidateAll() error })
			if !ok {
				return fmt.Errorf("%s cannot be checked", p.Path)
			}
			errs = append(errs, checked.ValidateAll())
		}
		return nil
	})
	return errors.Join(append(errs, err)...)
}

// cluster is a cluster and the address of its only endpoint.
func (c envoyConfig) cluster(t *testing.T, name string) (*cluster.Cluster, string) {
	t.Helper()
	for _, cl := range c.StaticResources.Clusters {
		if cl.Name == name {
			return cl, endpointOf(t, cl)
		}
	}
	t.Fatalf("no cluster %q", name)
	return nil, ""
}

// endpointOf is the address of a cluster's only endpoint.
func endpointOf(t *testing.T, cl *cluster.Cluster) string {
	t.Helper()
	all := cl.LoadAssignment.Endpoints
	if kind := cl.GetType(); kind != cluster.Cluster_STATIC && kind != cluster.Cluster_STRICT_DNS || len(all) != 1 ||
		len(all[0].LbEndpoints) != 1 {
		t.Fatalf("cluster %v", cl)
	}
	return addressOf(all[0].LbEndpoints[0].GetEndpoint().Address)
}

func addressOf(a *core.Address) string {
	return fmt.Sprintf("%s:%d", a.GetSocketAddress().Address, a.GetSocketAddress().GetPortValue())
}

// descriptors are what Envoy makes of a request by the actions of a virtual host: a descriptor of each, or none if one
// of its actions has nothing to add. See
// https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_filters/rate_limit_filter.
func (c envoyConfig) descriptors(
	t *testing.T, limits []*route.RateLimit, r *http.Request,
) []*common.RateLimitDescriptor {
	t.Helper()
	var made []*common.RateLimitDescriptor
	for _, limit := range limits {
		if limit.Stage.GetValue() != c.limiter.Stage || limit.DisableKey != "" || limit.Limit != nil {
			t.Errorf("the stand-in does not know %v", limit)
			continue
		}
		d := new(common.RateLimitDescriptor)
		for _, action := range limit.Actions {
			key, value := c.entry(t, action, r)
			if value == "" {
				d = nil
				break
			}
			d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
		if d != nil {
			made = append(made, d)
		}
	}
	return made
}

// entry is what an action adds to a descriptor. Without a value: nothing.
func (c envoyConfig) entry(t *testing.T, action *route.RateLimit_Action, r *http.Request) (key, value string) {
	t.Helper()
	switch a := action.ActionSpecifier.(type) {
	case *route.RateLimit_Action_RemoteAddress_:
		if !c.manager.UseRemoteAddress.GetValue() || c.manager.XffNumTrustedHops != 0 {
			t.Error("the client is whom X-Forwarded-For names")
		}
		return "remote_address", remoteIP(r)
	case *route.RateLimit_Action_RequestHeaders_:
		return a.RequestHeaders.DescriptorKey, r.Header.Get(a.RequestHeaders.HeaderName)
	case *route.RateLimit_Action_HeaderValueMatch_:
		m := a.HeaderValueMatch
		if len(m.Headers) != 1 || m.Headers[0].Name != ":path" || m.ExpectMatch != nil {
			t.Errorf("the stand-in does not know %v", m)
			return "", ""
		}
		whole := regexp.MustCompile(`\A(?:` + m.Headers[0].GetStringMatch().GetSafeRegex().Regex + `)\z`)
		if whole.MatchString(c.pathOf(t, r)) {
			return m.DescriptorKey, m.DescriptorValue
		}
		return "", ""
	}
	t.Errorf("the stand-in does not know %v", action)
	return "", ""
}

// pathOf is a request's :path, with the query.
func (c envoyConfig) pathOf(t *testing.T, r *http.Request) string {
	t.Helper()
	if !c.manager.NormalizePath.GetValue() || !c.manager.MergeSlashes {
		t.Error("paths are not normalized")
	}
	normal := path.Clean(r.URL.EscapedPath())
	if r.URL.RawQuery != "" {
		normal += "?" + r.URL.RawQuery
	}
	return normal
}

// envoy stands in for Envoy: the rate limit filter in front of an application.
func (l *site) envoy() {
	l.t.Helper()
	c := l.envoyConfig()
	hosts := c.manager.GetRouteConfig().VirtualHosts
	if len(hosts) != 1 || len(hosts[0].Routes) != 1 || hosts[0].Routes[0].Match.GetPrefix() != "/" ||
		hosts[0].Routes[0].GetRoute().RateLimits != nil {
		l.t.Fatalf("virtual hosts %v", hosts)
	}
	_, server := c.cluster(l.t, hosts[0].Routes[0].GetRoute().GetCluster())
	_, service := c.cluster(l.t, c.limiter.RateLimitService.GrpcService.GetEnvoyGrpc().ClusterName)
	conn, err := grpc.NewClient(service, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = conn.Close() })
	limiter, backend := rls.NewRateLimitServiceClient(conn), passTo(l.t, "http://"+server)
	// The router takes headers away, after the filters.
	application := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range hosts[0].RequestHeadersToRemove {
			r.Header.Del(name)
		}
		backend.ServeHTTP(w, r)
	})
	l.serve(addressOf(c.StaticResources.Listeners[0].Address), func(w http.ResponseWriter, r *http.Request) {
		// Envoy would wait for 20 ms. A busy machine may take longer than that.
		resp, err := limiter.ShouldRateLimit(l.t.Context(), &rls.RateLimitRequest{
			Domain: c.limiter.Domain, Descriptors: c.descriptors(l.t, hosts[0].RateLimits, r),
		})
		switch {
		case err != nil && c.limiter.FailureModeDeny:
			w.WriteHeader(http.StatusInternalServerError)
			return
		case err != nil:
			application.ServeHTTP(w, r)
			return
		}
		for _, h := range resp.ResponseHeadersToAdd {
			w.Header().Add(h.Key, h.Value)
		}
		if c.limiter.EnableXRatelimitHeaders == ratelimit.RateLimit_DRAFT_VERSION_03 {
			addXRateLimit(w.Header(), resp.Statuses)
		}
		if resp.OverallCode != rls.RateLimitResponse_OVER_LIMIT {
			application.ServeHTTP(w, r)
			return
		}
		w.Header().Add("X-Envoy-Ratelimited", "true")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write(resp.RawBody)
	})
}

// addXRateLimit adds the headers that Envoy itself makes of what is left, by the limit with the least. It knows windows
// of these units only.
func addXRateLimit(h http.Header, statuses []*rls.RateLimitResponse_DescriptorStatus) {
	seconds := map[rls.RateLimitResponse_RateLimit_Unit]int{
		rls.RateLimitResponse_RateLimit_SECOND: 1, rls.RateLimitResponse_RateLimit_MINUTE: 60,
		rls.RateLimitResponse_RateLimit_HOUR: 3600, rls.RateLimitResponse_RateLimit_DAY: 86_400,
	}
	var least *rls.RateLimitResponse_DescriptorStatus
	policies := ""
	for _, s := range statuses {
		if s.CurrentLimit == nil {
			continue
		}
		if least == nil || s.LimitRemaining < least.LimitRemaining {
			least = s
		}
		if window := seconds[s.CurrentLimit.Unit]; window > 0 {
			policies += fmt.Sprintf(`, %d;w=%d;name="%s"`, s.CurrentLimit.RequestsPerUnit, window, s.CurrentLimit.Name)
		}
	}
	if least != nil {
		h.Add("X-RateLimit-Limit", fmt.Sprint(least.CurrentLimit.RequestsPerUnit)+policies)
		h.Add("X-RateLimit-Remaining", fmt.Sprint(least.LimitRemaining))
		h.Add("X-RateLimit-Reset", fmt.Sprint(least.DurationUntilReset.GetSeconds()))
	}
}

// TestEnvoyConfig holds what a stand-in cannot show: how Envoy reaches edgelimit, and what it does without.
func TestEnvoyConfig(t *testing.T) {
	t.Parallel()
	c := newSite(t).envoyConfig()
	if c.limiter.Timeout.AsDuration() != 20*time.Millisecond || c.limiter.FailureModeDeny ||
		!c.limiter.RateLimitedAsResourceExhausted ||
		c.limiter.RateLimitService.TransportApiVersion != core.ApiVersion_V3 {
		t.Errorf("the filter is %v", c.limiter)
	}
	edgelimit, _ := c.cluster(t, c.limiter.RateLimitService.GrpcService.GetEnvoyGrpc().ClusterName)
	checkHTTP2(t, edgelimit)
}

// checkHTTP2 holds that a cluster is spoken to by HTTP/2, as gRPC needs it.
func checkHTTP2(t *testing.T, cl *cluster.Cluster) {
	t.Helper()
	name, wrapped := only(t, "options", cl.TypedExtensionProtocolOptions)
	options := new(upstreams.HttpProtocolOptions)
	if err := wrapped.UnmarshalTo(options); err != nil ||
		name != string(options.ProtoReflect().Descriptor().FullName()) ||
		options.GetExplicitHttpConfig().GetHttp2ProtocolOptions() == nil {
		t.Errorf("%s is not reached by HTTP/2: %s, %v, %v", cl.Name, name, options, err)
	}
}

// TestEnvoyConfigIsChecked holds that mistakes are found, also in what is wrapped up.
func TestEnvoyConfigIsChecked(t *testing.T) {
	t.Parallel()
	c := newSite(t).envoyConfig()
	c.limiter.Domain = ""
	if err := errors.Join(c.manager.HttpFilters[0].GetTypedConfig().MarshalFrom(c.limiter),
		c.StaticResources.Listeners[0].FilterChains[0].Filters[0].GetTypedConfig().MarshalFrom(c.manager)); err != nil {
		t.Fatal(err)
	}
	if err := validateAll(c.Bootstrap); err == nil {
		t.Error("a filter without a domain is found to be good")
	}
}
