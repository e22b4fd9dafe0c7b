package gossip

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"
)

// memberlist never joins again what it was split from for longer than its dead-node time-out. So every pool keeps
// trying the seeds that are not members, and in another loop, which may be slow, the members that failed.
const (
	rejoinEvery   = 10 * time.Second
	rejoinAtStart = 300 * time.Millisecond
	// How long it takes at least until a member that failed is tried again, and for each other member; how long at most
	// for those that are not the last few of their region. Each doubles its own time, with jitter.
	retryLeast     = 500 * time.Millisecond
	retryPerMember = 20 * time.Millisecond
	retryMost      = time.Minute
	lastFailed     = 3 // members of each region that failed last
	// How long a failed member is tried. The last ones of each region are as long as Serf does: after a partition of
	// hours nobody else may know the way.
	failedMemory  = 30 * time.Minute
	lastMemory    = 72 * time.Hour
	maxFailed     = 1024 // members that are tried; beyond that those that failed first are not
	failedDials   = 64   // that are under way: one that is gone takes dialTimeout
	lookupTimeout = 2 * time.Second
	seedDials     = 32 // seeds that are tried at a time: a node that starts waits for them
)

// rejoin joins the seeds that are not members.
func (p *pool) rejoin(ctx context.Context) {
	if p.name == wan {
		select {
		case <-ctx.Done():
			return
		case <-p.cluster.elected:
		}
	}
	wait := rejoinAtStart
	for next := time.Duration(0); p.pause(ctx, next); wait = min(2*wait, rejoinEvery) {
		switch {
		case !p.joins.Load():
			wait, next = rejoinAtStart, rejoinEvery
			continue
		case p.seedGone.Swap(false): // and may be back soon
			wait = p.leastRetry()
		default:
			p.noteUnanswered(p.joinSeeds(ctx))
		}
		next = jittered(wait)
	}
}

// leastRetry is how long it takes at least until a node is tried again.
func (p *pool) leastRetry() time.Duration {
	others, _ := p.others()
	return min(max(retryLeast, time.Duration(len(others))*retryPerMember), rejoinEvery)
}

// pause waits, or until the pool wakes, and reports whether the context goes on.
func (p *pool) pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
	case <-p.wake:
	case <-time.After(d):
	}
	return ctx.Err() == nil
}

// sleep waits, and reports whether the context goes on.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	return ctx.Err() == nil
}

// jittered returns the duration, or up to a fifth less or more.
func jittered(d time.Duration) time.Duration { return d*8/10 + rand.N(d*4/10) }

