package node

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/admin"
	"github.com/edgelimit/edgelimit/node/bans"
	"github.com/edgelimit/edgelimit/node/bans/banname"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/text"
)

// Ban is one ban in force.
type Ban = bans.Ban

// BanRequest says whom to ban, or whose bans to remove.
type BanRequest = admin.BanRequest

// Operator is who asks for it.
type Operator = admin.Operator

// AddedBans are the bans that a request began.
type AddedBans = admin.AddedBans

// RemovedBans is what a removal of bans did.
type RemovedBans = admin.RemovedBans

// ErrNoBan means that no rule which a request matches can be banned by, or has bans.
var ErrNoBan = admin.ErrNoBan

var (
	errNoRoom = errors.New("there is no room to remember it: the memory for counters is full of keys that are " +
		"denied, or there are too many different reasons and lengths of bans")
	errTooManyBans = errors.New("there are too many bans by hand: remove some, or ban wider prefixes")
)

// noRoom returns the error of a request that took effect under some rules, but not under others for want of room; nil
// if there are no others.
func noRoom(done, not []string) error {
	switch {
	case len(not) == 0:
		return nil
	case len(done) == 0:
		return errNoRoom
	}
	return fmt.Errorf("it is done for %s, but not for %s: %w", strings.Join(done, ", "), strings.Join(not, ", "),
		errNoRoom)
}

// ListBans returns the bans in force of a rule, or with an empty name of all, sorted by rule and by end. The error is
// rules.ErrUnknownRule or rules.ErrInvalidRequest.
func (n *Node) ListBans(rule string) (iter.Seq[Ban], error) {
	n.bans.Update()
	if rule == "" {
		return n.bans.List(func(string) bool { return true }), nil
	}
	r, err := n.policy.Load().set.Find(rule, "")
	if err != nil {
		return nil, err
	}
	return n.bans.List(func(fullName string) bool { return fullName == r.FullName }), nil
}

// banTarget is whom a request to ban, or to remove bans, is about under one rule.
type banTarget struct {
	rule   *rules.Rule
	limit  *counters.Limit
	key    counters.Key // what the rule counts by
	hasKey bool
	listed rules.Listing
	addr   netip.Addr   // that is counted, if any
	prefix netip.Prefix // of the address that is counted, or the one that was given; else invalid
	given  bool         // as a prefix
}

// bannedTargets returns whom a request is about, one for each limited rule that it matches.
// Who is listed is found, if lift, however the rule counts now.
func (n *Node) bannedTargets(req *BanRequest, lift bool) ([]banTarget, error) {
	p := n.policy.Load()
	if req.Rule != "" && len(req.Descriptors) == 0 {
		r, err := p.set.Find(req.Rule, req.Domain)
		if err != nil {
			return nil, err
		}
		if t, ok := n.listedTarget(r, req); lift && ok {
			return []banTarget{t}, nil
		}
		if t, err := banTargetOf(r, req); t.rule != nil || err != nil {
			return []banTarget{t}, err
		}
	}
	if req.Key != "" {
		return nil, fmt.Errorf("%w: a key is of one rule: name it", rules.ErrInvalidRequest)
	}
	asked := Request{Domain: req.Domain, Descriptors: req.Descriptors, Rule: req.Rule, Identity: req.Identity,
		Peek: true}
	n.setDomain(&asked)
	matches, err := p.set.Match(&asked, n.secret, nil)
	if err != nil {
		return nil, err
	}
	var all []banTarget
	for i := range matches {
		m := &matches[i]
		if m.Rule == nil || m.Rule.Limit == nil {
			continue
		}
		t := banTarget{rule: m.Rule, limit: m.Rule.Limit, key: m.Key, hasKey: true, listed: m.Listed}
		if m.Rule.AddressBits() > 0 && i < max(1, len(asked.Descriptors)) {
			if addr := asked.AddressOf(i); addr.IsValid() {
				t.addr, t.prefix = addr, m.Rule.ClientPrefix(addr)
			}
		}
		all = append(all, t)
	}
	if len(all) == 0 {
		return nil, ErrNoBan
	}
	return all, nil
}

