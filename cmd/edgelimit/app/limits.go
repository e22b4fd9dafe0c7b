package app

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/rulestore"
	"github.com/edgelimit/edgelimit/node/text"
)

const (
	limitsSetHelp = `
For a day:    edgelimit limits set per_ip 192.0.2.1 500/min --for 24h \
                --redis redis://10.0.0.5 --key-file cluster.key
For good:     edgelimit limits set per_user alice 5000/hour --note XL ...
Not at all:   edgelimit limits set per_ip 192.0.2.66 0/min ...

The limit is NUMBER/WINDOW: second, minute, hour, day, or a duration such as 10s. With the rule's own window the counts
of the identity stay. With another window, or where the rule is a bucket, it is counted anew. Of a rule that counts by
several keys the identity is KEY=VALUE,KEY=VALUE. Redis and the nodes see a keyed hash of the identity: use the note to
find it again.

Exit status: 0 in force, 1 refused, or not everywhere, 2 not published.`

	limitsUnsetHelp = `
By identity:  edgelimit limits unset per_ip 192.0.2.1 \
                --redis redis://10.0.0.5 --key-file cluster.key
By its hash:  edgelimit limits unset per_ip --key 4f1d2a0c99e1b302 ...

Exit status: 0 removed, 1 there was none, or not everywhere, 2 not published.`

	limitsListHelp = `
edgelimit limits list --redis redis://10.0.0.5

With --key-file, or a --config that names one, it says which limits were set with another key: they have no effect.

Exit status: 0 listed, 2 not read.`
)

func limitsCommand() *cli.Command {
	config := plain.flag("config", "configuration `FILE` of a node: its rules, rules_redis and key file", new(string))
	asJSON := plain.flag("json", "print JSON", new(bool))
	looking := slices.Concat(redisFlags(), reachingFlags(), []cli.Flag{config, keyFileFlag(), asJSON})
	changing := slices.Concat(looking, []cli.Flag{authorFlag(), aboveFlag()}, readingFlags())
	return &cli.Command{
		Name: "limits", Usage: "give single identities limits of their own, by the Redis that rules come from",
		Subcommands: []*cli.Command{
			{
				Name: "set", Usage: "give an identity another limit of a rule", ArgsUsage: "RULE IDENTITY LIMIT",
				Description: limitsSetHelp, Flags: slices.Concat(changing, []cli.Flag{
					ofPublishing.flag("for", "how long it holds (default: for good)", new(time.Duration)),
					ofPublishing.flag("note", "`TEXT` that says whose it is, and why; it is not hashed", new(string)),
				}), Action: limitsSet,
			},
			{
				Name: "unset", Usage: "have an identity counted by its rule again", ArgsUsage: "RULE [IDENTITY]",
				Description: limitsUnsetHelp, Flags: slices.Concat(changing, []cli.Flag{
					plain.flag("key", "`HASH` of the identity, from edgelimit limits list", new(string)),
				}), Action: limitsUnset,
			},
			{
				Name: "list", Usage: "list the limits of single identities", ArgsUsage: "[RULE]",
				Description: limitsListHelp, Flags: looking, Action: limitsList,
			},
		},
	}
}

// changeLimits publishes what change makes of the overrides, and again if another change came first. Overrides that
// cannot be read are replaced with --above: by those of the latest version that can, and the change.
func (s *ruleStores) changeLimits(c *cli.Context, message string,
	change func([]rulestore.Limit) ([]rulestore.Limit, error)) ([]rulestore.Reached, error) {
	for {
		d, err := s.changeOnce(c, message, change)
		if _, is := errors.AsType[*rulestore.ConflictError](err); is {
			continue // somebody else made progress
		} else if err != nil {
			return nil, err
		}
		return s.spread(c.Context, rulestore.Limits, d)
	}
}

