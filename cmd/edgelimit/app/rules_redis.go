package app

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/node/rulestore"
)

const (
	ofStore      group = "The Redis of the rules"
	ofPublishing group = "The new version"
)

// passwordVariable may hold the password of the Redis.
const passwordVariable = "EDGELIMIT_REDIS_PASSWORD"

// redisFlags name Redis servers.
func redisFlags() []cli.Flag {
	return []cli.Flag{ofStore.flag("redis", "`URL` of the Redis: redis://host:6379, "+
		"redis+sentinel://host,host/master, redis+cluster://host,host; rediss for TLS (repeatable: of other regions; "+
		"default: that of --config)",
		new(repeated), "RULES_REDIS")}
}

// reachingFlags say how to reach them.
func reachingFlags() []cli.Flag {
	return []cli.Flag{
		ofStore.flag("password-file", "`FILE` with the password, in place of the URL's; $"+passwordVariable+
			" may hold it as well", new(string)),
		ofStore.flag("ca-file", "PEM `FILE` of the authorities to trust (default: the system's)", new(string)),
		ofStore.flag("cert-file", "PEM `FILE` of the certificate to show (default: none)", new(string)),
		ofStore.flag("cert-key-file", "PEM `FILE` of its key", new(string)),
		ofStore.flag("server-name", "`NAME` in the server's certificate, if it is not that of the URL", new(string)),
	}
}

// authorFlag and aboveFlag are of all commands that publish.
func authorFlag() cli.Flag {
	return ofPublishing.flag("author", "`NAME` of who publishes (default: $USER)", new(string), "AUTHOR")
}

func aboveFlag() cli.Flag {
	return ofPublishing.flag("above", "give it a version above `N`: that of nodes whose Redis has lost its data",
		new(uint64))
}

// publishingFlags describe a new version of rules.
func publishingFlags() []cli.Flag {
	return []cli.Flag{
		authorFlag(),
		ofPublishing.flag("message", "`TEXT` that says why", new(string)),
		ofPublishing.flag("if-version", "publish only if version `N` is in force, 0 for none", new(uint64)),
		aboveFlag(),
		ofPublishing.flag("dry-run", "say what would happen, and publish nothing", new(bool)),
	}
}

func keyFileFlag() cli.Flag {
	return plain.flag("key-file", "`FILE` with the cluster's secrets, under which overrides are found; "+noKeyFile+": "+
		"the nodes have none (default: that of --config)", new(string))
}

// ruleStores are the Redis servers of a command line.
type ruleStores struct {
	cfg       node.Config
	reading   rulefile.Options
	all       rulestore.Servers
	elsewhere bool // one is beyond loopback
}

// openStores opens the Redis servers that the flags name, or the configuration.
func openStores(c *cli.Context) (*ruleStores, error) {
	s := &ruleStores{cfg: node.DefaultConfig()}
	var err error
	if name := c.String("config"); name != "" {
		if s.cfg, err = node.ReadConfig(name); err != nil {
			return nil, err
		}
	}
	if s.reading, err = readingOptions(c, &s.cfg); err == nil {
		err = s.reading.Validate()
	}
	if err != nil {
		return nil, err
	}
	var urls []string
	if given, ok := c.Generic("redis").(*repeated); ok && given != nil {
		urls = *given
	}
	if len(urls) == 0 {
		urls = []string{s.cfg.RuleServer().URL}
	}
	if urls[0] == "" {
		return nil, misuse(c.Command, "say which Redis: --redis, or --config of a node whose rules come from one")
	}
	for _, url := range urls {
		if err := s.open(c, url); err != nil {
			s.close()
			return nil, err
		}
	}
	return s, nil
}

// open adds the Redis at a URL.
func (s *ruleStores) open(c *cli.Context, url string) error {
	of := &s.cfg.RulesRedis
	server := node.Redis{URL: url, PasswordFile: cmp.Or(c.String("password-file"), of.PasswordFile),
		CAFile: cmp.Or(c.String("ca-file"), of.CAFile), CertFile: cmp.Or(c.String("cert-file"), of.CertFile),
		KeyFile:    cmp.Or(c.String("cert-key-file"), of.KeyFile),
		ServerName: cmp.Or(c.String("server-name"), of.ServerName)}
	s.elsewhere = s.elsewhere || server.BeyondLoopback()
	cfg, err := server.Server("")
	if err != nil {
		return err
	}
	cfg.Password = cmp.Or(cfg.Password, os.Getenv(passwordVariable))
	store, err := rulestore.Open(cfg)
	if err != nil {
		return err
	}
	s.all = append(s.all, store)
	return nil
}

func (s *ruleStores) close() {
	_ = s.all.Close() // nothing is under way
}

// published returns the rules in force in the first Redis.
func (s *ruleStores) published(c *cli.Context) (*rules.Set, error) {
	d, err := s.all[0].Current(c.Context, rulestore.Rules)
	if err != nil {
		return nil, err
	} else if d.Version.Version == 0 {
		return nil, fmt.Errorf("no rules have been published to %s yet: edgelimit rules push", s.all[0])
	}
	files, err := rulestore.DecodeFiles(d.Text)
	if err != nil {
		return nil, err
	}
	set, err := s.reading.ParseFiles(files...)
	if err != nil {
		return nil, reportProblems(c, err)
	}
	return set, nil
}

// limits returns the overrides in the first Redis, and their version.
func (s *ruleStores) limits(ctx context.Context) (all []rulestore.Limit, version uint64, err error) {
	d, err := s.all[0].Current(ctx, rulestore.Limits)
	if err == nil {
		all, err = limitsOf(d)
	}
	return all, d.Version.Version, err
}

// limitsOf returns the overrides of a version, none of version 0.
func limitsOf(d rulestore.Document) ([]rulestore.Limit, error) {
	if d.Version.Version == 0 {
		return nil, nil
	}
	return rulestore.DecodeLimits(d.Text)
}

// readStore reads the rules of the configuration's Redis, with its overrides.
func (in *rulesInput) readStore(c *cli.Context, region string) error {
	s := &ruleStores{cfg: in.cfg}
	var err error
	if s.reading, err = readingOptions(c, &s.cfg); err != nil {
		return err
	}
	keys, err := s.keys(c)
	if err != nil {
		return err
	}
	in.secret = keys.Identity
	if err := s.open(c, in.cfg.RuleServer().URL); err != nil {
		return err
	}
	defer s.close()
	set, err := s.published(c)
	if err != nil {
		return err
	}
	limits, _, err := s.limits(c.Context)
	if err != nil {
		return err
	}
	var mine []rules.Override
	for i := range limits {
		if o, identity, err := limits[i].Override(); err == nil && identity == keys.Fingerprint() {
			mine = append(mine, o)
		}
	}
	set.Override(mine) // nodes report those without effect
	if in.set = set; region != "" {
		in.set = set.In(region)
	}
	return nil
}