// isAlive reports whether a member, or this node itself, is at the address.
func (p *pool) isAlive(addr string) bool {
	if p.name == wan && p.cluster.isListedAt(addr) {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.members {
		if m.addr == addr && p.isMember(m.Member) {
			return true
		}
	}
	return p.addr == addr
}

// joinSeeds tries the seeds that are not alive, all at once: one that is gone takes longer than a node that starts may
// wait. It returns the seeds that did not answer by address, or by their own name if they have no address.
func (p *pool) joinSeeds(ctx context.Context) map[string]string {
	var mu sync.Mutex
	unanswered := make(map[string]string)
	var tries sync.WaitGroup
	dials := make(chan struct{}, seedDials)
	for _, seed := range p.cfg.Seeds {
		tries.Go(func() {
			for _, addr := range p.joinSeed(ctx, seed, dials) {
				mu.Lock()
				unanswered[addr] = seed
				mu.Unlock()
			}
		})
	}
	tries.Wait()
	return unanswered
}

// joinSeed tries all addresses of a seed, and returns those that did not answer. dials bounds the attempts under way.
func (p *pool) joinSeed(ctx context.Context, seed string, dials chan struct{}) (unanswered []string) {
	log := p.cluster.log
	addrs, err := resolveSeed(ctx, seed)
	if err != nil {
		log.Warn("gossip: seed does not resolve, will try again", "pool", p.name, "seed", seed, "error", err)
		return []string{seed}
	}
	p.noteSeed(addrs)
	var mu sync.Mutex
	var tries sync.WaitGroup
	for _, addr := range addrs {
		dials <- struct{}{}
		tries.Go(func() {
			defer func() { <-dials }()
			if p.isAlive(addr) || ctx.Err() != nil {
				return
			}
			err := p.join(ctx, addr)
			if err != nil && ctx.Err() == nil {
				err = cmp.Or(errors.Unwrap(err), err) // memberlist has a list of one, which prints on several lines
				log.Warn("gossip: seed does not answer, will try again", "pool", p.name, "seed", seed, "addr", addr,
					"error", err)
				mu.Lock()
				defer mu.Unlock()
				unanswered = append(unanswered, addr)
			}
		})
	}
	tries.Wait()
	return unanswered
}

var errNoAnswer = errors.New("a node that is no gateway does not answer")

// join joins a seed. In the WAN pool it may be no gateway: then it passes on which nodes are.
func (p *pool) join(ctx context.Context, seed string) error {
	if _, err := p.ml().Join([]string{seed}); err != nil {
		return err
	}
	if p.name == lan || p.isAlive(seed) {
		return nil
	}
	if !p.cluster.askSeed(ctx, p, seed) {
		return errNoAnswer
	}
	return nil
}

// rejoinFailed joins members that failed, each in a goroutine of its own: whoever is gone takes dialTimeout, and delays
// nobody. After a partition it is enough that one node of each side finds one of the other, so that nodes of large
// clusters try less often.
func (p *pool) rejoinFailed(ctx context.Context) {
	var dials sync.WaitGroup
	defer dials.Wait()
	underWay := make(chan struct{}, failedDials)
	for p.awaitFailed(ctx) && sleep(ctx, jittered(retryLeast)) {
		for _, f := range p.dueMembers(time.Now()) {
			select {
			case underWay <- struct{}{}:
			default: // the others are due still
				continue
			}
			if !p.noteDialed(f.boot) {
				<-underWay
				continue
			}
			dials.Go(func() {
				defer func() { <-underWay }()
				p.dialFailed(f)
			})
		}
	}
}

// awaitFailed waits until there are failed members, and reports whether the context goes on.
func (p *pool) awaitFailed(ctx context.Context) bool {
	p.mu.Lock()
	some := len(p.failed) > 0
	p.mu.Unlock()
	if !some {
		select {
		case <-ctx.Done():
		case <-p.toRejoin:
		}
	}
	return ctx.Err() == nil
}

// dialFailed tries a failed member. One that answers and does not become a member is no gateway.
func (p *pool) dialFailed(f failedMember) {
	if _, err := p.ml().Join([]string{f.addr}); err != nil {
		p.cluster.log.Debug("gossip: failed member does not answer", "pool", p.name, "peer", f.NodeID, "addr", f.addr)
		return
	}
	if p.name == wan {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.failed, f.boot)
	}
}

// dueMembers returns the members that failed and are to be tried now, the one first that was not tried for the longest
// time. The last few that failed are tried again while an attempt still waits, so that it does not delay those after a
// heal.
func (p *pool) dueMembers(now time.Time) []failedMember {
	if !p.joins.Load() {
		return nil
	}
	least := p.leastRetry()
	failed := p.failedMembers()
	last := lastOf(failed)
	return slices.DeleteFunc(failed, func(f failedMember) bool {
		wait := least
		if !last[f.boot] || now.Sub(f.since) > forgetSilent {
			wait = max(least, jittered(min(retryLeast<<min(f.tries, 10), retryMost)))
		}
		return now.Sub(f.tried) < wait
	})
}

// lastOf returns the members that failed last of each region.
func lastOf(failed []failedMember) map[string]bool {
	bySince := slices.SortedFunc(slices.Values(failed), func(a, b failedMember) int {
		return cmp.Or(b.since.Compare(a.since), cmp.Compare(a.boot, b.boot))
	})
	last, count := make(map[string]bool), make(map[string]int)
	for _, f := range bySince {
		if count[f.Region]++; count[f.Region] <= lastFailed {
			last[f.boot] = true
		}
	}
	return last
}