// listedTarget returns whom a request by a key or a prefix is about; ok is false if no ban of it is known.
func (n *Node) listedTarget(r *rules.Rule, req *BanRequest) (t banTarget, ok bool) {
	t = banTarget{rule: r, limit: r.Limit, given: true}
	if key, err := strconv.ParseUint(req.Key, 16, 64); err == nil && len(req.Key) == 16 && req.Identity == "" {
		t.key, t.hasKey, t.given = counters.Key(key), true, false
	} else if _, err := netip.ParsePrefix(req.Identity); err == nil && req.Key == "" {
		t.prefix, _ = rules.ParsePrefix(req.Identity)
	}
	return t, len(n.bans.Find(r.FullName, t.found())) > 0
}

// found is the target as the registry looks for it.
func (t *banTarget) found() bans.Target {
	return bans.Target{Key: t.key, HasKey: t.hasKey, Addr: t.addr, Prefix: t.prefix}
}

// banTargetOf returns whom a request by a key or a prefix is about; none for another request.
func banTargetOf(r *rules.Rule, req *BanRequest) (t banTarget, err error) {
	invalid := func(format string, args ...any) (banTarget, error) {
		return t, fmt.Errorf("%w: %s", rules.ErrInvalidRequest, fmt.Sprintf(format, args...))
	}
	_, notPrefix := netip.ParsePrefix(req.Identity)
	switch {
	case req.Key == "" && (notPrefix != nil || r.AddressBits() == 0):
		return t, nil
	case r.Limit == nil:
		return invalid("rule %s has no limit, and bans nobody", r.Name)
	case req.Key != "":
		key, err := strconv.ParseUint(req.Key, 16, 64)
		if err != nil || len(req.Key) != 16 || req.Identity != "" {
			return invalid("a key is 16 hexadecimal digits, as in a list of bans, in place of an identity")
		}
		return banTarget{rule: r, limit: r.Limit, key: counters.Key(key), hasKey: true}, nil
	}
	prefix, err := rules.ParsePrefix(req.Identity)
	if err != nil {
		return invalid("%v", err)
	}
	most := min(r.AddressBits(), banname.MaxAddressBits)
	if prefix.Addr().Is6() && prefix.Bits() > most {
		return invalid("the rule counts IPv6 by /%d: ban %v", most, netip.PrefixFrom(prefix.Addr(), most).Masked())
	}
	if _, _, ok := banname.PrefixKey(prefix); !ok {
		return invalid("%v holds nobody's addresses", prefix)
	}
	return banTarget{rule: r, limit: r.Limit, prefix: prefix, given: true}, nil
}

// banName returns the name of a manual ban of the target, and the key there. A prefix is banned as such if it was given
// as one, and an address if its rule exports addresses; anybody else by the keyed hash.
func (t *banTarget) banName() (name banname.Name, key counters.Key) {
	name = banname.Name{Rule: t.limit.Meter().Rule, Keys: banname.ManualKeys}
	if t.given || t.rule.ExportAddress {
		if key, keys, ok := banname.PrefixKey(t.prefix); ok {
			name.Keys, name.Bits = keys, uint8(t.prefix.Bits())
			return name, key
		}
	}
	return name, t.key
}

// The widest prefixes that are banned without force, by family: a typing error must not ban everybody.
const (
	minIPv4Bits = 8
	minIPv6Bits = 24
)

