// Package xds has a node take its rules from a management server, such as Envoy Gateway, as envoyproxy/ratelimit does
// with CONFIG_TYPE=GRPC_XDS_SOTW: resources of the type ratelimit.config.ratelimit.v3.RateLimitConfig over an
// aggregated discovery stream, each response the state of the world. It is a package of its own because gRPC and
// Envoy's messages are more than all the rest of a node: only who imports this one links them.
//
//	cfg := node.DefaultConfig()
//	cfg.RulesXDS.Server, cfg.RulesFrom = "127.0.0.1:18000", xds.Source
package xds

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/certs"
	"github.com/edgelimit/edgelimit/node/rules"
)

// resourceType is the type of the resources that are asked for.
const resourceType = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

// maxDetail caps what the server is told about rules that were refused, in bytes.
const maxDetail = 4 << 10

// Source is what node.Config.RulesFrom takes.
func Source(opt node.RuleSourceOptions) node.RuleSource { return &source{opt: opt} }

// source asks a management server.
type source struct {
	opt     node.RuleSourceOptions
	version string // of the rules in force, which is what the server calls them; empty: there are none
}

// Run implements node.RuleSource.
func (s *source) Run(ctx context.Context, loaded func(*rules.Set, error)) {
	x, log := &s.opt.XDS, s.opt.Logger.With("server", s.opt.XDS.Server)
	for wait := x.MinBackoff; ctx.Err() == nil; {
		answered, err := s.follow(ctx, loaded)
		if ctx.Err() != nil {
			return
		}
		if answered {
			wait = x.MinBackoff
		}
		// Half of the wait is random, so that nodes do not come back to a server all at once.
		pause := wait/2 + rand.N(wait/2+1)
		log.Warn("no stream to the management server: the rules in force stay", "error", err, "again_in", pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		wait = min(2*wait, x.MaxBackoff)
	}
}

// follow takes what the server sends on one stream, and reports whether that was anything.
func (s *source) follow(ctx context.Context, loaded func(*rules.Set, error)) (answered bool, err error) {
	conn, err := s.dial()
	if err != nil {
		return false, err
	}
	defer conn.Close()
	ctx = metadata.NewOutgoingContext(ctx, metadata.New(s.opt.XDS.Headers))
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		return false, err
	}
	req := &discovery.DiscoveryRequest{Node: s.node(), TypeUrl: resourceType, VersionInfo: s.version}
	for {
		if err := stream.Send(req); err != nil {
			_, err = stream.Recv() // which has the reason
			return answered, err
		}
		resp, err := s.receive(stream)
		if err != nil {
			return answered, err
		}
		answered = true
		req = s.take(resp, loaded)
	}
}

// receive returns the next response with rules.
func (s *source) receive(stream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient) (
	*discovery.DiscoveryResponse, error,
) {
	for {
		resp, err := stream.Recv()
		if err != nil || resp.GetTypeUrl() == resourceType {
			return resp, err
		}
		s.opt.Logger.Warn("the management server sent what nobody asked for", "type", resp.GetTypeUrl())
	}
}

// take puts the rules of a response in force, and returns the request that says so, or why they were refused.
func (s *source) take(resp *discovery.DiscoveryResponse, loaded func(*rules.Set, error)) *discovery.DiscoveryRequest {
	set, err := parse(s.opt.Rules, resp.GetResources())
	loaded(set, err)
	req := &discovery.DiscoveryRequest{TypeUrl: resourceType, ResponseNonce: resp.GetNonce()}
	if err != nil {
		detail := err.Error()
		detail = strings.ToValidUTF8(detail[:min(len(detail), maxDetail)], "?")
		req.ErrorDetail = &status.Status{Code: int32(codes.InvalidArgument), Message: detail}
	} else {
		s.version = resp.GetVersionInfo()
		s.opt.Logger.Info("rules of the management server in force", "version", s.version)
	}
	req.VersionInfo = s.version
	return req
}

// node returns what the server knows this node by.
func (s *source) node() *core.Node {
	fields := make(map[string]*structpb.Value)
	for key, value := range s.opt.XDS.Metadata {
		fields[key] = structpb.NewStringValue(value)
	}
	return &core.Node{Id: s.opt.XDS.NodeID, Metadata: &structpb.Struct{Fields: fields}, UserAgentName: "edgelimit"}
}

// dial returns a connection, which is made when it is used.
func (s *source) dial() (*grpc.ClientConn, error) {
	x, secure := &s.opt.XDS, insecure.NewCredentials()
	if x.TLS {
		files := certs.Client{CAFile: x.CAFile, CertFile: x.CertFile, KeyFile: x.KeyFile, ServerName: x.ServerName}
		cfg, err := files.Config() // each time, so that certificates can be renewed
		if err != nil {
			return nil, fmt.Errorf("rules_xds.%w", err)
		}
		secure = credentials.NewTLS(cfg)
	}
	return grpc.NewClient(x.Server, grpc.WithTransportCredentials(secure),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(int(x.MaxMessage))))
}