func (s *ruleStores) changeOnce(c *cli.Context, message string,
	change func([]rulestore.Limit) ([]rulestore.Limit, error)) (d rulestore.Document, err error) {
	e, err := s.all.Edit(c.Context, rulestore.Limits, c.Uint64("above"))
	if err != nil {
		return d, fmt.Errorf("nothing was published: %w", err)
	}
	all, err := limitsOf(e.Before)
	if err != nil {
		return d, err
	}
	now := time.Now()
	all = slices.DeleteFunc(all, func(l rulestore.Limit) bool { return l.Until != nil && l.Until.Before(now) })
	if e.Damaged != nil {
		fmt.Fprintf(c.App.ErrWriter, "warning: the overrides in force cannot be read: %v; in their place come those "+
			"of %s\n", e.Damaged, versionText(e.Before))
	}
	changed, err := change(slices.Clone(all))
	if err != nil && e.Damaged == nil {
		return d, err
	}
	text, err := rulestore.EncodeLimits(changed)
	if err == nil {
		d, err = rulestore.NewDocument(text, author(c), message, now)
	}
	if err != nil {
		return d, fmt.Errorf("nothing was published: %w", err)
	}
	e.InForce(c.Context, d) // it is not: but other servers may have later versions
	e.Number(&d)
	return d, e.Publish(c.Context, d)
}

// noKeyFile is in place of a key file where the nodes have none.
const noKeyFile = "none"

// keyFile is the file with the nodes' secrets, empty if none was named.
func (s *ruleStores) keyFile(c *cli.Context) string {
	return cmp.Or(c.String("key-file"), s.cfg.Gossip.KeyFile)
}

// keys reads the nodes' secrets: none without a key file.
func (s *ruleStores) keys(c *cli.Context) (node.Keys, error) {
	file := s.keyFile(c)
	if file == noKeyFile {
		file = ""
	}
	return node.ReadKeys(file)
}

// identified is a rule, and the hash of an identity under it.
type identified struct {
	rule        *rules.Rule
	key         counters.Key
	fingerprint uint64
}

// identify finds the rule among those in Redis, and hashes the identity.
func (s *ruleStores) identify(c *cli.Context, name, identity string) (id identified, err error) {
	file := s.keyFile(c)
	unknown := file == "" && (s.elsewhere || c.String("config") == "")
	if unknown || file == noKeyFile && s.elsewhere {
		return id, misuse(c.Command, "say by which --key-file the nodes hash identities, or name a node's --config: "+
			"with another key the override would have no effect; --key-file %s if the nodes have none, with a Redis "+
			"on loopback", noKeyFile)
	}
	keys, err := s.keys(c)
	if err != nil {
		return id, err
	}
	id.fingerprint = keys.Fingerprint()
	set, err := s.published(c)
	if err != nil {
		return id, err
	}
	req := rules.Request{Rule: name, Identity: identity}
	if r, _ := set.Lookup(name, ""); r != nil && len(r.OpenKeys()) > 1 {
		if req, err = descriptorFor(r, identity); err != nil {
			return id, cli.Exit(err.Error(), 1)
		}
	}
	met, err := set.Match(&req, keys.Identity, nil)
	if err != nil {
		return id, cli.Exit(err.Error(), 1)
	}
	if met[0].Rule == nil {
		return id, cli.Exit(fmt.Sprintf("the identity does not meet rule %s, but no rule", name), 1)
	}
	if want, _ := set.Lookup(name, ""); want != nil && want != met[0].Rule {
		return id, cli.Exit(fmt.Sprintf("the identity meets rule %s, not %s", met[0].Rule.Name, name), 1)
	}
	id.rule, id.key = met[0].Rule, met[0].Key
	return id, nil
}

// names returns the full name and the name of a rule in Redis; those of one that is gone are given.
func (s *ruleStores) names(c *cli.Context, given string) (full, name string) {
	if set, err := s.published(c); err == nil {
		if r, _ := set.Lookup(given, ""); r != nil {
			return r.FullName, r.Name
		}
	}
	return given, given
}

// descriptorFor returns a request that meets a rule with several open keys, whose values identity gives.
func descriptorFor(r *rules.Rule, identity string) (req rules.Request, err error) {
	values := make(map[string]string)
	for pair := range strings.SplitSeq(identity, ",") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || !slices.Contains(r.OpenKeys(), key) {
			return req, fmt.Errorf("rule %s counts by %s: write the identity as KEY=VALUE,KEY=VALUE", r.Name,
				strings.Join(r.OpenKeys(), ", "))
		}
		values[key] = value
	}
	path, open := r.Path(), r.OpenKeys()
	for i := range path {
		if len(open) == 0 || path[i].Key != open[0] || path[i].Value != "" && !strings.Contains(path[i].Value, "*") {
			continue
		}
		if open = open[1:]; values[path[i].Key] == "" {
			return req, fmt.Errorf("rule %s counts by %s as well: give its value", r.Name, path[i].Key)
		}
		path[i].Value = values[path[i].Key]
	}
	return rules.Request{Domain: r.Domain, Descriptors: [][]rules.Entry{path}}, nil
}

