package app

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// envoyGatewayEnv is the environment of the limiter that Envoy Gateway deploys (August 2026): all variables that its
// configuration can add, except those of a pod's own. It runs /bin/ratelimit without arguments.
const envoyGatewayEnv = `
RUNTIME_ROOT=/data
RUNTIME_SUBDIRECTORY=ratelimit
RUNTIME_IGNOREDOTFILES=true
RUNTIME_WATCH_ROOT=false
LOG_LEVEL=info
USE_STATSD=false
CONFIG_TYPE=GRPC_XDS_SOTW
CONFIG_GRPC_XDS_SERVER_URL=envoy-gateway:18001
CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit
GRPC_SERVER_USE_TLS=true
GRPC_SERVER_TLS_CERT=/certs/tls.crt
GRPC_SERVER_TLS_KEY=/certs/tls.key
GRPC_SERVER_TLS_CA_CERT=/certs/ca.crt
CONFIG_GRPC_XDS_SERVER_USE_TLS=true
CONFIG_GRPC_XDS_CLIENT_TLS_CERT=/certs/tls.crt
CONFIG_GRPC_XDS_CLIENT_TLS_KEY=/certs/tls.key
CONFIG_GRPC_XDS_SERVER_TLS_CACERT=/certs/ca.crt
FORCE_START_WITHOUT_INITIAL_CONFIG=true
REDIS_SOCKET_TYPE=tcp
REDIS_URL=redis.limits.svc.cluster.local:6379
REDIS_TLS=true
REDIS_TLS_CLIENT_CERT=/redis-certs/tls.crt
REDIS_TLS_CLIENT_KEY=/redis-certs/tls.key
USE_PROMETHEUS=true
PROMETHEUS_ADDR=:19001
PROMETHEUS_MAPPER_YAML=/etc/statsd-exporter/conf.yaml
TRACING_ENABLED=true
TRACING_SERVICE_NAME=envoy-ratelimit
TRACING_SERVICE_NAMESPACE=envoy-gateway-system
TRACING_SERVICE_INSTANCE_ID=envoy-ratelimit-0
TRACING_SAMPLING_RATE=1.0
OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4317
`

const (
	limiterName   = "envoy-ratelimit.envoy-gateway-system" // in its certificate
	gatewayDomain = "envoy-gateway-system/eg/http"         // of rules, by a listener of a Gateway
)

// certify writes an authority and what it vouches for, under the names of a Secret of Envoy Gateway.
func certify(t *testing.T, dir string) (certificate tls.Certificate, authority *x509.CertPool) {
	t.Helper()
	authorityKey, err1 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	key, err2 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	now := time.Now()
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, DNSNames: []string{"localhost", "*.envoy-gateway-system"}}
	caDER, err3 := x509.CreateCertificate(rand.Reader, ca, ca, authorityKey.Public(), authorityKey)
	leafDER, err4 := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), authorityKey)
	keyDER, err5 := x509.MarshalPKCS8PrivateKey(key)
	testkit.Must(t, errors.Join(err1, err2, err3, err4, err5))
	for name, block := range map[string]pem.Block{
		"ca.crt": {Type: "CERTIFICATE", Bytes: caDER}, "tls.crt": {Type: "CERTIFICATE", Bytes: leafDER},
		"tls.key": {Type: "PRIVATE KEY", Bytes: keyDER},
	} {
		testkit.Must(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&block), 0o600))
	}
	certificate, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	testkit.Must(t, err)
	authority = x509.NewCertPool()
	parsed, err := x509.ParseCertificate(caDER)
	testkit.Must(t, err)
	authority.AddCert(parsed)
	return certificate, authority
}

// manage runs a management server as Envoy Gateway's until the test ends: it takes clients that its authority vouches
// for. publish makes rules the state of the world.
func manage(t *testing.T, certificate tls.Certificate, authority *x509.CertPool) (port string,
	publish func(version string, config ...types.Resource)) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	snapshots := cache.NewSnapshotCache(false, cache.IDHash{}, nil)
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{certificate},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authority})))
	discovery.RegisterAggregatedDiscoveryServiceServer(s, server.NewServer(ctx, snapshots, server.CallbackFuncs{}))
	var served sync.WaitGroup
	served.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() {
		stop()
		s.Stop()
		served.Wait()
	})
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port, func(version string, config ...types.Resource) {
		t.Helper()
		snapshot, err := cache.NewSnapshot(version, map[resource.Type][]types.Resource{
			resource.RateLimitConfigType: config})
		if err == nil {
			err = snapshots.SetSnapshot(t.Context(), "envoy-ratelimit", snapshot)
		}
		testkit.Must(t, err)
	}
}