// AddBan begins bans of whom the request names in every limited rule that it matches: here at once, on the other nodes
// of the rule's scope within about the gossip interval, and on partitioned nodes when they are back. They last as
// BanRequest.For says, whatever the rule's own bans do, and end by themselves. The error is rules.ErrUnknownRule,
// rules.ErrInvalidRequest or ErrNoBan, or says that there is no room to remember a ban, and by which rules one began
// nevertheless: those in the result.
func (n *Node) AddBan(req BanRequest, by Operator) (done AddedBans, err error) {
	done.Interval, done.Warnings = n.cfg.Gossip.Interval.Milliseconds(), []string{}
	lasts := time.Duration(req.For) * time.Millisecond
	if req.For <= 0 || req.For > counters.MaxWindow.Milliseconds() {
		return done, fmt.Errorf("%w: a ban lasts 1 ms to %v, not %d ms", rules.ErrInvalidRequest,
			text.Duration(counters.MaxWindow),
			req.For)
	}
	targets, err := n.bannedTargets(&req, false)
	if err != nil {
		return done, err
	}
	var all []*counters.Bans
	var keys []counters.Key
	for i := range targets { // all of them are checked before any begins
		t := &targets[i]
		if err := t.checkBan(req.Force); err != nil {
			return done, err
		}
		name, key := t.banName()
		name.By, name.Reason = shortened(cmp.Or(by.Name, n.cfg.NodeID)), req.Reason
		b, err := name.Bans(lasts)
		if err != nil {
			return done, fmt.Errorf("%w: %w", rules.ErrInvalidRequest, err)
		}
		all, keys = append(all, b), append(keys, key)
		done.Warnings = append(done.Warnings, n.banWarnings(t, by)...)
	}
	if !n.bans.HasRoom(len(all)) {
		return done, errTooManyBans
	}
	now := n.clock.Now()
	var begun, not []string // names of rules
	for i, b := range all {
		ends, kept := n.table.Ban(b, keys[i], now)
		if !kept {
			not = append(not, targets[i].rule.Name)
			continue
		}
		begun = append(begun, targets[i].rule.Name)
		record := n.bans.Record(b, keys[i], ends)
		n.log.Info("a ban was begun", "rule", targets[i].rule.Name, "address", record.Address,
			"identity_hash", record.Key, "for", lasts, "reason", req.Reason, "by", by.String())
		done.Bans = append(done.Bans, record)
	}
	n.bans.Update()
	return done, noRoom(begun, not)
}

// checkBan returns why the target should not be banned.
func (t *banTarget) checkBan(force bool) error {
	least := minIPv6Bits
	if t.prefix.Addr().Is4() {
		least = minIPv4Bits
	}
	switch {
	case t.listed != rules.Unlisted:
		return fmt.Errorf("%w: it is on the lists of rule %s, which go over bans", rules.ErrInvalidRequest,
			t.rule.Name)
	case t.given && t.prefix.Bits() < least && !force:
		return fmt.Errorf("%w: %v is wider than /%d: force it if that is meant", rules.ErrInvalidRequest, t.prefix,
			least)
	}
	return nil
}