// warnOfStrays logs the nodes of this region that are in the WAN pool but not in the LAN pool: no counts reach them.
func (p *pool) warnOfStrays(ctx context.Context) {
	for p.name == lan && sleep(ctx, jittered(rejoinEvery)) {
		p.warnOfStraysNow()
	}
}

func (p *pool) warnOfStraysNow() {
	for _, id := range p.strays() {
		p.cluster.log.Warn("gossip: a node of this region is on the WAN but not on the LAN, so no counts reach it: "+
			"join it on the LAN (--join HOST)", "peer", id)
	}
}

// strays returns the ids of nodes of this region that are in the WAN pool and not in this one, the LAN's.
func (p *pool) strays() (ids []string) {
	near := make(map[string]bool)
	members, _ := p.others()
	for _, m := range members {
		near[m.NodeID] = true
	}
	for _, pool := range p.cluster.pools {
		members, _ := pool.others()
		for _, m := range members {
			if m.Region == p.cluster.self.Region && !near[m.NodeID] {
				ids = append(ids, m.NodeID)
			}
		}
	}
	return ids
}

// failedMembers returns the members that failed, the one first that was not tried for the longest time.
func (p *pool) failedMembers() []failedMember {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := lastOf(slices.Collect(maps.Values(p.failed)))
	maps.DeleteFunc(p.failed, func(boot string, f failedMember) bool {
		age := time.Since(f.since)
		return age > lastMemory || age > failedMemory && !last[boot] || p.cluster.left(f.Origin()) ||
			p.cluster.replaced(f.Member)
	})
	return slices.SortedFunc(maps.Values(p.failed), func(a, b failedMember) int {
		return cmp.Or(a.tried.Compare(b.tried), a.since.Compare(b.since), cmp.Compare(a.boot, b.boot))
	})
}

// noteDialed notes that a failed member is being tried, and reports whether it is still one.
func (p *pool) noteDialed(boot string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	f, ok := p.failed[boot]
	if ok {
		f.tried, f.tries = time.Now(), f.tries+1
		p.failed[boot] = f
	}
	return ok
}

// noteFailed adds a member that failed. Of too many, the one that failed first is not tried any more. The lock is held.
func (p *pool) noteFailed(f failedMember) {
	if len(p.failed) >= maxFailed {
		delete(p.failed, slices.MinFunc(slices.Collect(maps.Values(p.failed)),
			func(a, b failedMember) int { return a.since.Compare(b.since) }).boot)
	}
	p.failed[f.boot] = f
	select {
	case p.toRejoin <- struct{}{}:
	default:
	}
}

// Members that this node knows, and that send it nothing, may not know this node: the news of its arrival was lost, or
// they have given it up. Contacting them takes seconds; memberlist would find it when it next compares lists.
const (
	greetEvery = 2 * time.Second
	maxGreet   = 3 // in a row: one that is dead, and not noticed yet, takes dialTimeout
)

func (p *pool) greet(ctx context.Context) {
	for sleep(ctx, jittered(greetEvery)) {
		for i, addr := range p.cluster.silent(p) {
			if i == maxGreet || ctx.Err() != nil {
				break
			}
			if _, err := p.ml().Join([]string{addr}); err != nil {
				p.cluster.log.Debug("gossip: silent member does not answer", "pool", p.name, "addr", addr, "error", err)
			}
		}
		for _, r := range p.cluster.doubtful(p) {
			// noteDial gets the error.
			_ = p.ml().SendReliable(&r.node, encodeDetour(p.cluster.self.Origin(), false, nil))
		}
	}
}

// resolveSeed returns the addresses behind host:port.
func resolveSeed(ctx context.Context, seed string) ([]string, error) {
	host, port, err := net.SplitHostPort(seed)
	if err != nil {
		return nil, err
	}
	if net.ParseIP(host) != nil {
		return []string{seed}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	hosts, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return nil, err
	}
	for i, h := range hosts {
		hosts[i] = net.JoinHostPort(h, port)
	}
	return hosts, nil
}