// The program that Envoy Gateway starts, with the environment, the files and the management server that it has, answers
// its probes, takes its rules, and limits its Envoys.
func TestEnvoyGateway(t *testing.T) {
	dir := t.TempDir()
	certificate, authority := certify(t, dir)
	port, publish := manage(t, certificate, authority)
	_, _, err := configuredBy(environ{"GRPC_SERVER_USE_TLS": "true", "GRPC_SERVER_TLS_CERT": dir + "/tls.crt",
		"GRPC_SERVER_TLS_KEY": dir + "/tls.key"})
	encrypted := err == nil
	t.Setenv("HOST", "127.0.0.1")
	t.Setenv("GRPC_HOST", "127.0.0.1")
	t.Setenv("DEBUG_HOST", "127.0.0.1")
	addresses := make(map[string]string)
	for _, name := range []string{"PORT", "GRPC_PORT", "DEBUG_PORT"} {
		addresses[name] = free(t)
		_, port, _ := net.SplitHostPort(addresses[name])
		t.Setenv(name, port)
	}
	metrics := free(t)
	for line := range strings.Lines(strings.TrimSpace(envoyGatewayEnv)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if strings.HasPrefix(name, "GRPC_SERVER_") && !encrypted {
			continue
		}
		value = strings.NewReplacer("/certs/", dir+"/", "envoy-gateway:18001", "localhost:"+port, ":19001", metrics).
			Replace(value)
		t.Setenv(name, value)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var log testkit.Log
	app := New()
	app.Writer, app.ErrWriter = &log, &log
	ended := make(chan int, 1)
	go func() { ended <- Run(ctx, app, []string{"/bin/ratelimit"}) }()
	defer func() {
		stop()
		if code := <-ended; code != 0 {
			t.Errorf("exit status %d: %s", code, log.String())
		}
	}()
	answers := func(url, want string) func() bool {
		return func() bool {
			if len(ended) > 0 {
				t.Fatalf("it ended: %s", log.String())
			}
			status, _, body, err := testkit.Fetch(web, "GET", url, "")
			return err == nil && status == 200 && strings.Contains(body, want)
		}
	}
	eventually(t, "healthy before it has rules", answers("http://"+addresses["PORT"]+"/healthcheck", "OK"))

	creds := insecure.NewCredentials()
	if encrypted { // Envoy's own certificate is not asked for, as there
		creds = credentials.NewTLS(&tls.Config{RootCAs: authority, ServerName: limiterName})
	}
	conn, err := grpc.NewClient(addresses["GRPC_PORT"], grpc.WithTransportCredentials(creds))
	testkit.Must(t, err)
	defer conn.Close()
	ask := func() *rls.RateLimitResponse {
		t.Helper()
		resp, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &rls.RateLimitRequest{
			Domain: gatewayDomain, Descriptors: []*common.RateLimitDescriptor{{
				Entries: []*common.RateLimitDescriptor_Entry{{Key: "route", Value: "route"},
					{Key: "rule-0-match-0", Value: "rule-0-match-0"}}}},
		}, grpc.WaitForReady(true))
		testkit.Must(t, err)
		return resp
	}
	if got := ask(); got.OverallCode != rls.RateLimitResponse_OK || got.Statuses[0].CurrentLimit != nil {
		t.Errorf("without rules: %v", got)
	}
	// its tree of rules: a route, and below it what a rule of the policy matches
	nested := func(requests uint32) *ratelimit.RateLimitConfig {
		limit := &ratelimit.RateLimitPolicy{Unit: ratelimit.RateLimitUnit_HOUR, RequestsPerUnit: requests}
		return &ratelimit.RateLimitConfig{Name: gatewayDomain, Domain: gatewayDomain,
			Descriptors: []*ratelimit.RateLimitDescriptor{{Key: "route", Value: "route",
				Descriptors: []*ratelimit.RateLimitDescriptor{
					{Key: "rule-0-match-0", Value: "rule-0-match-0", RateLimit: limit},
				}}}}
	}
	for i, requests := range []uint32{1, 3} {
		publish(fmt.Sprint(i), nested(requests))
		var got *rls.RateLimitResponse
		eventually(t, "rules arrive", func() bool {
			got = ask()
			return got.Statuses[0].CurrentLimit.GetRequestsPerUnit() == requests
		})
		for range requests {
			got = ask()
		}
		if got.OverallCode != rls.RateLimitResponse_OVER_LIMIT {
			t.Errorf("one more than %d: %v", requests, got)
		}
	}
	if !answers("http://"+metrics+"/metrics", `ratelimit_service_rate_limit_over_limit{domain="`+gatewayDomain+
		`",key1="route_route",key2="rule-0-match-0_rule-0-match-0"}`)() {
		t.Error("Prometheus does not find that server's statistics")
	}
	if !answers("http://"+addresses["DEBUG_PORT"]+"/rlconfig", "unit=HOUR requests_per_unit=3")() {
		t.Error("the debug port does not show the rules")
	}
}