// shortPrefix is a prefix as it is written by hand: an address without its length.
func shortPrefix(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// banWarnings returns what may not have been meant by a ban.
func (n *Node) banWarnings(t *banTarget, by Operator) (all []string) {
	banned := shortPrefix(t.prefix)
	if by.Addr.IsValid() && t.prefix.IsValid() && t.prefix.Contains(by.Addr) {
		all = append(all, fmt.Sprintf("this was asked from %v, which the ban of %s denies", by.Addr, banned))
	}
	if protected, err := n.protection(); err == nil && t.rule.ExportAddress {
		if held, why := protected.held(t.prefix); why != "" {
			relation := "holds"
			if held.Bits() <= t.prefix.Bits() {
				relation = "is in"
			}
			all = append(all, fmt.Sprintf("%s %s %s (%s): the ban denies requests, and is not exported", banned,
				relation, shortPrefix(held), why))
		}
	}
	if t.rule.Lists.Allows(t.prefix) {
		all = append(all, fmt.Sprintf("%v holds addresses on the allow list of rule %s: they are not denied, and the "+
			"prefix is not exported", t.prefix, t.rule.Name))
	}
	if t.rule.Scope == counters.Alone {
		all = append(all, fmt.Sprintf("rule %s has scope node: the ban holds on this node alone", t.rule.Name))
	}
	if t.rule.Mode == counters.Shadow || n.shadow.Load() {
		all = append(all, fmt.Sprintf("rule %s is in shadow mode: the ban denies nothing", t.rule.Name))
	}
	return all
}

// shortened cuts a name to what a ban has room for.
func shortened(name string) string {
	if len(name) > banname.MaxBy {
		name = name[:banname.MaxBy]
	}
	for len(name) > 0 && !utf8.ValidString(name) {
		name = name[:len(name)-1]
	}
	return name
}

// RemoveBans ends the bans of whom the request names, in every rule that it matches: those that the rules began and
// those that operators did, here at once and elsewhere as AddBan does. It ends also a rule's ban that began on another
// node before now and has not arrived yet, but of manual bans only those that this node knows. A ban of a prefix ends
// only by that prefix. Counts stay: an identity over its limit is denied until its window has passed. The error is
// rules.ErrUnknownRule, rules.ErrInvalidRequest or ErrNoBan, or says that there is no room to remember a lift, and for
// which rules it is done nevertheless: those in the result.
func (n *Node) RemoveBans(req BanRequest, by Operator) (done RemovedBans, err error) {
	done.Interval = n.cfg.Gossip.Interval
	n.bans.Update()
	targets, err := n.bannedTargets(&req, true)
	if err != nil {
		return done, err
	}
	now := n.clock.Now()
	var lifted, not []string // names of rules
	for i := range targets {
		t := &targets[i]
		left, bannable, kept := n.liftAll(t, now)
		var around []netip.Prefix
		if m := n.bans.Manual(); m != nil && t.limit != nil {
			around = m.Around(t.limit.Meter().Rule, t.prefix, now)
		}
		switch {
		case !kept:
			not = append(not, t.rule.Name)
			continue
		case !bannable && len(around) == 0:
			continue
		}
		lifted = append(lifted, t.rule.Name)
		text := "a ban was lifted"
		if left <= 0 {
			text = "no ban to lift is known here; other nodes lift theirs"
		}
		identity := "" // the log has the keyed hash only
		if t.hasKey {
			identity = fmt.Sprintf("%016x", uint64(t.key))
		}
		n.log.Info(text, "rule", t.rule.Name, "identity_hash", identity, "banned", left > 0,
			"left", left.Round(time.Millisecond), "by", by.String())
		removed := admin.RemovedBan{Rule: t.rule.Name, Scope: t.rule.Scope.String(), Left: left}
		for _, p := range around {
			removed.Around = append(removed.Around, p.String())
		}
		if t.hasKey && t.limit != nil && t.listed == rules.Unlisted {
			removed.RetryAfter = n.stillDenied(t, now)
		}
		done.Rules = append(done.Rules, removed)
	}
	n.bans.Update()
	if len(lifted)+len(not) == 0 {
		return done, ErrNoBan
	}
	return done, noRoom(lifted, not)
}

// liftAll lifts all bans of a target. bannable is false where the rule begins none, and has no manual one; kept, where
// there was no room for a lift.
func (n *Node) liftAll(t *banTarget, now int64) (left time.Duration, bannable, kept bool) {
	kept = true
	note := func(was time.Duration, ok bool) {
		left, bannable, kept = max(left, was), true, kept && ok
	}
	for _, found := range n.bans.Find(t.rule.FullName, t.found()) {
		note(n.table.LiftBan(found.Bans, found.Key, now))
	}
	if t.limit == nil {
		return left, bannable, kept
	}
	lift := func(m *counters.Meter, key counters.Key) { // also of a ban that has not arrived yet
		b, _ := counters.NewBans(*m) // of a limit's meter: no error
		note(n.table.LiftBan(b, key, now))
	}
	if m := t.limit.BanMeter(); m != nil && t.hasKey {
		lift(m, t.key)
	}
	key, _, ok := banname.PrefixKey(t.prefix)
	single := t.prefix.IsSingleIP() || t.prefix.Addr().Is6() && t.prefix.Bits() == t.rule.AddressBits()
	if m := t.limit.AddressBanMeter(); m != nil && ok && single {
		lift(m, key)
	}
	return left, bannable, kept
}

// stillDenied returns how long the limit itself denies a target whose bans were lifted.
func (n *Node) stillDenied(t *banTarget, now int64) time.Duration {
	address := counters.Key(0)
	if t.prefix.IsValid() {
		address, _ = banname.AddressKey(t.prefix.Addr(), t.prefix.Bits())
	}
	peek := []counters.Charge{{Limit: t.rule.LimitOf(t.key, now), Key: t.key, Address: address}}
	d := n.table.TakeAll(peek, now, nil)[0]
	if d.Allowed || d.RetryAfter == counters.Never {
		return 0
	}
	return d.RetryAfter
}

// banManually has the layers deny whom operators have banned.
func (n *Node) banManually(manual *bans.Manual, req *Request, matches []rules.Match) {
	now := n.clock.Coarse()
	for i := range matches {
		m := &matches[i]
		if !m.Bannable() {
			continue
		}
		rule := m.Rule.Limit.Meter().Rule
		any, prefixes := manual.Of(rule)
		if !any {
			continue
		}
		var addr netip.Addr
		if prefixes && m.Rule.AddressBits() > 0 && (req.Rule != "" || i < len(req.Descriptors)) {
			addr = req.AddressOf(i)
		}
		if ends := manual.Ends(rule, m.Key, addr); ends > now {
			m.Ban(time.Duration(ends - now))
		}
	}
}
