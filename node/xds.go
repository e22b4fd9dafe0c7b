package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/edgelimit/edgelimit/node/certs"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/node/text"
)

// XDS says which management server rules come from, in place of files: as ratelimit.config.ratelimit.v3.RateLimitConfig
// over aggregated discovery, state of the world. It needs Config.RulesFrom.
type XDS struct {
	// Server is the host:port of the management server; empty: rules come from files.
	Server string `yaml:"server"`
	// NodeID and Metadata are what the server knows the node by. Default: "default", and nothing.
	NodeID   string            `yaml:"node_id"`
	Metadata map[string]string `yaml:"metadata"`
	// Headers are sent with each stream.
	Headers map[string]string `yaml:"headers"`
	// TLS speaks TLS with the server. CAFile, CertFile, KeyFile and ServerName are as of Redis.
	TLS        bool   `yaml:"tls"`
	CAFile     string `yaml:"ca_file"`
	CertFile   string `yaml:"cert_file"`
	KeyFile    string `yaml:"key_file"`
	ServerName string `yaml:"server_name"`
	// MinBackoff and MaxBackoff bound the time between two attempts to reach the server, which doubles each time.
	MinBackoff time.Duration `yaml:"min_backoff"`
	MaxBackoff time.Duration `yaml:"max_backoff"`
	// MaxMessage is the largest set of rules that is taken.
	MaxMessage Size `yaml:"max_message"`
}

// DefaultXDS returns the defaults of envoyproxy/ratelimit, without a server.
func DefaultXDS() XDS {
	return XDS{NodeID: "default", Metadata: map[string]string{}, Headers: map[string]string{},
		MinBackoff: 10 * time.Second, MaxBackoff: time.Minute, MaxMessage: 4 << 20}
}

func (x *XDS) validate() error {
	if _, _, err := net.SplitHostPort(x.Server); x.Server != "" && err != nil {
		return fmt.Errorf("server: address %.80q: want host:port", x.Server)
	}
	switch {
	case x.MinBackoff < 10*time.Millisecond || x.MaxBackoff < x.MinBackoff:
		return fmt.Errorf("min_backoff: %v, max_backoff: %v, want at least 10ms, and no less than that",
			text.Setting(x.MinBackoff),
			text.Setting(x.MaxBackoff))
	case x.MaxMessage < 1<<10 || x.MaxMessage > 1<<30:
		return fmt.Errorf("max_message: %v, want 1KiB to 1GiB", x.MaxMessage)
	case !x.TLS && (x.CAFile != "" || x.CertFile != "" || x.KeyFile != "" || x.ServerName != ""):
		return errors.New("tls: settings for it, but it is off")
	}
	files := certs.Client{CertFile: x.CertFile, KeyFile: x.KeyFile}
	return files.Validate()
}

// RuleSource brings rules from elsewhere than files: a management server, or a Redis.
type RuleSource interface {
	// Run calls loaded with each set of rules, or with what is wrong with it, until ctx ends. It does so in one
	// goroutine, and reports to where the rules come from that they are in force, or refused, once loaded returns.
	Run(ctx context.Context, loaded func(*rules.Set, error))
}

// RuleSourceOptions are what a node gives its RuleSource.
type RuleSourceOptions struct {
	XDS    XDS
	Rules  rulefile.Options // how rules are read
	Logger *slog.Logger
}

// awaitRules waits for the first rules of a source, unless the node is to start without them, or ctx ends.
func (n *Node) awaitRules(ctx context.Context) {
	if n.source == nil || n.cfg.StartWithoutRules {
		return
	}
	from := n.cfg.RulesXDS.Server
	if n.ruleStore != nil {
		from = n.cfg.RuleServer().String()
	}
	n.log.Info("waiting for the first rules", "from", from)
	select {
	case <-n.firstRules:
	case <-ctx.Done():
	}
}

// sourced takes what a source brought.
func (n *Node) sourced(set *rules.Set, err error) {
	n.loaded(set, err)
	if err == nil {
		n.hasRules.Do(func() { close(n.firstRules) })
	}
}