// windows are the names of windows in a limit.
var windows = map[string]time.Duration{
	"s": time.Second, "sec": time.Second, "second": time.Second, "m": time.Minute, "min": time.Minute,
	"minute": time.Minute, "h": time.Hour, "hour": time.Hour, "d": 24 * time.Hour, "day": 24 * time.Hour,
}

// parseLimit reads 500/min.
func parseLimit(text string) (number uint64, window time.Duration, err error) {
	count, per, ok := strings.Cut(text, "/")
	number, err = strconv.ParseUint(count, 10, 64)
	if window = windows[per]; ok && window == 0 {
		window, _ = time.ParseDuration(per)
	}
	if err != nil || window <= 0 {
		return 0, 0, fmt.Errorf("limit %.80q: want NUMBER/WINDOW, as in 500/min, 20/second or 100/10s", text)
	}
	return number, window, nil
}

func limitsSet(c *cli.Context) error {
	if c.NArg() != 3 {
		return misuse(c.Command, "give a rule, an identity and a limit, as in per_ip 192.0.2.1 500/min")
	}
	name, identity := c.Args().Get(0), c.Args().Get(1)
	number, window, err := parseLimit(c.Args().Get(2))
	if err != nil {
		return misuse(c.Command, "%v", err)
	}
	lasts := c.Duration("for")
	if lasts < 0 || lasts > 50*366*24*time.Hour || c.IsSet("for") && lasts == 0 {
		return misuse(c.Command, "--for %v: want a duration such as 24h, up to 50 years", text.Setting(lasts))
	}
	s, err := openStores(c)
	if err != nil {
		return err
	}
	defer s.close()
	id, err := s.identify(c, name, identity)
	if err != nil {
		return err
	}
	keeps, err := id.rule.CheckOverride(number, window)
	if err != nil {
		return cli.Exit(fmt.Sprintf("rule %s cannot have this override: %v", id.rule.Name, err), 1)
	}
	now := time.Now().UTC().Truncate(time.Second)
	limit := rulestore.Limit{Rule: id.rule.FullName, Key: rulestore.Hex(uint64(id.key)),
		Identity: rulestore.Hex(id.fingerprint), Max: number, Window: text.Setting(window), Set: now, Author: author(c),
		Note: c.String("note")}
	if lasts > 0 {
		ends := now.Add(lasts)
		limit.Until = &ends
	}
	all, failed := s.changeLimits(c, "set "+limitText(id.rule.Name, &limit),
		func(all []rulestore.Limit) ([]rulestore.Limit, error) {
			return append(without(all, limit.Rule, limit.Key), limit), nil
		})
	if all == nil {
		return failed
	}
	if c.Bool("json") {
		err = printJSON(c, map[string]any{"limit": limit, "counts": map[bool]string{true: "kept", false: "anew"}[keeps],
			"redis": all})
	} else {
		how := map[bool]string{true: "its counts are kept", false: "it is counted anew, as the window is another, or " +
			"the rule is a bucket"}[keeps]
		fmt.Fprintf(c.App.Writer, "%s; %s\n", limitText(id.rule.Name, &limit), how)
		if keeps && number/8 > id.rule.Limit.Max() {
			fmt.Fprintln(c.App.Writer, "warning: it is more than 8 times the limit of the rule: nodes that do not "+
				"have it yet may take the counts of those that have for implausible, for a minute; next time raise "+
				"it in steps")
		}
		err = printReached(c, all)
	}
	return cmp.Or(err, failed)
}

// without returns the overrides without that of a key.
func without(all []rulestore.Limit, rule, key string) []rulestore.Limit {
	return slices.DeleteFunc(all, func(l rulestore.Limit) bool { return l.Rule == rule && l.Key == key })
}

// limitText describes an override of a rule, in at most MaxMessage bytes, without its note.
func limitText(rule string, l *rulestore.Limit) string {
	words := fmt.Sprintf("%.200s for %s: %d in %s", rule, l.Key, l.Max, windowText(l))
	if l.Until != nil {
		words += " until " + l.Until.Format(time.RFC3339)
	}
	return words
}

// windowText is the window of an override.
func windowText(l *rulestore.Limit) string {
	if d, err := time.ParseDuration(l.Window); err == nil {
		return text.Duration(d)
	}
	return l.Window
}

func limitsUnset(c *cli.Context) error {
	name, key := c.Args().First(), c.String("key")
	if c.NArg() != 2 && key == "" || c.NArg() != 1 && key != "" {
		return misuse(c.Command, "give a rule, and an identity or its --key")
	}
	s, err := openStores(c)
	if err != nil {
		return err
	}
	defer s.close()
	rule, shown := name, name
	if key != "" {
		rule, shown = s.names(c, name)
	} else {
		id, err := s.identify(c, name, c.Args().Get(1))
		if err != nil {
			return err
		}
		rule, shown, key = id.rule.FullName, id.rule.Name, rulestore.Hex(uint64(id.key))
	}
	all, failed := s.changeLimits(c, fmt.Sprintf("unset %.200s for %.16s", shown, key),
		func(all []rulestore.Limit) ([]rulestore.Limit, error) {
			rest := without(slices.Clone(all), rule, key)
			if len(rest) == len(all) {
				return rest, cli.Exit(fmt.Sprintf("rule %s has no override for %s; edgelimit limits list shows all",
					shown, key), 1)
			}
			return rest, nil
		})
	if all == nil {
		return failed
	}
	if c.Bool("json") {
		err = printJSON(c, map[string]any{"rule": rule, "key": key, "redis": all})
	} else {
		fmt.Fprintf(c.App.Writer, "removed: %s for %s\n", shown, key)
		err = printReached(c, all)
	}
	return cmp.Or(err, failed)
}

func limitsList(c *cli.Context) error {
	if c.NArg() > 1 {
		return misuse(c.Command, "give one rule, or none")
	}
	s, err := openStores(c)
	if err != nil {
		return err
	}
	defer s.close()
	all, version, err := s.limits(c.Context)
	if err != nil {
		return err
	}
	if name := c.Args().First(); name != "" {
		name, _ = s.names(c, name)
		all = slices.DeleteFunc(all, func(l rulestore.Limit) bool { return l.Rule != name })
	}
	if c.Bool("json") {
		return printJSON(c, map[string]any{"version": version, "limits": append([]rulestore.Limit{}, all...)})
	}
	if len(all) == 0 {
		_, err = fmt.Fprintln(c.App.Writer, "no identity has a limit of its own")
		return err
	}
	w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RULE\tKEY\tLIMIT\tUNTIL\tBY\tNOTE")
	set, err := s.published(c)
	if err != nil {
		set = rules.NewSet() // full names, then
	}
	ofAnotherKey, err := s.otherKeys(c)
	if err != nil {
		return err
	}
	for _, l := range all {
		until := "for good"
		switch {
		case ofAnotherKey(&l):
			until = "no effect: set with another key"
		case l.Until != nil && l.Until.Before(time.Now()):
			until = "ended"
		case l.Until != nil:
			until = l.Until.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(w, "%s\t%s\t%d in %s\t%s\t%s\t%s\n", text.Clean(set.NameOf(l.Rule)), l.Key, l.Max, windowText(&l),
			until, text.Clean(l.Author), text.Clean(l.Note))
	}
	return w.Flush()
}

// otherKeys returns what tells whether a limit was set with another key than the nodes'. Without a key file, none was.
func (s *ruleStores) otherKeys(c *cli.Context) (func(*rulestore.Limit) bool, error) {
	if s.keyFile(c) == "" {
		return func(*rulestore.Limit) bool { return false }, nil
	}
	keys, err := s.keys(c)
	if err != nil {
		return nil, err
	}
	return func(l *rulestore.Limit) bool {
		_, identity, err := l.Override()
		return err == nil && identity != keys.Fingerprint()
	}, nil
}
